//! Norms of matrices.

use super::spectral::singular;
use super::{batch_of, filled, matrix_of};
use crate::array::AnyArray;
use crate::error::Result;
use crate::ops::derivatives::RuledOperation;

/// A norm of a matrix, which [`norm`](crate::linalg::norm) computes.
///
/// For a matrix of zeros, the gradient and the second derivatives of `Frobenius` are 0. If several
/// columns or rows have the largest sum, `One` and `Infinity` divide the gradient equally.
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

/// See [`norm`](crate::linalg::norm).
#[track_caller]
pub(super) fn norm(a: &AnyArray, norm: MatrixNorm) -> Result<AnyArray> {
    matrix_of("norm", a)?;
    if a.len() == 0 {
        let step = RuledOperation::begin("norm", &[a])?;
        let batch = batch_of(a.shape()).into();
        let [zeros] = step.finish_empty([filled("norm", a, &batch, 0.0)?]);
        return Ok(zeros);
    }
    match norm {
        MatrixNorm::Frobenius => a.lazy().norm_axis([-2, -1]),
        MatrixNorm::Nuclear => singular("norm", a, false)?.0.lazy().sum_axis(-1),
        MatrixNorm::Spectral => singular("norm", a, false)?.0.lazy().max_axis(-1),
        MatrixNorm::One => a.lazy().abs().sum_axis(-2)?.lazy().max_axis(-1),
        MatrixNorm::Infinity => a.lazy().abs().sum_axis(-1)?.lazy().max_axis(-1),
    }
}
