//! The guards of a tape and of the steps in it.

use super::activations::{self, read_environment};
use super::refuse_operands;
use super::tape::{self, TapeStep};
use crate::array::TapeId;
use crate::error::Result;
use crate::ops::order::pause::{self, Mode, Pause, mode};
use crate::ops::order::set_tape_check;

/// A guard of a thread's tape. The tape ends when the guard drops.
#[must_use]
#[derive(Debug)]
pub(crate) struct TapeGuard {
    number: TapeId,
}

impl TapeGuard {
    /// Begins a tape on this thread, for the public function `function`.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the thread already has a tape.
    #[track_caller]
    pub(crate) fn begin(function: &'static str) -> Result<Self> {
        read_environment()?;
        set_tape_check(refuse_operands);
        let number = TapeId::begin();
        tape::begin(number, function).inspect_err(|_| number.end())?;
        activations::begin();
        Ok(Self { number })
    }
}

impl Drop for TapeGuard {
    fn drop(&mut self) {
        tape::end();
        activations::end();
        self.number.end();
    }
}

/// Removes and returns the last step, and drops the activations of its results.
pub(super) fn pop() -> Option<TapeStep> {
    let step = tape::pop()?;
    activations::drop_results(&step.results);
    Some(step)
}

/// A guard for the steps of a function that computes gradients itself, such as `value_and_grad`, in
/// a checkpoint's first run. While the guard lives, the tape is active. When the guard drops, the
/// steps are removed.
#[must_use]
#[derive(Debug)]
pub(crate) struct FirstRun {
    /// The number of steps before the function.
    from: usize,
    /// The guard of the active mode. The mode ends before the steps are removed.
    active: Option<Pause>,
}

impl FirstRun {
    /// Makes the tape active. Returns `None` unless a checkpoint is in its first run.
    pub(crate) fn begin() -> Option<Self> {
        (mode() == Mode::Rerun).then(|| {
            pause::count_first_runs(1);
            Self {
                from: tape::length(),
                active: Some(Pause::end()),
            }
        })
    }
}

impl Drop for FirstRun {
    fn drop(&mut self) {
        self.active = None;
        pause::count_first_runs(-1);
        while tape::length() > self.from {
            drop(pop());
        }
        tape::read_at(self.from);
    }
}
