//! What the caches tell their device's recorder, and how they are made to: while somebody records,
//! every request and free of a shard takes the slow path, on which this stands.

use super::caches::{BlockHandle, Caches};
use super::request::Request;
use super::scope;
use super::settings::CacheSettings;
use crate::recorder::{EventKind, EventRecord, Mark, NO_SCOPE, NO_STACK, ScopeNumber};
use crate::sync::Arc;

impl Caches {
    /// Begins a recording, for which each thread gets a ring of at most `ring_bytes`. A scope that
    /// another thread is inside of is recorded from its next entry on. With `backtraces`,
    /// allocations have one.
    pub(crate) fn begin_recording(&self, ring_bytes: u64, backtraces: bool) -> Mark {
        // Where the device cannot tell times, what it does is recorded without.
        let _ = self.memory.backend().begin_timing();
        let mark = self.memory.recorder().begin(ring_bytes, backtraces);
        self.follow_recorder();
        mark
    }

    /// Ends a recording.
    pub(crate) fn end_recording(&self, mark: &Mark) {
        self.memory.recorder().end(mark);
        self.follow_recorder();
    }

    /// Makes every shard do as the recorder wants. The last of several threads here sees what all
    /// of them began and ended. A cache that is made meanwhile looks at the recorder itself.
    fn follow_recorder(&self) {
        let _following = self.following_recorder.lock();
        let observed = self.memory.recorder().is_active();
        for cache in self.all() {
            if cache.settings.is_observed() != observed {
                cache.settings.observe(observed);
            }
            // What this thread is inside of may not have followed an earlier change yet.
            for shard in cache.shards() {
                if let Some(mut guard) = shard.guard() {
                    guard.observe(observed);
                }
            }
        }
    }

    /// The number of the scope that requests of this thread go to.
    pub(crate) fn current_scope_number(&self) -> ScopeNumber {
        scope::shard_of(self).map_or(NO_SCOPE, |shard| shard.scope_number())
    }

    /// Records that a request was served.
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

    /// Records that a cache was invalidated, which gave back so much at once.
    pub(super) fn record_invalidation(&self, settings: &Arc<CacheSettings>, given_bytes: u64) {
        let recorder = self.memory.recorder();
        recorder.record(|| EventRecord {
            scope: settings.scope_number(recorder),
            ..EventRecord::of(EventKind::Invalidate, given_bytes)
        });
    }
}
