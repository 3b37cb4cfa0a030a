//! The direct source: segments reserved from the device.

use super::{ReserveAt, Source, SourcePart};
use crate::device::{Backend, Destination, DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;

/// The source of segments that the backend reserves, without ranges.
#[derive(Clone, Debug)]
pub(crate) struct DirectSource {
    backend: Arc<dyn Backend>,
}

impl DirectSource {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend }
    }
}

impl Source for DirectSource {
    fn reserve(&self, at: ReserveAt, bytes: u64, _stream: StreamId) -> Result<Option<DevicePtr>> {
        match at {
            ReserveAt::Anywhere => self.backend.reserve(bytes),
            ReserveAt::Address(address) => Err(outside_ranges(address, bytes)),
        }
    }

    fn release(&self, part: SourcePart, _to: Destination) -> Result<()> {
        self.backend.release(part.address, part.bytes)
    }
}

pub(super) fn outside_ranges(address: DevicePtr, bytes: u64) -> Error {
    let text = format!(
        "{bytes} bytes at {:#x} are outside every address range",
        address.0
    );
    Error::new(ErrorKind::Driver, text)
}
