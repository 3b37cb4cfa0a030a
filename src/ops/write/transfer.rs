//! Arrays on other devices.

use crate::array::{AnyArray, AnyElement, Array};
use crate::context::Device;
use crate::error::Result;
use crate::ops::derivatives::RuledOperation;

impl<T: AnyElement> Array<T> {
    /// Returns this array on `device`. If the array is on `device` already, the result shares its
    /// memory. Otherwise, the result is a copy without gaps.
    ///
    /// Gradients pass through the copy. They are transferred back to the device of this array.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Device};
    ///
    /// let array = Array::arange(0, 3, 1)?.to_device(&Device::host())?;
    /// assert_eq!(*array.device(), Device::host());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if `device` has no memory left.
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if the size of a broadcast view's copy
    /// overflows. [`Driver`](crate::ErrorKind::Driver) if a device fails.
    #[track_caller]
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        self.erased().to_device(device).map(Self::from_erased)
    }
}

impl AnyArray {
    /// See [`Array::to_device`].
    #[track_caller]
    pub(crate) fn to_device(&self, device: &Device) -> Result<Self> {
        if self.device() == device {
            return Ok(self.share());
        }
        let step = RuledOperation::begin("to_device", &[self])?;
        let copy = self.copied_to(device)?;
        let source = self.device().clone();
        Ok(step.finish(copy, |_| {
            move |gradient: AnyArray| Ok(vec![gradient.to_device(&source)?])
        }))
    }
}
