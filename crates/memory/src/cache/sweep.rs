//! Eviction by time without exits, for caches that no thread enters any more. When the device
//! serves a request that is not a hit, these caches release blocks unused for
//! [`CacheConfig::max_idle`](super::CacheConfig::max_idle). Statistics and trims visit every cache
//! anyway.

use std::time::{Duration, Instant};

use crate::sync::plain::{AtomicU64, Ordering};

/// The number of sweeps in the shortest period of `max_idle`.
const SWEEPS: u32 = 8;
/// The time of the next sweep if no cache evicts by time.
const NEVER: u64 = u64::MAX;

/// The time of a device's next sweep.
#[derive(Debug)]
pub(super) struct SweepTimer {
    origin: Instant,
    /// The time of the next sweep, in nanoseconds since `origin`.
    next_ns: AtomicU64,
}

impl SweepTimer {
    pub(super) fn new() -> Self {
        Self {
            origin: Instant::now(),
            next_ns: AtomicU64::new(NEVER),
        }
    }

    /// Schedules the next sweep after an eighth of `idle` at the latest.
    pub(super) fn schedule(&self, idle: Duration) {
        let next = self.origin.elapsed() + idle / SWEEPS;
        self.next_ns
            .fetch_min(next.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns true, to one thread, if a sweep is due.
    pub(super) fn take_due(&self) -> bool {
        let next_ns = self.next_ns.load(Ordering::Relaxed);
        next_ns != NEVER
            && next_ns <= self.origin.elapsed().as_nanos() as u64
            && self
                .next_ns
                .compare_exchange(next_ns, NEVER, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}
