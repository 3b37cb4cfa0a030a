//! The results of factorizations.

use crate::array::AnyArray;

/// Singular values or eigenvalues and, if requested, the matrices of `N` kinds of vectors.
pub(in crate::ops) type SpectralValues<const N: usize> = (AnyArray, Option<[AnyArray; N]>);

/// The status of a factorization that found no memory for its workspace. 0 is the status of a
/// complete factorization; other statuses are LAPACK's `info`.
pub(in crate::ops) const OUT_OF_MEMORY: i32 = i32::MIN;
