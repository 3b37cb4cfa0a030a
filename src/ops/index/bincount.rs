//! How often each number occurs.

use super::invalid;
use crate::array::{Array, DType, Elements, Integer};
use crate::device::cuda::Indexing;
use crate::error::Result;
use crate::ops::aliasing::Target;
use crate::ops::order::Updating;

impl<T: Integer> Array<T> {
    /// How often each of the numbers from 0 to `length` − 1 occurs among all elements: NumPy's `bincount`, in the
    /// shape `[length]`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let classes = Array::from_slice(&[2, 0, 2, 1, 2], 5)?;
    /// assert_eq!(classes.bincount(4)?.to_vec()?, [1, 1, 3, 0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where an element is negative, or `length` or more: on
    /// CUDA devices, where a kernel looks, from the next call that synchronises.
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) where the size overflows, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory); elements that are not `i64` take room for a copy that is.
    #[track_caller]
    pub fn bincount(&self, length: usize) -> Result<Array<i64>> {
        self.check_numbers(length)?;
        if const { T::DTYPE as u8 == DType::I64 as u8 } {
            return occurrences(&self.downcast_ref().flatten()?, length);
        }
        occurrences(&self.cast::<i64>().eval()?.flatten()?, length)
    }

    /// Waits until the elements are known, and looks whether all are counted; on a CUDA device, where the kernel looks,
    /// only whether any number is.
    #[track_caller]
    fn check_numbers(&self, length: usize) -> Result<()> {
        let own = self.layout().shape();
        if self.device().backend().cuda().is_some() {
            return match length {
                0 if !self.is_empty() => Err(invalid(format!(
                    "bincount: the length is 0, and there are elements in the array of shape {own}"
                ))),
                _ => Ok(()),
            };
        }
        let is_counted = |number: T| number >= T::zero() && T::into_u64(number) < length as u64;
        match Elements::of(self)?.find_unless(is_counted) {
            None => Ok(()),
            Some(number) => Err(invalid(format!(
                "bincount: {number} is none of the numbers below {length}, in the array of shape {own}"
            ))),
        }
    }
}

/// How often each of the numbers below `length` occurs in an array of one axis, whose elements they are.
#[track_caller]
pub(super) fn occurrences(numbers: &Array<i64>, length: usize) -> Result<Array<i64>> {
    let _device = numbers.device().enter();
    let mut counts = Array::<i64>::zeros(length)?;
    if numbers.is_empty() {
        return Ok(counts);
    }
    let (one, shape) = (Array::<i64>::ones([])?, *numbers.layout().shape());
    let target = Target::new(&mut counts);
    let updating = Updating {
        targets: &[target.buffer()],
        reading: [numbers.buffer(), one.buffer()],
    };
    let along = (0, Indexing::Bincount);
    on_device!(
        target.device(),
        touching & updating,
        add_at(target, numbers, &one, along, &shape)
    )?;
    Ok(counts)
}
