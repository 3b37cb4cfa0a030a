//! The allocator of a shard: its store and its active policy, used by one thread at a time.
//! [`shard`](super::shard) decides which thread that is, and handles the signals of other threads.
//!
//! Architecture invariant: nothing here calls foreign code or drops a handle on a block. So nothing
//! reenters the allocator while it is borrowed.

mod aging;
mod between;
#[cfg(test)]
mod check;
mod observe;
mod release;
mod skipped;

use std::mem;

use crate::cache::arena::{DetachedArenas, SUBALLOCATION};
use crate::cache::policy::{CachePolicy, FastPath, Need, Policies, Policy, dispatch};
use crate::cache::record::{RECORDED, RecordedAllocation};
use crate::cache::request::Request;
use crate::cache::settings::CacheSettings;
use crate::cache::stats::Counters;
use crate::cache::store::Store;
use crate::device::{DevicePtr, StreamId};
use crate::memory::Block;
use crate::memory::header::{HandedOut, Header, Home};
use crate::pool::Rounding;
use aging::Aging;

/// The epoch of a block that belongs to no cache: older than any other.
const UNCACHED_EPOCH: u64 = 0;
/// The epoch of a header without a block, for arrays of no bytes.
pub(super) const EMPTY_EPOCH: u64 = u64::MAX >> 1;

/// The store and the policies of a shard.
///
/// Invariants:
/// - each block that the shard owns is live, idle in the store or in the active policy, pending, or
///   to be released;
/// - between two entries no suballocation of an attached arena is live.
pub(super) struct Allocator {
    pub(super) store: Store,
    policies: Policies,
    /// The policy whose `allocate` serves requests. `None` if each request takes the slow path,
    /// because it is recorded or its block is filled.
    fast_path: Option<Policy>,
    fills: bool,
    /// True if the device's recorder records every request and free, which then take the slow path.
    is_observed: bool,
    /// The epoch of the blocks that [`free`](Self::free) takes back: the present one, or while
    /// observed, one that no block has.
    free_epoch: u64,
    /// True if the policy or the record has work to do when an entry begins, and when it ends.
    begins: bool,
    ends: bool,
    /// The version of the settings that the policy was configured with.
    version: u64,
    /// The entries that have not ended; 0 unless a thread is inside.
    depth: u64,
    /// The number of entries that the shard had counted when the last one ended.
    counted_entries: u64,
    /// The number of requests that the shard had served then.
    counted_requests: u64,
    aging: Aging,
    /// The epoch from which on an exit has blocks to release.
    due_epoch: u64,
    /// The most bytes that were handed out at a miss, by the blocks' own length.
    peak_out_bytes: u64,
    /// The `peak_out_bytes` at the end of the previous entry.
    known_out_bytes: u64,
    /// The headers without a block that are handed out.
    empties: u64,
}

impl Allocator {
    /// Makes the allocator of a cache, or (`is_uncached`) of the blocks that belong to no cache. If
    /// the device `fills` every block, no request is a hit.
    pub(super) fn new(home: Home, is_uncached: bool, fills: bool) -> Self {
        let mut store = Store::new(home);
        store.invalidation_epoch = u64::from(is_uncached);
        let mut new = Self {
            store,
            policies: Policies::new(),
            fast_path: None,
            fills,
            is_observed: false,
            free_epoch: 0,
            begins: false,
            ends: false,
            version: 0,
            depth: 0,
            counted_entries: 0,
            counted_requests: 0,
            aging: Aging::default(),
            due_epoch: u64::MAX,
            peak_out_bytes: 0,
            known_out_bytes: 0,
            empties: 0,
        };
        new.update_fast_path();
        new.update_free_epoch();
        new
    }

    pub(super) fn is_entered(&self) -> bool {
        self.depth > 0
    }

    /// Begins an outermost entry, after `entries` others. Returns true if the settings had changed.
    #[inline]
    pub(super) fn begin(
        &mut self,
        settings: &CacheSettings,
        counters: &Counters,
        entries: u64,
    ) -> bool {
        self.depth = 1;
        if entries != self.counted_entries {
            self.end_skipped(entries - self.counted_entries);
            counters.escaped_blocks.set(counters.live_blocks.get());
        }
        self.counted_entries = entries + 1;
        let has_changed = self.version != settings.version();
        if has_changed {
            self.configure(settings);
        }
        if self.begins {
            self.begin_policy();
        }
        has_changed
    }

