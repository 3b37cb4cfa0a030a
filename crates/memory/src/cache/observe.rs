//! The events that the caches write to their device's recorder. During a recording, every request
//! and free of a shard takes the slow path, which records it.

use super::request::Request;
use super::scope;
use super::settings::CacheSettings;
use super::shard::{BlockHandle, Caches};
use crate::recorder::{EventKind, EventRecord, NO_SCOPE, NO_STACK, RecordingStart, ScopeNumber};
use crate::sync::Arc;

impl Caches {
    /// Begins a recording. Each thread gets a ring of at most `ring_bytes`. A scope that another
    /// thread is inside is recorded from its next entry on. With `backtraces`, allocations have a
    /// backtrace.
    pub(crate) fn begin_recording(&self, ring_bytes: u64, backtraces: bool) -> RecordingStart {
        scope::settle(); // A scope that this thread is inside began before the recording.
        // If the device cannot measure times, its work is recorded without them.
        let _ = self.memory.backend().begin_timing();
        let mark = self.memory.recorder().begin(ring_bytes, backtraces);
        self.follow_recorder();
        mark
    }

    pub(crate) fn end_recording(&self, mark: &RecordingStart) {
        scope::settle();
        self.memory.recorder().end(mark);
        self.follow_recorder();
    }

    /// Updates every shard to the state of the recorder. If several threads call this function, the
    /// last thread sees every recording that any of them began or ended. A cache that is made
    /// meanwhile reads the recorder itself.
    fn follow_recorder(&self) {
        let _following = self.following_recorder.lock();
        let observed = self.memory.recorder().is_active();
        for cache in self.all() {
            if cache.settings.is_observed() != observed {
                cache.settings.observe(observed);
            }
            // A shard that this thread is inside may not have followed an earlier change yet.
            for shard in cache.shards() {
                if let Some(mut guard) = shard.guard() {
                    guard.observe(observed);
                }
            }
        }
    }

    /// Returns the number of the scope that requests of this thread go to.
    pub(crate) fn current_scope_number(&self) -> ScopeNumber {
        scope::shard_of(self).map_or(NO_SCOPE, |shard| shard.scope_number())
    }

    #[inline]
    pub(super) fn record_allocation(
        &self,
        kind: EventKind,
        block: &BlockHandle,
        request: &Request,
    ) {
        let recorder = self.memory.recorder();
        if !recorder.is_active() || !block.home().is_recorded() {
            return;
        }
        recorder.record(|| EventRecord {
            kind: block.home().kind_here(kind),
            stream: request.stream,
            scope: block.home().scope_number(),
            stack: NO_STACK,
            call_site: Some(request.call_site),
            address: block.block.address.0,
            bytes: request.size.requested_bytes,
            block_bytes: block.block.bytes(),
        });
    }

    /// Records that an array's block is a copy that a write forced.
    pub(super) fn record_copy_on_write(&self, copy: &BlockHandle) {
        self.memory.recorder().record(|| EventRecord {
            scope: copy.home().scope_number(),
            address: copy.block.address.0,
            ..EventRecord::of(EventKind::CopyOnWrite, copy.requested_bytes)
        });
    }

    /// Records that a cache was invalidated, which released `freed_bytes` at once.
    pub(super) fn record_invalidation(&self, settings: &Arc<CacheSettings>, freed_bytes: u64) {
        let recorder = self.memory.recorder();
        recorder.record(|| EventRecord {
            scope: settings.scope_number(recorder),
            ..EventRecord::of(EventKind::Invalidate, freed_bytes)
        });
    }
}
