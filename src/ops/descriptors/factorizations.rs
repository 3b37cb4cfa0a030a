//! The results of factorizations.

use crate::array::AnyArray;

/// Singular values or eigenvalues and, if requested, their vectors. `N` is 2 for left and right
/// singular vectors, and 1 for eigenvectors.
pub(in crate::ops) type SpectralValues<const N: usize> = (AnyArray, Option<[AnyArray; N]>);

/// The status of a factorization that could not allocate its workspace. The status 0 means a
/// complete factorization. Other statuses are LAPACK's `info`.
pub(in crate::ops) const OUT_OF_MEMORY: i32 = i32::MIN;
