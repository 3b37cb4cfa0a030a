//! Factorizations of matrices as plain data: the calls of cuSOLVER.

use crate::device::DevicePtr;
use crate::error::{Error, ErrorKind, Result};

/// A call for one matrix. The matrix is in column-major order without gaps, and is overwritten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SolverCall {
    /// The element type: `f64` if set, else `f32`.
    pub is_wide: bool,
    pub matrix: DevicePtr,
    pub rows: i32,
    pub columns: i32,
    pub kind: Factorization,
    /// The address of LAPACK's `info`, an `i32`.
    pub info: DevicePtr,
}

/// The operation on the matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Factorization {
    /// `getrf`: computes the factors L and U. `pivots` has space for one `i32` per row.
    Lu { pivots: DevicePtr },
    /// `getrs`: solves equations for `count` columns of `right`. The matrix has been factorized by
    /// `Lu`.
    Solve {
        pivots: DevicePtr,
        right: DevicePtr,
        count: i32,
    },
    /// `potrf`: computes the Cholesky factor. The upper triangle receives its transpose.
    Cholesky,
    /// `geqrf`: computes R in the upper triangle, and the Householder reflections below it.
    /// `factors` receives the scalar factors of the reflections.
    Qr { factors: DevicePtr },
    /// `orgqr`: replaces the reflections by the first `columns` columns of their product.
    Reflections { factors: DevicePtr },
    /// `gesvd` of a matrix with at least as many rows as columns. `vectors` receive the left
    /// singular vectors as columns, and the right singular vectors transposed.
    Svd {
        values: DevicePtr,
        vectors: Option<[DevicePtr; 2]>,
    },
    /// `syevd` of the upper triangle. If the vectors are `wanted`, the columns of the matrix become
    /// the eigenvectors.
    Eigen { values: DevicePtr, wanted: bool },
}

/// Returns a length as the integer type of cuSOLVER.
///
/// # Errors
///
/// [`Unsupported`](ErrorKind::Unsupported) if the length exceeds 31 bits.
#[track_caller]
pub fn solver_length(operation: &str, length: usize) -> Result<i32> {
    i32::try_from(length).map_err(|_| {
        let text = format!(
            "{operation}: {length} rows or columns, expected at most {}, cuSOLVER's limit",
            i32::MAX
        );
        Error::new(ErrorKind::Unsupported, text)
    })
}
