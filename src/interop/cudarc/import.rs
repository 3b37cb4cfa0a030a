//! Import of cudarc's memory as arrays.

use cudarc::driver::{CudaSlice, DevicePtrMut};

use super::driver_error;
use crate::array::{AnyElement, Array, Shape};
use crate::context::Device;
use crate::context::stream_of;
use crate::error::{AtCaller, Error, ErrorKind, Result};

impl<T: AnyElement> Array<T> {
    /// Imports cudarc's `slice` as an array, without a copy. The array owns the slice, and drops it
    /// when [`from_raw_parts`](Self::from_raw_parts) would call the destructor.
    ///
    /// The array is ordered after work that was enqueued on cudarc's streams before the import.
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](ErrorKind::InvalidShape) if shape and slice differ in the number of
    /// elements. [`DeviceMismatch`](ErrorKind::DeviceMismatch) if the slice is of another device or
    /// context. The errors of [`from_raw_parts`](Self::from_raw_parts) and
    /// [`Device::cuda_context`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use cachescope::{Array, Device};
    ///
    /// let device = Device::cuda(0)?;
    /// let stream = device.cuda_context()?.new_stream()?;
    /// let slice = stream.clone_htod(&[1.0f32, 2.0, 3.0, 4.0])?;
    /// let array = Array::from_cuda_slice(&device, slice, [2, 2])?;
    /// assert_eq!(array.sum()?.item()?, 10.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn from_cuda_slice(
        device: &Device,
        mut slice: CudaSlice<T>,
        shape: impl Into<Shape>,
    ) -> Result<Self> {
        let shape = shape.into();
        let expected = shape.checked_len()?;
        if expected != slice.len() {
            let text = format!(
                "from_cuda_slice: the slice has {} elements, the shape {shape} has {expected}",
                slice.len()
            );
            return Err(Error::new(ErrorKind::InvalidShape, text));
        }
        let stream = stream_of(device, device.stream())?;
        if stream.context().cu_ctx() != slice.context().cu_ctx() {
            let text = format!(
                "from_cuda_slice: the slice belongs to another context, expected the context of \
                 {device}"
            );
            return Err(Error::new(ErrorKind::DeviceMismatch, text));
        }
        // If the slice's context has only one stream, cudarc does not order the uses of the slice.
        stream
            .join(slice.stream())
            .map_err(driver_error)
            .at_caller()?;
        let address = {
            let (address, _uses) = slice.device_ptr_mut(&stream);
            address
        };
        stream
            .context()
            .check_err()
            .map_err(driver_error)
            .at_caller()?;
        // SAFETY: the slice alone owns the device memory, and keeps it until the slice drops. The
        // slice's elements are written, and the shape has as many elements. The thread's current
        // stream was just ordered after all of cudarc's work on the slice.
        unsafe { Self::from_raw_parts(device, address, shape, move || drop(slice)) }
    }
}
