//! The source that is a memory pool of the driver's.

use super::direct::outside_ranges;
use super::{ReserveAt, Source};
use crate::device::cuda::{Cuda, OrderedPool};
use crate::device::{Backend, DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;

/// Segments out of a pool of our own, in the order of streams: one that is released goes to who reserves
/// next, on any stream, and the driver orders what has to be. So nobody waits before releasing.
///
/// The pool keeps what it was given back until it is trimmed, or dropped with this.
#[derive(Debug)]
pub(crate) struct StreamOrdered {
    // Before the backend, which it is of.
    pool: OrderedPool,
    backend: Arc<dyn Backend>,
}

impl StreamOrdered {
    /// Over `backend`, where it is a CUDA device that has such pools.
    pub(crate) fn new(backend: &Arc<dyn Backend>) -> Result<Self> {
        let Some(cuda) = backend.cuda() else {
            let text = format!("{} has no memory pools of a driver", backend.id());
            return Err(Error::new(ErrorKind::Unsupported, text));
        };
        Ok(Self {
            pool: cuda.new_pool()?,
            backend: Arc::clone(backend),
        })
    }

    fn cuda(&self) -> &Cuda {
        let cuda = self.backend.cuda();
        cuda.expect("asked for when this was made")
    }

    /// What the pool holds of the device, handed out or not.
    pub(crate) fn held_bytes(&self) -> Result<u64> {
        self.cuda().pool_bytes(&self.pool)
    }

    /// Gives back to the device what is not handed out, while more than `keep_bytes` are held. Of what was
    /// released it is what the streams are done with.
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

    fn release(&self, address: DevicePtr, _bytes: u64, stream: StreamId) -> Result<()> {
        self.cuda().release_ordered(address, stream)
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
