//! The gradients of a backward pass, and the addition of their contributions.
//!
//! # Gradients in place
//!
//! A step owns the gradients of its results, and nothing reads them after the step. If an
//! expression computes one gradient, it writes this gradient over the gradient of its result. If
//! another handle shares the memory, the gradient is not overwritten. (A gradient that passes an
//! addition unchanged has several handles.) Tracked gradients are never overwritten. If one pass
//! computes several gradients, only one of them could reuse memory. A separate pass for this
//! gradient would cost more than the memory is worth. If no other handle shares the logits, the
//! gradient rule of `cross_entropy` overwrites them with their gradient.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::Location;
use std::rc::Rc;

use smallvec::SmallVec;

use super::backward::{GradientSum, Gradients, Placer, Upstream};
use super::evaluation::evaluate;
use super::tape::{self, Tracked};
use crate::array::{AnyArray, AnyElement, Array, Bits, DType, Layout, Shape, bits_of_number};
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::expression::elementwise::cast::cast;
use crate::ops::expression::graph::ExpressionGraph;

use super::adding::{as_whole, copied, reduced};
use super::distinct_parts::DistinctParts;
use super::sum::ValueOfSum;
use super::total::GlobalNorm;

impl AnyArray {
    /// Returns the elements converted to `dtype`. If they have this type, returns the array itself.
    #[track_caller]
    pub(crate) fn converted(self, dtype: DType) -> Result<Self> {
        if self.dtype == dtype {
            return Ok(self);
        }
        let graph = ExpressionGraph::of_call(cast(self.dtype, dtype), &[self.operand()])?;
        let shape = self.layout.shape();
        let buffer = evaluate(&graph, self.device(), shape)?;
        Ok(Self::of_shape(buffer, shape, dtype))
    }

    /// Returns an array of `shape` filled with `value`, with the device and the type of this array.
    #[track_caller]
    pub(crate) fn full(&self, shape: &Shape, value: f64) -> Result<Self> {
        let value = (self.dtype, bits_of_number(self.dtype, value));
        filled(self.device(), &Layout::contiguous(shape)?, value)
    }

    /// Returns zeros of `shape`, with the device and the type of this array.
    #[track_caller]
    pub(crate) fn zeros(&self, shape: &Shape) -> Result<Self> {
        zeros_on(self.device(), shape, self.dtype)
    }
}

#[track_caller]
pub(crate) fn zeros_on(device: &Device, shape: &Shape, dtype: DType) -> Result<AnyArray> {
    let layout = Layout::contiguous(shape)?;
    filled(device, &layout, (dtype, Bits::default()))
}

impl Gradients {
    /// Returns whether a tape tracks the gradients.
    pub(crate) fn are_tracked(&self) -> bool {
        self.are_tracked
    }

    pub(crate) fn new(detects_anomalies: bool) -> Self {
        Self {
            sums: HashMap::default(),
            touched: detects_anomalies.then(Vec::new),
            are_tracked: false,
            placer: None,
        }
    }

    /// Sets the placer, which may provide memory for gradients.
    pub(crate) fn in_places_of(self, placer: Option<Rc<dyn Placer>>) -> Self {
        Self { placer, ..self }
    }

    /// Returns the memory that the placer provides for the gradient of `to`, if any. Returns `None`
    /// if `to` does not cover all elements of the value, or if the gradient has a contribution
    /// already.
    #[track_caller]
    pub(crate) fn place_of(&self, to: &Tracked) -> Result<Option<AnyArray>> {
        let Some(placer) = self.placer.as_ref() else {
            return Ok(None);
        };
        if !to.is_whole() || self.sums.contains_key(&to.value) {
            return Ok(None);
        }
        placer.place_of(to.value)
    }

    /// Returns empty gradients that a tape tracks, so that they can be differentiated.
    pub(crate) fn tracked(detects_anomalies: bool) -> Self {
        Self {
            are_tracked: true,
            ..Self::new(detects_anomalies)
        }
    }

