//! Entries without a request, which a shard counts and does not make.

use std::mem;

use super::{Allocator, AllocatorState};

impl AllocatorState {
    /// Returns the version of the settings that the policy was configured with.
    pub(in crate::cache) fn version(&self) -> u64 {
        self.version
    }
}

impl Allocator<'_> {
    /// Ends entries for the blocks. The shard counts all these entries, but made only the last
    /// entry.
    #[inline]
    pub(super) fn end_skipped(&mut self, entries: u64) {
        self.store.epoch += entries;
        self.store.exit_epoch = self.store.epoch;
        self.update_free_epoch();
    }

    /// Returns the number of entries after this entry that would have no work to do without a
    /// request. If this entry made a request, returns 0, because the next entry is likely to make
    /// one too.
    #[inline]
    pub(in crate::cache) fn skippable_entries(&mut self) -> u64 {
        let requests = self.counters.served();
        let has_requests = mem::replace(&mut self.counted_requests, requests) != requests;
        if has_requests || self.is_observed || self.store.records {
            return 0;
        }
        if self.due_epoch == 0 && !self.keeps_idle() {
            return u64::MAX; // Nothing is idle after an exit.
        }
        self.due_epoch.saturating_sub(self.store.epoch)
    }
}
