//! Where segments come from. `direct` asks the backend; the adaptors wrap any other source and
//! compose in any order.

use std::fmt;

use crate::device::DevicePtr;
use crate::error::Result;

pub(crate) mod direct;
pub(crate) mod fault;
pub(crate) mod limit;

/// A supplier of segments.
pub(crate) trait Source: fmt::Debug + Send + Sync {
    /// Reserves a segment of `bytes` (not 0); `None` where this source or one below it is
    /// exhausted, an error where the device itself failed.
    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>>;

    /// Gives back what [`reserve`](Self::reserve) gave, with the same `bytes`.
    fn release(&self, address: DevicePtr, bytes: u64) -> Result<()>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>> {
        (**self).reserve(bytes)
    }

    fn release(&self, address: DevicePtr, bytes: u64) -> Result<()> {
        (**self).release(address, bytes)
    }
}
