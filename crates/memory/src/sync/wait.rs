//! A wait for threads that cannot notify the one that waits, because they must not block.

use std::time::{Duration, Instant};

use super::yield_now;

/// The pauses before a thread that waits sleeps.
const YIELDS: u32 = 16;
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// A wait that looks again after each pause, up to a bound.
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

    /// Lets other threads run: the first times as long as the system likes, later for a sleep that
    /// doubles up to a millisecond. Returns false, at once, if the bound has passed.
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
