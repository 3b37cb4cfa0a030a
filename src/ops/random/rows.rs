//! The check of rows that indices are drawn from. Every draw from an array's rows starts with this
//! check.
//!
//! A row is a distribution if its weights are finite, none is negative, and at least one is
//! above 0. A row of logits must have no NaN, at most one +∞, and at least one logit above −∞. The
//! host checks the rows before it draws. On a CUDA device, a kernel reports an invalid row. The
//! next call that waits for the device returns the error.

use crate::array::{Array, Elements, Shape};
use crate::device::cuda::{Indexing, RowFault};
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::expression::elementwise::select;

/// Rows that passed the check on the host, or whose faults a kernel reports on a CUDA device.
#[derive(Debug)]
pub(super) struct CheckedRows {
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    operation: Indexing,
    /// The number of the [`RowFault`] of each row, or 0 for a distribution. `None` if the host has
    /// checked the rows.
    faults: Option<Array<i64>>,
}

impl CheckedRows {
    /// Checks rows of weights. `most` is the result of [`largest_weights`].
    #[track_caller]
    pub(super) fn of_weights(weights: &Array<f64>, most: &Array<f64>) -> Result<Self> {
        let faults = select(
            most.lazy().eq(f64::INFINITY),
            RowFault::Weight.number(),
            select(most.lazy().eq(0.0), RowFault::NoWeight.number(), 0_i64),
        );
        Self::of(
            "multinomial",
            Indexing::Multinomial,
            weights,
            faults.eval_unfused()?,
        )
    }

    /// Checks rows of logits. `most` has the largest logit of each row, or NaN. `whole` has the sum
    /// of the weights of each row. The weight of an infinite logit is 1.
    #[track_caller]
    pub(super) fn of_logits(
        logits: &Array<f64>,
        most: &Array<f64>,
        whole: &Array<f64>,
    ) -> Result<Self> {
        let is_several = most.lazy().eq(f64::INFINITY).and(whole.gt(1.0));
        let faults = select(
            most.is_nan(),
            RowFault::NoNumber.number(),
            select(
                most.lazy().eq(f64::NEG_INFINITY),
                RowFault::NoLogit.number(),
                select(is_several, RowFault::SeveralInfinite.number(), 0_i64),
            ),
        );
        Self::of(
            "categorical",
            Indexing::Categorical,
            logits,
            faults.eval_unfused()?,
        )
    }

    #[track_caller]
    fn of(name: &str, operation: Indexing, rows: &Array<f64>, faults: Array<i64>) -> Result<Self> {
        if rows.device().backend().cuda().is_some() {
            let faults = Some(faults);
            return Ok(Self { operation, faults });
        }
        let numbers = Elements::of(&faults)?.to_vec();
        let mut found = numbers
            .iter()
            .map(|&number| RowFault::of(number))
            .enumerate();
        match found.find_map(|(row, fault)| fault.map(|fault| (row, fault))) {
            None => Ok(Self {
                operation,
                faults: None,
            }),
            Some((row, fault)) => Err(no_distribution(name, rows.layout().shape(), row, fault)),
        }
    }

    /// Returns `drawn`, the indices that were drawn from the rows. The last axis has the draws of
    /// one row. On a CUDA device, enqueues the report of rows that are not distributions.
    #[track_caller]
    pub(super) fn reported(&self, drawn: Array<i64>) -> Result<Array<i64>> {
        let Some(faults) = &self.faults else {
            return Ok(drawn);
        };
        let drawn = match drawn.layout().is_contiguous() {
            true => drawn,
            false => drawn.to_uncached()?,
        };
        on_device!(
            drawn.device(),
            touching & [drawn.buffer(), faults.buffer()],
            _order => unreachable!("the host checks the rows before the draw"),
            cuda::reported(_order, (&drawn).into(), faults.into(), self.operation)
                .map(Array::from_erased)
        )
    }
}

/// Returns the largest weight of each row. If a weight is negative, infinite or NaN, the result for
/// its row is infinity.
#[track_caller]
pub(super) fn largest_weights(weights: &Array<f64>) -> Result<Array<f64>> {
    select(weights.ge(0.0), weights, f64::INFINITY).max_keepdims(-1)
}

#[cold]
#[track_caller]
fn no_distribution(name: &str, shape: &Shape, row: usize, fault: RowFault) -> Error {
    let place = match shape.dims() {
        [batch @ .., _] if batch.len() > 1 => format!(" at {:?}", index_of(batch, row)),
        _ => String::new(),
    };
    let text = format!("{name}: row {row}{place} of the array of shape {shape} {fault}");
    Error::new(ErrorKind::InvalidArgument, text)
}

/// Returns the index of a row along each axis, from its number in row-major order.
fn index_of(batch: &[usize], row: usize) -> Vec<usize> {
    let mut rest = row;
    let mut index: Vec<usize> = (batch.iter().rev())
        .map(|&length| {
            let place = rest % length;
            rest /= length;
            place
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_by_its_number_and_its_place() {
        let text = |shape: &[usize], row| {
            no_distribution("draw", &shape.into(), row, RowFault::NoWeight).to_string()
        };
        let matrix = text(&[2, 3], 1);
        assert!(
            matrix.starts_with("draw: row 1 of the array of shape [2, 3] has no"),
            "{matrix}"
        );
        let stack = text(&[2, 3, 4], 5);
        assert!(
            stack.starts_with("draw: row 5 at [1, 2] of the array"),
            "{stack}"
        );
    }
}
