//! The gradients of a backward pass, and how contributions to them add up.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::rc::Rc;

use super::tape;
use crate::array::{AnyElement, Array, AxisSet, Bits, Buffer, DType, Layout, Shape, bits_of};
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::aliasing::{Obstacle, Overwritable, Target};
use crate::ops::assign::store;
use crate::ops::eval::evaluate;
use crate::ops::formula::Formula;
use crate::ops::reductions::sum_of;
use crate::ops::tree::{Operand, Value};

use super::graph::{Adding, by_differentiable};
use super::tape::{PassingBack, Upstream};
use super::{Pause, record};

/// An array without its type, with what a tape follows of it.
#[derive(Debug)]
pub(crate) struct AnyArray {
    pub(crate) buffer: Buffer,
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
}

impl AnyArray {
    /// An array's elements.
    #[track_caller]
    pub(crate) fn of<T: AnyElement>(array: &Array<T>) -> Self {
        Self {
            buffer: array.buffer().share(),
            layout: *array.layout(),
            dtype: T::DTYPE,
        }
    }

    /// The array, whose elements are of `T`.
    pub(crate) fn into_array<T: AnyElement>(self) -> Array<T> {
        assert_eq!(self.dtype, T::DTYPE, "the types are one");
        Array::from_parts(self.buffer, self.layout)
    }

    /// The same elements, which stand without gaps, in another shape.
    #[track_caller]
    pub(crate) fn reshaped(self, shape: &Shape) -> Result<Self> {
        if let Some(layout) = self.layout.reshape(shape)? {
            return Ok(self.seen(layout));
        }
        let own = *self.layout.shape();
        let (buffer, layout) = evaluate(&Formula::of(&self.operand())?, self.device(), &own)?;
        let whole = layout.reshape(shape)?.expect("it has no gaps");
        Ok(Self {
            buffer,
            layout: whole,
            dtype: self.dtype,
        })
    }

    /// One value for all elements of a shape, beside an array and of its type.
    #[track_caller]
    pub(crate) fn full_beside<T: AnyElement>(
        array: &Array<T>,
        shape: &Shape,
        value: f64,
    ) -> Result<Array<T>> {
        let value = (T::DTYPE, bits_of(<T as AnyElement>::from_f64(value)));
        let layout = Layout::contiguous(shape)?;
        Ok(filled(array.device(), &layout, value)?.into_array())
    }

    /// Zeros of a shape, beside this.
    #[track_caller]
    pub(crate) fn zeros(&self, shape: &Shape) -> Result<Self> {
        let layout = Layout::contiguous(shape)?;
        filled(self.device(), &layout, (self.dtype, Bits::default()))
    }

    /// Another handle on it.
    #[track_caller]
    pub(crate) fn share(&self) -> Self {
        Self {
            buffer: self.buffer.share(),
            ..*self
        }
    }

    pub(crate) fn operand(&self) -> Operand<'_> {
        Operand {
            buffer: &self.buffer,
            layout: &self.layout,
            dtype: self.dtype,
        }
    }

    fn device(&self) -> &Device {
        self.buffer.device()
    }

    /// The same elements seen by another layout.
    fn seen(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }
}

impl Clone for AnyArray {
    fn clone(&self) -> Self {
        self.share()
    }
}

/// What a step read that a tape follows: the values, and which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    pub(crate) value: u32,
    pub(crate) layout: Layout,
}

impl Followed {
    /// What is followed of an array.
    ///
    /// # Errors
    ///
    /// Those of [`tape::followed`].
    #[track_caller]
    pub(crate) fn of(buffer: &Buffer, layout: &Layout) -> Result<Option<Self>> {
        let value = tape::followed(buffer)?;
        Ok(value.map(|value| Self {
            value,
            layout: *layout,
        }))
    }
}

