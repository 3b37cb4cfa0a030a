//! Time-based eviction for caches that no thread enters any more. If a request to the device
//! misses, these caches release the blocks that were unused for
//! [`CacheConfig::max_idle`](super::CacheConfig::max_idle). Statistics and trims visit every cache,
//! so they evict without this timer.

use std::time::{Duration, Instant};

use crate::sync::plain::{AtomicU64, Ordering};

/// The number of sweeps per period of the shortest `max_idle`.
const SWEEPS: u32 = 8;
/// The time of the next sweep if no cache evicts by time.
const NEVER: u64 = u64::MAX;

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

    /// If a sweep is due, claims it. Returns true to only one thread.
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
