//! The events that the caches write to their device's recorder. During a recording, every request
//! and free of a shard takes the slow path, which records the event.

use super::request::Request;
use super::scope;
use super::settings::CacheSettings;
use super::shard::{BlockHandle, Caches};
use crate::recorder::{EventKind, EventRecord, NO_SCOPE, NO_STACK, RecordingStart, ScopeNumber};
use crate::sync::Arc;

impl Caches {
    /// Begins a recording. Each thread gets a ring of at most `ring_bytes`. If another thread is
    /// inside a scope, the scope is recorded from its next entry on. If `backtraces` is true,
    /// allocations are recorded with a backtrace.
    pub(crate) fn begin_recording(&self, ring_bytes: u64, backtraces: bool) -> RecordingStart {
        scope::settle(); // A deferred entry began before the recording.
        // If the device cannot measure times, its work is recorded without times.
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

    /// Applies the state of the recorder to every shard. If several threads call this function, the
    /// last call applies the changes of all threads. A cache that is created concurrently reads the
    /// recorder itself.
    fn follow_recorder(&self) {
        let _following = self.following_recorder.lock();
        let observed = self.memory.recorder().is_active();
        for cache in self.all() {
            if cache.settings.is_observed() != observed {
                cache.settings.observe(observed);
            }
            // All shards are visited, because this thread may be inside a shard that has not
            // applied an earlier change yet.
            for shard in cache.shards() {
                if let Some(mut guard) = shard.guard() {
                    guard.observe(observed);
                }
            }
        }
    }

    /// Returns the recorder's number of the scope that serves this thread's requests.
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

    pub(super) fn record_copy_on_write(&self, copy: &BlockHandle) {
        self.memory.recorder().record(|| EventRecord {
            scope: copy.home().scope_number(),
            address: copy.block.address.0,
            ..EventRecord::of(EventKind::CopyOnWrite, copy.requested_bytes)
        });
    }

    /// Records the invalidation of a cache, which released `freed_bytes` immediately.
    pub(super) fn record_invalidation(&self, settings: &Arc<CacheSettings>, freed_bytes: u64) {
        let recorder = self.memory.recorder();
        recorder.record(|| EventRecord {
            scope: settings.scope_number(recorder),
            ..EventRecord::of(EventKind::Invalidate, freed_bytes)
        });
    }
}
