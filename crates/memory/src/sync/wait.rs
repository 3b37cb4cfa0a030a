//! A wait for threads that cannot notify the waiting thread, because they must not block.

use std::time::{Duration, Instant};

use super::yield_now;

/// The number of pauses before a waiting thread sleeps.
const YIELDS: u32 = 16;
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// A wait in pauses, up to a bound. The caller checks its condition after each pause.
pub(crate) struct BoundedWait {
    bound: Duration,
    /// The time of the first pause.
    begun: Option<Instant>,
    pauses: u32,
}

impl BoundedWait {
    pub(crate) fn new(bound: Duration) -> Self {
        Self {
            bound,
            begun: None,
            pauses: 0,
        }
    }

    /// Lets other threads run. The first pauses only yield the processor. Later pauses are sleeps
    /// that double up to a millisecond. If the bound has passed, returns false at once.
    pub(crate) fn pause(&mut self) -> bool {
        let elapsed = self.begun.get_or_insert_with(Instant::now).elapsed();
        let Some(left) = self
            .bound
            .checked_sub(elapsed)
            .filter(|left| !left.is_zero())
        else {
            return false;
        };
        if self.pauses < YIELDS || cfg!(loom) {
            yield_now();
        } else {
            let doublings = (self.pauses - YIELDS).min(8);
            let sleep = SHORTEST_SLEEP * (1 << doublings);
            std::thread::sleep(sleep.min(LONGEST_SLEEP).min(left));
        }
        self.pauses += 1;
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_bound_of_zero_waits_for_nothing() {
        assert!(!BoundedWait::new(Duration::ZERO).pause());
    }

    #[test]
    fn a_wait_ends_after_its_bound() {
        let bound = Duration::from_millis(20);
        let begun = Instant::now();
        let mut wait = BoundedWait::new(bound);
        while wait.pause() {}
        assert!(begun.elapsed() >= bound);
        assert!(!wait.pause());
    }
}
