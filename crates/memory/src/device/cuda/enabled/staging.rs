//! Staging buffers for copies between host and device. The buffers are page-locked, so the device
//! accesses them directly.
//!
//! Arrays are never allocated in page-locked memory, so this memory needs no pool and no cache. A
//! long copy uses several buffers: the host fills one buffer while the device empties another.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;

use super::context::{Context, RawHandle};
use super::streams::StreamTable;
use crate::device::{Event, StreamId};
use crate::error::Result;
use crate::sync::Arc;
use crate::sync::plain::Mutex;

/// The size of a buffer. A longer copy uses several buffers.
pub(super) const BUFFER_BYTES: usize = 1 << 20;
const MAX_BUFFERS: usize = 8;
const ALIGNMENT_BYTES: usize = 256;
/// The free bytes below which a buffer counts as full.
const MIN_ROOM_BYTES: usize = 4 << 10;

/// A buffer of page-locked memory.
///
/// Invariant: `users` or `events` covers each stream that may still use the first `used` bytes. The
/// stream is in `users`, or an event in `events` is behind its use. No stream uses the bytes after
/// `used`.
#[derive(Debug)]
pub(super) struct StagingBuffer {
    memory: RawHandle<u8>,
    used: usize,
    users: Vec<StreamId>,
    events: Vec<Event>,
}

impl StagingBuffer {
    fn room(&self) -> usize {
        BUFFER_BYTES - self.used
    }

    /// Suballocates the next `bytes` bytes for `stream`. The caller has checked that
    /// [`room`](Self::room) suffices.
    pub(super) fn suballocate(&mut self, stream: StreamId, bytes: usize) -> *mut u8 {
        debug_assert!(bytes <= self.room());
        let offset = self.used;
        self.used = (offset + bytes)
            .next_multiple_of(ALIGNMENT_BYTES)
            .min(BUFFER_BYTES);
        if !self.users.contains(&stream) {
            self.users.push(stream);
        }
        self.memory.0.wrapping_add(offset)
    }

    /// Frees the last suballocation, which began at `part` and is unused.
    pub(super) fn free_last(&mut self, part: *mut u8) {
        self.used = part.addr() - self.memory.0.addr();
        if self.used == 0 {
            self.users.clear();
        }
    }

    /// Records an event for each user. If a recording fails, the next call retries it.
    fn close(&mut self, streams: &StreamTable) -> Result<()> {
        while let Some(&stream) = self.users.last() {
            self.events.push(streams.record(stream)?);
            self.users.pop();
        }
        Ok(())
    }

    fn is_done(&mut self, streams: &StreamTable) -> bool {
        let is_done = |event: &Event| streams.is_done(event).unwrap_or(false);
        let done = self.close(streams).is_ok() && self.events.iter().all(is_done);
        if done {
            self.clear();
        }
        done
    }

    fn wait(&mut self, streams: &StreamTable) -> Result<()> {
        self.close(streams)?;
        for event in &self.events {
            streams.wait_for(event)?;
        }
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.events.clear();
        self.used = 0;
    }
}

/// The staging buffers of a device. A copy takes its buffer out of the pool, so that no thread
/// copies under the lock.
#[derive(Debug)]
pub(super) struct StagingPool {
    context: Arc<Context>,
    buffers: Mutex<Buffers>,
}

/// Invariant: `made` counts the buffers in `open` and `full`, and the buffers that copies hold.
#[derive(Debug, Default)]
struct Buffers {
    made: usize,
    /// Buffers with room, the most recently used last.
    open: Vec<StagingBuffer>,
    /// Full buffers, in the order in which they were filled.
    full: VecDeque<StagingBuffer>,
}

/// The result of a search for a buffer.
enum Acquired {
    /// A buffer with room.
    Ready(StagingBuffer),
    /// A buffer to wait for.
    Busy(StagingBuffer),
    /// No buffer, but another may be allocated.
    More,
    /// No buffer, because copies hold all buffers.
    Nothing,
}

