//! Where a memory's time goes: each phase of a request timed by itself.
//!
//! Phases nest (the ladder's rungs take, reserve and release); each is charged its own time only, so
//! that the shares add up to the whole. Where timing is off, a phase is one test of a pointer.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::sync::plain::{AtomicU64, Ordering};
use crate::sync::thread_local;

/// What a memory does for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Take,
    Give,
    Reserve,
    Release,
    Trim,
    ReclaimPending,
    Room,
    ReclaimCaches,
    WaitPending,
    Callbacks,
}

impl Phase {
    const ALL: [(Self, &str); 10] = [
        (Self::Take, "pool take"),
        (Self::Give, "pool give"),
        (Self::Reserve, "reserve"),
        (Self::Release, "release"),
        (Self::Trim, "trim"),
        (Self::ReclaimPending, "reclaim pending (rung 1)"),
        (Self::Room, "release idle memory (rung 2)"),
        (Self::ReclaimCaches, "reclaim from caches (rung 3)"),
        (Self::WaitPending, "wait for events (rung 4)"),
        (Self::Callbacks, "pressure callbacks (rung 5)"),
    ];
}

/// One phase of a [`MemoryReport`](crate::MemoryReport).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseReport {
    /// What was done.
    pub name: &'static str,
    /// How often.
    pub calls: u64,
    /// How long in all, without the phases inside of it.
    pub total: Duration,
}

impl PhaseReport {
    /// The time of one call; zero without calls.
    pub fn mean(&self) -> Duration {
        let mean_ns = self.total.as_nanos().checked_div(self.calls.into());
        Duration::from_nanos(mean_ns.unwrap_or(0) as u64)
    }
}

#[derive(Debug, Default)]
struct Clock {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
}

/// The clocks of one memory, if it has any.
#[derive(Debug)]
pub(super) struct Phases(Option<Box<[Clock; Phase::ALL.len()]>>);

thread_local! {
    /// What the phases inside the running one took so far, in nanoseconds.
    static INSIDE: Cell<u64> = const { Cell::new(0) };
}

impl Phases {
    pub(super) fn new(timed: bool) -> Self {
        Self(timed.then(Box::default))
    }

    /// Runs `work` as one call of `phase`.
    #[inline]
    pub(super) fn time<R>(&self, phase: Phase, work: impl FnOnce() -> R) -> R {
        match &self.0 {
            None => work(),
            Some(clocks) => clocks[phase as usize].time(work),
        }
    }

    /// What was counted, in the order of a request; empty where timing is off.
    pub(super) fn report(&self) -> Vec<PhaseReport> {
        let clocks = self.0.iter().flat_map(|clocks| clocks.iter());
        let named = Phase::ALL.iter().zip(clocks);
        named
            .map(|(&(_, name), clock)| PhaseReport {
                name,
                calls: clock.calls.load(Ordering::Relaxed),
                total: Duration::from_nanos(clock.nanoseconds.load(Ordering::Relaxed)),
            })
            .collect()
    }
}

impl Clock {
    #[cold]
    fn time<R>(&self, work: impl FnOnce() -> R) -> R {
        let running = Running {
            clock: self,
            inside_before: INSIDE.replace(0),
            begun: Instant::now(),
        };
        let result = work();
        drop(running);
        result
    }
}

/// A phase that is under way; a panic of a callback ends it too.
struct Running<'a> {
    clock: &'a Clock,
    inside_before: u64,
    begun: Instant,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let whole = self.begun.elapsed().as_nanos() as u64;
        let inside = INSIDE.replace(self.inside_before + whole);
        let own = whole.saturating_sub(inside);
        self.clock.calls.fetch_add(1, Ordering::Relaxed);
        self.clock.nanoseconds.fetch_add(own, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_stand_at_their_own_place() {
        for (index, (phase, _)) in Phase::ALL.iter().enumerate() {
            assert_eq!(*phase as usize, index);
        }
    }

    #[test]
    fn a_phase_is_charged_without_what_runs_inside_of_it() {
        let phases = Phases::new(true);
        let pause = || std::thread::sleep(Duration::from_millis(5));
        phases.time(Phase::Trim, || {
            for _ in 0..3 {
                phases.time(Phase::Release, pause);
            }
        });
        let report = phases.report();
        let [trim, release] = [Phase::Trim, Phase::Release].map(|phase| &report[phase as usize]);
        assert_eq!((trim.calls, release.calls), (1, 3));
        assert!(release.total >= Duration::from_millis(15), "{release:?}");
        assert!(trim.total < Duration::from_millis(5), "{trim:?}");
        assert!(release.mean() >= Duration::from_millis(5));
        assert_eq!(report[Phase::Take as usize].mean(), Duration::ZERO);
    }

    #[test]
    fn what_is_off_reports_nothing() {
        let phases = Phases::new(false);
        assert_eq!(phases.time(Phase::Take, || 7), 7);
        assert!(phases.report().is_empty());
    }

    #[test]
    fn a_panic_ends_the_phase() {
        let phases = Phases::new(true);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            phases.time(Phase::Callbacks, || panic!("of a callback"))
        }));
        assert!(caught.is_err());
        assert_eq!(phases.report()[Phase::Callbacks as usize].calls, 1);
        assert_eq!(
            INSIDE.get(),
            phases.report()[Phase::Callbacks as usize].total.as_nanos() as u64
        );
    }
}
