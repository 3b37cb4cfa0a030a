//! Equal values of a matrix, and quotients of differences of values.

use super::batch_of;
use crate::array::Array;
use crate::error::Result;
use crate::ops::derivatives::constant;
use crate::ops::descriptors::Factorized;
use crate::ops::select;

/// Returns the relative tolerance of equal values, for matrices with `n` values: some times the
/// error of a factorization. It is relative to the largest value.
fn tolerance<T: Factorized>(n: usize) -> T {
    T::epsilon() * T::from_f64(8.0 * n as f64)
}

/// The groups of equal values of matrices. Not tracked.
pub(super) struct Groups<T: Factorized> {
    /// A number for each value. Equal values have one number, and numbers increase along the axis.
    numbers: Array<T>,
    /// A flag for each value: true if the value is equal to 0.
    pub(super) are_zero: Array<bool>,
}

impl<T: Factorized> Groups<T> {
    /// Returns the groups of `values`, which are sorted along the last axis. Values are equal if
    /// their difference is a rounding error beside the largest one.
    #[track_caller]
    pub(super) fn of(values: &Array<T>) -> Result<Self> {
        let values = constant(values);
        let n = values.shape()[values.ndim() - 1];
        let limit = (values.abs().max_keepdims(-1)? * tolerance::<T>(n)).eval_unfused()?;
        // The first step is from the last value. This shifts all numbers by the same amount.
        let steps = (&values - values.roll(1, -1)?).abs();
        let steps = select(steps.gt(&limit), T::one(), T::zero()).eval_unfused()?;
        let numbers: Array<T> = steps.cumsum(-1)?.downcast();
        let least = values.abs().min_keepdims(-1)?;
        let last = numbers.max_keepdims(-1)?;
        let are_zero = (numbers.eq(&last) & least.le(&limit)).eval_unfused()?;
        Ok(Self { numbers, are_zero })
    }

    /// Returns true for each pair of equal values, in a row and a column.
    #[track_caller]
    pub(super) fn are_equal(&self) -> Result<Array<bool>> {
        let (rows, columns) = (self.numbers.unsqueeze(-1)?, self.numbers.unsqueeze(-2)?);
        rows.eq(&columns).eval_unfused()
    }

    /// Returns true for each pair of values that are 0.
    #[track_caller]
    pub(super) fn both_zero(&self) -> Result<Array<bool>> {
        (self.are_zero.unsqueeze(-1)? & self.are_zero.unsqueeze(-2)?).eval_unfused()
    }

    /// Returns whether two values of a matrix are equal. The call waits.
    #[track_caller]
    pub(super) fn has_equal(&self) -> Result<bool> {
        let n = self.numbers.shape()[self.numbers.ndim() - 1];
        // For one value, the step is from itself.
        Ok(n > 1 && self.numbers.eq(&self.numbers.roll(1, -1)?).any()?.item()?)
    }

    /// Returns whether two values of a matrix are equal, or one is 0. The call waits.
    #[track_caller]
    pub(super) fn has_equal_or_zero(&self) -> Result<bool> {
        Ok(self.are_zero.any()?.item()? || self.has_equal()?)
    }

    /// Returns numbers that differ by 3 between the groups and increase along the axis.
    #[track_caller]
    pub(super) fn levels(&self) -> Result<Array<T>> {
        (&self.numbers * T::from_f64(3.0)).eval_unfused()
    }

    /// Returns numbers that differ by 3 between the groups, decrease along the axis, and are 0 for
    /// values that are 0.
    #[track_caller]
    pub(super) fn levels_down(&self) -> Result<Array<T>> {
        let last = self.numbers.max_keepdims(-1)?;
        let levels = (last - &self.numbers + T::one()) * T::from_f64(3.0);
        select(&self.are_zero, T::zero(), levels).eval_unfused()
    }
}

/// Returns `numerators / gaps`. If `no_gap` is true and the numerator is a rounding error beside
/// `scale` or 1, the quotient is 0. So are its derivatives.
#[track_caller]
pub(super) fn quotients<T: Factorized>(
    numerators: &Array<T>,
    gaps: &Array<T>,
    no_gap: &Array<bool>,
    scale: &Array<T>,
) -> Result<Array<T>> {
    let n = gaps.shape()[gaps.ndim() - 1];
    let largest = constant(scale).abs().max_keepdims([-2, -1])?;
    // If terms of a loss near 1 cancel, nothing but their rounding errors is left.
    let limit = (largest + T::one()) * (tolerance::<T>(n) * T::from_f64(64.0));
    let nothing = (constant(numerators).abs().le(limit) & no_gap).eval_unfused()?;
    let numerators = select(&nothing, T::zero(), numerators);
    // The derivative of 0 / 0 would be NaN.
    let gaps = select(&nothing, T::one(), gaps);
    (numerators / gaps).eval_unfused()
}

/// Returns `change`, divided so that the singular values of each matrix are at most 1. Returns
/// `None` if elements are not finite. The call waits.
#[track_caller]
pub(super) fn unit<T: Factorized>(change: &Array<T>) -> Result<Option<Array<T>>> {
    debug_assert!(!batch_of(change.layout().shape()).contains(&0));
    let [.., rows, columns] = *change.shape() else {
        unreachable!("it has matrices");
    };
    let largest = change.abs().max_keepdims([-2, -1])?;
    let is_finite = (&largest * T::zero()).eq(T::zero()).all()?.item()?;
    if !is_finite {
        return Ok(None);
    }
    let divisor = select(largest.gt(T::zero()), &largest, T::one());
    let root = T::from_f64(((rows * columns) as f64).sqrt());
    (change / divisor / root).eval_unfused().map(Some)
}
