//! Norms of matrices.

use super::spectral::singular;
use super::{batch_of, filled, matrix_of};
use crate::array::Array;
use crate::error::Result;
use crate::ops::derivatives::RuledOperation;
use crate::ops::descriptors::Factorized;

/// A norm of a matrix, which [`norm`](crate::linalg::norm) computes.
///
/// At a matrix of zeros, the gradient of `Frobenius` is 0, and all second derivatives too. If
/// several columns or rows have the largest sum, `One` and `Infinity` share the gradient equally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MatrixNorm {
    /// The square root of the sum of all squares.
    Frobenius,
    /// The sum of the singular values.
    Nuclear,
    /// The largest singular value.
    Spectral,
    /// The largest sum of the absolute values of a column.
    One,
    /// The largest sum of the absolute values of a row.
    Infinity,
}

#[track_caller]
pub(super) fn norm<T: Factorized>(a: &Array<T>, norm: MatrixNorm) -> Result<Array<T>> {
    matrix_of("norm", a)?;
    if a.is_empty() {
        let step = RuledOperation::begin_typed("norm", &[a])?;
        let batch = batch_of(a.layout().shape()).into();
        let [zeros] = step.finish_empty_typed([filled("norm", a, &batch, T::zero())?]);
        return Ok(zeros);
    }
    match norm {
        MatrixNorm::Frobenius => a.norm_axis([-2, -1]),
        MatrixNorm::Nuclear => singular("norm", a, false)?.0.sum_axis(-1),
        MatrixNorm::Spectral => singular("norm", a, false)?.0.max_axis(-1),
        MatrixNorm::One => a.abs().sum_axis(-2)?.max_axis(-1),
        MatrixNorm::Infinity => a.abs().sum_axis(-1)?.max_axis(-1),
    }
}
