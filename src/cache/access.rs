//! What the holder of a shard may do with it: enter and leave, serve requests, settle what is due.
//! What becomes of the blocks stands in [`inner`](super::inner).
//!
//! Architecture invariant: as there, nothing comes back to the shard while its inside is borrowed.

#[cfg(test)]
mod check;
mod lend;

pub(crate) use lend::is_planned;

use std::ptr::NonNull;

use super::chunk::{CHUNK, PART, SetAside};
use super::inner::{EMPTY_STAMP, Inner, UNCACHED_STAMP};
use super::plans::Expected;
use super::policy::Policy;
use super::shard::{INVALIDATE, Shard};
use super::{Size, Wanted};
use crate::device::{DevicePtr, StreamId};
use crate::memory::Block;
use crate::memory::header::{Handle, Header, List};

/// Where a request is served from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The bins.
    Bins,
    /// The chunk or the slab.
    Part,
    /// A chunk of about so many bytes, which is not there.
    Chunk(u64),
    /// A slab of exactly so many bytes, which is not there.
    Slab(u64),
    /// The slab at this place, beside the plan.
    Gap(DevicePtr),
}

/// The right to a shard's inside: this thread is in its scope, or visits it.
pub(super) struct Access<'a> {
    shard: &'a Shard,
    inner: &'a mut Inner,
    visiting: bool,
}

impl<'a> Access<'a> {
    /// The caller holds the shard's state, as itself or as a visitor, and passes on what only the
    /// holder may borrow.
    #[inline]
    pub(super) fn new(shard: &'a Shard, inner: &'a mut Inner, visiting: bool) -> Self {
        Self {
            shard,
            inner,
            visiting,
        }
    }

