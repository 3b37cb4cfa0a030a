//! The modes of a thread's tape.

use std::cell::Cell;

use crate::array::TapeId;

thread_local! {
    /// The mode of this thread's tape.
    static MODE: Cell<Mode> = const { Cell::new(Mode::Active) };
    /// The number of functions with custom gradients that this thread is running in the first run
    /// of a checkpoint.
    static FIRST_RUNS: Cell<usize> = const { Cell::new(0) };
}

/// The mode of a thread's tape. The mode determines whether operations record steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Mode {
    /// The mode in which operations record steps.
    Active,
    /// The mode in which no operation records a step.
    Paused,
    /// The mode in which no operation records a step, but the tape records the values that
    /// operations read. A checkpoint runs these operations again in the backward pass.
    Rerun,
}

#[inline]
pub(in crate::ops) fn mode() -> Mode {
    MODE.get()
}

/// Returns whether operations of this thread may read values that a tape tracks. While the thread's
/// tape is paused, operations read plain values.
#[inline]
pub(crate) fn is_live() -> bool {
    TapeId::are_any() && mode() != Mode::Paused
}

/// Returns true in the first run of a checkpoint. The backward pass runs the checkpoint again. A
/// side effect that must happen once belongs to the second run.
pub(crate) fn runs_again_later() -> bool {
    mode() == Mode::Rerun || FIRST_RUNS.get() > 0
}

/// Adds `count` to [`FIRST_RUNS`].
pub(in crate::ops) fn count_first_runs(count: isize) {
    FIRST_RUNS.set(FIRST_RUNS.get().wrapping_add_signed(count));
}

/// Returns whether the thread's tape is paused.
pub(crate) fn is_paused() -> bool {
    mode() == Mode::Paused
}

/// A guard that sets the mode of the thread's tape while it lives.
#[must_use]
#[derive(Debug)]
pub(crate) struct Pause {
    before: Mode,
}

impl Pause {
    /// Pauses the tape.
    pub(crate) fn begin() -> Self {
        Self::in_mode(Mode::Paused)
    }

    /// Pauses the tape for operations that the backward pass runs again. The tape records the
    /// values that these operations read.
    pub(crate) fn before_rerun() -> Self {
        Self::in_mode(Mode::Rerun)
    }

    /// Makes the tape active again.
    pub(crate) fn end() -> Self {
        Self::in_mode(Mode::Active)
    }

    fn in_mode(mode: Mode) -> Self {
        Self {
            before: MODE.replace(mode),
        }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        MODE.set(self.before);
    }
}
