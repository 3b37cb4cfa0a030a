//! Additions and writes at indices along an axis.

use super::check_indices;
use super::gather::{along, gathered};
use super::moves::put;
use crate::array::{AnyArray, AnyElement, Array, Number, Shape};
use crate::device::cuda::Indexing;
use crate::error::{Error, ErrorCode, Result};
use crate::ops::derivatives::RuledOperation;
use crate::ops::dispatch::same_device;
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::order::UpdateTargets;
use crate::ops::order::aliasing::Target;

/// Returns the gradients of `scatter_add`. The array's gradient is the gradient of the result. The
/// gradient of a source element is the gradient of the element that it was added to.
fn added_back(gradient: AnyArray, places: &Array<i64>, axis: isize) -> Result<Vec<AnyArray>> {
    let of_source = gathered(&gradient, places, axis)?;
    Ok(vec![gradient, of_source])
}

/// Returns the gradients of `scatter`. The gradient of an overwritten element is zero. The gradient
/// of a source element that a later source element overwrote is zero, too.
fn written_back(gradient: AnyArray, places: &Array<i64>, axis: isize) -> Result<Vec<AnyArray>> {
    let _device = places.device().enter();
    let own = *gradient.layout.shape();
    let at = own.axis("scatter", axis)?;
    let shape = along("scatter", &own, places.layout().shape(), at)?;
    let numbers = Array::arange(0, shape.checked_len()? as i64, 1)?.reshape(shape)?;
    let mut last = Array::full(own, -1_i64)?;
    last.scatter(places, &numbers, axis)?;
    let stays = last.lt(0).eval_unfused()?;
    let arrives = last.gather(places, axis)?.eq(&numbers).eval_unfused()?;
    let passed = |mask: &Array<bool>, gradient: AnyLazy| {
        let nothing = AnyLazy::number(gradient.dtype(), 0.0);
        AnyLazy::select(mask.erased().lazy(), gradient, nothing).eval()
    };
    let of_source = gathered(&gradient, places, axis)?;
    Ok(vec![
        passed(&stays, gradient.lazy())?,
        passed(&arrives, of_source.lazy())?,
    ])
}

impl<T: Number> Array<T> {
    /// Adds each element of `source` to the element of this array that its index selects along
    /// `axis`. Along the other axes, the two elements have equal positions. This is the adjoint of
    /// [`gather`](Self::gather).
    ///
    /// If an index repeats, its source elements are added in row-major order, so that the result is
    /// deterministic. Integers wrap. Sums of `f16` and `bf16` are computed in `f32` and rounded
    /// once.
    ///
    /// The array and `indices` broadcast like for [`gather`](Self::gather), and `source` broadcasts
    /// to the resulting shape. If other arrays or expressions share the memory, this array is
    /// copied first, and the other values do not change.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let mut counts = Array::<i32>::zeros(3)?;
    /// let seen = Array::from_vec(vec![2, 0, 2, -1], 4)?;
    /// counts.scatter_add(&seen, &Array::ones(4)?, 0)?;
    /// assert_eq!(counts.to_vec()?, [1, 0, 3]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` or an index is out of
    /// range. [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if the shapes do not match.
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) if the devices differ.
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory). After an error, the array is unchanged.
    #[track_caller]
    pub fn scatter_add(&mut self, indices: &Array<i64>, source: &Self, axis: isize) -> Result<()> {
        self.erased_mut()
            .scatter_add(indices, source.erased(), axis)
    }
}

impl<T: AnyElement> Array<T> {
    /// Writes each element of `source` to the element of this array that its index selects along
    /// `axis`. Along the other axes, the two elements have equal positions. This is NumPy's
    /// `put_along_axis` and PyTorch's `scatter_`.
    ///
    /// If an index repeats, its last source element in row-major order is written, on every device.
    /// The array and `indices` broadcast like for [`gather`](Self::gather), and `source` broadcasts
    /// to the resulting shape. If other arrays or expressions share the memory, this array is
    /// copied first, and the other values do not change.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let mut x = Array::<i32>::zeros([2, 3])?;
    /// let places = Array::from_slice(&[2, 0], [2, 1])?;
    /// x.scatter(&places, &Array::from_slice(&[7, 9], [2, 1])?, 1)?;
    /// assert_eq!(x.to_vec()?, [0, 0, 7, 9, 0, 0]);
    ///
    /// let sorted = Array::from_slice(&[10, 20, 30], 3)?;
    /// let mut ranks = Array::<i32>::zeros(3)?;
    /// ranks.scatter(&Array::from_slice(&[1, -1, 1], 3)?, &sorted, 0)?;
    /// assert_eq!(ranks.to_vec()?, [0, 30, 20]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` or an index is out of
    /// range. [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if the shapes do not match.
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) if the devices differ.
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory). After an error, the array is unchanged.
    #[track_caller]
    pub fn scatter(&mut self, indices: &Array<i64>, source: &Self, axis: isize) -> Result<()> {
        self.erased_mut().scatter(indices, source.erased(), axis)
    }
}

