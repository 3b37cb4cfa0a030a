//! Pinned memory through which bytes go to the device and from it: the device reads and writes it by
//! itself while the host goes on.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;

use super::context::{Context, Raw};
use super::streams::Streams;
use crate::device::{Event, StreamId};
use crate::error::Result;
use crate::sync::Arc;
use crate::sync::plain::Mutex;

/// What is copied at a time. Longer copies go through several chunks, so that the host fills one while the
/// device empties another.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// No more chunks than these are kept.
const MOST_CHUNKS: usize = 8;
/// Where parts of a chunk begin.
const PART_BYTES: usize = 256;
/// A chunk with less room than this takes no more.
const LEAST_ROOM_BYTES: usize = 4 << 10;

/// A piece of pinned memory.
///
/// Invariant: the streams that may still use the first `used` bytes are `users`, or will have passed
/// `events`; nobody uses what follows them.
#[derive(Debug)]
pub(super) struct Chunk {
    memory: Raw<u8>,
    used: usize,
    users: Vec<StreamId>,
    events: Vec<Event>,
}

impl Chunk {
    fn room(&self) -> usize {
        CHUNK_BYTES - self.used
    }

    /// The next `bytes` of it, which `stream` is about to use; there is room for them.
    pub(super) fn part(&mut self, stream: StreamId, bytes: usize) -> *mut u8 {
        debug_assert!(bytes <= self.room());
        let offset = self.used;
        self.used = (offset + bytes)
            .next_multiple_of(PART_BYTES)
            .min(CHUNK_BYTES);
        if !self.users.contains(&stream) {
            self.users.push(stream);
        }
        self.memory.0.wrapping_add(offset)
    }

    /// Takes the last part back, which began at `part` and which nobody uses any more.
    pub(super) fn end(&mut self, part: *mut u8) {
        self.used = part.addr() - self.memory.0.addr();
        if self.used == 0 {
            self.users.clear();
        }
    }

    /// Marks the places after which nobody uses it; what the driver fails to mark is tried again.
    fn close(&mut self, streams: &Streams) -> Result<()> {
        while let Some(&stream) = self.users.last() {
            self.events.push(streams.record(stream)?);
            self.users.pop();
        }
        Ok(())
    }

    fn is_done(&mut self, streams: &Streams) -> bool {
        let is_done = |event: &Event| streams.is_done(event).unwrap_or(false);
        let done = self.close(streams).is_ok() && self.events.iter().all(is_done);
        if done {
            self.clear();
        }
        done
    }

    fn wait(&mut self, streams: &Streams) -> Result<()> {
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

/// The chunks of a device. Whoever uses one has it out of here, so that nobody copies under the lock.
#[derive(Debug)]
pub(super) struct Staging {
    context: Arc<Context>,
    chunks: Mutex<Chunks>,
}

/// Invariant: `made` counts these and those that somebody has.
#[derive(Debug, Default)]
struct Chunks {
    made: usize,
    /// With room, the one used last at the end.
    open: Vec<Chunk>,
    /// Full, the one that was filled first at the front.
    full: VecDeque<Chunk>,
}

/// What a look at the chunks comes to.
enum Found {
    /// One with room.
    Ready(Chunk),
    /// One to wait for.
    Busy(Chunk),
    /// None yet: there may be one more.
    More,
    /// None: others have all.
    Nothing,
}

impl Staging {
    /// No chunks as yet.
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            chunks: Mutex::default(),
        }
    }

    /// A chunk with room for `bytes`, at most [`CHUNK_BYTES`]; `None` where others have all of them, and
    /// where the driver pins no memory.
    pub(super) fn take(&self, streams: &Streams, bytes: usize) -> Result<Option<Chunk>> {
        let found = self.chunks.lock().find(streams, bytes);
        match found {
            Found::Ready(chunk) => Ok(Some(chunk)),
            Found::Busy(mut chunk) => match chunk.wait(streams) {
                Ok(()) => Ok(Some(chunk)),
                Err(error) => {
                    self.chunks.lock().full.push_front(chunk);
                    Err(error)
                }
            },
            Found::More => Ok(self.pin()),
            Found::Nothing => Ok(None),
        }
    }

    /// One more chunk, which is counted already.
    fn pin(&self) -> Option<Chunk> {
        let mut memory: *mut c_void = ptr::null_mut();
        // SAFETY: `memory` can be written to.
        let pinned = self.context.run("pinning memory", |driver| unsafe {
            driver.mem_host_alloc(&mut memory, CHUNK_BYTES, CU_MEMHOSTALLOC_PORTABLE)
        });
        if pinned.is_err() {
            self.chunks.lock().made -= 1;
            return None;
        }
        Some(Chunk {
            memory: Raw(memory.cast()),
            used: 0,
            users: Vec::new(),
            events: Vec::new(),
        })
    }

    /// Takes a chunk back.
    pub(super) fn give(&self, streams: &Streams, mut chunk: Chunk) {
        if chunk.room() >= LEAST_ROOM_BYTES {
            self.chunks.lock().open.push(chunk);
            return;
        }
        // What fails here is tried again by the next one who wants a chunk.
        let _ = chunk.close(streams);
        self.chunks.lock().full.push_back(chunk);
    }
}

impl Chunks {
    fn find(&mut self, streams: &Streams, bytes: usize) -> Found {
        if let Some(index) = self.open.iter().rposition(|chunk| chunk.room() >= bytes) {
            return Found::Ready(self.open.remove(index));
        }
        if let Some(first) = self.full.front_mut()
            && first.is_done(streams)
            && let Some(first) = self.full.pop_front()
        {
            return Found::Ready(first);
        }
        if self.made < MOST_CHUNKS {
            self.made += 1;
            return Found::More;
        }
        if let Some(first) = self.full.pop_front() {
            return Found::Busy(first);
        }
        self.open.pop().map_or(Found::Nothing, Found::Busy)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let Chunks { open, full, .. } = std::mem::take(&mut *self.chunks.lock());
        for chunk in open.into_iter().chain(full) {
            // SAFETY: `pin` allocated the memory so, and no stream uses it any more: the device is dropped.
            self.context
                .discard(|driver| unsafe { driver.mem_free_host(chunk.memory.0.cast()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_chunk_do_not_overlap_and_the_last_can_be_taken_back() {
        let base = ptr::without_provenance_mut(1 << 20);
        let mut chunk = Chunk {
            memory: Raw(base),
            used: 0,
            users: Vec::new(),
            events: Vec::new(),
        };
        let [a, b] = [StreamId(0), StreamId(1)];
        assert_eq!(chunk.part(a, 1), base);
        let second = chunk.part(b, 300);
        assert_eq!(second.addr(), base.addr() + PART_BYTES);
        assert_eq!(chunk.room(), CHUNK_BYTES - 3 * PART_BYTES);
        chunk.end(second);
        assert_eq!(chunk.room(), CHUNK_BYTES - PART_BYTES);
        assert_eq!(chunk.users, [a, b]);
        let rest = chunk.room();
        chunk.part(a, rest);
        assert_eq!(chunk.room(), 0);
        assert_eq!(chunk.users, [a, b]);
        chunk.end(base);
        assert!(chunk.users.is_empty());
    }
}
