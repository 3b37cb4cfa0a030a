//! One-hot rows of class labels.

use super::{check_size, invalid};
use crate::array::{AnyArray, AnyElement, Array, Bits, DType, Elements, Integer, Shape, bits_of};
use crate::error::Result;

impl<T: Integer> Array<T> {
    /// Returns the one-hot encoding of the elements: a row for each element, along a new last axis
    /// of length `classes`. The row is one at the index that the element names, and zero elsewhere.
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
    /// above 8 or its size overflows; and [`OutOfMemory`](crate::ErrorKind::OutOfMemory): on the
    /// host, labels of another type than `i64` are converted first.
    #[track_caller]
    pub fn one_hot<U: AnyElement>(&self, classes: usize) -> Result<Array<U>> {
        let shape = self.shape().iter().copied().chain([classes]);
        let shape: Shape = shape.collect();
        check_size("one_hot", &shape, U::DTYPE)?;
        self.check_classes(classes)?;
        let one = (U::DTYPE, bits_of(U::one()));
        one_hot(self.erased(), classes, one, &shape).map(Array::from_erased)
    }

    /// Waits until the elements are computed, and checks that all are classes. On a CUDA device,
    /// only checks that `classes` is not 0, because the kernel checks the elements.
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

/// Returns the one-hot rows of classes, which have been checked, in an array of `shape`. `one` is
/// the number 1 in the type of the rows.
#[track_caller]
fn one_hot(
    labels: &AnyArray,
    classes: usize,
    one: (DType, Bits),
    shape: &Shape,
) -> Result<AnyArray> {
    let labels = match labels.device().backend().cuda().is_some() {
        true => labels.share(),
        false => labels.share().converted(DType::I64)?,
    };
    on_device!(
        labels.device(),
        touching & labels.buffer,
        marked(labels.operand(), classes, one, shape)
    )
}
