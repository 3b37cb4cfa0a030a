//! The operations of a shard's holder: on its allocator, and on the shard's counters and totals.

use std::panic::Location;

use super::signals::INVALIDATE;
use super::{BlockHandle, Inside, Shard};
use crate::cache::arena::DetachedArenas;
use crate::cache::policy::{Need, bump::Bump, plan::Plan, recycle::Recycle};
use crate::cache::record::{AllocationRecord, RECORDED, Recording};
use crate::cache::request::Request;
use crate::device::{DevicePtr, StreamId};
use crate::memory::Block;
use crate::memory::header::{Header, List};
use crate::recorder::EventKind;

/// The right to access a shard's inside: this thread is in its scope, or visits it.
pub(in crate::cache) struct Guard<'a> {
    shard: &'a Shard,
    inside: &'a mut Inside,
    visiting: bool,
}

impl<'a> Guard<'a> {
    /// Makes a guard. The caller holds the shard's state, as itself or as a visitor, and passes
    /// `inside`, which only the holder may borrow.
    #[inline]
    pub(super) fn new(shard: &'a Shard, inside: &'a mut Inside, visiting: bool) -> Self {
        Self {
            shard,
            inside,
            visiting,
        }
    }

    /// Begins an outermost entry.
    #[inline]
    pub(super) fn begin(&mut self) {
        if let Some(settings) = &self.shard.settings {
            let entries = self.shard.counters.entries.get();
            let has_changed =
                (self.inside.allocator).begin(settings, &self.shard.counters, entries);
            if has_changed {
                self.shard
                    .follow_recording(self.inside.allocator.is_observed());
            }
        }
        self.shard.counters.entries.add(1);
        self.record_entry(EventKind::Enter);
    }

    /// Begins an entry inside another one.
    pub(super) fn begin_nested(&mut self) {
        self.inside.allocator.begin_nested();
    }

    /// Ends an entry. Returns true for the outermost one.
    #[inline]
    pub(super) fn end_nested(&mut self) -> bool {
        self.inside.allocator.end_nested()
    }

    /// Ends the outermost entry for the blocks: those that are live now have escaped.
    #[inline]
    pub(super) fn end(&mut self) {
        if let Some(recorded) = self.inside.allocator.end(&self.shard.counters) {
            self.shard.keep_record(&recorded);
        }
        self.record_entry(EventKind::Exit);
    }

    /// Sets how many entries may be skipped after this exit.
    #[inline]
    pub(super) fn allow_skips(&mut self) {
        let Inside { allocator, .. } = self.inside;
        let entries = allocator.skippable_entries(&self.shard.counters);
        self.shard.allow_skips(entries, allocator.version());
    }

    #[inline]
    fn record_entry(&self, kind: EventKind) {
        if self.inside.allocator.is_observed() {
            self.shard.record_entry(kind);
        }
    }

    /// Begins or ends the recording of every request and free by the device's recorder.
    pub(in crate::cache) fn observe(&mut self, observed: bool) {
        self.inside.allocator.observe(observed);
        self.shard.follow_recording(observed);
    }

    /// Returns the block of a hit, for a request that takes the slow path only to be recorded.
    pub(in crate::cache) fn observed_hit(&mut self, request: &Request) -> Option<BlockHandle> {
        let counters = &self.shard.counters;
        let hit = self.inside.allocator.observed_hit(counters, request);
        hit.map(BlockHandle::from)
    }

