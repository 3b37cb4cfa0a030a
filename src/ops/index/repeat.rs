//! Repetition of elements.

use super::check_size;
use super::moves::copied;
use crate::array::{AnyArray, AnyElement, Array, Shape};
use crate::error::Result;
use crate::ops::derivatives::RuledOperation;
use crate::ops::descriptors::Copying;

impl<T: AnyElement> Array<T> {
    /// Returns the array with each element along `axis` repeated `count` times. Copies of an
    /// element are adjacent. This is NumPy's `repeat`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::arange(0, 4, 1)?.reshape([2, 2])?;
    /// assert_eq!(array.repeat(2, 0)?.to_vec()?, [0, 1, 0, 1, 2, 3, 2, 3]);
    /// assert_eq!(array.repeat(2, 1)?.to_vec()?, [0, 0, 1, 1, 2, 2, 3, 3]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range,
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if the size overflows, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn repeat(&self, count: usize, axis: isize) -> Result<Self> {
        self.erased().repeat(count, axis).map(Self::from_erased)
    }
}

impl AnyArray {
    /// See [`Array::repeat`].
    #[track_caller]
    pub(in crate::ops) fn repeat(&self, count: usize, axis: isize) -> Result<Self> {
        let shape = self.shape();
        let at = shape.axis("repeat", axis)?;
        // `check_size` rejects a length that saturates.
        let shape = shape.with(at, shape.dims()[at].saturating_mul(count));
        check_size("repeat", &shape, self.dtype)?;
        repeated(self, at, count, &shape)
    }
}

#[track_caller]
fn repeated(array: &AnyArray, at: usize, times: usize, shape: &Shape) -> Result<AnyArray> {
    let whole = *shape;
    let step = RuledOperation::begin("repeat", &[array])?.computed_by(0, move |operands| {
        copied(&operands[0], Copying::Repeated { at, times }, &whole)
    });
    let repeated = copied(array, Copying::Repeated { at, times }, shape)?;
    let own = *array.layout.shape();
    let (before, after) = own.dims().split_at(at);
    let [before, after] = [before, &after[1..]].map(|axes| axes.iter().product::<usize>());
    let blocks = [before, own.dims()[at], times, after];
    Ok(step.finish(repeated, |_| {
        move |gradient: AnyArray| {
            let dtype = gradient.dtype;
            let blocks = gradient.reshape(&blocks.into())?.lazy();
            let sums = blocks.cast(dtype.computed_in()).sum_axis(2)?;
            Ok(vec![sums.converted(dtype)?.reshape(&own)?])
        }
    }))
}
