//! What a shard holds, and what its holder may do with it. Plain bookkeeping: who may, and when,
//! stands in [`shard`](super::shard).
//!
//! Architecture invariant: nothing here calls foreign code or drops a handle on a block, so nothing
//! comes back to the shard while its inside is borrowed.

use std::ptr::NonNull;

use super::Size;
use super::policy::Policy;
use super::shard::{INVALIDATE, Shard};
use crate::device::StreamId;
use crate::memory::Block;
use crate::memory::header::{Handle, Header, List};
use crate::pool::size_class::{CLASSES, floor_class};

/// The stamp of a block that belongs to no cache: older than any clock.
const UNCACHED_STAMP: u64 = 0;
/// The stamp of a header without a block, for arrays of no bytes.
pub(super) const EMPTY_STAMP: u64 = u64::MAX;

/// Invariants, asserted by [`Access::check`]:
/// - a bin holds idle blocks of its class, and what the shard owns is live, in a bin or stale;
/// - `exited_at` and `invalidated_at` are at most `clock`;
/// - `depth` is 0 unless a thread is inside.
pub(super) struct Inner {
    bins: [List<Shard>; CLASSES],
    /// What goes to the pool at the next opportunity: dropping must not lock.
    stale: List<Shard>,
    /// Entries that have not been left.
    depth: u64,
    /// Moves on at each outermost exit and each invalidation; stamps the blocks handed out.
    clock: u64,
    /// Blocks stamped before this escaped.
    exited_at: u64,
    /// Blocks stamped before this go to the pool when they drop.
    invalidated_at: u64,
    policy: Policy,
    /// The `live_bytes` that the device's ledger knows of.
    published_bytes: u64,
    /// Headers without a block that are handed out.
    empties: u64,
}

impl Inner {
    pub(super) fn new(uncached: bool) -> Self {
        Self {
            bins: [const { List::new() }; CLASSES],
            stale: List::new(),
            depth: 0,
            clock: 1,
            exited_at: UNCACHED_STAMP,
            invalidated_at: if uncached { 1 } else { 0 },
            policy: Policy::Recycle,
            published_bytes: 0,
            empties: 0,
        }
    }

    fn invalidate(&mut self) {
        self.clock += 1;
        self.invalidated_at = self.clock;
    }
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
    pub(super) fn begin(&mut self) {
        let inner = &mut *self.inner;
        inner.depth = 1;
        if let Some(identity) = &self.shard.identity {
            inner.policy = identity.policy();
        }
        self.shard.counters.entries.add(1);
    }

    /// Another entry begins inside.
    pub(super) fn begin_again(&mut self) {
        self.inner.depth += 1;
    }

    /// An entry ends; true for the outermost one.
    #[inline]
    pub(super) fn end(&mut self) -> bool {
        self.inner.depth -= 1;
        self.inner.depth == 0
    }

    /// The outermost entry ends here for the blocks: what is live now has escaped.
    #[inline]
    pub(super) fn end_turn(&mut self) {
        self.inner.clock += 1;
        self.inner.exited_at = self.inner.clock;
        let counters = &self.shard.counters;
        counters.escaped_blocks.set(counters.live_blocks.get());
    }

