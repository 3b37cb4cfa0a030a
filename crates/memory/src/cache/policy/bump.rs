//! Bump: requests advance a cursor through an arena. The exit resets the cursor. The end of a
//! nested entry moves the cursor back over the entry's last allocations, if they are freed. If an
//! entry needed several arenas, the next entry gets one arena for all its requests.
//!
//! The header of a dropped suballocation is reused for the next request.

use super::{ArenaPolicy, CachePolicy, Need, Policy, Refill, Trim};
use crate::cache::arena::Arenas;
use crate::cache::request::{Request, Size};
use crate::cache::stats::Counters;
use crate::cache::store::Store;
use crate::device::{DevicePtr, StreamId};
use crate::memory::header::{Header, List};

/// The length of the arena that small requests share until the memory need of an entry is known.
const SHARED_ARENA_BYTES: u64 = 64 << 10;

/// The bit in an element of `ends` that marks its suballocation as freed. Ends are multiples of
/// 512, so this bit is clear in an unmarked end.
const FREED: u64 = 1;

/// Returns the maximum arena bytes that stay cached for an entry that hands out `bytes` bytes.
fn about(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8)
}

/// The index of a suballocation outside nested entries.
const UNNUMBERED: usize = u32::MAX as usize;

/// The arenas of a shard, and the cursor in the first arena.
///
/// Invariants:
/// - `cursor` is the end of the last suballocation in the first arena, or the arena's beginning.
///   `cursor` is at most `limit`.
/// - The suballocations of the arenas and the idle headers are on `stream`.
/// - In nested entries, `ends` first has the cursor at the beginning of the outermost nested entry.
///   Then it has the ends of all later suballocations, in order.
/// - An idle header of the current epoch may have an index. It then represents the end at this
///   index of `ends`, and this end is not marked as [`FREED`].
#[derive(Default)]
pub(in crate::cache) struct Bump {
    arenas: Arenas,
    cursor: u64,
    limit: u64,
    stream: StreamId,
    /// The number of headers of `arenas`, idle or live. `header_bytes` is the sum of the sizes that
    /// they last served.
    headers: usize,
    header_bytes: u64,
    /// The ends of suballocations that nested entries handed out.
    ends: Vec<u64>,
    /// The length of `ends` at the beginning of each nested entry.
    nested: Vec<usize>,
    /// The maximum bytes that an entry handed out. The second value is the epoch of the last entry
    /// near this maximum.
    high_water: (u64, u64),
    /// The maximum bytes that an entry handed out after the epoch in `high_water`.
    later_bytes: u64,
}

impl CachePolicy for Bump {
    fn fast_path(&self) -> Policy {
        Policy::Bump
    }

    fn ends(&self) -> bool {
        true
    }

    fn refill(&mut self, store: &mut Store, counters: &Counters, request: &Request) -> Refill {
        let Size { rounded_bytes, .. } = request.size;
        if !self.arenas.is_empty() && request.stream != self.stream {
            let fit = store.pop_tightest(request.size, request.stream);
            return fit.ok_or(Need::Block);
        }
        if !self.has_room(rounded_bytes) {
            return Err(Need::Arena {
                bytes: self.arena_bytes(rounded_bytes),
                min_bytes: rounded_bytes,
            });
        }
        if store.idle_suballocations().is_empty()
            && let Some(arena) = self.arenas.first()
        {
            let header = store.new_suballocation(counters, arena.block.new_suballocation());
            store.push(header);
            self.headers += 1;
        }
        self.ends.reserve(1);
        let header = self.allocate(store, rounded_bytes, request.stream);
        header.ok_or(Need::Block)
    }

    /// Resets the cursor. If suballocations are live, detaches the arenas. If there are several
    /// arenas, or other streams may still use an arena, releases the arenas.
    fn end(&mut self, store: &mut Store, counters: &Counters, escapes: bool) -> bool {
        if escapes {
            self.detach(store, true);
        }
        if self.arenas.count() > 1 || self.arenas.is_shared() {
            self.release_arenas(store);
        }
        self.reset(store.epoch);
        store.finish_recording(counters).is_some()
    }
}

impl ArenaPolicy for Bump {
    fn begin_nested(&mut self) {
        if self.nested.is_empty() {
            self.ends.push(self.cursor);
        }
        self.nested.push(self.ends.len());
    }

