//! TEMPORARY scaffolding with the final signatures: being replaced by the real storage.
use crate::device::DevicePtr;
use crate::{Device, Error, ErrorKind, Result};
use std::sync::Arc;
#[derive(Debug)]
struct Inner {
    device: Device,
    address: DevicePtr,
    bytes: usize,
}
impl Drop for Inner {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let _ = self
                .device
                .backend()
                .release(self.address, self.bytes as u64);
        }
    }
}
/// Untyped device memory, uninitialised when new.
#[derive(Debug)]
pub struct Buffer {
    inner: Arc<Inner>,
}
impl Buffer {
    /// Allocates.
    pub fn new(device: &Device, size_bytes: usize) -> Result<Buffer> {
        let address = if size_bytes == 0 {
            DevicePtr(0)
        } else {
            device
                .backend()
                .reserve(size_bytes as u64)?
                .ok_or_else(|| Error::new(ErrorKind::OutOfMemory, "full"))?
        };
        Ok(Buffer {
            inner: Arc::new(Inner {
                device: device.clone(),
                address,
                bytes: size_bytes,
            }),
        })
    }
    /// Allocates memory that no cache owns.
    pub(crate) fn new_detached(device: &Device, size_bytes: usize) -> Result<Buffer> {
        Self::new(device, size_bytes)
    }
    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.inner.address.0
    }
    /// Size.
    pub fn size_bytes(&self) -> usize {
        self.inner.bytes
    }
    /// Device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }
    /// Another handle of the same memory.
    pub(crate) fn share(&self) -> Buffer {
        Buffer {
            inner: self.inner.clone(),
        }
    }
    /// How many handles share the memory.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.inner)
    }
    /// Whether both are handles of the same memory.
    pub(crate) fn is_same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}
