//! The policy that advances a pointer: within an entry nothing is used twice, and the exit sets the
//! pointer back. What a first entry needed in several chunks, the next one has in one.
//!
//! The header of a part that dropped serves the next request.

use super::Size;
use super::chunk;
use super::shard::Shard;
use crate::device::{DevicePtr, StreamId};
use crate::memory::Block;
use crate::memory::header::{Header, List};

/// What small requests share until it is known what an entry needs.
const SHARED_CHUNK_BYTES: u64 = 64 << 10;

/// Set in an end, a multiple of 512, once the part before it was given back.
const GIVEN_BACK: u64 = 1;

/// The most that is worth keeping for an entry that hands out so many bytes.
fn about(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8)
}

/// Invariants:
/// - `ends` are where the parts handed out under the present clock end, in their order, and `next`
///   is the highest of them in the first chunk, or its beginning, and at most `limit`;
/// - an idle part with the present stamp stands for the end of its number, which is not given back.
pub(super) struct Bump {
    /// The first is the one that the pointer is in.
    chunks: List<Shard>,
    next: u64,
    limit: u64,
    /// Where the pointer was, and its limit, as the last chunk was added.
    left: (u64, u64),
    stream: StreamId,
    ends: Vec<u64>,
    /// How many parts were out or given back as each nested entry began.
    marks: Vec<usize>,
    /// The most that an entry handed out, and the clock of the last one that handed out about as much.
    high_water: (u64, u64),
    /// The most since.
    later_bytes: u64,
}

impl Bump {
    pub(super) fn new() -> Self {
        Self {
            chunks: List::new(),
            next: 0,
            limit: 0,
            left: (0, 0),
            stream: StreamId::default(),
            ends: Vec::new(),
            marks: Vec::new(),
            high_water: (0, 0),
            later_bytes: 0,
        }
    }

    /// The next part, with one of the `idle` headers; `None` where the chunk, the headers or the room
    /// for the ends are at their end.
    #[inline]
    pub(super) fn take(
        &mut self,
        idle: &mut List<Shard>,
        rounded_bytes: u64,
        stream: StreamId,
        clock: u64,
    ) -> Option<Box<Header<Shard>>> {
        let has_room = rounded_bytes > 0 && self.has_room(rounded_bytes);
        // Where the ends would have to grow, that is left to the slow way.
        if !has_room || stream != self.stream || self.ends.len() == self.ends.capacity() {
            return None;
        }
        let mut header = idle.pop_if(|_| true)?;
        if header.stamp() == clock
            && let Some(end) = self.ends.get_mut(header.block.suballocation())
        {
            *end |= GIVEN_BACK;
        }
        if header.block.stream != stream {
            header.follow(stream);
        }
        header
            .block
            .set_suballocation(DevicePtr(self.next), rounded_bytes, self.ends.len());
        self.next += rounded_bytes;
        self.ends.push(self.next);
        Some(header)
    }

    /// Makes room for another end.
    pub(super) fn provide_end(&mut self) {
        self.ends.reserve(1);
    }

    /// Whether a request of the stream would be served here, given a chunk and a header.
    pub(super) fn serves(&self, stream: StreamId) -> bool {
        self.chunks.is_empty() || stream == self.stream
    }

    /// Of any size: nobody has looked yet whether it can be addressed.
    #[inline]
    pub(super) fn has_room(&self, rounded_bytes: u64) -> bool {
        rounded_bytes <= self.limit - self.next
    }

    /// How long a chunk a request that has no room should get: the first of an entry is to serve all of
    /// it. What goes beyond that, or comes before it is known, is served exactly, but that small
    /// requests share a chunk.
    pub(super) fn chunk_bytes(&self, size: Size) -> u64 {
        let bytes = if size.rounded_bytes <= SHARED_CHUNK_BYTES / 4 {
            SHARED_CHUNK_BYTES
        } else {
            size.rounded_bytes
        };
        if self.chunks.is_empty() {
            bytes.max(self.high_water.0)
        } else {
            bytes
        }
    }

    /// Moves the pointer to a new chunk.
    pub(super) fn add_chunk(&mut self, chunk: Box<Header<Shard>>) {
        self.stream = chunk.block.stream;
        self.left = (self.next, self.limit);
        self.next = chunk.block.address.0;
        self.limit = self.next + chunk.block.bytes();
        self.chunks.push(chunk);
    }

    /// After the first part of a new chunk: goes back to the chunk before it, where that has more room.
    pub(super) fn return_to_room(&mut self) {
        let (next, limit) = std::mem::take(&mut self.left);
        if limit - next <= self.limit - self.next {
            return;
        }
        let (new, before) = (self.chunks.pop(), self.chunks.pop());
        new.into_iter()
            .chain(before)
            .for_each(|chunk| self.chunks.push(chunk));
        (self.next, self.limit) = (next, limit);
    }

    /// A new part for a header that is made now.
    pub(super) fn part(&self) -> Option<Block> {
        self.present().map(|chunk| chunk.block.new_suballocation())
    }

    pub(super) fn begin_again(&mut self) {
        self.marks.push(self.ends.len());
    }

