//! Groups of equal values of a matrix, and quotients by gaps between values.

use super::{batch_of, epsilon_of, last_of};
use crate::array::{AnyArray, Array, DType};
use crate::error::Result;
use crate::ops::AnyLazy;

/// Returns the tolerance of equal values of `dtype`, relative to the largest value. For matrices
/// with `n` values, the tolerance is a few times the error of a factorization.
fn tolerance(dtype: DType, n: usize) -> f64 {
    epsilon_of(dtype) * 8.0 * n as f64
}

/// Returns whether any flag is true. Waits for the flags.
#[track_caller]
fn is_any(flags: &AnyLazy) -> Result<bool> {
    Array::<bool>::from_erased(flags.any()?).item()
}

/// The groups of equal values of matrices. No tape tracks them.
pub(super) struct Groups {
    /// The group number of each value. Group numbers increase along the axis.
    numbers: AnyArray,
    /// A flag for each value: true if the value counts as 0.
    pub(super) are_zero: AnyArray,
}

impl Groups {
    /// Returns the groups of `values`. `values` must be sorted along the last axis. If the
    /// difference of two neighbouring values is a rounding error of the largest value, they are in
    /// one group.
    #[track_caller]
    pub(super) fn of(values: &AnyArray) -> Result<Self> {
        let values = values.share().untracked();
        let sizes = values.lazy().abs();
        let tolerance = tolerance(values.dtype, last_of(&values));
        let limit = (sizes.max_keepdims(-1)?.lazy() * tolerance).eval()?.lazy();
        // The first step is the difference from the last value. This first step shifts all group
        // numbers equally.
        let steps = (values.lazy() - values.roll(1, -1)?.lazy()).abs();
        let [zero, one] = [0.0, 1.0].map(|value| AnyLazy::number(values.dtype, value));
        let steps = AnyLazy::select(steps.gt(limit.clone()), one, zero).eval()?;
        let numbers = steps.cumsum(-1)?;
        let least = sizes.min_keepdims(-1)?.lazy();
        let last = numbers.lazy().max_keepdims(-1)?.lazy();
        let are_zero = (numbers.lazy().eq(last)).and(least.le(limit)).eval()?;
        Ok(Self { numbers, are_zero })
    }

    /// Returns matrices that are true in row i and column j if the values i and j are equal.
    #[track_caller]
    pub(super) fn are_equal(&self) -> Result<AnyArray> {
        let (rows, columns) = (self.numbers.unsqueeze(-1)?, self.numbers.unsqueeze(-2)?);
        rows.lazy().eq(columns.lazy()).eval()
    }

    /// Returns matrices that are true in row i and column j if the values i and j are 0.
    #[track_caller]
    pub(super) fn both_zero(&self) -> Result<AnyArray> {
        let (rows, columns) = (self.are_zero.unsqueeze(-1)?, self.are_zero.unsqueeze(-2)?);
        rows.lazy().and(columns.lazy()).eval()
    }

    /// Returns whether two values of a matrix are equal. Waits for the values.
    #[track_caller]
    pub(super) fn has_equal(&self) -> Result<bool> {
        // A single value would be compared with itself.
        if last_of(&self.numbers) <= 1 {
            return Ok(false);
        }
        let before = self.numbers.roll(1, -1)?;
        is_any(&self.numbers.lazy().eq(before.lazy()))
    }

    /// Returns whether two values of a matrix are equal, or one is 0. Waits for the values.
    #[track_caller]
    pub(super) fn has_equal_or_zero(&self) -> Result<bool> {
        Ok(is_any(&self.are_zero.lazy())? || self.has_equal()?)
    }

    /// Returns a level for each value. Levels differ by 3 between groups, and increase along the
    /// axis.
    #[track_caller]
    pub(super) fn levels(&self) -> Result<AnyArray> {
        (self.numbers.lazy() * 3.0).eval()
    }

    /// Returns a level for each value. Levels differ by 3 between groups, and decrease along the
    /// axis. Values that are 0 have the level 0.
    #[track_caller]
    pub(super) fn levels_down(&self) -> Result<AnyArray> {
        let last = self.numbers.lazy().max_keepdims(-1)?;
        let levels = (last.lazy() - self.numbers.lazy() + 1.0) * 3.0;
        let zero = AnyLazy::number(self.numbers.dtype, 0.0);
        AnyLazy::select(self.are_zero.lazy(), zero, levels).eval()
    }
}

/// Returns `numerators / gaps`. If `no_gap` is true and the numerator is only a rounding error, the
/// quotient and its derivatives are 0. The rounding error is relative to `scale` or 1.
#[track_caller]
pub(super) fn quotients(
    numerators: &AnyArray,
    gaps: &AnyArray,
    no_gap: &AnyArray,
    scale: &AnyArray,
) -> Result<AnyArray> {
    let untracked = |array: &AnyArray| array.share().untracked().lazy();
    let largest = untracked(scale).abs().max_keepdims([-2, -1])?;
    // The limit includes 1, because terms of a loss near 1 may cancel to their rounding errors.
    let tolerance = tolerance(gaps.dtype, last_of(gaps));
    let limit = (largest.lazy() + 1.0) * (tolerance * 64.0);
    let nothing = untracked(numerators).abs().le(limit).and(no_gap.lazy());
    let nothing = nothing.eval()?.lazy();
    let [zero, one] = [0.0, 1.0].map(|value| AnyLazy::number(gaps.dtype, value));
    let numerators = AnyLazy::select(nothing.clone(), zero, numerators.lazy());
    // The derivative of 0 / 0 would be NaN.
    let gaps = AnyLazy::select(nothing, one, gaps.lazy());
    (numerators / gaps).eval()
}

/// Returns `change`, scaled so that the singular values of each matrix are at most 1. Returns
/// `None` if elements are not finite. Waits for the elements.
#[track_caller]
pub(super) fn unit(change: &AnyArray) -> Result<Option<AnyArray>> {
    debug_assert!(!batch_of(change.shape()).contains(&0));
    let [.., rows, columns] = *change.dims() else {
        unreachable!("the array has at least two axes");
    };
    let largest = change.lazy().abs().max_keepdims([-2, -1])?.lazy();
    let [zero, one] = [0.0, 1.0].map(|value| AnyLazy::number(change.dtype, value));
    if is_any(&(largest.clone() * 0.0).ne(zero.clone()))? {
        return Ok(None);
    }
    let divisor = AnyLazy::select(largest.clone().gt(zero), largest, one);
    let root = ((rows * columns) as f64).sqrt();
    (change.lazy() / divisor / root).eval().map(Some)
}
