//! The age limit of idle blocks. The limit is computed from a shard's epoch, which advances at each
//! exit. If `max_idle` is set, the limit also depends on the time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::cache::settings::CacheConfig;

/// The number of time samples per period of `max_idle`.
const SAMPLES: u32 = 8;

/// The schedule of sweeps over a shard's idle blocks, and the age limit of each sweep.
///
/// Invariant: the epochs and the times of `signals` rise. Successive times differ by at least 1/8
/// of `max_idle`.
#[derive(Debug, Default)]
pub(super) struct Aging {
    keep_entries: Option<u64>,
    idle: Option<Duration>,
    swept_epoch: u64,
    /// The epochs and times of sampled exits.
    signals: VecDeque<(u64, Instant)>,
}

impl Aging {
    pub(super) fn configure(&mut self, config: &CacheConfig) {
        self.keep_entries = config.keep_entries;
        self.idle = config.max_idle;
    }

    pub(super) fn due_epoch(&self) -> u64 {
        match (self.idle, self.keep_entries) {
            (Some(_), _) => 0,
            (None, Some(entries)) => self.swept_epoch.saturating_add(entries.max(1)),
            (None, None) => u64::MAX,
        }
    }

    /// Returns the age limit as an epoch: a block that was handed out in an earlier epoch is too
    /// old. Returns 0 if no block is too old. The shard calls this function at an exit, with its
    /// current `epoch`.
    pub(super) fn sweep(&mut self, epoch: u64) -> u64 {
        let by_entries = self
            .keep_entries
            .map_or(0, |entries| self.by_entries(epoch, entries));
        let by_time = self
            .idle
            .map_or(0, |idle| self.by_time(epoch, idle, Instant::now()));
        by_entries.max(by_time)
    }

    fn by_entries(&mut self, epoch: u64, entries: u64) -> u64 {
        if epoch < self.swept_epoch.saturating_add(entries) {
            return 0;
        }
        self.swept_epoch = epoch;
        epoch - entries
    }

    fn by_time(&mut self, epoch: u64, idle: Duration, now: Instant) -> u64 {
        let spacing = idle / SAMPLES;
        let is_due = |&(_, at): &(u64, Instant)| now.duration_since(at) >= spacing;
        if self.signals.back().is_none_or(is_due) {
            self.signals.push_back((epoch, now));
        }
        let mut expiry_epoch = 0;
        while let Some(&(epoch, at)) = self.signals.front()
            && now.duration_since(at) >= idle
        {
            expiry_epoch = epoch;
            self.signals.pop_front();
        }
        expiry_epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aging(keep_entries: Option<u64>, idle: Option<Duration>) -> Aging {
        let mut aging = Aging::default();
        aging.configure(&CacheConfig {
            keep_entries,
            max_idle: idle,
            ..CacheConfig::default()
        });
        aging
    }

    #[test]
    fn a_block_that_many_entries_did_not_use_is_too_old() {
        let mut aging = aging(Some(4), None);
        for epoch in 1..4 {
            assert!(epoch < aging.due_epoch());
            assert_eq!(aging.sweep(epoch), 0);
        }
        assert_eq!((aging.due_epoch(), aging.sweep(4)), (4, 0));
        assert_eq!(
            (aging.due_epoch(), aging.sweep(7), aging.sweep(9)),
            (8, 0, 5)
        );
        assert_eq!(aging.due_epoch(), 13);
    }

    #[test]
    fn without_a_bound_nothing_is() {
        let mut aging = aging(None, None);
        assert_eq!(aging.due_epoch(), u64::MAX);
        assert_eq!(aging.sweep(1 << 40), 0);
    }

    #[test]
    fn a_block_is_released_between_the_time_set_and_an_eighth_more() {
        let idle = Duration::from_secs(8);
        let mut aging = aging(None, Some(idle));
        assert_eq!(aging.due_epoch(), 0, "the epoch is to be read at each exit");
        let begin = Instant::now();
        let mut oldest = 0;
        for epoch in 1..1000u64 {
            // There are four exits per second.
            let now = begin + Duration::from_millis(250 * epoch);
            oldest = aging.by_time(epoch, idle, now).max(oldest);
            // The limit `oldest` lies 32 to 36 exits, or 8 to 9 s, before this exit.
            assert!(oldest <= epoch.saturating_sub(32), "{oldest} at {epoch}");
            assert!(oldest + 32 + 4 >= epoch, "{oldest} at {epoch}");
            assert!(aging.signals.len() <= SAMPLES as usize + 1);
        }
    }

    #[test]
    fn no_time_at_all_keeps_nothing() {
        let mut aging = aging(None, Some(Duration::ZERO));
        assert_eq!(aging.sweep(7), 7);
        assert_eq!(aging.sweep(8), 8);
    }
}
