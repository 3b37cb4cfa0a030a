//! The logging adaptor, like RMM's `logging_resource_adaptor`.

use super::reservation_log::ReservationLog;
use super::{ReserveAt, Source, SourcePart};
use crate::device::{Destination, DevicePtr, StreamId};
use crate::error::Result;
use crate::sync::Arc;

/// A source that logs the reservations, refusals and releases of the source below, in RMM's format.
///
/// Each page has its own row, because pages committed in one step may be decommitted in several. So
/// every row that frees matches one that allocates. After each row, the log sums to the reserved
/// bytes, without the bytes that a source keeps.
///
/// If the log cannot be written, the next [`reserve`](Source::reserve) returns the error.
#[derive(Debug)]
pub(crate) struct Logging<S> {
    inner: S,
    page_bytes: u64,
    log: Arc<ReservationLog>,
}

impl<S> Logging<S> {
    /// Logs `inner`, whose ranges have pages of `page_bytes`, to `log`.
    pub(crate) fn new(inner: S, page_bytes: u64, log: Arc<ReservationLog>) -> Self {
        Self {
            inner,
            page_bytes,
            log,
        }
    }
}

impl<S: Source> Source for Logging<S> {
    fn reserve(&self, at: ReserveAt, bytes: u64, stream: StreamId) -> Result<Option<DevicePtr>> {
        self.log.take_error()?;
        let reserved = self.inner.reserve(at, bytes, stream);
        let row_bytes = match at {
            ReserveAt::Anywhere => bytes,
            ReserveAt::Address(_) => self.page_bytes,
        };
        match reserved {
            Ok(Some(address)) => self.log.log_reserve(address, bytes, row_bytes, stream),
            Ok(None) | Err(_) => self.log.log_failure(bytes, stream),
        }
        reserved
    }

    fn release(&self, part: SourcePart, to: Destination) -> Result<()> {
        // Before the release: afterwards another thread may reserve the address.
        self.log.log_release(part.address, part.bytes, part.stream);
        self.inner.release(part, to)
    }
}

impl<S> Drop for Logging<S> {
    fn drop(&mut self) {
        self.log.flush();
    }
}