    /// If the nested entry's last suballocations are freed, moves the cursor back over them.
    fn end_nested(&mut self, store: &mut Store) {
        // If the arenas were detached or released during the nested entry, `nested` is empty.
        let Some(mark) = self.nested.pop().filter(|_| !self.arenas.is_shared()) else {
            return;
        };
        self.mark_freed(store);
        while self.ends.len() > mark
            && let Some(&end) = self.ends.last()
            && end & FREED != 0
        {
            self.ends.pop();
        }
        let base = self.base();
        let ends = self.ends.iter().map(|end| end & !FREED);
        let here = ends.filter(|end| (base + 1..=self.limit).contains(end));
        self.cursor = here.max().unwrap_or(base);
        if self.nested.is_empty() && self.ends.len() == mark {
            self.ends.pop(); // This removes the initial cursor.
        }
    }

    /// Moves the cursor to the new arena, and serves the request. If the previous arena then has
    /// more free bytes, moves the cursor back to it.
    fn add_arena(
        &mut self,
        store: &mut Store,
        counters: &Counters,
        arena: Box<Header>,
        request: &Request,
    ) -> Refill {
        let (cursor, limit) = (self.cursor, self.limit);
        if self.stream != arena.block.stream {
            self.stream = arena.block.stream;
            let idle = store.idle_suballocations();
            idle.for_each_mut(|header| header.follow(self.stream));
        }
        self.cursor = arena.block.address.0;
        self.limit = self.cursor + arena.block.bytes();
        self.arenas.push(arena);
        let refill = self.refill(store, counters, request);
        if limit - cursor > self.limit - self.cursor {
            self.arenas.swap_first();
            (self.cursor, self.limit) = (cursor, limit);
        }
        refill
    }

    fn share(&mut self, suballocation: &mut Header) {
        self.arenas.share(suballocation);
    }

    fn detach(&mut self, store: &mut Store, _escape: bool) {
        let (live, live_bytes) = self.live(store);
        let epoch = store.epoch;
        if live == 0 {
            self.reset(epoch);
        } else {
            self.headers -= live;
            self.header_bytes -= live_bytes;
            let arenas = self.take_arenas(epoch);
            store.detached.add(epoch, (live, live_bytes), arenas);
        }
    }

    fn trim(&mut self, store: &mut Store, trim: Trim) {
        match trim {
            Trim::All => self.release_all(store),
            Trim::OlderThan(epoch) => self.expire(store, epoch),
            Trim::Unused => {}
        }
    }

    fn idle_and_arenas(&self) -> (usize, usize) {
        (0, self.arenas.count())
    }

    #[cfg(test)]
    fn check(&self, idle: &List, epoch: u64) -> u64 {
        if self.arenas.is_empty() {
            return 0;
        }
        for header in idle.iter().filter(|header| header.epoch() == epoch) {
            let number = header.block.suballocation_index();
            assert!(number == UNNUMBERED || number < self.ends.len());
            let end = self.ends.get(number);
            let found = header.block.address.0 + header.block.bytes();
            assert!(
                end.is_none_or(|end| *end == found),
                "the end of an idle suballocation is wrong"
            );
        }
        assert!(idle.iter().all(|header| header.block.stream == self.stream));
        assert!(idle.iter().count() <= self.headers);
        let idle_bytes: u64 = idle.iter().map(|header| header.block.bytes()).sum();
        assert!(idle_bytes <= self.header_bytes);
        assert!(self.cursor <= self.limit);
        assert!(self.nested.iter().all(|mark| *mark <= self.ends.len()));
        self.arenas.bytes()
    }
}

impl Bump {
    /// Returns the block of a hit. Allocates and releases no memory.
    #[inline]
    pub(in crate::cache) fn allocate(
        &mut self,
        store: &mut Store,
        rounded_bytes: u64,
        stream: StreamId,
    ) -> Option<Box<Header>> {
        let has_room = rounded_bytes > 0 && self.has_room(rounded_bytes);
        let is_nested = !self.nested.is_empty();
        // If `ends` is full, `refill` reserves space.
        let is_full = is_nested && self.ends.len() == self.ends.capacity();
        if !has_room || stream != self.stream || is_full {
            return None;
        }
        let epoch = store.epoch;
        let mut header = store.idle_suballocations().pop_if(|_| true)?;
        let number = if is_nested {
            self.add_end(&header, epoch, rounded_bytes)
        } else {
            UNNUMBERED
        };
        self.header_bytes = self.header_bytes - header.block.bytes() + rounded_bytes;
        header
            .block
            .set_suballocation(DevicePtr(self.cursor), rounded_bytes, number);
        self.cursor += rounded_bytes;
        Some(header)
    }

