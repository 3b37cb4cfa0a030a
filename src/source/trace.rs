//! A log of everything that a source gives and takes back.

use super::log::Log;
use super::{Place, Source};
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
pub(crate) struct Trace<S> {
    inner: S,
    page_bytes: u64,
    log: Arc<Log>,
}

impl<S> Trace<S> {
    /// Logs to `log` what `inner` does, whose ranges have pages of `page_bytes`.
    pub(crate) fn new(inner: S, page_bytes: u64, log: Arc<Log>) -> Self {
        Self {
            inner,
            page_bytes,
            log,
        }
    }
}

impl<S: Source> Source for Trace<S> {
    fn reserve(&self, place: Place, bytes: u64, stream: StreamId) -> Result<Option<DevicePtr>> {
        self.log.tell_error()?;
        let reserved = self.inner.reserve(place, bytes, stream);
        let row_bytes = match place {
            Place::Anywhere => bytes,
            Place::At(_) => self.page_bytes,
        };
        match reserved {
            Ok(Some(address)) => self.log.reserved(address, bytes, row_bytes, stream),
            Ok(None) | Err(_) => self.log.refused(bytes, stream),
        }
        reserved
    }

    fn release(&self, address: DevicePtr, bytes: u64, stream: StreamId) -> Result<()> {
        // First: from its release on, another thread may be given the same address.
        self.log.released(address, bytes, stream);
        self.inner.release(address, bytes, stream)
    }
}

impl<S> Drop for Trace<S> {
    fn drop(&mut self) {
        self.log.flush();
    }
}
