//! The source that asks the device itself.

use super::Source;
use crate::device::{Backend, DevicePtr};
use crate::error::Result;
use crate::sync::Arc;

/// Each segment is one reservation of the backend.
#[derive(Clone, Debug)]
pub(crate) struct Direct {
    backend: Arc<dyn Backend>,
}

impl Direct {
    /// Segments from `backend`.
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend }
    }
}

impl Source for Direct {
    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>> {
        self.backend.reserve(bytes)
    }

    fn release(&self, address: DevicePtr, bytes: u64) -> Result<()> {
        self.backend.release(address, bytes)
    }
}