    fn begin_policy(&mut self) {
        dispatch!(self.policies, policy => policy.begin(&mut self.store));
        if self.store.is_recording() {
            self.due_epoch = 0; // The exit has work to do.
        }
        self.update_fast_path();
    }

    /// Begins an entry inside another one.
    pub(super) fn begin_nested(&mut self) {
        self.depth += 1;
        dispatch!(self.policies, policy => policy.begin_nested());
    }

    /// Ends an entry. Returns true for the outermost one.
    #[inline]
    pub(super) fn end_nested(&mut self) -> bool {
        self.depth -= 1;
        if self.depth > 0 {
            dispatch!(self.policies, policy => policy.end_nested(&mut self.store));
        }
        self.depth == 0
    }

    /// Ends the outermost entry for the blocks: those that are live now have escaped. Returns the
    /// record of the entry.
    #[inline]
    pub(super) fn end(&mut self, counters: &Counters) -> Option<Vec<RecordedAllocation>> {
        let live_blocks = counters.live_blocks.get();
        let recorded = if self.ends {
            self.end_policy(counters, live_blocks != counters.escaped_blocks.get())
        } else {
            None
        };
        self.known_out_bytes = self.peak_out_bytes;
        self.end_skipped(1);
        counters.escaped_blocks.set(live_blocks);
        recorded
    }

    #[inline(never)]
    fn end_policy(
        &mut self,
        counters: &Counters,
        escapes: bool,
    ) -> Option<Vec<RecordedAllocation>> {
        let store = &mut self.store;
        dispatch!(self.policies, policy => policy.end(store, counters, escapes))
    }

