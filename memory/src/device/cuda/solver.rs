//! Factorizations of matrices as plain data: the calls of cuSOLVER.

use crate::device::DevicePtr;
use crate::error::{Error, ErrorKind, Result};

/// A call for one matrix, whose columns stand one after another without gaps and are overwritten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SolverCall {
    /// Whether the elements are `f64`; else they are `f32`.
    pub is_wide: bool,
    pub matrix: DevicePtr,
    pub rows: i32,
    pub columns: i32,
    pub kind: Factorization,
    /// Where LAPACK's `info` goes, an `i32`.
    pub info: DevicePtr,
}

/// What is done with the matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Factorization {
    /// `getrf`: to both factors; `pivots` takes an `i32` a row.
    Lu { pivots: DevicePtr },
    /// `getrs`: solves equations for `count` columns of `right`, where the matrix has been
    /// factorized by `Lu`.
    Solve {
        pivots: DevicePtr,
        right: DevicePtr,
        count: i32,
    },
    /// `potrf`: the upper triangle to the transposed factor.
    Cholesky,
    /// `geqrf`: to the upper triangle and the reflections, whose factors go to `factors`.
    Qr { factors: DevicePtr },
    /// `orgqr`: the reflections to the first `columns` columns of their product.
    Reflections { factors: DevicePtr },
    /// `gesvd` of a matrix with at least as many rows as columns. `vectors` are for the columns of
    /// both sides', the right ones transposed.
    Svd {
        values: DevicePtr,
        vectors: Option<[DevicePtr; 2]>,
    },
    /// `syevd` of the upper triangle; the matrix becomes the columns of vectors where they are
    /// `wanted`.
    Eigen { values: DevicePtr, wanted: bool },
}

/// A length as cuSOLVER counts it.
///
/// # Errors
///
/// [`Unsupported`](ErrorKind::Unsupported) where it exceeds 31 bits.
#[track_caller]
pub fn solver_length(operation: &str, length: usize) -> Result<i32> {
    i32::try_from(length).map_err(|_| {
        let text = format!(
            "{operation}: {length} rows or columns: cuSOLVER counts to {} only",
            i32::MAX
        );
        Error::new(ErrorKind::Unsupported, text)
    })
}
