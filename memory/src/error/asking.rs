//! Whose line asked for work that this crate does on its own account: in a backward pass, or behind
//! a closure, which is no caller that a location tells of.

use std::cell::Cell;
use std::panic::Location;

use super::outside;

type Line = &'static Location<'static>;

thread_local! {
    static ASKED_AT: Cell<Option<Line>> = const { Cell::new(None) };
}

/// While this lives, what lines of this crate allocate and compute on the thread is recorded as
/// that line's.
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

/// The line to record for work at `line`: of a line of this crate, who asked.
pub fn asked_at(line: Line) -> Line {
    match ASKED_AT.get() {
        Some(asked) if outside(line).is_none() => asked,
        _ => line,
    }
}