    /// Returns true if an exit only has to end the entry: the allocator has no block to release,
    /// and the device's totals are up to date.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        let counters = &self.shard.counters;
        let (live, peak) = (counters.live_bytes.get(), counters.window_peak_bytes.get());
        self.inside.allocator.is_quiet()
            && live == self.inside.published_bytes
            && !self.shard.device().totals.would_raise(live, peak)
    }

    /// Returns the block of a hit, under any policy, inside an entry or between two.
    #[inline]
    pub(super) fn hit(&mut self, bytes: u64, stream: StreamId) -> Option<BlockHandle> {
        let Inside { allocator, .. } = self.inside;
        let counters = &self.shard.counters;
        if !allocator.is_entered() {
            let hit = allocator.allocate_between_entries(counters, bytes, stream);
            return hit.map(BlockHandle::from);
        }
        allocator
            .allocate::<Recycle>(counters, bytes, stream)
            .or_else(|| allocator.allocate::<Bump>(counters, bytes, stream))
            .or_else(|| allocator.allocate::<Plan>(counters, bytes, stream))
            .map(BlockHandle::from)
    }

    /// Returns true if an entry has begun and not ended.
    pub(super) fn is_entered(&self) -> bool {
        self.inside.allocator.is_entered()
    }

    /// Serves a request that was no hit, or returns the memory that it needs.
    pub(in crate::cache) fn refill(&mut self, request: &Request) -> Result<BlockHandle, Need> {
        let counters = &self.shard.counters;
        let served = self.inside.allocator.refill(counters, request);
        served.map(BlockHandle::from)
    }

    /// Serves a request that missed from a new arena. Returns the arena if it is not needed any
    /// more.
    pub(in crate::cache) fn refill_from(
        &mut self,
        arena: Block,
        request: &Request,
    ) -> (Option<BlockHandle>, Option<Block>) {
        let counters = &self.shard.counters;
        let (served, surplus) = self.inside.allocator.refill_from(counters, arena, request);
        (served.ok().map(BlockHandle::from), surplus)
    }

    /// Looks for a free block once more, because there is no room for the arena that
    /// [`refill`](Self::refill) requested.
    pub(in crate::cache) fn without_arena(&mut self, request: &Request) -> Option<BlockHandle> {
        self.inside.allocator.without_arena();
        self.refill(request).ok()
    }

    /// Evicts idle blocks for a request. Returns those that go to the pool.
    pub(in crate::cache) fn evict(&mut self, request: &Request, to_grow: bool) -> List {
        let Inside { allocator, .. } = self.inside;
        let counters = &self.shard.counters;
        let memory = self.shard.device().memory();
        let has_streams = memory.backend().streams() > 1;
        let elsewhere_bytes = if has_streams {
            allocator.idle_bytes_beside(request.stream)
        } else {
            0
        };
        allocator.evict(
            counters,
            request,
            elsewhere_bytes,
            to_grow,
            memory.exchange_cost(),
        );
        allocator.take_released(counters)
    }

    /// Hands out a block of the pool. The shard is its home from now on.
    pub(in crate::cache) fn adopt(&mut self, block: Block, request: &Request) -> BlockHandle {
        let counters = &self.shard.counters;
        self.inside.allocator.adopt(counters, block, request).into()
    }

    /// Like [`adopt`](Self::adopt), for a block that the memory did not grow for.
    pub(in crate::cache) fn adopt_free(&mut self, block: Block, request: &Request) -> BlockHandle {
        let counters = &self.shard.counters;
        self.inside
            .allocator
            .adopt_free(counters, block, request)
            .into()
    }

    /// Hands out a block that belongs to no cache.
    pub(in crate::cache) fn adopt_uncached(&mut self, block: Block, bytes: u64) -> BlockHandle {
        let counters = &self.shard.counters;
        self.inside
            .allocator
            .adopt_uncached(counters, block, bytes)
            .into()
    }

    /// Hands out a header without a block.
    pub(in crate::cache) fn hand_out_empty(&mut self) -> BlockHandle {
        self.inside.allocator.hand_out_empty().into()
    }

    /// Like [`free`](Self::free), on the fast path.
    #[inline]
    pub(super) fn free_fast(&mut self, header: Box<Header>) {
        let counters = &self.shard.counters;
        if let Some(header) = self.inside.allocator.free(counters, header) {
            self.free(header);
        }
    }

    /// Takes back a block that has no handle any more.
    pub(in crate::cache) fn free(&mut self, header: Box<Header>) {
        let counters = &self.shard.counters;
        self.inside.allocator.free_slowly(counters, header);
    }

    /// Takes back the blocks that were dropped while their threads did not hold the shard.
    pub(in crate::cache) fn drain_remote(&mut self) {
        for header in self.shard.remote.drain() {
            self.free(header);
        }
    }

    /// Does all deferred work. Returns the blocks that go to the pool.
    pub(in crate::cache) fn drain_deferred(&mut self) -> List {
        self.drain_remote();
        let counters = &self.shard.counters;
        let signals = self.shard.take_signals();
        let Inside { allocator, .. } = self.inside;
        if signals != 0 {
            if signals & INVALIDATE != 0 {
                allocator.invalidate();
            }
            return self.release_idle();
        }
        if allocator.store.has_pending() {
            let streams = self.shard.device().memory().streams();
            allocator.store.reclaim_pending(counters, streams);
        }
        allocator.trim_between_entries(counters);
        allocator.take_released(counters)
    }

    /// Releases every idle block, pending ones included.
    pub(in crate::cache) fn release_idle(&mut self) -> List {
        let counters = &self.shard.counters;
        self.inside.allocator.release_idle(counters);
        self.inside.allocator.take_released(counters)
    }

    /// Releases everything when the shard closes. Returns the idle blocks, the number of headers
    /// that are still handed out, and the arenas that contain their suballocations.
    pub(super) fn close(mut self) -> (List, u64, DetachedArenas) {
        self.inside.allocator.invalidate();
        let idle = self.release_idle();
        self.publish();
        let counters = &self.shard.counters;
        let (blocks, bytes) = (counters.live_blocks.get(), counters.live_bytes.get());
        self.shard.device().totals.adopt_orphans(blocks, bytes);
        self.visiting = false; // The state becomes closed, not idle.
        let (headers, detached) = self.inside.allocator.close(counters);
        (idle, headers, detached)
    }

    /// Counts the arenas and idle suballocations, for statistics that any thread reads.
    pub(in crate::cache) fn count_arenas(&mut self) {
        self.inside.allocator.count_arenas(&self.shard.counters);
    }

    /// Hands out, as a whole, the slab that contains `address`.
    pub(in crate::cache) fn export_slab(&mut self, address: DevicePtr) -> Option<BlockHandle> {
        let counters = &self.shard.counters;
        let slab = self.inside.allocator.export_slab(counters, address);
        slab.map(BlockHandle::from)
    }

    /// Marks a handed-out block as a copy that a write forced.
    pub(in crate::cache) fn mark_copy_on_write(
        &mut self,
        copy: &BlockHandle,
        shared_at: Option<&'static Location<'static>>,
    ) {
        let recording = &mut self.inside.allocator.store.recording;
        if let Some(recording) = recording
            && copy.epoch() & RECORDED != 0
        {
            recording.copied_on_write(copy.record_index, copy.epoch() & !RECORDED, shared_at);
        }
    }

    /// Iterates over the allocations that are recorded of the present entry.
    pub(super) fn recorded(&self) -> impl Iterator<Item = AllocationRecord> {
        let recording = self.inside.allocator.store.recording.iter();
        recording.flat_map(Recording::records)
    }

    /// Publishes to the device's totals the live bytes of this shard, and their peak since the last
    /// publication.
    pub(in crate::cache) fn publish(&mut self) {
        let counters = &self.shard.counters;
        let (live, peak) = (counters.live_bytes.get(), counters.window_peak_bytes.get());
        let totals = &self.shard.device().totals;
        totals.publish(self.inside.published_bytes, live, peak);
        self.inside.published_bytes = live;
        self.begin_window();
    }

    /// Merges the peak of the window into the shard's peak, and begins a window at the live bytes.
    #[inline]
    pub(super) fn begin_window(&mut self) {
        let counters = &self.shard.counters;
        let peak = counters.window_peak_bytes.get();
        if peak > counters.peak_live_bytes.get() {
            counters.peak_live_bytes.set(peak);
        }
        counters.window_peak_bytes.set(counters.live_bytes.get());
    }

    /// Resets the peaks to the live bytes.
    pub(in crate::cache) fn reset_peaks(&mut self) {
        self.publish();
        let counters = &self.shard.counters;
        counters.peak_live_bytes.set(counters.live_bytes.get());
    }

    /// Asserts the invariants of the inside. Returns the bytes of its arenas. A visitor may find an
    /// entry of a handle.
    #[cfg(test)]
    pub(in crate::cache) fn check(&mut self) -> u64 {
        let is_entered = self.inside.allocator.is_entered();
        assert!(is_entered || self.visiting, "the holder is in an entry");
        self.inside.allocator.check(&self.shard.counters)
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.visiting {
            self.shard.end_visit();
        }
    }
}
