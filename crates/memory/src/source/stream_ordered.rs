//! The stream-ordered source: a memory pool of the driver.

use super::direct::outside_ranges;
use super::{ReserveAt, Source, SourcePart};
use crate::device::cuda::{Cuda, OrderedPool};
use crate::device::{Backend, Destination, DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;

/// The source of segments from a driver pool of this crate, reserved and released in stream order.
/// A released segment may serve the next reservation on any stream. The driver orders the streams,
/// so the host does not wait before releasing.
///
/// The driver pool keeps released memory until it is trimmed or dropped.
#[derive(Debug)]
pub(crate) struct StreamOrdered {
    // The driver pool. It is dropped before the backend to which it belongs.
    pool: OrderedPool,
    backend: Arc<dyn Backend>,
}

impl StreamOrdered {
    /// Creates a source of `backend`, if it is a CUDA device with memory pools.
    pub(crate) fn new(backend: &Arc<dyn Backend>) -> Result<Self> {
        let Some(cuda) = backend.cuda() else {
            let text = format!("{} has no driver memory pools", backend.id());
            return Err(Error::new(ErrorKind::Unsupported, text));
        };
        Ok(Self {
            pool: cuda.new_pool()?,
            backend: Arc::clone(backend),
        })
    }

    fn cuda(&self) -> &Cuda {
        let cuda = self.backend.cuda();
        cuda.expect("the device is a CUDA device, as `new` has checked")
    }

    /// Returns the bytes that the driver pool has reserved from the device, in use or not.
    pub(crate) fn held_bytes(&self) -> Result<u64> {
        self.cuda().pool_bytes(&self.pool)
    }

    /// Releases unused memory to the device, down to `keep_bytes` held bytes. Memory whose streams
    /// are not done stays.
    pub(crate) fn trim(&self, keep_bytes: u64) -> Result<()> {
        self.cuda().trim_pool(&self.pool, keep_bytes)
    }
}

impl Source for StreamOrdered {
    fn reserve(&self, at: ReserveAt, bytes: u64, stream: StreamId) -> Result<Option<DevicePtr>> {
        match at {
            ReserveAt::Anywhere => self.cuda().reserve_ordered(&self.pool, bytes, stream),
            ReserveAt::Address(address) => Err(outside_ranges(address, bytes)),
        }
    }

    fn release(&self, part: SourcePart, _to: Destination) -> Result<()> {
        self.cuda().release_ordered(part.address, part.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::host::HostBackend;

    #[test]
    fn the_host_has_no_such_pool() {
        let backend: Arc<dyn Backend> = Arc::new(HostBackend::new());
        let error = StreamOrdered::new(&backend).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
