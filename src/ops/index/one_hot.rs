//! Classes as rows with a one.

use super::{check_size, invalid};
use crate::array::{Array, Element, Elements, Integer, Shape};
use crate::error::Result;

impl<T: Integer> Array<T> {
    /// For each element a row of `classes` zeros with a one at the place that the element says, along
    /// a new last axis.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let labels = Array::from_slice(&[2u8, 0], 2)?;
    /// let rows = labels.one_hot::<f32>(3)?;
    /// assert_eq!(rows.shape(), [2, 3]);
    /// assert_eq!(rows.to_vec()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where an element is no class: negative, or
    /// `classes` or more; [`InvalidShape`](crate::ErrorKind::InvalidShape) where the result's rank is
    /// above 8 or its size overflows; and [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn one_hot<U: Element>(&self, classes: usize) -> Result<Array<U>> {
        let shape: Shape = self.shape().iter().copied().chain([classes]).collect();
        check_size::<U>("one_hot", &shape)?;
        self.check_classes(classes)?;
        on_device!(self.device(), marked(self, classes, &shape))
    }

    /// Waits until the elements are known, and looks whether all are classes; on a CUDA device, where the
    /// kernel looks, only whether there are any classes.
    fn check_classes(&self, classes: usize) -> Result<()> {
        let own = self.layout().shape();
        if self.device().backend().cuda().is_some() {
            return match classes {
                0 if !self.is_empty() => Err(invalid(format!(
                    "one_hot: 0 classes, and elements in the array of shape {own}"
                ))),
                _ => Ok(()),
            };
        }
        let is_class = |class: T| class >= T::zero() && T::into_u64(class) < classes as u64;
        match Elements::of(self)?.find_unless(is_class) {
            None => Ok(()),
            Some(class) => Err(invalid(format!(
                "one_hot: {class} is none of {classes} classes, in the array of shape {own}"
            ))),
        }
    }
}