    fn base(&self) -> u64 {
        self.arenas.first().map_or(0, |arena| arena.block.address.0)
    }

    /// Returns true if `rounded_bytes` fit behind the cursor. The comparison subtracts, because a
    /// sum could overflow: no caller has checked the range of `rounded_bytes`.
    #[inline]
    fn has_room(&self, rounded_bytes: u64) -> bool {
        rounded_bytes <= self.limit - self.cursor
    }

    /// Returns the length of a new arena for a request of `rounded_bytes`. If the high-water mark
    /// is known, the first arena of an entry is at least as long as this mark. Otherwise, the arena
    /// has the length of the request, and small requests share an arena.
    fn arena_bytes(&self, rounded_bytes: u64) -> u64 {
        let is_small = rounded_bytes <= SHARED_ARENA_BYTES / 4;
        let bytes = if is_small {
            SHARED_ARENA_BYTES
        } else {
            rounded_bytes
        };
        if self.arenas.is_empty() {
            bytes.max(self.high_water.0)
        } else {
            bytes
        }
    }

    /// Resets the cursor, before the epoch advances. No suballocation may be live.
    #[inline]
    fn reset(&mut self, epoch: u64) {
        self.note_high_water(epoch);
        self.ends.clear();
        self.nested.clear();
        self.cursor = self.base();
    }

    /// Removes and returns the arenas, and resets the cursor.
    fn take_arenas(&mut self, epoch: u64) -> List {
        self.note_high_water(epoch);
        let arenas = self.arenas.take();
        self.reset(epoch);
        self.limit = 0;
        arenas
    }

    /// Adds the end of the next suballocation of a nested entry. Marks the end that the idle
    /// `header` represents as freed. Returns the index of the new end.
    #[inline(always)]
    fn add_end(&mut self, header: &Header, epoch: u64, rounded_bytes: u64) -> usize {
        if header.epoch() == epoch
            && let Some(end) = self.ends.get_mut(header.block.suballocation_index())
        {
            *end |= FREED;
        }
        self.ends.push(self.cursor + rounded_bytes);
        self.ends.len() - 1
    }

    fn live(&self, store: &mut Store) -> (usize, u64) {
        let idle = store.idle_suballocations().iter();
        let idle = idle.map(|header| header.block.bytes());
        let (idle, idle_bytes) = idle.fold((0, 0), |(idle, sum), bytes| (idle + 1, sum + bytes));
        (self.headers - idle, self.header_bytes - idle_bytes)
    }

    fn release_arenas(&mut self, store: &mut Store) {
        self.mark_freed(store);
        if self.live(store).0 == 0 {
            let arenas = self.take_arenas(store.epoch);
            store.release(arenas);
        }
    }

    /// Like [`release_arenas`](Self::release_arenas), but also releases the idle headers.
    fn release_all(&mut self, store: &mut Store) {
        self.release_arenas(store);
        let (live, live_bytes) = self.live(store);
        (self.headers, self.header_bytes) = (live, live_bytes);
        let headers = std::mem::take(store.idle_suballocations());
        store.release(headers);
    }

    /// If the arena is much longer than needed, releases it between two entries. The need is the
    /// maximum that an entry has handed out since `epoch`.
    fn expire(&mut self, store: &mut Store, epoch: u64) {
        if self.high_water.1 >= epoch {
            return;
        }
        self.high_water = (std::mem::take(&mut self.later_bytes), store.epoch);
        if self.arenas.bytes() > about(self.high_water.0) {
            self.release_all(store);
        }
    }

    /// Marks the ends of the idle suballocations as freed. The headers of these suballocations then
    /// represent no end.
    fn mark_freed(&mut self, store: &mut Store) {
        if self.arenas.is_empty() {
            return;
        }
        let epoch = store.epoch;
        store.idle_suballocations().for_each_mut(|header| {
            if header.epoch() == epoch
                && let Some(end) = self.ends.get_mut(header.block.suballocation_index())
            {
                *end |= FREED;
                header.set_epoch(0);
            }
        });
    }

    fn note_high_water(&mut self, epoch: u64) {
        if self.arenas.is_empty() {
            return;
        }
        let used_bytes = self.arenas.full_bytes() + self.cursor - self.base();
        if self.high_water.0 <= about(used_bytes) {
            self.high_water = (self.high_water.0.max(used_bytes), epoch);
            self.later_bytes = 0;
        } else {
            self.later_bytes = self.later_bytes.max(used_bytes);
        }
    }
}
