//! Factorizations of dense matrices for `cachescope`: the crate [faer], compiled once for `f32` and
//! `f64`.
//!
//! faer is generic, and compiling it for a type takes long. Therefore this crate compiles it once.
//! The functions of [`Real`] take slices, and are not generic. No signature names a type of faer.
//! If `cachescope` or a program that uses it is edited, nothing of faer is compiled again.
//!
//! A matrix is a slice without gaps. Each function documents whether the slice has the rows or the
//! columns of the matrix. The functions allocate their workspace from the system's allocator. If
//! the allocation fails, they return [`Failure::OutOfMemory`]. `threads` is the number of threads
//! of rayon's current pool that a function may use.
//!
//! # Examples
//!
//! ```
//! use cachescope_linalg::Real;
//!
//! let mut columns = [2.0, 1.0, 1.0, 3.0];
//! let mut right = [3.0, 5.0];
//! f64::solve(&mut columns, &mut right, 2, 1)?;
//! assert!((right[0] - 0.8).abs() < 1e-15 && (right[1] - 1.4).abs() < 1e-15);
//! # Ok::<(), cachescope_linalg::Failure>(())
//! ```
//!
//! [faer]: https://docs.rs/faer

#![forbid(unsafe_code)]

mod cholesky;
mod eigen;
mod lu;
mod product;
mod qr;
mod svd;
mod workspace;

use std::fmt;

/// The items that the tests of this crate use. They are not for users.
#[doc(hidden)]
pub mod internal {
    pub use crate::product::product;
}

/// The reason why a factorization does not exist or cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The pivot with this index is exactly zero.
    Singular(usize),
    /// The leading minor of this order is not positive.
    NotPositiveDefinite(usize),
    /// The iteration did not converge, or some elements of the matrix are not finite.
    NotConverged,
    /// The allocation of the workspace failed.
    OutOfMemory,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Singular(pivot) => write!(f, "pivot {pivot} is exactly zero"),
            Self::NotPositiveDefinite(order) => {
                write!(f, "the leading minor of order {order} is not positive")
            }
            Self::NotConverged => write!(f, "the iteration did not converge"),
            Self::OutOfMemory => write!(f, "there is no memory for the workspace"),
        }
    }
}

impl std::error::Error for Failure {}

/// The result of a factorization, or the reason of its failure.
pub type Outcome<T = ()> = Result<T, Failure>;