/// Gradients by the number of their values, each as an array of its own.
#[derive(Debug)]
pub(crate) struct Gradients {
    sums: HashMap<u32, AnyArray>,
    /// What the present step contributed to, where that is looked through for NaN.
    touched: Option<Vec<u32>>,
    /// Whether a tape follows how they add up, so that nothing is written in place.
    are_followed: bool,
    /// Who has places for some of them.
    placer: Option<Rc<dyn Placer>>,
}

/// Who has places for gradients, so that they are written where they are to be.
pub(crate) trait Placer: fmt::Debug {
    /// Elements for the gradient of the value of that number, of its shape: nothing else reads or writes them until it is complete.
    fn place_of(&self, value: u32) -> Result<Option<AnyArray>>;
}

impl Gradients {
    /// Whether what passes back is followed, too.
    pub(crate) fn are_followed(&self) -> bool {
        self.are_followed
    }

    pub(crate) fn new(detects_anomalies: bool) -> Self {
        Self {
            sums: HashMap::new(),
            touched: detects_anomalies.then(Vec::new),
            are_followed: false,
            placer: None,
        }
    }

    /// The same, some of which have places.
    pub(crate) fn in_places_of(self, placer: Option<Rc<dyn Placer>>) -> Self {
        Self { placer, ..self }
    }

    /// The place of the gradient `to`, if it has one, is that of all elements of the value, and nothing was added to it yet.
    #[track_caller]
    pub(crate) fn place_of(&self, to: &Followed) -> Result<Option<AnyArray>> {
        let Some(placer) = self.placer.as_ref() else {
            return Ok(None);
        };
        if to.layout != tape::value(to.value).layout || self.sums.contains_key(&to.value) {
            return Ok(None);
        }
        placer.place_of(to.value)
    }

    /// Those that gradients are computed of again.
    pub(crate) fn followed() -> Self {
        Self {
            are_followed: true,
            ..Self::new(false)
        }
    }

    /// Takes those of a step's results out.
    pub(crate) fn take_all(&mut self, results: &[Option<u32>]) -> Upstream {
        let results = results.iter();
        results
            .map(|own| own.and_then(|own| self.take(own)))
            .collect()
    }

    /// Refuses NaN in what the step of that line contributed to.
    #[track_caller]
    pub(crate) fn check_anomaly(&mut self, call_site: &'static Location<'static>) -> Result<()> {
        let Some(touched) = &mut self.touched else {
            return Ok(());
        };
        for value in touched.drain(..) {
            let Some(sum) = self.sums.get(&value) else {
                continue;
            };
            let has_nan = by_differentiable!(sum.dtype, T => {
                let sum = sum.share().into_array::<T>();
                sum.ne(&sum).any()?.item()?
            });
            if has_nan == Some(true) {
                let text = "a gradient is NaN after the backward pass of this operation";
                return Err(Error::new(ErrorKind::InvalidArgument, text).at(call_site));
            }
        }
        Ok(())
    }

    /// Takes the gradient of values out; `None` where nothing contributed.
    pub(crate) fn take(&mut self, value: u32) -> Option<AnyArray> {
        self.sums.remove(&value)
    }

    /// Adds a contribution, of the shape of what was read or of one that this broadcasts to.
    #[track_caller]
    pub(crate) fn add(&mut self, to: Followed, contribution: AnyArray) -> Result<()> {
        let contribution = folded(contribution, &to.layout)?;
        if let Some(touched) = &mut self.touched {
            touched.push(to.value);
        }
        let value = tape::value(to.value);
        let offset = to.layout.offset() - value.layout.offset();
        let part = to.layout.starting_at(offset).without_repeats();
        let whole = value.layout.starting_at(0);
        match (self.take(to.value), as_whole(&contribution, &part, &whole)) {
            (None, Some(layout)) => {
                self.sums.insert(to.value, contribution.seen(layout));
            }
            (Some(sum), Some(layout)) => {
                let contribution = contribution.seen(layout);
                let sum = if self.are_followed {
                    summed(&sum, &contribution, &whole)?
                } else {
                    added(sum, &contribution, &whole)?
                };
                self.sums.insert(to.value, sum);
            }
            (sum, None) => {
                let sum = match sum {
                    Some(sum) => sum,
                    None => {
                        let zero = (value.dtype, Bits::default());
                        filled(contribution.device(), &whole, zero)?
                    }
                };
                let sum = if self.are_followed {
                    followed_part(sum, contribution, part, whole)?
                } else {
                    added_to_part(own(sum, &whole)?, &contribution, &part)?
                };
                self.sums.insert(to.value, sum);
            }
        }
        Ok(())
    }
}

