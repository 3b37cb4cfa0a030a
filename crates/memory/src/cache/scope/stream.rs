//! The stream for this thread's work. A hit reads a copy of the stream's identifier. The copy is
//! stored beside the current shard.

use std::cell::Cell;
use std::ptr;

use crate::cache::shard::{Caches, CachesRef};
use crate::device::StreamId;
use crate::sync::thread_local;

/// The lease of a stream identifier. While a handle, or a thread inside the stream, holds this
/// lease, no other stream gets the identifier.
#[derive(Debug)]
pub(crate) struct StreamLease {
    device: CachesRef,
    id: StreamId,
}

impl StreamLease {
    /// Creates the lease of a stream identifier. Either `device` returned `id` and no other lease
    /// has it, or `id` is the default stream.
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
    /// The device and the identifier of the innermost entered stream. If the thread has entered no
    /// stream, the device is null. The thread-local has no destructor, so it can be read at any
    /// time. At the end of the thread, the scope stack clears it.
    static ENTERED: Cell<(*const Caches, StreamId)> = const { Cell::new((ptr::null(), StreamId(0))) };
}

/// Stores the innermost entered stream of this thread. If the thread has entered no stream,
/// `entered` is `None`.
pub(super) fn note_stream(entered: Option<(*const Caches, StreamId)>) {
    ENTERED.set(entered.unwrap_or((ptr::null(), StreamId::default())));
}

#[inline]
pub(super) fn entered_stream() -> (*const Caches, StreamId) {
    ENTERED.get()
}
