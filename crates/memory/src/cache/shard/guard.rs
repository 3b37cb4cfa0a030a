//! The operations of a shard's holder on the allocator, the counters and the device's totals.

use std::ops::{Deref, DerefMut};
use std::panic::Location;

use super::signals::INVALIDATE;
use super::{BlockHandle, Shard};
use crate::cache::allocator::Allocator;
use crate::cache::arena::DetachedArenas;
use crate::cache::record::{AllocationRecord, RECORDED, Recording};
use crate::cache::request::Request;
use crate::memory::header::List;
use crate::recorder::EventKind;

/// The right to use a shard's allocator. The thread is inside the shard's scope, or visits the
/// shard.
pub(in crate::cache) struct Guard<'a> {
    pub(super) shard: &'a Shard,
    pub(super) allocator: Allocator<'a>,
    pub(super) visiting: bool,
}

impl Guard<'_> {
    #[inline]
    pub(super) fn begin(&mut self) {
        if let Some(settings) = &self.shard.settings {
            let entries = self.shard.counters.entries.get();
            if self.allocator.begin(settings, entries) {
                self.shard.follow_recording(self.is_observed());
            }
        }
        self.shard.counters.entries.add(1);
        self.record_entry(EventKind::Enter);
    }

    /// Ends the outermost entry. Live blocks then count as escaped.
    #[inline(always)]
    pub(super) fn end(&mut self) {
        if self.allocator.end() {
            self.shard.keep_record(self.store.finished.clone());
        }
        self.record_entry(EventKind::Exit);
    }

    /// Ends the outermost entry, and drains the shard. Returns the blocks that go to the pool.
    pub(super) fn end_and_drain(&mut self) -> List {
        self.drain_remote();
        self.end();
        if self.shard.counters.count_growth() {
            self.shard.warn_of_growth();
        }
        self.drain_and_publish()
    }

    #[inline]
    pub(super) fn allow_skips(&mut self) {
        let entries = self.skippable_entries();
        self.shard.allow_skips(entries, self.version());
    }

    #[inline]
    fn record_entry(&self, kind: EventKind) {
        if self.is_observed() {
            self.shard.record_entry(kind);
        }
    }

    pub(in crate::cache) fn observe(&mut self, observed: bool) {
        self.allocator.observe(observed);
        self.shard.follow_recording(observed);
    }

    /// Returns true if an exit only has to end the entry. The allocator then has no block to
    /// release, and the device's totals are up to date.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        let counters = self.counters;
        let (live, peak) = (counters.live_bytes.get(), counters.window_peak_bytes.get());
        self.allocator.is_quiet()
            && live == counters.published_bytes.get()
            && !self.shard.device().totals.would_raise(live, peak)
    }

    /// Evicts idle blocks for a request. Returns the blocks that go to the pool.
    pub(in crate::cache) fn evict(&mut self, request: &Request, to_grow: bool) -> List {
        let memory = self.shard.device().memory();
        let has_streams = memory.backend().streams() > 1;
        let elsewhere_bytes = if has_streams {
            self.idle_bytes_beside(request.stream)
        } else {
            0
        };
        let exchange = memory.exchange_cost();
        self.allocator
            .evict(request, elsewhere_bytes, to_grow, exchange);
        self.take_released()
    }

    /// Takes back the remote blocks, which threads dropped without holding the shard.
    pub(in crate::cache) fn drain_remote(&mut self) {
        for header in self.shard.remote.drain() {
            self.free_slowly(header);
        }
    }

    /// Drains the shard: takes back remote blocks, follows signals, reclaims pending blocks and
    /// trims. Returns the blocks that go to the pool.
    pub(in crate::cache) fn drain_deferred(&mut self) -> List {
        self.drain_remote();
        let signals = self.shard.take_signals();
        if signals != 0 {
            if signals & INVALIDATE != 0 {
                self.invalidate();
            }
            return self.release_for_waiter();
        }
        if self.store.has_pending() {
            let streams = self.shard.device().memory().streams();
            let counters = self.counters;
            self.store.reclaim_pending(counters, streams);
        }
        self.trim_between_entries();
        self.take_released()
    }

    /// Releases every idle block for a thread that waits for memory. Returns the blocks, which go
    /// to the pool.
    pub(super) fn release_for_waiter(&mut self) -> List {
        let idle = self.release_idle();
        self.counters.note_left();
        idle
    }

    /// Like [`drain_deferred`](Self::drain_deferred), but also publishes the live bytes.
    pub(in crate::cache) fn drain_and_publish(&mut self) -> List {
        let idle = self.drain_deferred();
        self.publish();
        idle
    }

    /// Releases all idle blocks, because the shard closes. Returns the idle blocks, the number of
    /// live headers, and the arenas with live suballocations.
    pub(super) fn close(mut self) -> (List, u64, DetachedArenas) {
        self.invalidate();
        let idle = self.release_idle();
        self.publish();
        let counters = self.counters;
        let (blocks, bytes) = (counters.live_blocks.get(), counters.live_bytes.get());
        let owned_bytes = counters.owned_bytes.get();
        let totals = &self.shard.device().totals;
        totals.adopt_orphans(blocks, bytes, owned_bytes);
        self.visiting = false; // The drop must not set the state to idle.
        let (headers, detached) = self.allocator.close();
        (idle, headers, detached)
    }

    /// Marks a live block as a copy-on-write copy in the record.
    pub(in crate::cache) fn mark_copy_on_write(
        &mut self,
        copy: &BlockHandle,
        shared_at: Option<&'static Location<'static>>,
    ) {
        if let Some(recording) = &mut self.store.recording
            && copy.epoch() & RECORDED != 0
        {
            recording.copied_on_write(copy.record_index, copy.epoch() & !RECORDED, shared_at);
        }
    }

    pub(super) fn live_records(&self) -> impl Iterator<Item = AllocationRecord> {
        let recording = self.store.recording.iter();
        recording.flat_map(Recording::live)
    }

    /// Publishes the live bytes of this shard, and their peak since the last publication, to the
    /// device's totals.
    pub(in crate::cache) fn publish(&mut self) {
        let counters = self.counters;
        let (live, peak) = (counters.live_bytes.get(), counters.window_peak_bytes.get());
        let totals = &self.shard.device().totals;
        totals.publish(counters.published_bytes.get(), live, peak);
        counters.published_bytes.set(live);
        counters.begin_window();
    }

    pub(in crate::cache) fn reset_peaks(&mut self) {
        self.publish();
        let counters = self.counters;
        counters.peak_live_bytes.set(counters.live_bytes.get());
    }

    /// Asserts the invariants of the shard. Returns the bytes of its arenas. A visitor may run
    /// during an entry of a `SharedCache`.
    #[cfg(test)]
    pub(in crate::cache) fn check(&mut self) -> u64 {
        assert!(
            self.is_entered() || self.visiting,
            "the shard is checked outside of an entry"
        );
        self.allocator.check()
    }
}

impl<'a> Deref for Guard<'a> {
    type Target = Allocator<'a>;

    #[inline]
    fn deref(&self) -> &Allocator<'a> {
        &self.allocator
    }
}

impl<'a> DerefMut for Guard<'a> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Allocator<'a> {
        &mut self.allocator
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
