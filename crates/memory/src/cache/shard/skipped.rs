//! Skipped entries: entries without a request. A shard counts these entries, although no thread
//! enters the shard.

use super::signals::ANY_SIGNAL;
use super::{IDLE, Shard};
use crate::cache::stats::Counter;
use crate::sync::Ordering;

/// The limit up to which entries may be skipped, because they have no work to do. An exit writes
/// the limit, and the bound thread reads it.
#[derive(Debug, Default)]
pub(super) struct Skips {
    /// The count of entries at which the next entry must enter the shard.
    until: Counter,
    /// The version of the settings at the last exit.
    version: Counter,
}

impl Shard {
    /// Returns true if an entry without a request only needs to be counted. The caller must be the
    /// bound thread.
    #[inline]
    pub(in crate::cache) fn can_skip_entry(&self) -> bool {
        let version = self.settings.as_ref().map(|own| own.version());
        self.state.load(Ordering::Relaxed) == IDLE
            && self.signals.load(Ordering::Relaxed) & ANY_SIGNAL == 0
            && !self.has_remote()
            && self.counters.entries.get() < self.skips.until.get()
            && version == Some(self.skips.version.get())
    }

    /// Counts an entry that does not enter the shard. Only the bound thread counts entries of a
    /// shard.
    #[inline]
    pub(in crate::cache) fn skip_entry(&self) {
        self.last_used
            .store(self.device.totals.miss_epoch(), Ordering::Relaxed);
        self.counters.entries.add(1);
    }

    /// Sets the number of entries that may be skipped after an exit, while the settings have
    /// `version`. The caller must be the holder.
    #[inline]
    pub(super) fn allow_skips(&self, entries: u64, version: u64) {
        let until = self.counters.entries.get().saturating_add(entries);
        self.skips.until.set(until);
        self.skips.version.set(version);
    }

    /// Returns true if the list of remote blocks is not empty, or is closed.
    #[inline]
    pub(in crate::cache) fn has_remote(&self) -> bool {
        !self.remote.is_empty()
    }
}