impl StagingPool {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            buffers: Mutex::default(),
        }
    }

    /// Returns a buffer with room for `bytes` bytes, which are at most [`BUFFER_BYTES`]. Returns
    /// `None` if copies hold all buffers, or if the driver cannot page-lock memory.
    pub(super) fn take(
        &self,
        streams: &StreamTable,
        bytes: usize,
    ) -> Result<Option<StagingBuffer>> {
        let found = self.buffers.lock().find(streams, bytes);
        match found {
            Acquired::Ready(buffer) => Ok(Some(buffer)),
            Acquired::Busy(mut buffer) => match buffer.wait(streams) {
                Ok(()) => Ok(Some(buffer)),
                Err(error) => {
                    self.buffers.lock().full.push_front(buffer);
                    Err(error)
                }
            },
            Acquired::More => Ok(self.pin()),
            Acquired::Nothing => Ok(None),
        }
    }

    /// Allocates a buffer that `made` already counts.
    fn pin(&self) -> Option<StagingBuffer> {
        let mut memory: *mut c_void = ptr::null_mut();
        // SAFETY: `memory` is writable.
        let pinned = self.context.run("pinning memory", |driver| unsafe {
            driver.mem_host_alloc(&mut memory, BUFFER_BYTES, CU_MEMHOSTALLOC_PORTABLE)
        });
        if pinned.is_err() {
            self.buffers.lock().made -= 1;
            return None;
        }
        Some(StagingBuffer {
            memory: RawHandle(memory.cast()),
            used: 0,
            users: Vec::new(),
            events: Vec::new(),
        })
    }

    pub(super) fn give(&self, streams: &StreamTable, mut buffer: StagingBuffer) {
        if buffer.room() >= MIN_ROOM_BYTES {
            self.buffers.lock().open.push(buffer);
            return;
        }
        // If a recording fails, the next search for a buffer retries it.
        let _ = buffer.close(streams);
        self.buffers.lock().full.push_back(buffer);
    }
}

impl Buffers {
    fn find(&mut self, streams: &StreamTable, bytes: usize) -> Acquired {
        if let Some(index) = self.open.iter().rposition(|buffer| buffer.room() >= bytes) {
            return Acquired::Ready(self.open.remove(index));
        }
        if let Some(first) = self.full.front_mut()
            && first.is_done(streams)
            && let Some(first) = self.full.pop_front()
        {
            return Acquired::Ready(first);
        }
        if self.made < MAX_BUFFERS {
            self.made += 1;
            return Acquired::More;
        }
        if let Some(first) = self.full.pop_front() {
            return Acquired::Busy(first);
        }
        self.open.pop().map_or(Acquired::Nothing, Acquired::Busy)
    }
}

impl Drop for StagingPool {
    fn drop(&mut self) {
        let Buffers { open, full, .. } = std::mem::take(&mut *self.buffers.lock());
        for buffer in open.into_iter().chain(full) {
            // SAFETY: `pin` allocated the memory, and no stream uses it: the device is being
            // dropped.
            self.context
                .discard(|driver| unsafe { driver.mem_free_host(buffer.memory.0.cast()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_chunk_do_not_overlap_and_the_last_can_be_taken_back() {
        let base = ptr::without_provenance_mut(1 << 20);
        let mut buffer = StagingBuffer {
            memory: RawHandle(base),
            used: 0,
            users: Vec::new(),
            events: Vec::new(),
        };
        let [a, b] = [StreamId(0), StreamId(1)];
        assert_eq!(buffer.suballocate(a, 1), base);
        let second = buffer.suballocate(b, 300);
        assert_eq!(second.addr(), base.addr() + ALIGNMENT_BYTES);
        assert_eq!(buffer.room(), BUFFER_BYTES - 3 * ALIGNMENT_BYTES);
        buffer.free_last(second);
        assert_eq!(buffer.room(), BUFFER_BYTES - ALIGNMENT_BYTES);
        assert_eq!(buffer.users, [a, b]);
        let rest = buffer.room();
        buffer.suballocate(a, rest);
        assert_eq!(buffer.room(), 0);
        assert_eq!(buffer.users, [a, b]);
        buffer.free_last(base);
        assert!(buffer.users.is_empty());
    }
}