/// The contribution summed over the axes along which `layout` has one element where the contribution has several, and over
/// those that repeat an element.
#[track_caller]
fn folded(contribution: AnyArray, layout: &Layout) -> Result<AnyArray> {
    let lead = contribution.layout.ndim() - layout.ndim();
    let is_folded = |axis: usize| {
        let Some(own) = axis.checked_sub(lead) else {
            return true;
        };
        let length = contribution.layout.dims()[axis];
        length != layout.dims()[own] || (length > 1 && layout.strides()[own] == 0)
    };
    let axes = AxisSet::of_each(contribution.layout.ndim(), is_folded);
    if (0..contribution.layout.ndim()).all(|axis| !axes.contains(axis)) {
        return Ok(contribution);
    }
    let operand = contribution.operand();
    let summed = sum_of(&Formula::of(&operand)?, contribution.layout.shape(), axes)?;
    let dims: Shape = summed.layout.dims()[lead..].iter().collect();
    Ok(summed.seen(Layout::contiguous(&dims)?))
}

/// How the elements of a contribution to `part` of values stand, seen as all of these; `None` where it is not all of them.
fn as_whole(contribution: &AnyArray, part: &Layout, whole: &Layout) -> Option<Layout> {
    if contribution.layout.shape() != part.shape() {
        return None;
    }
    if part == whole {
        return Some(contribution.layout);
    }
    if part.is_contiguous() && part.offset() == 0 && part.len() == whole.len() {
        return contribution.layout.reshape(whole.shape()).ok().flatten();
    }
    let axes = permutation(part, whole)?;
    contribution.layout.permute(&axes).ok()
}

/// Which axes of `part` are those of `whole`, where it has the same elements in another order of axes.
fn permutation(part: &Layout, whole: &Layout) -> Option<Vec<usize>> {
    if part.ndim() != whole.ndim() || part.offset() != 0 {
        return None;
    }
    let mut axes = Vec::new();
    for (length, stride) in whole.dims().iter().zip(whole.strides()) {
        let own = (0..part.ndim()).find(|&axis| {
            !axes.contains(&axis)
                && part.dims()[axis] == *length
                && (*length == 1 || part.strides()[axis] == *stride)
        });
        axes.push(own?);
    }
    Some(axes)
}

/// `sum` with the elements of `contribution` added: in place, unless something else has the memory.
#[track_caller]
fn added(sum: AnyArray, contribution: &AnyArray, whole: &Layout) -> Result<AnyArray> {
    let layout = sum.layout;
    let sum = store_sum(sum, contribution, &layout)?;
    match sum {
        Ok(sum) => Ok(sum),
        Err(sum) => summed(&sum, contribution, whole),
    }
}

/// The same as an array of its own.
#[track_caller]
fn summed(sum: &AnyArray, contribution: &AnyArray, whole: &Layout) -> Result<AnyArray> {
    let adding = Adding(sum.operand(), contribution.operand());
    let formula = Formula::of(&adding)?;
    let (buffer, layout) = evaluate(&formula, sum.device(), whole.shape())?;
    Ok(AnyArray {
        buffer,
        layout,
        dtype: sum.dtype,
    })
}

