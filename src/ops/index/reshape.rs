//! Changes of the shape. A change may need a copy.

use super::moves::copied;
use crate::array::{AnyArray, AnyElement, Array, Shape};
use crate::error::Result;
use crate::ops::derivatives::RuledOperation;
use crate::ops::descriptors::Copying;

impl<T: AnyElement> Array<T> {
    /// Returns the elements in the shape `shape`, in row-major order. If strides can express the
    /// result, it is a view. Otherwise, it is a copy on the same device. One length may be
    /// [`INFER`](crate::INFER). This length is inferred from the number of elements.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, INFER};
    ///
    /// let array = Array::arange(0, 6, 1)?.reshape([2, 3])?;
    /// assert_eq!(array.shape(), [2, 3]);
    /// assert_eq!(array.reshape([INFER, 2])?.shape(), [3, 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if `shape` has another number of elements,
    /// a rank above 8 or a size that overflows. [`InvalidShape`](crate::ErrorKind::InvalidShape)
    /// also if several lengths are [`INFER`](crate::INFER), or no length fits.
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the device has no memory for a copy.
    #[track_caller]
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        self.erased().reshape(&shape.into()).map(Self::from_erased)
    }

    /// Returns the elements along one axis, in row-major order. Like for
    /// [`reshape`](Self::reshape), the result is a view or a copy.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::<f32>::zeros([2, 3])?.flatten()?.shape(), [6]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`reshape`](Self::reshape).
    #[track_caller]
    pub fn flatten(&self) -> Result<Self> {
        self.reshape(self.len())
    }
}

impl AnyArray {
    /// See [`Array::reshape`].
    #[track_caller]
    pub(crate) fn reshape(&self, shape: &Shape) -> Result<Self> {
        let shape = shape.inferred(self.shape())?;
        match self.layout.reshape(&shape)? {
            Some(layout) => Ok(self.view(layout)),
            None => reshaped(self, &shape),
        }
    }
}

#[track_caller]
fn reshaped(array: &AnyArray, shape: &Shape) -> Result<AnyArray> {
    let whole = *shape;
    let step = RuledOperation::begin("reshape", &[array])?.computed_by(0, move |operands| {
        copied(&operands[0], Copying::All, &whole)
    });
    let copy = copied(array, Copying::All, shape)?;
    let own = *array.layout.shape();
    Ok(step.finish(copy, |_| {
        move |gradient: AnyArray| Ok(vec![gradient.reshape(&own)?])
    }))
}