    /// Returns true if an exit has no block to release.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.store.epoch < self.due_epoch && self.store.to_release.is_empty()
    }

    #[cold]
    fn configure(&mut self, settings: &CacheSettings) {
        self.version = settings.version(); // First: a later change is read at the next entry.
        let config = settings.config();
        if self.policies.active != config.policy {
            self.release_all();
            // Arenas with live suballocations were detached at the last exit, so nothing is left in
            // the policy.
            let left = dispatch!(self.policies, policy => policy.idle_and_arenas());
            debug_assert_eq!(left, (0, 0), "the policy before keeps something");
            self.policies.activate(config.policy);
        }
        self.store.records = config.record;
        self.begins = config.record || dispatch!(self.policies, policy => policy.begins());
        self.ends = config.record || dispatch!(self.policies, policy => policy.ends());
        self.observe(settings.is_observed());
        self.aging.configure(&config);
        self.due_epoch = if self.keeps_idle() {
            self.aging.due_epoch()
        } else {
            0
        };
        self.update_fast_path();
    }

    fn keeps_idle(&mut self) -> bool {
        dispatch!(self.policies, policy => policy.keeps_idle())
    }

    fn update_fast_path(&mut self) {
        let is_slow = self.is_observed || self.is_filled_or_recorded();
        let policy = dispatch!(self.policies, policy => policy.fast_path());
        self.fast_path = (!is_slow).then_some(policy);
    }

    fn is_filled_or_recorded(&self) -> bool {
        self.fills || self.store.is_recording()
    }

    /// Returns the block of a hit. Rounds to 512 B: an exact fit is valid under every pool. If a
    /// pool rounds further, `refill` finds the other blocks.
    #[inline]
    pub(super) fn allocate<P: FastPath>(
        &mut self,
        counters: &Counters,
        bytes: u64,
        stream: StreamId,
    ) -> Option<HandedOut> {
        if self.fast_path != Some(P::POLICY) {
            return None;
        }
        let rounded_bytes = Rounding::Units.round(bytes)?;
        let policy = P::of(&mut self.policies);
        let header = policy.allocate(&mut self.store, rounded_bytes, stream)?;
        counters.hits.add(1);
        counters.count_out(header.block.bytes(), bytes);
        Some(header.hand_out(bytes, self.store.epoch))
    }

    /// Serves a request that was no hit, or returns the memory that it needs. A request between two
    /// entries is never served from an arena: the next entry hands out all of it.
    pub(super) fn refill(
        &mut self,
        counters: &Counters,
        request: &Request,
    ) -> Result<HandedOut, Need> {
        let store = &mut self.store;
        let served = if self.depth == 0 {
            let fit = store.pop_tightest(request.size, request.stream);
            fit.ok_or(Need::Block)
        } else {
            dispatch!(self.policies, policy => policy.refill(store, counters, request))
        };
        self.update_fast_path();
        let header = served?;
        counters.hits.add(1);
        Ok(self.hand_out(counters, header, request))
    }

    /// Continues without the arena that [`refill`](Self::refill) requested, because there is no
    /// room for it.
    pub(super) fn without_arena(&mut self) {
        dispatch!(self.policies, policy => policy.without_arena());
        self.update_fast_path();
    }

    /// Serves a request from a new arena. Returns the arena if it is not needed any more: a
    /// callback of the memory may have left the scope, or entered it with another policy.
    pub(super) fn refill_from(
        &mut self,
        counters: &Counters,
        arena: Block,
        request: &Request,
    ) -> (Result<HandedOut, Need>, Option<Block>) {
        if !self.is_entered() {
            return (Err(Need::Block), Some(arena));
        }
        match self.refill(counters, request) {
            Err(Need::Arena { min_bytes, .. }) if min_bytes <= arena.bytes() => {}
            other => return (other, Some(arena)),
        }
        let store = &mut self.store;
        let arena = store.new_arena(counters, arena);
        self.due_epoch = 0; // A first arena may not be the last: the exit checks.
        let served = dispatch!(
            self.policies,
            policy => policy.add_arena(store, counters, arena, request)
        );
        self.update_fast_path();
        match served {
            Ok(header) => {
                counters.misses.add(1);
                (Ok(self.hand_out(counters, header, request)), None)
            }
            Err(need) => (Err(need), None),
        }
    }

    /// Hands out a block of the pool. This shard is its home from now on.
    pub(super) fn adopt(
        &mut self,
        counters: &Counters,
        block: Block,
        request: &Request,
    ) -> HandedOut {
        counters.misses.add(1);
        let header = self.store.new_header(counters, block);
        self.hand_out(counters, header, request)
    }

    /// Like [`adopt`](Self::adopt), for a block that the memory did not grow for. It counts as a
    /// hit if with it the shard owns about what it had before, in other sizes.
    pub(super) fn adopt_free(
        &mut self,
        counters: &Counters,
        block: Block,
        request: &Request,
    ) -> HandedOut {
        let owned_bytes = counters.owned_bytes.get() + block.bytes();
        if owned_bytes > self.known_out_bytes + self.known_out_bytes / 8 {
            return self.adopt(counters, block, request);
        }
        counters.hits.add(1);
        let header = self.store.new_header(counters, block);
        self.hand_out(counters, header, request)
    }

    /// Hands out a block that belongs to no cache.
    pub(super) fn adopt_uncached(
        &mut self,
        counters: &Counters,
        block: Block,
        requested_bytes: u64,
    ) -> HandedOut {
        counters.count_out(block.bytes(), requested_bytes);
        let header = self.store.new_header(counters, block);
        header.hand_out(requested_bytes, UNCACHED_EPOCH)
    }

    /// Hands out a header without a block.
    pub(super) fn hand_out_empty(&mut self) -> HandedOut {
        self.empties += 1;
        self.store.new_empty().hand_out(0, EMPTY_EPOCH)
    }

    /// Hands out a block that was no hit, and records it if the entry is recorded.
    fn hand_out(
        &mut self,
        counters: &Counters,
        mut header: Box<Header>,
        request: &Request,
    ) -> HandedOut {
        let mut epoch = self.store.epoch;
        if let Some(index) = self.store.record_allocation(counters, request) {
            header.record_index = index;
            epoch |= RECORDED;
        }
        if header.class != SUBALLOCATION && self.is_entered() {
            dispatch!(self.policies, policy => policy.note_block(request));
        }
        self.update_fast_path();
        let requested_bytes = request.size.requested_bytes;
        counters.count_out(header.block.bytes(), requested_bytes);
        header.hand_out(requested_bytes, epoch)
    }

    /// Takes back a block that has no handle any more, if it is of this epoch, and neither recorded
    /// nor used by another stream. Returns other blocks, for [`free_slowly`](Self::free_slowly).
    #[inline]
    pub(super) fn free(&mut self, counters: &Counters, header: Box<Header>) -> Option<Box<Header>> {
        if header.epoch() != self.free_epoch {
            return Some(header);
        }
        counters.count_back(header.block.bytes(), header.requested_bytes);
        self.store.push(header);
        None
    }

    /// Takes back any block.
    pub(super) fn free_slowly(&mut self, counters: &Counters, mut header: Box<Header>) {
        header.end_uses();
        if header.epoch() == EMPTY_EPOCH {
            self.empties -= 1;
            return;
        }
        if header.epoch() & RECORDED != 0 {
            let epoch = header.epoch() & !RECORDED;
            header.set_epoch(epoch);
            if let Some(recording) = &mut self.store.recording {
                recording.freed(header.record_index, epoch);
            }
        }
        counters.count_back(header.block.bytes(), header.requested_bytes);
        if header.epoch() < self.store.exit_epoch {
            counters.escaped_blocks.sub(1);
        }
        if header.class == SUBALLOCATION {
            self.free_suballocation(header);
        } else if header.epoch() < self.store.invalidation_epoch {
            self.store.to_release.push(header);
        } else if header.block.other_uses.is_empty() {
            self.store.push(header);
        } else {
            self.store.defer(counters, header);
        }
    }

    fn free_suballocation(&mut self, mut header: Box<Header>) {
        if !header.block.other_uses.is_empty() {
            dispatch!(self.policies, policy => policy.share(&mut header));
            self.store.detached.share(&mut header);
            self.update_fast_path();
        }
        if header.epoch() == self.store.epoch {
            self.store.push(header);
        } else {
            self.store.free_detached(header);
        }
    }

    /// Invalidates the live blocks: they go to the pool when they drop.
    pub(super) fn invalidate(&mut self) {
        dispatch!(self.policies, policy => policy.detach(&mut self.store, false));
        self.store.epoch += 1;
        self.store.invalidation_epoch = self.store.epoch;
        self.update_free_epoch();
    }

    /// Ends the allocator. Returns the number of headers that are still handed out, and the arenas
    /// that contain their suballocations.
    pub(super) fn close(&mut self, counters: &Counters) -> (u64, DetachedArenas) {
        let headers = counters.live_blocks.get() + self.empties;
        (headers, mem::take(&mut self.store.detached))
    }

    /// Counts the arenas that serve requests, the unused bytes of the others, and the idle
    /// suballocations, which are no blocks of their own.
    pub(super) fn count_arenas(&mut self, counters: &Counters) {
        let (idle, arenas) = dispatch!(self.policies, policy => policy.idle_and_arenas());
        let idle = idle + self.store.idle_suballocations().iter().count();
        counters.idle_suballocations.set(idle as u64);
        counters.arenas.set(arenas as u64);
        counters
            .detached_bytes
            .set(self.store.detached.unused_bytes());
    }

    /// Hands out a slab as a whole. The slab is detached, so that nothing else is served from it.
    /// Its live suballocations stay valid.
    pub(super) fn export_slab(
        &mut self,
        counters: &Counters,
        address: DevicePtr,
    ) -> Option<HandedOut> {
        let store = &mut self.store;
        if dispatch!(self.policies, policy => policy.detach_at(store, address)) {
            store.epoch += 1;
        }
        self.update_fast_path();
        self.update_free_epoch();
        let home = self.store.home();
        let (slab, epoch) = self.store.detached.export(address)?;
        let slab_bytes = slab.block.bytes();
        let block = slab.block.new_suballocation();
        let mut header = Header::new(block, SUBALLOCATION, home);
        header.join_slab(slab);
        counters.owned_blocks.add(1);
        counters.count_out(0, slab_bytes);
        if !self.is_entered() {
            // As for every block that is live between two entries.
            self.store.exit_epoch = self.store.epoch;
        }
        if epoch < self.store.exit_epoch {
            counters.escaped_blocks.add(1);
        }
        Some(header.hand_out(slab_bytes, epoch))
    }
}
