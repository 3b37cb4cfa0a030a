//! One-hot rows of class labels.

use super::{check_size, invalid};
use crate::array::{AnyArray, AnyElement, Array, Bits, DType, Integer, Shape, bits_of};
use crate::error::Result;
use crate::ops::host;
use cachescope_kernels::counts::{IntegerLoops, integer_loops_of};

impl<T: Integer> Array<T> {
    /// Returns the one-hot encoding of the elements. A new last axis of length `classes` has a row
    /// for each element. The row is one at the index that the element names, and zero elsewhere.
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
    /// below `classes`. [`InvalidShape`](crate::ErrorKind::InvalidShape) if the result's rank is
    /// above 8 or its size overflows. [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the device
    /// has no memory. On the host, the conversion of labels that are not `i64` also needs memory.
    #[track_caller]
    pub fn one_hot<U: AnyElement>(&self, classes: usize) -> Result<Array<U>> {
        let one = (U::DTYPE, bits_of(U::one()));
        let rows = one_hot(self.erased(), integer_loops_of::<T>(), classes, one)?;
        Ok(Array::from_erased(rows))
    }
}

/// Waits until the labels are computed, and checks that all are classes. On a CUDA device, only
/// checks that `classes` is not 0, because the kernel checks the labels.
#[track_caller]
fn check_labels(labels: &AnyArray, loops: &'static IntegerLoops, classes: usize) -> Result<()> {
    let own = labels.shape();
    if labels.device().backend().cuda().is_some() {
        return match classes {
            0 if labels.len() > 0 => Err(invalid(format!(
                "one_hot: 0 classes for the array of shape {own}, expected at least one"
            ))),
            _ => Ok(()),
        };
    }
    let bound = i64::try_from(classes).unwrap_or(i64::MAX);
    match host::first_outside(loops, labels, 0..bound)? {
        None => Ok(()),
        Some(class) => Err(invalid(format!(
            "one_hot: the class {class} in the array of shape {own} is out of range for {classes} classes"
        ))),
    }
}

/// Returns the one-hot rows of labels. `one` is the number 1 in the type of the rows.
#[track_caller]
fn one_hot(
    labels: &AnyArray,
    loops: &'static IntegerLoops,
    classes: usize,
    one: (DType, Bits),
) -> Result<AnyArray> {
    let shape: Shape = labels.dims().iter().copied().chain([classes]).collect();
    check_size("one_hot", &shape, one.0)?;
    check_labels(labels, loops, classes)?;
    let labels = match labels.device().backend().cuda().is_some() {
        true => labels.share(),
        false => labels.share().converted(DType::I64)?,
    };
    on_device!(
        labels.device(),
        touching & labels.buffer,
        marked(labels.operand(), classes, one, &shape)
    )
}
