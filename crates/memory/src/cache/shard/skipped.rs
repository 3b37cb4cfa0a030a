//! Entries that are counted and not made, because nothing was requested in them.

use super::signals::ANY_SIGNAL;
use super::{IDLE, Shard};
use crate::cache::stats::Counter;
use crate::sync::Ordering;

/// The entries that may be skipped until an entry has work to do. Written at an exit, and read by
/// the thread that the shard is bound to.
#[derive(Debug, Default)]
pub(super) struct Skips {
    /// The number of entries from which on entries must be made.
    until: Counter,
    /// The version of the settings at the last exit.
    version: Counter,
}

impl Shard {
    /// Returns true if an entry without a request would do nothing but count. Called by the thread
    /// that the shard is bound to.
    #[inline]
    pub(in crate::cache) fn can_skip_entry(&self) -> bool {
        let version = self.settings.as_ref().map(|own| own.version());
        self.state.load(Ordering::Relaxed) == IDLE
            && self.signals.load(Ordering::Relaxed) & ANY_SIGNAL == 0
            && !self.has_remote()
            && self.counters.entries.get() < self.skips.until.get()
            && version == Some(self.skips.version.get())
    }

    /// Counts an entry instead of making it. No other thread counts entries of a shard that is
    /// bound to this one.
    #[inline]
    pub(in crate::cache) fn skip_entry(&self) {
        self.last_used
            .store(self.device.totals.miss_epoch(), Ordering::Relaxed);
        self.counters.entries.add(1);
    }

    /// Sets how many entries may be skipped from an exit on, under the `version` of the settings.
    /// Called by the holder.
    #[inline]
    pub(super) fn allow_skips(&self, entries: u64, version: u64) {
        let until = self.counters.entries.get().saturating_add(entries);
        self.skips.until.set(until);
        self.skips.version.set(version);
    }

    /// Returns true if blocks were dropped while their threads did not hold the shard.
    #[inline]
    pub(in crate::cache) fn has_remote(&self) -> bool {
        !self.remote.is_empty()
    }
}
