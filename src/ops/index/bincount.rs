//! Counts of numbers.

use super::{check_size, invalid};
use crate::array::{AnyArray, Array, Buffer, DType, Integer, Shape};
use crate::context::Device;
use crate::device::cuda::Indexing;
use crate::error::Result;
use crate::ops::host;
use crate::ops::order::UpdateTargets;
use crate::ops::order::aliasing::Target;
use cachescope_kernels::counts::{IntegerLoops, integer_loops_of};

impl<T: Integer> Array<T> {
    /// Returns the number of occurrences of each number from 0 to `length` − 1 among all elements.
    /// This is NumPy's `bincount`. The result has the shape `[length]`.
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
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if an element is negative, or at
    /// least `length`. On CUDA devices, a kernel checks the elements, and the next call that waits
    /// for the device returns the error. [`InvalidShape`](crate::ErrorKind::InvalidShape) if the
    /// size overflows, and [`OutOfMemory`](crate::ErrorKind::OutOfMemory). On CUDA devices,
    /// elements that are not `i64` are first copied as `i64`.
    #[track_caller]
    pub fn bincount(&self, length: usize) -> Result<Array<i64>> {
        bincount(self.erased(), integer_loops_of::<T>(), length)
    }
}

#[track_caller]
fn bincount(
    integers: &AnyArray,
    loops: &'static IntegerLoops,
    length: usize,
) -> Result<Array<i64>> {
    check_size("bincount", &Shape::from(length), DType::I64)?;
    if integers.device().backend().cuda().is_none() {
        return counted(integers, loops, length);
    }
    if length == 0 && integers.len() > 0 {
        return Err(invalid(format!(
            "bincount: the length is 0, expected at least 1 for the array of shape {}",
            integers.shape()
        )));
    }
    let integers: Array<i64> = integers.share().converted(DType::I64)?.into_array();
    occurrences(&integers.flatten()?, length)
}

/// Counts on the host, in one pass.
#[track_caller]
fn counted(integers: &AnyArray, loops: &'static IntegerLoops, length: usize) -> Result<Array<i64>> {
    check_room(integers.device(), length)?;
    match host::occurrences(loops, integers, length)? {
        Ok(counts) => {
            let _device = integers.device().enter();
            Array::from_vec(counts, length)
        }
        Err(number) => {
            let expected = match length.checked_sub(1) {
                Some(largest) => format!("numbers from 0 to {largest}"),
                None => "no numbers, because the length is 0".to_owned(),
            };
            Err(invalid(format!(
                "bincount: the array of shape {} has the number {number}, expected {expected}",
                integers.shape()
            )))
        }
    }
}

/// # Errors
///
/// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the device has no memory for `count` numbers.
/// This check precedes the allocation of a host list of `count` numbers.
#[track_caller]
pub(super) fn check_room(device: &Device, count: usize) -> Result<()> {
    let size_bytes = Shape::from(count).size_bytes(size_of::<i64>())?;
    Buffer::new(device, size_bytes).map(drop)
}

/// Returns the number of occurrences of each number below `length` in an array of one axis.
#[track_caller]
pub(super) fn occurrences(numbers: &Array<i64>, length: usize) -> Result<Array<i64>> {
    let _device = numbers.device().enter();
    let mut counts = Array::<i64>::zeros(length)?;
    if numbers.is_empty() {
        return Ok(counts);
    }
    let (one, shape) = (Array::<i64>::ones([])?, *numbers.layout().shape());
    let target = Target::new(counts.erased_mut());
    let updating = UpdateTargets {
        targets: &[target.buffer()],
        reading: [numbers.buffer(), one.buffer()],
    };
    let along = (0, Indexing::Bincount);
    on_device!(
        target.device(),
        touching & updating,
        add_at(target, numbers.into(), (&one).into(), along, &shape)
    )?;
    Ok(counts)
}