    /// Removes and returns the gradients of a step's results. Unless the step takes unrounded
    /// gradients, the gradients have the types of the results.
    #[track_caller]
    pub(crate) fn take_all(
        &mut self,
        results: &[Option<u32>],
        takes_unrounded: bool,
    ) -> Result<Upstream> {
        let mut upstream = Upstream::with_capacity(results.len());
        for result in results {
            let sum = result.and_then(|own| Some((own, self.sums.remove(&own)?)));
            upstream.push(match sum {
                None => None,
                Some((own, sum)) if takes_unrounded => Some(sum.unrounded(&self.value_of(own))?),
                Some((own, sum)) => Some(sum.rounded(&self.value_of(own))?),
            });
        }
        Ok(upstream)
    }

    /// Returns the type and the layout of the value `value`, for its gradient.
    fn value_of(&self, value: u32) -> ValueOfSum {
        let (layout, dtype) = tape::with_value(value, |value| (value.layout, value.dtype));
        ValueOfSum {
            dtype,
            whole: layout.starting_at(0),
            is_tracked: self.are_tracked,
        }
    }

    /// Returns an error at `call_site` if the current step contributed to a gradient with a NaN.
    /// `call_site` is the call site of the current step.
    pub(crate) fn check_anomaly(&mut self, call_site: &'static Location<'static>) -> Result<()> {
        let Some(touched) = &mut self.touched else {
            return Ok(());
        };
        for value in touched.drain(..) {
            let Some(sum) = self.sums.get(&value) else {
                continue;
            };
            for array in sum.arrays() {
                if has_nan(array)? {
                    let text = "a gradient is NaN after the backward pass of this operation";
                    return Err(Error::new(ErrorKind::InvalidArgument, text).at(call_site));
                }
            }
        }
        Ok(())
    }

    /// Returns whether the gradient of `value` has contributions that were not taken.
    pub(crate) fn has(&self, value: u32) -> bool {
        self.sums.contains_key(&value)
    }

    /// Removes and returns the gradient of `value`, in the type of the value. Returns `None` if the
    /// gradient has no contribution.
    #[track_caller]
    pub(crate) fn take(&mut self, value: u32) -> Result<Option<AnyArray>> {
        let sum = self.sums.remove(&value);
        sum.map(|sum| sum.rounded(&self.value_of(value)))
            .transpose()
    }

    /// Returns the global norm of the gradients of some values, an array of rank 0.
    #[track_caller]
    pub(crate) fn norm(&mut self, values: &[u32]) -> Result<Array<f64>> {
        let mut norm = GlobalNorm::default();
        for &value in values {
            let Some(gradient) = self.take(value)? else {
                continue;
            };
            norm.add(&gradient)?;
            self.sums.insert(value, gradient.into());
        }
        norm.into_kept()
    }

    /// Like [`take`](Self::take), for a gradient that outlives the backward pass. If the gradient
    /// is a view of less than half of its block, it is copied. Then the block can be released.
    #[track_caller]
    pub(crate) fn take_compact(&mut self, value: u32) -> Result<Option<AnyArray>> {
        let Some(gradient) = self.take(value)? else {
            return Ok(None);
        };
        let own_bytes = gradient.layout.len() * gradient.dtype.size_bytes();
        if gradient.buffer.size_bytes() / 2 <= own_bytes {
            return Ok(Some(gradient));
        }
        let dense = gradient.layout.dense();
        copied(&gradient, &dense).map(Some)
    }

    /// Returns whether the gradient of `to` may be `f32` although the value is `bf16`. The value
    /// must be converted from `f32`, and no tape may track the gradient. A gradient of `f16` is
    /// always rounded. Beyond the range of `f16` it is infinite, as documented for `LossScaled`.
    pub(crate) fn takes_unrounded(&self, to: &Tracked) -> bool {
        !self.are_tracked
            && tape::with_value(to.value, |value| {
                value.is_taken_unrounded && value.dtype == DType::Bf16
            })
    }

    /// Adds a contribution of the type [`DType::computed_in`]. Unless the step of the value takes
    /// unrounded gradients, rounds the contribution.
    #[track_caller]
    pub(crate) fn add_unrounded(&mut self, to: Tracked, sum: AnyArray) -> Result<()> {
        let (dtype, is_taken_unrounded) =
            tape::with_value(to.value, |value| (value.dtype, value.is_taken_unrounded));
        match is_taken_unrounded && sum.dtype == dtype.computed_in() {
            true => self.add(to, sum),
            false => self.add(to, sum.converted(dtype)?),
        }
    }

