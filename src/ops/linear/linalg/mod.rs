//! Linear algebra by factorizations. This module checks the operands. The modules
//! [`host`](crate::ops::host) and [`cuda`](crate::ops::cuda) compute the factorizations.
//!
//! The two modules have functions of equal names. The functions accept any strides, and return the
//! factors with a status for each matrix ([`status`]). A CUDA device returns LU factors instead of
//! determinants, and [`determinant`] computes the determinants from these factors. Least squares
//! and norms are composed of factorizations and other operations.

mod adapted;
mod declare;
mod determinant;
mod factors;
mod gradients;
mod groups;
mod lstsq;
mod norms;
mod solve;
mod spectral;
mod status;
mod values;

use crate::array::{AnyArray, DType, Float, Shape};
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::ops::index::check_size;

pub use declare::{cholesky, det, eigh, eigvalsh, inv, lstsq, norm, qr, solve, svd, svdvals};
pub use norms::MatrixNorm;

/// The element types of matrices that can be factorized: `f32` and `f64`.
#[diagnostic::on_unimplemented(
    message = "matrices of `{Self}` cannot be factorized",
    label = "expected elements of `f32` or `f64`, found `{Self}`",
    note = "to convert other elements, call `.cast::<f32>().eval()?`"
)]
pub trait Factorizable: Float {}

impl Factorizable for f32 {}
impl Factorizable for f64 {}

/// Returns the lengths of the axes before rows and columns.
fn batch_of(shape: &Shape) -> &[usize] {
    &shape.dims()[..shape.ndim() - 2]
}

/// Returns the shape of matrices of shape `matrix`, with the leading axes `batch`.
fn matrices(batch: &[usize], matrix: &[usize]) -> Shape {
    batch.iter().chain(matrix).collect()
}

/// Returns the numbers of rows and columns of the matrices of an array.
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if the array has fewer than two axes.
#[track_caller]
fn matrix_of(operation: &str, array: &AnyArray) -> Result<[usize; 2]> {
    match *array.dims() {
        [.., rows, columns] => Ok([rows, columns]),
        _ => Err(invalid(format!(
            "{operation}: the shape {} has fewer than two axes, expected matrices in the last two",
            array.shape()
        ))),
    }
}

/// Returns the number of rows of the square matrices of an array.
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if the matrices are not square.
#[track_caller]
fn square(operation: &str, array: &AnyArray) -> Result<usize> {
    let [rows, columns] = matrix_of(operation, array)?;
    if rows == columns {
        return Ok(rows);
    }
    let shape = array.shape();
    Err(Error::new(
        ErrorCode::Square,
        format!(
            "{operation}: the matrices of the array of shape {shape} are not square: they have {rows} rows and \
             {columns} columns"
        ),
    ))
}

/// Returns the length of the last axis of `array`. The rank of `array` must be at least 1.
fn last_of(array: &AnyArray) -> usize {
    array.dims()[array.layout.ndim() - 1]
}

/// Returns the distance from one to the next larger number of `dtype`.
fn epsilon_of(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f32::EPSILON.into(),
        _ => f64::EPSILON,
    }
}

/// Returns an array of `shape` filled with `value`, with the device and the type of `like`.
#[track_caller]
fn filled(operation: &str, like: &AnyArray, shape: &Shape, value: f64) -> Result<AnyArray> {
    check_size(operation, shape, like.dtype)?;
    like.full(shape, value)
}

#[cold]
#[track_caller]
fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}
