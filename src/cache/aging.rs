//! Which idle blocks have gone unused for too long. Plain arithmetic over a shard's clock, which moves
//! on as its scope is left, and over the time where one is set.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::policy::CacheConfig;

/// How many marks a time is divided by.
const MARKS: u32 = 8;

/// When a shard's idle blocks are to be looked through, and which of them are too old then.
///
/// Invariant: clocks and times of `marks` rise, and but for the first each is at least an eighth of
/// `idle` after the one before.
#[derive(Debug, Default)]
pub(super) struct Aging {
    keep_entries: Option<u64>,
    idle: Option<Duration>,
    swept_at: u64,
    /// The clock at some exits, and when they were.
    marks: VecDeque<(u64, Instant)>,
}

impl Aging {
    pub(super) fn configure(&mut self, config: &CacheConfig) {
        self.keep_entries = config.keep_entries;
        self.idle = config.idle;
    }

    /// The clock at which the next sweep is due.
    pub(super) fn due_at(&self) -> u64 {
        match (self.idle, self.keep_entries) {
            (Some(_), _) => 0,
            (None, Some(entries)) => self.swept_at.saturating_add(entries.max(1)),
            (None, None) => u64::MAX,
        }
    }

    /// Blocks handed out before this clock are too old; 0 where none are. Called as the scope is
    /// left, at `clock`.
    pub(super) fn sweep(&mut self, clock: u64) -> u64 {
        let by_entries = self
            .keep_entries
            .map_or(0, |entries| self.by_entries(clock, entries));
        let by_time = self
            .idle
            .map_or(0, |idle| self.by_time(clock, idle, Instant::now()));
        by_entries.max(by_time)
    }

    fn by_entries(&mut self, clock: u64, entries: u64) -> u64 {
        if clock < self.swept_at.saturating_add(entries) {
            return 0;
        }
        self.swept_at = clock;
        clock - entries
    }

    fn by_time(&mut self, clock: u64, idle: Duration, now: Instant) -> u64 {
        let spacing = idle / MARKS;
        let is_due = |&(_, at): &(u64, Instant)| now.duration_since(at) >= spacing;
        if self.marks.back().is_none_or(is_due) {
            self.marks.push_back((clock, now));
        }
        let mut too_old = 0;
        while let Some(&(clock, at)) = self.marks.front()
            && now.duration_since(at) >= idle
        {
            too_old = clock;
            self.marks.pop_front();
        }
        too_old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aging(keep_entries: Option<u64>, idle: Option<Duration>) -> Aging {
        let mut aging = Aging::default();
        aging.configure(&CacheConfig {
            keep_entries,
            idle,
            ..CacheConfig::default()
        });
        aging
    }

    #[test]
    fn what_so_many_entries_did_not_use_is_too_old() {
        let mut aging = aging(Some(4), None);
        for clock in 1..4 {
            assert!(clock < aging.due_at());
            assert_eq!(aging.sweep(clock), 0);
        }
        assert_eq!((aging.due_at(), aging.sweep(4)), (4, 0));
        assert_eq!((aging.due_at(), aging.sweep(7), aging.sweep(9)), (8, 0, 5));
        assert_eq!(aging.due_at(), 13);
    }

    #[test]
    fn without_a_bound_nothing_is() {
        let mut aging = aging(None, None);
        assert_eq!(aging.due_at(), u64::MAX);
        assert_eq!(aging.sweep(1 << 40), 0);
    }

    #[test]
    fn a_block_goes_between_the_time_set_and_an_eighth_more() {
        let idle = Duration::from_secs(8);
        let mut aging = aging(None, Some(idle));
        assert_eq!(aging.due_at(), 0, "the clock is to be read at each exit");
        let begin = Instant::now();
        let mut oldest = 0;
        for clock in 1..1000u64 {
            // Four exits a second.
            let now = begin + Duration::from_millis(250 * clock);
            oldest = aging.by_time(clock, idle, now).max(oldest);
            // Handed out before the exit at `clock` c, which is 250 c ms after the beginning.
            assert!(oldest <= clock.saturating_sub(32), "{oldest} at {clock}");
            assert!(oldest + 32 + 4 >= clock, "{oldest} at {clock}");
            assert!(aging.marks.len() <= MARKS as usize + 1);
        }
    }

    #[test]
    fn no_time_at_all_keeps_nothing() {
        let mut aging = aging(None, Some(Duration::ZERO));
        assert_eq!(aging.sweep(7), 7);
        assert_eq!(aging.sweep(8), 8);
    }
}