/// The element types of matrices: `f32` and `f64`.
pub trait Real: Copy + Send + Sync + sealed::Sealed + 'static {
    /// Solves `a x = right` by the LU factorization with partial pivoting, and overwrites `right`
    /// with `x`. `columns` are the columns of the square matrix `a` of `n` rows, and are
    /// overwritten. `right` has the rows of the right-hand sides.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Singular`] or [`Failure::OutOfMemory`].
    fn solve(columns: &mut [Self], right: &mut [Self], n: usize, threads: usize) -> Outcome;

    /// Writes the rows of the inverse of a square matrix of `n` rows. `columns` are the columns of
    /// the matrix, and are overwritten.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`solve`](Self::solve).
    fn invert(columns: &mut [Self], inverse: &mut [Self], n: usize, threads: usize) -> Outcome;

    /// Returns the determinant of a square matrix of `n` rows. If `n` is 0, returns 1. If the
    /// result does not overflow, no intermediate value overflows. `columns` are the columns of the
    /// matrix, and are overwritten.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::OutOfMemory`].
    fn determinant(columns: &mut [Self], n: usize, threads: usize) -> Outcome<Self>;

    /// Writes the rows of the Cholesky factor of a symmetric positive definite matrix of `n` rows.
    /// The factor is a lower triangle. `columns` are the columns of the matrix, and are
    /// overwritten. Only the lower triangle of the matrix is read.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::NotPositiveDefinite`] or [`Failure::OutOfMemory`].
    fn cholesky(columns: &mut [Self], lower: &mut [Self], n: usize, threads: usize) -> Outcome;

    /// Writes the rows of the factors `q` and `r` of a matrix of shape `[m, n]`, by Householder
    /// reflections. `q` has the shape `[m, k]`, and `r` has the shape `[k, n]`. `k` is the smaller
    /// of `m` and `n`. `columns` are the columns of the matrix, and are overwritten.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::OutOfMemory`].
    fn qr(
        columns: &mut [Self],
        q: &mut [Self],
        r: &mut [Self],
        shape: [usize; 2],
        threads: usize,
    ) -> Outcome;

    /// Writes the singular values of a matrix of shape `[m, n]` in descending order. If `vectors`
    /// is given, also writes the rows of `u` and of the transposed `v`. Their shapes are `[m, k]`
    /// and `[k, n]`, where `k` is the smaller of `m` and `n`. `rows` are the rows of the matrix.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::NotConverged`] or [`Failure::OutOfMemory`].
    fn svd(
        rows: &[Self],
        values: &mut [Self],
        vectors: Option<[&mut [Self]; 2]>,
        shape: [usize; 2],
        threads: usize,
    ) -> Outcome;

    /// Writes the eigenvalues of a symmetric matrix of `n` rows in ascending order. If `vectors` is
    /// given, also writes the rows of the matrix whose columns are the eigenvectors. `rows` are the
    /// rows of the matrix. Only the lower triangle of the matrix is read.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::NotConverged`] or [`Failure::OutOfMemory`].
    fn eigh(
        rows: &[Self],
        values: &mut [Self],
        vectors: Option<&mut [Self]>,
        n: usize,
        threads: usize,
    ) -> Outcome;
}

mod sealed {
    pub trait Sealed {}
}

/// Implements [`Real`] for a type. The functions are neither generic nor inlined into another
/// crate.
macro_rules! real {
    ($($type:ident)+) => {
        $(
            impl sealed::Sealed for $type {}

            impl Real for $type {
                #[inline(never)]
                fn solve(columns: &mut [Self], right: &mut [Self], n: usize, threads: usize) -> Outcome {
                    lu::solve(columns, right, n, threads)
                }

                #[inline(never)]
                fn invert(columns: &mut [Self], inverse: &mut [Self], n: usize, threads: usize) -> Outcome {
                    lu::invert(columns, inverse, n, threads)
                }

                #[inline(never)]
                fn determinant(columns: &mut [Self], n: usize, threads: usize) -> Outcome<Self> {
                    let pivots = lu::pivots(columns, n, threads)?;
                    let factors = (0..n).map(|index| f64::from(columns[index * (n + 1)]));
                    Ok(product::product(pivots, factors) as Self)
                }

                #[inline(never)]
                fn cholesky(columns: &mut [Self], lower: &mut [Self], n: usize, threads: usize) -> Outcome {
                    cholesky::factor(columns, lower, n, threads)
                }

                #[inline(never)]
                fn qr(
                    columns: &mut [Self],
                    q: &mut [Self],
                    r: &mut [Self],
                    shape: [usize; 2],
                    threads: usize,
                ) -> Outcome {
                    qr::factor(columns, q, r, shape, threads)
                }

                #[inline(never)]
                fn svd(
                    rows: &[Self],
                    values: &mut [Self],
                    vectors: Option<[&mut [Self]; 2]>,
                    shape: [usize; 2],
                    threads: usize,
                ) -> Outcome {
                    svd::factor(rows, values, vectors, shape, threads)
                }

                #[inline(never)]
                fn eigh(
                    rows: &[Self],
                    values: &mut [Self],
                    vectors: Option<&mut [Self]>,
                    n: usize,
                    threads: usize,
                ) -> Outcome {
                    eigen::factor(rows, values, vectors, n, threads)
                }
            }
        )+
    };
}

real!(f32 f64);
