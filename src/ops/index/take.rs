//! Selection of parts at indices along an axis.

use super::gather::scattered_back;
use super::moves::picked;
use super::{check_indices, check_size};
use crate::array::{AnyArray, AnyElement, Array, Shape};
use crate::error::Result;
use crate::ops::derivatives::RuledOperation;
use crate::ops::descriptors::Picking;
use crate::ops::dispatch::same_device;

impl<T: AnyElement> Array<T> {
    /// Returns a copy of the elements at `indices` along `axis`. In the result, the axes of
    /// `indices` replace `axis`. A negative index counts from the axis's end. This is NumPy's
    /// `take`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::arange(0, 6, 1)?.reshape([3, 2])?;
    /// let rows = array.take(&Array::from_vec(vec![2, 0, -1], 3)?, 0)?;
    /// assert_eq!(rows.to_vec()?, [4, 5, 0, 1, 4, 5]);
    ///
    /// // An embedding, and what each word's row of a gradient adds up to.
    /// let words = Array::<f32>::ones([5, 2])?;
    /// let sentence = Array::from_vec(vec![3, 1, 3], 3)?;
    /// let embedded = words.take(&sentence, 0)?;
    /// let gradient = Array::<f32>::ones(embedded.shape())?;
    /// let mut of_words = Array::<f32>::zeros(words.shape())?;
    /// of_words.scatter_add(&sentence.unsqueeze(1)?, &gradient, 0)?;
    /// assert_eq!(of_words.sum_axis(1)?.to_vec()?, [0.0, 2.0, 0.0, 4.0, 0.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range or an index
    /// is outside of the axis. [`InvalidShape`](crate::ErrorKind::InvalidShape) if the result's
    /// rank is above 8 or its size overflows. [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch)
    /// if `indices` is on another device. [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the
    /// device has no memory.
    #[track_caller]
    pub fn take(&self, indices: &Array<i64>, axis: isize) -> Result<Self> {
        self.erased().take(indices, axis).map(Self::from_erased)
    }
}

impl AnyArray {
    /// See [`Array::take`].
    #[track_caller]
    pub(in crate::ops) fn take(&self, indices: &Array<i64>, axis: isize) -> Result<Self> {
        let at = self.shape().axis("take", axis)?;
        let places = ("the indices", indices.erased());
        same_device("take", ("the array", self), places)?;
        let (before, after) = (&self.dims()[..at], &self.dims()[at + 1..]);
        let shape: Shape = before.iter().chain(indices.shape()).chain(after).collect();
        check_size("take", &shape, self.dtype)?;
        check_indices("take", self, at, indices)?;
        taken(self, indices, at, &shape)
    }
}

/// Returns the parts at `indices` along the axis `at`. The caller must have checked the indices.
#[track_caller]
fn taken(array: &AnyArray, indices: &Array<i64>, at: usize, shape: &Shape) -> Result<AnyArray> {
    let (places, whole) = (indices.clone(), *shape);
    let step = RuledOperation::begin("take", &[array])?.computed_by(0, move |operands| {
        picked(&operands[0], &places, Picking::Parts, at, &whole)
    });
    let picked = picked(array, indices, Picking::Parts, at, shape)?;
    let own = *array.layout.shape();
    Ok(step.finish(picked, |saved| {
        taken_back(own, saved.save_typed(indices), at)
    }))
}

/// Returns the rule of `take` for an array of shape `own`, by [`scattered_back`]. The rule reshapes
/// the indices to one axis, and the gradient to one part for each index.
fn taken_back(
    own: Shape,
    indices: Array<i64>,
    at: usize,
) -> impl FnOnce(AnyArray) -> Result<Vec<AnyArray>> + Clone {
    move |gradient| {
        let along = |lengths: &[usize], count: usize, ones: bool| -> Shape {
            let length = |&length: &usize| if ones { 1 } else { length };
            let (before, after) = (&lengths[..at], &lengths[at + 1..]);
            before
                .iter()
                .map(length)
                .chain([count])
                .chain(after.iter().map(length))
                .collect()
        };
        let count = indices.len();
        let indices = indices.reshape(along(own.dims(), count, true))?;
        let parts = gradient.reshape(&along(own.dims(), count, false))?;
        drop(gradient);
        scattered_back(own, indices, at)(parts)
    }
}