/// `sum` with `contribution` added to a part, as one step of the tape: the gradient of the sum is that of the result, and that of the
/// contribution is its part.
#[track_caller]
fn followed_part(
    sum: AnyArray,
    contribution: AnyArray,
    part: Layout,
    whole: Layout,
) -> Result<AnyArray> {
    let of = |array: &AnyArray| Followed::of(&array.buffer, &array.layout);
    let to = [of(&sum)?, of(&contribution)?];
    let dtype = sum.dtype;
    let result = {
        let _paused = Pause::begin();
        // Shared, so that it is copied.
        added_to_part(own(sum.share(), &whole)?, &contribution, &part)?
    };
    if to == [None, None] {
        return Ok(result);
    }
    let backward = move |mut upstream: Upstream, gradients: &mut Gradients| {
        let Some(upstream) = upstream[0].take() else {
            return Ok(());
        };
        let upstream = own(upstream, &whole)?;
        if let Some(to_part) = to[1] {
            gradients.add(to_part, upstream.share().seen(part))?;
        }
        match to[0] {
            Some(to_sum) => gradients.add(to_sum, upstream),
            None => Ok(()),
        }
    };
    let buffer = record((result.buffer, whole, dtype), |_| PassingBack {
        backward: Box::new(backward),
        saved_bytes: 0,
        only_once: None,
    });
    Ok(AnyArray {
        buffer,
        layout: whole,
        dtype,
    })
}

/// The same for a part of `sum`, whose memory nothing else has. Of windows that overlap, one place at a time.
#[track_caller]
fn added_to_part(sum: AnyArray, contribution: &AnyArray, part: &Layout) -> Result<AnyArray> {
    if !part.repeats() {
        let sum = store_sum(sum, contribution, part)?;
        return Ok(sum.expect("no element is there twice, and nothing else has the memory"));
    }
    let long = (0..part.ndim()).filter(|&axis| part.dims()[axis] > 1);
    let places = long.min_by_key(|&axis| part.dims()[axis]);
    let axis = places.expect("several elements have an axis");
    (0..part.dims()[axis]).try_fold(sum, |sum, index| {
        let place = index..index + 1;
        let of_place = AnyArray {
            layout: contribution.layout.part(axis, place.clone(), 1)?,
            ..contribution.share()
        };
        added_to_part(sum, &of_place, &part.part(axis, place, 1)?)
    })
}

/// Adds the contribution to what `layout` selects of `sum`, if nothing else has that memory and no element is there twice.
#[track_caller]
fn store_sum(
    sum: AnyArray,
    contribution: &AnyArray,
    layout: &Layout,
) -> Result<Result<AnyArray, AnyArray>> {
    let own = Operand {
        buffer: &sum.buffer,
        layout,
        dtype: sum.dtype,
    };
    let adding = Adding(own, contribution.operand());
    let targets = [Target::of(&own)];
    match Overwritable::new(&targets, &[], &[]) {
        Ok(targets) => store(&Formula::of(&adding)?, targets)?,
        Err(Obstacle::Shared | Obstacle::Reordered) => return Ok(Err(sum)),
    }
    Ok(Ok(sum))
}

/// An array of its own with the elements of `sum`.
#[track_caller]
fn own(sum: AnyArray, whole: &Layout) -> Result<AnyArray> {
    if sum.layout == *whole && sum.buffer.holders() == 1 {
        return Ok(sum);
    }
    let (buffer, layout) = evaluate(&Formula::of(&sum.operand())?, sum.device(), whole.shape())?;
    Ok(AnyArray {
        buffer,
        layout,
        dtype: sum.dtype,
    })
}

/// Zeros of the shape of `like`.
#[track_caller]
pub(crate) fn zeros_like<T: AnyElement>(like: &Array<T>) -> Result<Array<T>> {
    let zeros = filled(like.device(), like.layout(), (T::DTYPE, Bits::default()))?;
    Ok(zeros.into_array())
}

/// An array of one value: the sum of no gradients, or the gradient of a loss.
#[track_caller]
pub(super) fn filled(
    device: &Device,
    whole: &Layout,
    (dtype, bits): (DType, Bits),
) -> Result<AnyArray> {
    let value = Value(dtype, bits);
    let (buffer, layout) = evaluate(&Formula::of(&value)?, device, whole.shape())?;
    Ok(AnyArray {
        buffer,
        layout,
        dtype,
    })
}
