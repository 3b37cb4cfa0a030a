//! Arrays on other devices.

use super::derivatives::{AnyArray, RuledOperation, by_gradient};
use crate::array::{AnyElement, Array};
use crate::context::Device;
use crate::error::Result;

impl<T: AnyElement> Array<T> {
    /// Returns this array on `device`: itself, sharing its memory, if it is there already, and a
    /// copy without gaps otherwise.
    ///
    /// Gradients pass through the copy: they are transferred back to the device of this array.
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
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if `device` has no memory left,
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if a broadcast view's elements are more
    /// than memory can hold, and [`Driver`](crate::ErrorKind::Driver) if a device fails.
    #[track_caller]
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        let source = self.device();
        if source == device {
            return Ok(self.clone());
        }
        let step = RuledOperation::begin("to_device", &[self])?;
        let copy = self.copied_to(device)?;
        Ok(step.finish(copy, |_| moved_back(source.clone())))
    }
}

/// Returns the rule of a copy from `source`.
fn moved_back(source: Device) -> impl FnOnce(AnyArray) -> Result<Vec<AnyArray>> + Clone {
    by_gradient!(gradient => [gradient.to_device(&source)?])
}
