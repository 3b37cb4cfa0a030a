//! One-hot rows of class labels.

use super::{check_size, invalid};
use crate::array::{AnyElement, Array, DType, Elements, Integer, Shape, bits_of};
use crate::error::Result;
use crate::ops::cuda;
use crate::ops::expression::any_array::AnyArray;
use crate::ops::host;
use crate::ops::precompiled::precompiled;

impl<T: Integer> Array<T> {
    /// Returns a row for each element, along a new last axis of length `classes`. The row is one at
    /// the index that the element names, and zero elsewhere.
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
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if an element is negative, or not
    /// below `classes`; [`InvalidShape`](crate::ErrorKind::InvalidShape) if the result's rank is
    /// above 8 or its size overflows; and [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn one_hot<U: AnyElement>(&self, classes: usize) -> Result<Array<U>> {
        if const { T::DTYPE as u8 == DType::I64 as u8 } {
            let labels = self.downcast_ref();
            return precompiled!(of_i64::<U>(; labels: &Array<i64>, classes: usize));
        }
        one_hot(self, classes)
    }

    /// Waits until the elements are computed, and checks that all are classes. On a CUDA device the
    /// kernel checks the elements, and this method checks only that `classes` is not 0.
    #[track_caller]
    fn check_classes(&self, classes: usize) -> Result<()> {
        let own = self.layout().shape();
        if self.device().backend().cuda().is_some() {
            return match classes {
                0 if !self.is_empty() => Err(invalid(format!(
                    "one_hot: 0 classes for the array of shape {own}, expected at least one"
                ))),
                _ => Ok(()),
            };
        }
        let is_class = |class: T| class >= T::zero() && T::into_u64(class) < classes as u64;
        match Elements::of(self)?.find_unless(is_class) {
            None => Ok(()),
            Some(class) => Err(invalid(format!(
                "one_hot: the class {class} in the array of shape {own} is out of range for {classes} classes"
            ))),
        }
    }
}

#[track_caller]
fn one_hot<T: Integer, U: AnyElement>(labels: &Array<T>, classes: usize) -> Result<Array<U>> {
    let shape: Shape = labels.shape().iter().copied().chain([classes]).collect();
    check_size("one_hot", &shape, U::DTYPE)?;
    labels.check_classes(classes)?;
    let one = (U::DTYPE, bits_of(U::one()));
    on_device!(
        labels.device(),
        touching labels.buffer(),
        order => host::marked(order, labels, classes, &shape),
        cuda::marked(order, labels.into(), classes, one, &shape).map(AnyArray::into_array)
    )
}

/// Specialises [`one_hot`] for `i64`, the type of labels that most programs have.
#[track_caller]
fn of_i64<U: AnyElement>(labels: &Array<i64>, classes: usize) -> Result<Array<U>> {
    one_hot(labels, classes)
}