    /// Whether an exit has nothing to do but to end the turn: no block to bring home or to give up,
    /// and nothing that the device's ledger does not know.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        let inner = &*self.inner;
        let counters = &self.shard.counters;
        let (live, peak) = (counters.live_bytes.get(), counters.window_peak_bytes.get());
        inner.policy == Policy::Recycle
            && inner.stale.is_empty()
            && live == inner.published_bytes
            && !self.shard.device().ledger.would_raise(live, peak)
    }

    /// Serves a request from the bins: the tightest fit in its own one.
    #[inline]
    pub(super) fn take(&mut self, size: Size, stream: StreamId) -> Option<Handle<Shard>> {
        let inner = &mut *self.inner;
        let header = inner.bins[size.class].take_best(|header| {
            if header.block.stream != stream {
                return None;
            }
            header.block.bytes().checked_sub(size.rounded_bytes)
        })?;
        self.shard.counters.hits.add(1);
        let stamp = inner.clock;
        Some(self.hand_out(header, size.requested_bytes, stamp))
    }

    /// Hands out a block that came from below the cache, which from now on is its home.
    pub(super) fn adopt(&mut self, block: Block, requested_bytes: u64) -> Handle<Shard> {
        let clock = self.inner.clock;
        let counters = &self.shard.counters;
        counters.misses.add(1);
        self.hand_out(self.header(block), requested_bytes, clock)
    }

    /// Hands out a block that belongs to no cache.
    pub(super) fn adopt_uncached(&mut self, block: Block, requested_bytes: u64) -> Handle<Shard> {
        self.hand_out(self.header(block), requested_bytes, UNCACHED_STAMP)
    }

    /// Hands out a header without a block.
    pub(super) fn adopt_empty(&mut self) -> Handle<Shard> {
        self.inner.empties += 1;
        Header::new(Block::EMPTY, 0, NonNull::from(self.shard)).hand_out(0, EMPTY_STAMP)
    }

    fn header(&self, block: Block) -> Box<Header<Shard>> {
        let counters = &self.shard.counters;
        counters.owned_blocks.add(1);
        counters.owned_bytes.add(block.bytes());
        let class = floor_class(block.bytes());
        Header::new(block, class, NonNull::from(self.shard))
    }

    #[inline]
    fn hand_out(
        &self,
        header: Box<Header<Shard>>,
        requested_bytes: u64,
        stamp: u64,
    ) -> Handle<Shard> {
        let counters = &self.shard.counters;
        counters.live_blocks.add(1);
        counters.allocated_bytes.add(header.block.bytes());
        let live_bytes = counters.live_bytes.get() + requested_bytes;
        counters.live_bytes.set(live_bytes);
        if live_bytes > counters.window_peak_bytes.get() {
            counters.window_peak_bytes.set(live_bytes);
        }
        header.hand_out(requested_bytes, stamp)
    }

    /// Takes a block back that nobody holds any more.
    #[inline]
    pub(super) fn put(&mut self, header: Box<Header<Shard>>) {
        let inner = &mut *self.inner;
        if header.stamp != inner.clock {
            return self.put_aged(header);
        }
        self.count_out(&header);
        self.inner.bins[header.class].push(header);
    }

    #[inline]
    fn count_out(&self, header: &Header<Shard>) {
        let counters = &self.shard.counters;
        counters.live_blocks.sub(1);
        counters.live_bytes.sub(header.requested_bytes);
        counters.allocated_bytes.sub(header.block.bytes());
    }

    /// The same for a block that saw an exit or an invalidation, or has no cache.
    #[cold]
    #[inline(never)]
    fn put_aged(&mut self, header: Box<Header<Shard>>) {
        if header.stamp == EMPTY_STAMP {
            self.inner.empties -= 1;
            return;
        }
        self.count_out(&header);
        let inner = &mut *self.inner;
        if header.stamp < inner.exited_at {
            self.shard.counters.escaped_blocks.sub(1);
        }
        if header.stamp < inner.invalidated_at {
            inner.stale.push(header);
        } else {
            inner.bins[header.class].push(header);
        }
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
        if inner.depth == 0 && inner.policy == Policy::Release {
            return self.drain();
        }
        self.disown()
    }

    /// Gives up every idle block.
    pub(super) fn drain(&mut self) -> List<Shard> {
        if self.shard.counters.cached_blocks() > 0 {
            let inner = &mut *self.inner;
            for bin in &mut inner.bins {
                inner.stale.append(bin);
            }
        }
        self.disown()
    }

    /// Gives up everything, when the shard closes; answers the idle blocks, and how many headers
    /// are still out.
    pub(super) fn close(mut self) -> (List<Shard>, u64) {
        self.inner.invalidate();
        let idle = self.drain();
        self.publish();
        let counters = &self.shard.counters;
        let (blocks, bytes) = (counters.live_blocks.get(), counters.live_bytes.get());
        self.shard.device().ledger.adopt_orphans(blocks, bytes);
        self.visiting = false; // The state goes to closed, not to idle.
        (idle, blocks + self.inner.empties)
    }

    fn disown(&mut self) -> List<Shard> {
        let stale = std::mem::replace(&mut self.inner.stale, List::new());
        let counters = &self.shard.counters;
        for header in stale.iter() {
            counters.owned_blocks.sub(1);
            counters.owned_bytes.sub(header.block.bytes());
        }
        stale
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

    /// Asserts the invariants of the inside; for tests.
    #[cfg(test)]
    pub(super) fn check(&mut self) {
        let inner = &mut *self.inner;
        let counters = &self.shard.counters;
        let (mut blocks, mut bytes) = (0, 0);
        for (class, bin) in inner.bins.iter().enumerate() {
            for header in bin.iter() {
                assert_eq!(
                    floor_class(header.block.bytes()),
                    class,
                    "a bin holds blocks of its class"
                );
                blocks += 1;
                bytes += header.block.bytes();
            }
        }
        for header in inner.stale.iter() {
            blocks += 1;
            bytes += header.block.bytes();
        }
        assert_eq!(counters.cached_blocks(), blocks, "what is not live is idle");
        assert_eq!(counters.cached_bytes(), bytes, "and so are its bytes");
        assert!(counters.escaped_blocks.get() <= counters.live_blocks.get());
        assert!(inner.exited_at <= inner.clock && inner.invalidated_at <= inner.clock);
        assert_eq!(
            inner.depth > 0,
            !self.visiting,
            "a visitor finds nobody inside"
        );
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
