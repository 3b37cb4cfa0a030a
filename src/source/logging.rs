//! A log of everything that a source gives and takes back.

use super::reservation_log::ReservationLog;
use super::{ReserveAt, Source};
use crate::device::{DevicePtr, StreamId};
use crate::error::Result;
use crate::sync::Arc;

/// Logs what the source below gives, refuses and takes back, in RMM's format.
///
/// Pages are logged one in a row, because what is committed in one step may be decommitted in several:
/// so every row that frees has one that allocates, and the bytes of the log are those that are
/// reserved, after each row.
///
/// Where the log cannot be written, the next [`reserve`](Source::reserve) says so.
#[derive(Debug)]
pub(crate) struct Logging<S> {
    inner: S,
    page_bytes: u64,
    log: Arc<ReservationLog>,
}

impl<S> Logging<S> {
    /// Logs to `log` what `inner` does, whose ranges have pages of `page_bytes`.
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

    fn release(&self, address: DevicePtr, bytes: u64, stream: StreamId) -> Result<()> {
        // First: from its release on, another thread may be given the same address.
        self.log.log_release(address, bytes, stream);
        self.inner.release(address, bytes, stream)
    }
}

impl<S> Drop for Logging<S> {
    fn drop(&mut self) {
        self.log.flush();
    }
}