impl AnyArray {
    /// See [`Array::scatter_add`].
    #[track_caller]
    pub(in crate::ops) fn scatter_add(
        &mut self,
        indices: &Array<i64>,
        source: &Self,
        axis: isize,
    ) -> Result<()> {
        let step = RuledOperation::begin("scatter_add", &[&*self, source])?;
        if step.wants(0) || step.wants(1) {
            let mut written = self.share().untracked();
            written.scatter_add(indices, &source.share().untracked(), axis)?;
            *self = step.finish(written.gapless()?, |saved| {
                let places = saved.save_typed(indices);
                move |gradient| added_back(gradient, &places, axis)
            });
            return Ok(());
        }
        if self.dtype.computed_in() != self.dtype {
            return self.add_narrow(indices, source, axis);
        }
        let Some((at, shape)) = self.scattered("scatter_add", indices, source, axis)? else {
            return Ok(());
        };
        let target = Target::new(self);
        let updating = UpdateTargets {
            targets: &[target.buffer()],
            reading: [indices.buffer(), &source.buffer],
        };
        let along = (at, Indexing::ScatterAdd);
        on_device!(
            target.device(),
            touching & updating,
            add_at(target, indices.into(), source.operand(), along, &shape)
        )
    }

    /// Like [`scatter_add`](Self::scatter_add), for `f16` and `bf16`. A running sum in these types
    /// would lose small summands.
    #[track_caller]
    fn add_narrow(&mut self, indices: &Array<i64>, source: &Self, axis: isize) -> Result<()> {
        let mut sums = self.widened_once()?;
        sums.scatter_add(indices, &source.widened_once()?, axis)?;
        let sums = sums.lazy().cast(self.dtype);
        self.assign(&sums)
    }

    /// Returns the elements in their accumulation type. Each element is converted once, even if it
    /// is broadcast.
    #[track_caller]
    fn widened_once(&self) -> Result<Self> {
        let each = self.viewed(self.layout.without_repeats());
        let wide = each.converted(self.dtype.computed_in())?;
        wide.broadcast_to(self.shape())
    }

    /// See [`Array::scatter`].
    #[track_caller]
    pub(in crate::ops) fn scatter(
        &mut self,
        indices: &Array<i64>,
        source: &Self,
        axis: isize,
    ) -> Result<()> {
        let step = RuledOperation::begin("scatter", &[&*self, source])?;
        if step.wants(0) || step.wants(1) {
            let mut written = self.share().untracked();
            written.scatter(indices, &source.share().untracked(), axis)?;
            *self = step.finish(written.gapless()?, |saved| {
                let places = saved.save_typed(indices);
                move |gradient| written_back(gradient, &places, axis)
            });
            return Ok(());
        }
        let Some((at, shape)) = self.scattered("scatter", indices, source, axis)? else {
            return Ok(());
        };
        put(Target::new(self), indices, source, at, &shape)
    }

    /// Returns the array if its elements are contiguous, and a copy otherwise. If no element was
    /// written, the array has its old memory. The old memory may have gaps.
    #[track_caller]
    fn gapless(self) -> Result<Self> {
        match self.layout.is_contiguous() {
            true => Ok(self),
            false => self.lazy().eval(),
        }
    }

    /// Checks the operands of `operation`. The operation writes at `indices`. If the array's memory
    /// is shared, copies the array first. Returns the axis and the shape of the elements to write,
    /// or `None` if there are no elements to write.
    #[track_caller]
    fn scattered(
        &mut self,
        operation: &str,
        indices: &Array<i64>,
        source: &Self,
        axis: isize,
    ) -> Result<Option<(usize, Shape)>> {
        let at = self.shape().axis(operation, axis)?;
        let places = ("the indices", indices.erased());
        same_device(operation, ("the array", self), places)?;
        same_device(operation, ("the array", self), ("the source", source))?;
        let (own, places) = (self.shape(), indices.layout().shape());
        let shape = along(operation, own, places, at)?;
        if source.layout.broadcast_to(&shape).is_err() {
            return Err(Error::new(
                ErrorCode::Broadcast,
                format!(
                    "{operation}: the source {} does not broadcast to the shape {shape} of the indices {places} for the \
                     array {own}",
                    source.shape()
                ),
            ));
        }
        check_indices(operation, self, at, indices)?;
        if shape.checked_len()? == 0 {
            return Ok(None);
        }
        if self.buffer.holders() > 1 || self.layout.repeats() {
            self.make_unique()?;
        }
        Ok(Some((at, shape)))
    }
}
