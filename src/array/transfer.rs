//! Elements to the host, and arrays to other devices.

use super::{AnyElement, Array, Elements, Writer, refuse_followed};
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};

impl<T: AnyElement> Array<T> {
    /// The elements in row-major order.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::arange(0, 3, 1)?.flip(0)?.to_vec()?, [2, 1, 0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Driver`](ErrorKind::Driver) where the device fails to deliver them; on a CUDA device also the
    /// errors of [`Device::synchronize`].
    #[track_caller]
    pub fn to_vec(&self) -> Result<Vec<T>> {
        Ok(Elements::of(self)?.to_vec())
    }

    /// The only element.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::full([1, 1], 7u8)?.item()?, 7);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](ErrorKind::InvalidShape) where the array has none or several, and
    /// [`Driver`](ErrorKind::Driver) where the device fails to deliver it.
    #[track_caller]
    pub fn item(&self) -> Result<T> {
        if self.len() != 1 {
            return Err(Error::new(
                ErrorKind::InvalidShape,
                format!(
                    "item: the shape {} has {} elements, not 1",
                    self.layout().shape(),
                    self.len()
                ),
            ));
        }
        let elements = Elements::of(self)?;
        Ok(elements.at(elements.layout().offset()))
    }

    /// This array on `device`: itself, sharing its memory, where it is there already, and a copy
    /// without gaps elsewhere.
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
    /// [`OutOfMemory`](ErrorKind::OutOfMemory) where `device` has no room,
    /// [`InvalidShape`](ErrorKind::InvalidShape) where a broadcast view's elements are more than
    /// memory can hold, and [`Driver`](ErrorKind::Driver) where a device fails.
    #[track_caller]
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        if self.device() == device {
            return Ok(self.clone());
        }
        refuse_followed("to_device", self.buffer().node())?;
        self.written_by(Writer::new(device, self.layout().shape())?)
    }

    /// A copy without gaps, on the same device, that no cache owns: the array to keep from a
    /// scope.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::arange(0, 3, 1)?;
    /// let kept = array.detach()?;
    /// assert_eq!(kept, array);
    /// assert_ne!(kept.address(), array.address());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`to_device`](Self::to_device).
    #[track_caller]
    pub fn detach(&self) -> Result<Self> {
        refuse_followed("detach", self.buffer().node())?;
        self.written_by(Writer::detached(self.device(), self.layout().shape())?)
    }

    /// What `writer` makes of this array's elements.
    #[track_caller]
    fn written_by(&self, mut writer: Writer<'_, T>) -> Result<Self> {
        let elements = Elements::of(self)?;
        writer.extend_from(&elements, elements.layout())?;
        writer.finish()
    }
}
