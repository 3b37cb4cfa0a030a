//! Skipped entries: entries without a request. A shard counts these entries, although no thread
//! enters the shard.

use std::mem;

use super::{Allocator, AllocatorState};

impl AllocatorState {
    pub(in crate::cache) fn version(&self) -> u64 {
        self.version
    }
}

impl Allocator<'_> {
    /// Advances the epochs by `entries` ended or skipped entries. Live blocks then count as
    /// escaped.
    #[inline]
    pub(super) fn end_skipped(&mut self, entries: u64) {
        self.store.epoch += entries;
        self.store.exit_epoch = self.store.epoch;
        self.update_free_epoch();
    }

    /// Returns the number of later entries that have no work to do if they make no request. If this
    /// entry made a request, returns 0, because the next entry is likely to make a request too.
    #[inline]
    pub(in crate::cache) fn skippable_entries(&mut self) -> u64 {
        let requests = self.counters.served();
        let has_requests = mem::replace(&mut self.counted_requests, requests) != requests;
        if has_requests || self.is_observed || self.store.records {
            return 0;
        }
        if self.due_epoch == 0 && !self.keeps_idle() {
            return u64::MAX; // No block is idle after an exit.
        }
        self.due_epoch.saturating_sub(self.store.epoch)
    }
}
