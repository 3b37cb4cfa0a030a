//! Overrides the reported call site for work that this crate starts itself: in a backward pass, or
//! behind a closure, whose caller `#[track_caller]` does not report.

use std::cell::Cell;
use std::panic::Location;

use super::outside;

type Line = &'static Location<'static>;

thread_local! {
    static ASKED_AT: Cell<Option<Line>> = const { Cell::new(None) };
}

/// A guard that replaces call sites in this crate: while it lives, allocations and computations of
/// this crate on the thread are recorded with its line.
#[must_use]
#[derive(Debug)]
pub struct Asking {
    before: Option<Line>,
}

impl Asking {
    /// Reports errors at `line` while the guard lives.
    pub fn at(line: Line) -> Self {
        Self {
            before: ASKED_AT.replace(Some(line)),
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKED_AT.set(self.before);
    }
}

/// Returns the line to record for work at `line`: if `line` is in this crate, the call site that an
/// [`Asking`] has set.
pub fn asked_at(line: Line) -> Line {
    match ASKED_AT.get() {
        Some(asked) if outside(line).is_none() => asked,
        _ => line,
    }
}