    /// A nested entry ends: what it handed out last and got back is free again.
    pub(super) fn end_again(&mut self, idle: &mut List<Shard>, clock: u64) {
        let mark = self.marks.pop().unwrap_or(0);
        if self.is_shared() {
            return;
        }
        self.mark_given_back(idle, clock);
        while self.ends.len() > mark
            && let Some(&end) = self.ends.last()
            && end & GIVEN_BACK != 0
        {
            self.ends.pop();
        }
        let base = self.present().map_or(0, |chunk| chunk.block.address.0);
        let ends = self.ends.iter().map(|end| end & !GIVEN_BACK);
        let here = ends.filter(|end| (base + 1..=self.limit).contains(end));
        self.next = here.max().unwrap_or(base);
    }

    /// Whether the entry needed more than one chunk, as a first one does.
    #[inline]
    pub(super) fn is_scattered(&self) -> bool {
        self.chunks.iter().nth(1).is_some()
    }

    pub(super) fn chunk_count(&self) -> usize {
        self.chunks.iter().count()
    }

    /// Nothing that was handed out is alive, and the clock is about to move on: the pointer goes back.
    #[inline]
    pub(super) fn reset(&mut self, clock: u64) {
        self.note_high_water(clock);
        self.ends.clear();
        self.marks.clear();
        self.next = self.present().map_or(0, |chunk| chunk.block.address.0);
    }

    /// The clock is about to move on while parts may be alive: answers their number, and the chunks
    /// that they lie in.
    pub(super) fn set_aside(
        &mut self,
        idle: &mut List<Shard>,
        clock: u64,
    ) -> Option<(usize, List<Shard>)> {
        self.mark_given_back(idle, clock);
        let live = self
            .ends
            .iter()
            .filter(|end| **end & GIVEN_BACK == 0)
            .count();
        if live == 0 {
            self.reset(clock);
            return None;
        }
        Some((live, self.take_chunks(clock)))
    }

    /// Begins anew without a chunk.
    fn take_chunks(&mut self, clock: u64) -> List<Shard> {
        self.note_high_water(clock);
        let chunks = std::mem::replace(&mut self.chunks, List::new());
        self.reset(clock);
        (self.limit, self.left) = (0, (0, 0));
        chunks
    }

    /// The chunk of a part that came back waits for the streams that may still use the part.
    pub(super) fn note_others(&mut self, part: &Header<Shard>) {
        chunk::note_others(&mut self.chunks, part);
    }

    /// Whether other streams may still use a chunk, so that nothing of it may be used twice.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        chunk::is_shared(&self.chunks)
    }

    /// Asserts the invariants, and answers the bytes of all chunks.
    #[cfg(test)]
    pub(super) fn check(&self, idle: &List<Shard>, clock: u64) -> u64 {
        if self.chunks.is_empty() {
            return 0;
        }
        let mut given_back = 0;
        for header in idle.iter().filter(|header| header.stamp() == clock) {
            let end = self.ends[header.block.suballocation()];
            assert_eq!(
                end,
                header.block.address.0 + header.block.bytes(),
                "an idle part ends where it should"
            );
            given_back += 1;
        }
        let marked = self
            .ends
            .iter()
            .filter(|end| **end & GIVEN_BACK != 0)
            .count();
        assert!(given_back + marked <= self.ends.len());
        assert!(self.next <= self.limit);
        assert!(self.marks.iter().all(|mark| *mark <= self.ends.len()));
        chunk::bytes(self.chunks.iter())
    }

    /// The chunks, if none of their parts is alive under the present clock.
    pub(super) fn give_up(&mut self, idle: &mut List<Shard>, clock: u64) -> List<Shard> {
        self.mark_given_back(idle, clock);
        if self.ends.iter().any(|end| end & GIVEN_BACK == 0) {
            return List::new();
        }
        self.take_chunks(clock)
    }

    /// Between two entries: gives up a chunk that is much longer than what an entry handed out since
    /// the clock `too_old`.
    pub(super) fn expire(
        &mut self,
        idle: &mut List<Shard>,
        too_old: u64,
        clock: u64,
    ) -> List<Shard> {
        if self.high_water.1 >= too_old {
            return List::new();
        }
        self.high_water = (std::mem::take(&mut self.later_bytes), clock);
        if chunk::bytes(self.chunks.iter()) <= about(self.high_water.0) {
            return List::new();
        }
        let mut given_up = self.give_up(idle, clock);
        given_up.append(idle);
        given_up
    }

    /// Marks the ends of the idle parts, which then stand for none.
    fn mark_given_back(&mut self, idle: &mut List<Shard>, clock: u64) {
        if self.chunks.is_empty() {
            return; // What is idle are another policy's.
        }
        idle.for_each_mut(|header| {
            if header.stamp() == clock {
                self.ends[header.block.suballocation()] |= GIVEN_BACK;
                header.set_stamp(0);
            }
        });
    }

    fn note_high_water(&mut self, clock: u64) {
        let Some(present) = self.present() else {
            return;
        };
        let used_bytes = self.next - present.block.address.0;
        let before = self.chunks.iter().skip(1);
        let sum_bytes = chunk::bytes(before) + used_bytes;
        if self.high_water.0 <= about(sum_bytes) {
            self.high_water = (self.high_water.0.max(sum_bytes), clock);
            self.later_bytes = 0;
        } else {
            self.later_bytes = self.later_bytes.max(sum_bytes);
        }
    }

    /// The chunk that the pointer is in.
    fn present(&self) -> Option<&Header<Shard>> {
        self.chunks.iter().next()
    }
}
