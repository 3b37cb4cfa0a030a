//! The stream that this thread's work goes to. A hit reads the copy beside the current shard.

use std::cell::Cell;
use std::ptr;

use crate::cache::shard::{Caches, CachesRef};
use crate::device::StreamId;
use crate::sync::thread_local;

/// A stream's number. No other stream gets the number while a handle, or a thread inside the
/// stream, holds this lease.
#[derive(Debug)]
pub(crate) struct StreamLease {
    device: CachesRef,
    id: StreamId,
}

impl StreamLease {
    /// Makes the lease of a number that `device` returned and that no other lease holds, or of the
    /// default stream's number.
    pub(crate) fn new(device: CachesRef, id: StreamId) -> Self {
        Self { device, id }
    }

    pub(crate) fn device(&self) -> &CachesRef {
        &self.device
    }

    pub(crate) fn id(&self) -> StreamId {
        self.id
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        if self.id != StreamId::default() {
            self.device.memory().backend().retire_stream(self.id);
        }
    }
}

thread_local! {
    /// The stream that this thread entered last, and its device; null if there is none. It has no
    /// destructor, so that it can be read at any time. The scope stack clears it when the thread
    /// ends.
    static ENTERED: Cell<(*const Caches, StreamId)> = const { Cell::new((ptr::null(), StreamId(0))) };
}

/// Sends the thread's work to this stream from now on, instead of the previous one.
pub(super) fn note_stream(entered: Option<(*const Caches, StreamId)>) {
    ENTERED.set(entered.unwrap_or((ptr::null(), StreamId::default())));
}

/// Returns the stream that this thread entered last, and its device; null if there is none.
#[inline]
pub(super) fn entered_stream() -> (*const Caches, StreamId) {
    ENTERED.get()
}
