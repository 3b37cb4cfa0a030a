//! Phase timing: the time that a memory spends in each phase.
//!
//! Phases nest: the rungs of the ladder contain the phases take, reserve and release. The time of a
//! phase excludes nested phases, so the times sum to the whole. If timing is off, a phase costs one
//! test of a pointer.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::sync::plain::{AtomicU64, Ordering};
use crate::sync::thread_local;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Take,
    Give,
    Reserve,
    Release,
    Trim,
    ReclaimPending,
    ReleaseIdle,
    ReclaimCaches,
    WaitPending,
    WaitScopes,
    Callbacks,
}

impl Phase {
    const ALL: [(Self, &str); 11] = [
        (Self::Take, "pool take"),
        (Self::Give, "pool give"),
        (Self::Reserve, "reserve"),
        (Self::Release, "release"),
        (Self::Trim, "trim"),
        (Self::ReclaimPending, "reclaim pending (rung 1)"),
        (Self::ReleaseIdle, "release idle memory (rung 2)"),
        (Self::ReclaimCaches, "reclaim from caches (rung 3)"),
        (Self::WaitPending, "wait for events (rung 4)"),
        (Self::WaitScopes, "wait for scopes (rung 4)"),
        (Self::Callbacks, "pressure callbacks (rung 5)"),
    ];
}

/// One phase of a [`MemoryReport`](crate::MemoryReport).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseReport {
    /// The name of the phase.
    pub name: &'static str,
    /// The number of calls.
    pub calls: u64,
    /// The total time, without nested phases.
    pub total: Duration,
}

impl PhaseReport {
    /// Returns the mean time of a call; zero without calls.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let config = DeviceConfig { time_phases: true, ..Default::default() };
    /// let device = Device::host_with(config)?;
    /// let _buffers = [Buffer::new(&device, 1000)?, Buffer::new(&device, 1000)?];
    /// for phase in device.memory_report().phases {
    ///     assert_eq!(phase.mean().as_nanos(), phase.total.as_nanos() / u128::from(phase.calls.max(1)));
    /// }
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn mean(&self) -> Duration {
        let mean_ns = self.total.as_nanos().checked_div(self.calls.into());
        Duration::from_nanos(mean_ns.unwrap_or(0) as u64)
    }
}

#[derive(Debug, Default)]
struct PhaseTimer {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Phases(Option<Box<[PhaseTimer; Phase::ALL.len()]>>);

thread_local! {
    /// The time of the phases nested in the running phase, in nanoseconds.
    static NESTED_NS: Cell<u64> = const { Cell::new(0) };
}

impl Phases {
    pub(super) fn new(timed: bool) -> Self {
        Self(timed.then(Box::default))
    }

    #[inline]
    pub(super) fn time<R>(&self, phase: Phase, work: impl FnOnce() -> R) -> R {
        match &self.0 {
            None => work(),
            Some(timers) => timers[phase as usize].time(work),
        }
    }

    /// Returns the phases in the order of a request; empty if timing is off.
    pub(super) fn report(&self) -> Vec<PhaseReport> {
        let timers = self.0.iter().flat_map(|timers| timers.iter());
        let named = Phase::ALL.iter().zip(timers);
        named
            .map(|(&(_, name), timer)| PhaseReport {
                name,
                calls: timer.calls.load(Ordering::Relaxed),
                total: Duration::from_nanos(timer.nanoseconds.load(Ordering::Relaxed)),
            })
            .collect()
    }
}

impl PhaseTimer {
    #[cold]
    fn time<R>(&self, work: impl FnOnce() -> R) -> R {
        let running = PhaseGuard {
            timer: self,
            outer_nested_ns: NESTED_NS.replace(0),
            begun: Instant::now(),
        };
        let result = work();
        drop(running);
        result
    }
}

/// A guard that ends a running phase, even if a callback panics.
struct PhaseGuard<'a> {
    timer: &'a PhaseTimer,
    outer_nested_ns: u64,
    begun: Instant,
}

impl Drop for PhaseGuard<'_> {
    fn drop(&mut self) {
        let whole = self.begun.elapsed().as_nanos() as u64;
        let nested = NESTED_NS.replace(self.outer_nested_ns + whole);
        let own = whole.saturating_sub(nested);
        self.timer.calls.fetch_add(1, Ordering::Relaxed);
        self.timer.nanoseconds.fetch_add(own, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_have_the_index_of_their_name() {
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
            NESTED_NS.get(),
            phases.report()[Phase::Callbacks as usize].total.as_nanos() as u64
        );
    }
}
