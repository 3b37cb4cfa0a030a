//! The sum of the contributions to one gradient.
//!
//! A contribution to the gradient of a narrow value, `f16` or `bf16`, may be rounded to the value's
//! type. A running sum must not be rounded, because it would lose small contributions. So the sum
//! is stored in the type of [`DType::computed_in`], and is rounded once, when the gradient is
//! taken. Three cases need no wide memory. First, there is one contribution. Second, there are two
//! contributions, and they are added when the gradient is taken. Third, the contributions are to
//! disjoint parts.

use super::adding::{added, added_to_part, own, summed, tracked_part};
use super::backward::GradientSum;
use super::distinct_parts::DistinctParts;
use super::gradients::filled;
use crate::array::{AnyArray, Bits, DType, Layout};
use crate::error::Result;

/// The value that a gradient belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueOfSum {
    pub(super) dtype: DType,
    /// The layout of the value, from offset 0.
    pub(super) whole: Layout,
    /// True if a tape tracks the sum. A tracked sum is not written in place.
    pub(super) is_tracked: bool,
}

impl ValueOfSum {
    fn wide(&self) -> DType {
        self.dtype.computed_in()
    }

    /// Returns whether the type of `array` is narrower than the type of sums.
    fn is_narrow(&self, array: &AnyArray) -> bool {
        array.dtype != self.wide()
    }

    /// Returns the sum of two arrays in `dtype`.
    #[track_caller]
    fn sum(&self, [sum, other]: [AnyArray; 2], dtype: DType) -> Result<AnyArray> {
        match self.is_tracked {
            true => summed([&sum, &other], dtype, &self.whole),
            false => added(sum, &other, dtype, &self.whole),
        }
    }
}

impl From<AnyArray> for GradientSum {
    fn from(array: AnyArray) -> Self {
        Self {
            array,
            more: None,
            parts: None,
        }
    }
}

impl GradientSum {
    /// Returns the one or two arrays whose sum is the gradient.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &AnyArray> {
        std::iter::once(&self.array).chain(&self.more)
    }

    /// Adds a contribution to all elements.
    #[track_caller]
    pub(super) fn with_whole(self, contribution: AnyArray, of: &ValueOfSum) -> Result<Self> {
        let Self { array, more, .. } = self;
        if more.is_none() && of.is_narrow(&array) && of.is_narrow(&contribution) {
            return Ok(Self {
                more: Some(contribution),
                ..array.into()
            });
        }
        let sum = match more {
            Some(more) => of.sum([array, more], of.wide())?,
            None => array,
        };
        Ok(of.sum([sum, contribution], of.wide())?.into())
    }

    /// Adds a contribution to the elements of `part`. If `sum` is `None`, adds the contribution to
    /// zeros.
    #[track_caller]
    pub(super) fn with_part(
        sum: Option<Self>,
        contribution: AnyArray,
        part: Layout,
        of: &ValueOfSum,
    ) -> Result<Self> {
        let is_distinct = of.is_narrow(&contribution) && !part.repeats();
        let (array, parts) = match sum {
            Some(Self {
                array,
                more: Some(more),
                ..
            }) => (of.sum([array, more], of.wide())?, None),
            Some(Self { array, parts, .. }) => (array, parts),
            None => {
                let dtype = if is_distinct { of.dtype } else { of.wide() };
                let zero = (dtype, Bits::default());
                let zeros = filled(contribution.device(), &of.whole, zero)?;
                (zeros, is_distinct.then(DistinctParts::default))
            }
        };
        let parts = parts.filter(|_| is_distinct);
        let parts = parts.and_then(|parts| parts.with(&part));
        let array = match parts {
            Some(_) => array,
            None => array.converted(of.wide())?,
        };
        let array = match of.is_tracked {
            true => tracked_part(array, contribution, part, of.whole)?,
            false => added_to_part(own(array, &of.whole)?, &contribution, &part)?,
        };
        Ok(Self {
            parts,
            ..array.into()
        })
    }

    /// Returns the sum in the value's type.
    #[track_caller]
    pub(super) fn rounded(self, of: &ValueOfSum) -> Result<AnyArray> {
        match self.more {
            Some(more) => of.sum([self.array, more], of.dtype),
            None => self.array.converted(of.dtype),
        }
    }

    /// Returns the sum without rounding it. If each element has one contribution, the sum has the
    /// type of the contributions. Otherwise, it has the type of [`DType::computed_in`].
    #[track_caller]
    pub(super) fn unrounded(self, of: &ValueOfSum) -> Result<AnyArray> {
        match self.more {
            Some(more) => of.sum([self.array, more], of.wide()),
            None => Ok(self.array),
        }
    }
}