    /// Adds the contributions of a step to its operands. If the contributions are all parts of one
    /// array, and the operands are the same parts of one value, adds the array.
    #[track_caller]
    pub(super) fn add_all(
        &mut self,
        contributions: SmallVec<[(Tracked, AnyArray); 3]>,
    ) -> Result<()> {
        if let Some((to, whole)) = joined(&contributions) {
            drop(contributions);
            return self.add(to, whole);
        }
        let mut contributions = contributions.into_iter();
        contributions.try_for_each(|(to, contribution)| self.add(to, contribution))
    }

    /// Adds a contribution. Its shape is the shape of `to`, or a shape that `to` broadcasts to. Its
    /// type is the value's type, or the type that a narrow value is computed in.
    #[track_caller]
    pub(crate) fn add(&mut self, to: Tracked, contribution: AnyArray) -> Result<()> {
        if to.layout.len() == 0 {
            // An empty view reads no elements. Its layout may begin before the value, and the
            // offset below would then be negative.
            tape::note_constants();
            return Ok(());
        }
        if let Some(touched) = &mut self.touched {
            touched.push(to.value);
        }
        let has_shape = contribution.layout.shape() == to.layout.shape();
        if has_shape
            && to.is_whole()
            && let Entry::Vacant(place) = self.sums.entry(to.value)
        {
            place.insert(contribution.into());
            return Ok(());
        }
        let before = contribution.dtype;
        let mut contribution = reduced(contribution, &to.layout)?;
        if !tape::with_value(to.value, |value| value.is_taken_unrounded) {
            contribution = contribution.converted(before)?;
        }
        let value = self.value_of(to.value);
        let offset = to.layout.offset() - tape::with_value(to.value, |own| own.layout.offset());
        let part = to.layout.starting_at(offset).without_repeats();
        let sum = self.sums.remove(&to.value);
        let sum = match (sum, as_whole(&contribution, &part, &value.whole)) {
            (None, Some(layout)) => contribution.seen(layout).into(),
            (Some(sum), Some(layout)) => sum.with_whole(contribution.seen(layout), &value)?,
            (sum, None) => GradientSum::with_part(sum, contribution, part, &value)?,
        };
        self.sums.insert(to.value, sum);
        Ok(())
    }
}

/// Returns the value and the array whose parts are `contributions`.
fn joined(contributions: &[(Tracked, AnyArray)]) -> Option<(Tracked, AnyArray)> {
    let [(first, array), _, ..] = contributions else {
        return None;
    };
    let value = tape::with_value(first.value, |own| own.layout);
    let whole = value.starting_at(0);
    let mut parts = DistinctParts::default();
    let mut count = 0;
    for (to, own) in contributions {
        let is_of_array = own.buffer.is_same(&array.buffer)
            && own.buffer.value_id() == array.buffer.value_id()
            && own.dtype == array.dtype;
        if to.value != first.value || !is_of_array || own.layout.repeats() {
            return None;
        }
        // An empty view may begin before the value.
        let offset = to.layout.offset().checked_sub(value.offset())?;
        let part = to.layout.starting_at(offset);
        if own.layout != part {
            return None;
        }
        count += part.len();
        parts = parts.with(&part)?;
    }
    let is_whole = whole.is_contiguous() && count == whole.len();
    is_whole.then(|| {
        let to = Tracked {
            layout: value,
            ..*first
        };
        (to, array.viewed(whole))
    })
}

#[track_caller]
fn has_nan(array: &AnyArray) -> Result<bool> {
    let is_nan = array.lazy().ne(array.lazy()).any()?;
    Array::<bool>::from_erased(is_nan).item()
}

#[track_caller]
pub(crate) fn zeros_like<T: AnyElement>(like: &Array<T>) -> Result<Array<T>> {
    let zeros = filled(like.device(), like.layout(), (T::DTYPE, Bits::default()))?;
    Ok(zeros.into_array())
}

/// Returns an array of the shape of `whole`, filled with one value.
#[track_caller]
pub(super) fn filled(
    device: &Device,
    whole: &Layout,
    (dtype, bits): (DType, Bits),
) -> Result<AnyArray> {
    let graph = ExpressionGraph::of_value(dtype, bits);
    let buffer = evaluate(&graph, device, whole.shape())?;
    Ok(AnyArray::of_shape(buffer, whole.shape(), dtype))
}
