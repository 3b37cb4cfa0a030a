//! Arrays that several steps add to, in accumulation types.
//!
//! If a sum in `f16` or `bf16` is some hundred times larger than a term, the addition loses the
//! term. Therefore the sum of a narrow array is stored in `f32`, and rounded when it is returned.
//! Sums of other types are stored in the structure itself.

use crate::array::{AnyArray, AnyElement, Array, Float};
use crate::error::Result;
use crate::grad::arithmetic::Scaled;
use crate::grad::{MapArrays, ZipArrays};
use crate::ops::add_scaled;

use super::memory::unshare;
use super::rounded::is_narrow;

/// The accumulators of the narrow arrays of a structure, by array index. An array of another type
/// has `None`.
#[derive(Debug, Default)]
pub(super) struct WideArrays(Vec<Option<Array<f32>>>);

impl WideArrays {
    /// Adds a copy of the next array of a structure, if its type is narrow. Returns whether its
    /// type is narrow.
    #[track_caller]
    pub(super) fn push<T: Float>(&mut self, array: &Array<T>) -> Result<bool> {
        let is_narrow = const { is_narrow::<T>() };
        let wide = is_narrow.then(|| array.cast::<f32>().eval_unfused());
        self.0.push(wide.transpose()?);
        Ok(is_narrow)
    }

    /// Returns the accumulator of array `number`, if its type is narrow.
    pub(super) fn of(&mut self, number: usize) -> Option<&mut Array<f32>> {
        self.0.get_mut(number).and_then(Option::as_mut)
    }
}

/// Traversal that copies arrays, to begin a sum. A narrow array is copied to an accumulator, and
/// the structure stores only its shape.
pub(super) struct BeginSum<'a>(pub(super) &'a mut WideArrays);

impl MapArrays for BeginSum<'_> {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        if self.0.push(array)? {
            let zero = AnyArray::of(array).zeros(&[].into())?;
            return zero.into_array::<T>().broadcast_to(*array.layout().shape());
        }
        array.lazy().eval_unfused()
    }
}

/// Traversal that adds arrays to a sum, in memory outside of every cache.
pub(super) struct AddToSum<'a> {
    pub(super) wide: &'a mut WideArrays,
    pub(super) number: usize,
}

impl ZipArrays for AddToSum<'_> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
        let wide = self.wide.of(self.number);
        self.number += 1;
        match wide {
            Some(wide) => wide.update(|wide| wide + other.cast::<f32>()),
            None => {
                unshare(own)?;
                add_scaled(own, other, 1.0)
            }
        }
    }
}

/// Traversal that returns a sum: multiplies the accumulators by `share`, and rounds them.
pub(super) struct HandOut<'a> {
    pub(super) wide: &'a mut WideArrays,
    pub(super) number: usize,
    pub(super) share: f64,
}

impl MapArrays for HandOut<'_> {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        let wide = self.wide.of(self.number);
        self.number += 1;
        match wide {
            Some(wide) => (&*wide * self.share as f32).cast::<T>().eval_unfused(),
            None if self.share == 1.0 => Ok(array.clone()),
            None => Scaled(self.share).map(array),
        }
    }
}

/// A traversal that updates a moving average: average += `share` · (other − average). The average
/// of a narrow array moves in its accumulator, and is then rounded into the structure.
pub(super) struct MoveAverage<'a> {
    pub(super) wide: &'a mut WideArrays,
    pub(super) number: usize,
    pub(super) share: f64,
}

impl ZipArrays for MoveAverage<'_> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
        let wide = self.wide.of(self.number);
        self.number += 1;
        unshare(own)?;
        match wide {
            Some(wide) => {
                let share = self.share as f32;
                wide.update(|wide| wide + (other.cast::<f32>() - wide) * share)?;
                own.assign(wide.cast::<T>())
            }
            None => {
                let share = <T as AnyElement>::from_f64(self.share);
                own.update(|own| own + (other - own) * share)
            }
        }
    }
}
