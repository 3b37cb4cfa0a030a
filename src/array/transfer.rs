//! Copies of elements to the host, and copies of arrays outside of caches or on other devices.

use super::writer::ByteWriter;
use super::{AnyArray, AnyElement, Array, Buffer, Elements, HostView, refuse_tracked};
use crate::context::Device;
use crate::error::{Error, ErrorCode, Result};

impl<T: AnyElement> Array<T> {
    /// Returns the elements in row-major order.
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
    /// [`Driver`](crate::ErrorKind::Driver) if the copy from the device fails. On a CUDA device,
    /// also the errors of [`Device::synchronize`].
    #[track_caller]
    pub fn to_vec(&self) -> Result<Vec<T>> {
        Ok(Elements::of(self)?.to_vec())
    }

    /// Returns the only element.
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
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if the array does not have exactly one
    /// element. [`Driver`](crate::ErrorKind::Driver) if the copy from the device fails.
    #[track_caller]
    pub fn item(&self) -> Result<T> {
        if self.len() != 1 {
            return Err(Error::new(
                ErrorCode::Count,
                format!(
                    "item: the shape {} has {} elements, expected 1",
                    self.layout().shape(),
                    self.len()
                ),
            ));
        }
        let elements = Elements::of(self)?;
        Ok(elements.at(elements.layout().offset()))
    }

    /// Returns a copy without gaps, on the same device, that no cache owns. Call it for an array
    /// that must outlive a scope.
    ///
    /// No gradient passes through the copy. If the array is computed from parameters inside of
    /// [`value_and_grad`](crate::grad::value_and_grad), write
    /// [`stop_gradient(&array)`](crate::grad::stop_gradient)`.to_uncached()?`. This copies only the
    /// values. PyTorch's `detach` is `stop_gradient`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::arange(0, 3, 1)?;
    /// let kept = array.to_uncached()?;
    /// assert_eq!(kept, array);
    /// assert_ne!(kept.address(), array.address());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if gradients are computed through the array,
    /// and the errors of [`to_device`](Self::to_device).
    #[track_caller]
    pub fn to_uncached(&self) -> Result<Self> {
        refuse_tracked("to_uncached", self.buffer().value_id())?;
        let buffer = Buffer::new_detached(self.device(), self.erased().dense_bytes()?)?;
        self.erased().copied_into(buffer).map(Self::from_erased)
    }
}

impl AnyArray {
    /// Returns a copy without gaps on `device`, allocated in the current scope.
    #[track_caller]
    pub(crate) fn copied_to(&self, device: &Device) -> Result<Self> {
        self.copied_into(Buffer::new(device, self.dense_bytes()?)?)
    }

    #[track_caller]
    fn dense_bytes(&self) -> Result<usize> {
        self.shape().size_bytes(self.dtype.size_bytes())
    }

    /// Copies the elements to `buffer`, which has exactly their size, and returns the copy.
    #[track_caller]
    fn copied_into(&self, buffer: Buffer) -> Result<Self> {
        let mut writer = ByteWriter::over(buffer, self.dtype, self.shape());
        if self.device().backend().is_meta() {
            writer.repeat(&[0], writer.remaining())?;
        } else {
            HostView::of(self)?.for_each_chunk(|bytes| writer.upload(bytes))?;
        }
        Ok(writer.finish())
    }
}