    /// An outermost entry begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        let inner = &mut *self.inner;
        inner.depth = 1;
        if let Some(identity) = &self.shard.identity {
            inner.begin(identity);
        }
        self.shard.counters.entries.add(1);
    }

    /// Another entry begins inside.
    pub(super) fn begin_again(&mut self) {
        self.inner.depth += 1;
        self.inner.bump.begin_again();
    }

    /// An entry ends; true for the outermost one.
    #[inline]
    pub(super) fn end(&mut self) -> bool {
        let inner = &mut *self.inner;
        inner.depth -= 1;
        if inner.depth > 0 {
            inner.bump.end_again(&mut inner.bins[PART], inner.clock);
        }
        inner.depth == 0
    }

    /// The outermost entry ends here for the blocks: what is live now has escaped.
    #[inline]
    pub(super) fn end_turn(&mut self) {
        let inner = &mut *self.inner;
        let counters = &self.shard.counters;
        let escaping = counters.live_blocks.get() != counters.escaped_blocks.get();
        if let Some(noted) = inner.end(counters, escaping) {
            self.shard.keep_record(&noted);
        }
        inner.known_out_bytes = inner.peak_out_bytes;
        inner.clock += 1;
        inner.exited_at = inner.clock;
        counters.escaped_blocks.set(counters.live_blocks.get());
    }

    /// Whether an exit has nothing to do but to end the turn: no block to bring home or to give up,
    /// and nothing that the device's ledger does not know.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        let inner = &*self.inner;
        let counters = &self.shard.counters;
        let (live, peak) = (counters.live_bytes.get(), counters.window_peak_bytes.get());
        inner.clock < inner.due_at
            && inner.stale.is_empty()
            && live == inner.published_bytes
            && !self.shard.device().ledger.would_raise(live, peak)
    }

    /// Serves a request that was not served at once: with the next part, or the tightest fit of the
    /// bins.
    pub(super) fn take(&mut self, wanted: &Wanted) -> Option<Handle<Shard>> {
        let header = match self.way_of(wanted) {
            Way::Part => self.inner.next_part(wanted.size, wanted.stream),
            Way::Gap(address) => self.take_gap(address, wanted.size),
            Way::Chunk(_) | Way::Slab(_) => None,
            Way::Bins => self.inner.tightest(wanted.size, wanted.stream),
        }?;
        self.shard.counters.hits.add(1);
        Some(self.hand_out(header, wanted))
    }

    /// Where a request is to be served from.
    pub(super) fn way_of(&mut self, wanted: &Wanted) -> Way {
        let inner = &mut *self.inner;
        match inner.policy {
            Policy::Bump if inner.bump.serves(wanted.stream) => {
                if !inner.bump.has_room(wanted.size.rounded_bytes) {
                    return Way::Chunk(inner.bump.chunk_bytes(wanted.size));
                }
                self.provide_header();
                Way::Part
            }
            Policy::Plan => match inner.expected(&self.shard.counters, wanted) {
                Expected::Part => {
                    self.provide_parts();
                    Way::Part
                }
                Expected::Slab(bytes) => Way::Slab(bytes),
                Expected::Outside => Way::Bins,
                Expected::Another => {
                    let gap = inner.plans.find_gap(wanted.size, wanted.stream);
                    gap.map_or(Way::Bins, Way::Gap)
                }
            },
            Policy::Bump | Policy::Recycle | Policy::Release => Way::Bins,
        }
    }

    /// Makes the header of another part where none is idle.
    fn provide_header(&mut self) {
        let inner = &mut *self.inner;
        if inner.bins[PART].is_empty()
            && let Some(part) = inner.bump.part()
        {
            self.shard.counters.owned_blocks.add(1);
            inner.bins[PART].push(Header::new(part, PART, NonNull::from(self.shard)));
        }
    }

    /// Makes the headers of the slab's parts where there are none.
    fn provide_parts(&mut self) {
        let home = NonNull::from(self.shard);
        let owned_blocks = &self.shard.counters.owned_blocks;
        self.inner.plans.lay_parts(|part| {
            owned_blocks.add(1);
            Header::new(part, PART, home)
        });
    }

    fn take_gap(&mut self, address: DevicePtr, size: Size) -> Option<Box<Header<Shard>>> {
        let home = NonNull::from(self.shard);
        let owned_blocks = &self.shard.counters.owned_blocks;
        self.inner.plans.take_gap(address, size, |part| {
            owned_blocks.add(1);
            Header::new(part, PART, home)
        })
    }

    /// Whether a new chunk is still what a request is to be served from. While there was none, a callback
    /// may have left the scope, or have entered it with another policy.
    pub(super) fn has_use_for(&mut self, chunk: &Block, wanted: &Wanted) -> bool {
        self.inner.depth > 0
            && match self.way_of(wanted) {
                Way::Chunk(_) => true,
                Way::Slab(bytes) => bytes <= chunk.bytes(),
                Way::Bins | Way::Part | Way::Gap(_) => false,
            }
    }

    /// Serves a request, which missed, with the first part of a new chunk or slab that it
    /// [`has_use_for`](Self::has_use_for).
    pub(super) fn take_from_chunk(
        &mut self,
        chunk: Block,
        wanted: &Wanted,
    ) -> Option<Handle<Shard>> {
        let counters = &self.shard.counters;
        counters.owned_bytes.add(chunk.bytes());
        let home = NonNull::from(self.shard);
        let chunk = Header::new(chunk, CHUNK, home);
        if self.inner.policy == Policy::Plan {
            self.inner.plans.add_slab(chunk);
        } else {
            self.inner.bump.add_chunk(chunk);
            self.inner.due_at = 0; // A first chunk may not be the last, and is looked at as the scope ends.
        }
        let handle = self.take(wanted)?;
        self.inner.bump.return_to_room();
        counters.hits.sub(1);
        counters.misses.add(1);
        Some(handle)
    }

    /// The present entry goes on without its plan.
    pub(super) fn stop_following(&mut self) {
        self.inner.stop_following();
    }

    /// Idle blocks that are to be exchanged, by way of the pool, for one that none of them can be. All at
    /// once, so that neighbours join.
    ///
    /// Those that no request since the entry was served with are, where the cache would otherwise own
    /// more than was ever out at once, or the device's memory would have to grow (`to_grow`). The
    /// others only are where it would have to, and the cache would own more than that too, or twice as
    /// much in a first entry. So an entry that repeats finds a block for each of its requests,
    /// and one that varies takes what it needs out of what it does not: out of the slab too, where it
    /// follows no plan.
    ///
    /// Streams are looked at one by one: another's idle block would make this one wait for it.
    pub(super) fn excess(&mut self, wanted: &Wanted, to_grow: bool) -> List<Shard> {
        let (bytes, stream) = (wanted.size.rounded_bytes, wanted.stream);
        let elsewhere_bytes = self.idle_bytes_beside(stream);
        let inner = &mut *self.inner;
        let counters = &self.shard.counters;
        let out_bytes = counters.allocated_bytes.get() + bytes;
        inner.peak_out_bytes = inner.peak_out_bytes.max(out_bytes);
        let peak_bytes = inner.peak_out_bytes;
        let wanted_bytes = counters.owned_bytes.get() - elsewhere_bytes + bytes;
        if wanted_bytes > peak_bytes || to_grow {
            inner.give_up_blocks(stream, false);
        }
        // A first entry does not know yet what it will ask for again.
        let slack_bytes = if inner.known_out_bytes > 0 {
            0
        } else {
            peak_bytes
        };
        if to_grow && wanted_bytes.saturating_sub(peak_bytes) > slack_bytes {
            inner.give_up_blocks(stream, true);
            inner.give_up_slab();
        }
        self.disown()
    }

    /// Bytes idle here that follow other streams.
    fn idle_bytes_beside(&self, stream: StreamId) -> u64 {
        if self.shard.device().memory().backend().streams() == 1 {
            return 0;
        }
        let others = self
            .inner
            .idle()
            .filter(|header| header.block.stream != stream);
        others.map(|header| header.block.bytes()).sum()
    }

    /// Takes a block back that nobody holds any more.
    pub(super) fn put(&mut self, header: Box<Header<Shard>>) {
        self.inner.put(&self.shard.counters, header);
    }

    /// Hands out a block that came from below the cache, which from now on is its home.
    pub(super) fn adopt(&mut self, block: Block, wanted: &Wanted) -> Handle<Shard> {
        self.shard.counters.misses.add(1);
        let header = self.header(block);
        self.hand_out(header, wanted)
    }

    /// The same for a block that nothing was reserved for: a hit where with it the shard owns what it had
    /// before, in other sizes.
    pub(super) fn adopt_free(&mut self, block: Block, wanted: &Wanted) -> Handle<Shard> {
        let counters = &self.shard.counters;
        let known_bytes = self.inner.known_out_bytes;
        if counters.owned_bytes.get() + block.bytes() > known_bytes + known_bytes / 8 {
            return self.adopt(block, wanted);
        }
        counters.hits.add(1);
        let header = self.header(block);
        self.hand_out(header, wanted)
    }

    fn hand_out(&mut self, header: Box<Header<Shard>>, wanted: &Wanted) -> Handle<Shard> {
        self.inner
            .hand_out_noted(&self.shard.counters, header, wanted)
    }

    /// Hands out a block that belongs to no cache.
    pub(super) fn adopt_uncached(&mut self, block: Block, requested_bytes: u64) -> Handle<Shard> {
        let counters = &self.shard.counters;
        counters.count_out(block.bytes(), requested_bytes);
        self.header(block).hand_out(requested_bytes, UNCACHED_STAMP)
    }

    /// Hands out a header without a block.
    pub(super) fn adopt_empty(&mut self) -> Handle<Shard> {
        self.inner.empties += 1;
        Header::new(Block::EMPTY, 0, NonNull::from(self.shard)).hand_out(0, EMPTY_STAMP)
    }

    fn header(&mut self, block: Block) -> Box<Header<Shard>> {
        let counters = &self.shard.counters;
        counters.owned_blocks.add(1);
        counters.owned_bytes.add(block.bytes());
        self.inner.new_header(block, NonNull::from(self.shard))
    }

    /// Brings home what was dropped elsewhere.
    pub(super) fn collect(&mut self) {
        for header in self.shard.take_returned() {
            self.put(header);
        }
    }

    /// Does whatever is due, and answers the blocks that go to the pool for it.
    pub(super) fn settle(&mut self) -> List<Shard> {
        self.collect();
        let inner = &mut *self.inner;
        let marks = self.shard.take_marks();
        if marks != 0 {
            if marks & INVALIDATE != 0 {
                inner.invalidate();
            }
            return self.drain();
        }
        if inner.has_pending() {
            let backend = self.shard.device().memory().backend();
            inner.settle_pending(&self.shard.counters, backend);
        }
        if inner.depth == 0 && inner.clock >= inner.due_at {
            return self.follow_policy();
        }
        self.disown()
    }

    /// Does what the policy wants outside of the scope.
    fn follow_policy(&mut self) -> List<Shard> {
        let inner = &mut *self.inner;
        match inner.policy {
            Policy::Release => self.drain(),
            Policy::Recycle | Policy::Bump | Policy::Plan => {
                let too_old = inner.aging.sweep(inner.clock);
                inner.due_at = inner.aging.due_at();
                inner.expire(too_old);
                self.disown()
            }
        }
    }

    /// Gives up every idle block, those included that are pending.
    pub(super) fn drain(&mut self) -> List<Shard> {
        let counters = &self.shard.counters;
        // Headers of parts may be idle without a chunk, and a chunk without any.
        if counters.cached_bytes() > 0 || counters.idle_headers() > 0 {
            self.inner.give_up_all();
        }
        if self.inner.has_pending() {
            self.inner.drain_pending(&self.shard.counters);
        }
        self.disown()
    }

    /// Gives up everything, when the shard closes; answers the idle blocks, how many headers are
    /// still out, and the chunks under those.
    pub(super) fn close(mut self) -> (List<Shard>, u64, SetAside) {
        self.inner.invalidate();
        let idle = self.drain();
        self.publish();
        let counters = &self.shard.counters;
        let (blocks, bytes) = (counters.live_blocks.get(), counters.live_bytes.get());
        self.shard.device().ledger.adopt_orphans(blocks, bytes);
        self.visiting = false; // The state goes to closed, not to idle.
        (
            idle,
            blocks + self.inner.empties,
            std::mem::take(&mut self.inner.aside),
        )
    }

    fn disown(&mut self) -> List<Shard> {
        let stale = std::mem::replace(&mut self.inner.stale, List::new());
        let counters = &self.shard.counters;
        let mut blocks = List::new();
        for header in stale {
            counters.owned_blocks.sub(u64::from(header.class != CHUNK));
            if header.class >= PART {
                counters.count_chunk_less(header.class == CHUNK);
            }
            if header.class != PART {
                counters.owned_bytes.sub(header.block.bytes());
                blocks.push(header);
            }
        }
        blocks
    }

    /// Counts the chunks, for who looks from outside, and what else would count as blocks beside them.
    pub(super) fn count_chunks(&mut self) {
        let (inner, counters) = (&*self.inner, &self.shard.counters);
        let (parts, slabs) = inner.plans.idle_parts_and_slabs();
        let idle_parts = parts + inner.bins[PART].iter().count();
        let chunks = slabs + inner.bump.chunk_count() + inner.aside.chunk_count();
        counters.idle_parts.set(idle_parts as u64);
        counters.chunks.set(chunks as u64);
    }

    /// Tells the device's ledger how much is live here, and how much was at the most.
    pub(super) fn publish(&mut self) {
        let inner = &mut *self.inner;
        let counters = &self.shard.counters;
        let (live, peak) = (counters.live_bytes.get(), counters.window_peak_bytes.get());
        self.shard
            .device()
            .ledger
            .publish(inner.published_bytes, live, peak);
        inner.published_bytes = live;
        self.begin_window();
    }

    /// The peak up to now is kept, and the next one begins from what is live.
    #[inline]
    pub(super) fn begin_window(&mut self) {
        let counters = &self.shard.counters;
        let peak = counters.window_peak_bytes.get();
        if peak > counters.peak_live_bytes.get() {
            counters.peak_live_bytes.set(peak);
        }
        counters.window_peak_bytes.set(counters.live_bytes.get());
    }

    /// Forgets the peaks so far.
    pub(super) fn reset_peaks(&mut self) {
        self.publish();
        let counters = &self.shard.counters;
        counters.peak_live_bytes.set(counters.live_bytes.get());
    }
}

impl Drop for Access<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.visiting {
            self.shard.end_visit();
        }
    }
}
