//! The results of factorizations of matrices.

use crate::array::{Array, Float};

/// The bound of the generic implementations. Programs do not name the bound, so only the library
/// compiles the implementations.
pub(in crate::ops) trait Factorized: Float + cachescope_linalg::Real {}

impl Factorized for f32 {}
impl Factorized for f64 {}

/// The factors Q (orthonormal columns) and R (upper triangular) of a QR decomposition.
pub(in crate::ops) type Factors<T> = (Array<T>, Array<T>);

/// Singular values and, if requested, the matrices of left and right singular vectors.
pub(in crate::ops) type Singular<T> = (Array<T>, Option<[Array<T>; 2]>);

/// Eigenvalues and, if requested, the matrices of eigenvectors.
pub(in crate::ops) type Eigen<T> = (Array<T>, Option<Array<T>>);

/// The status of a factorization that found no memory for its workspace. 0 is the status of a
/// complete factorization; other statuses are LAPACK's `info`.
pub(in crate::ops) const OUT_OF_MEMORY: i32 = i32::MIN;
