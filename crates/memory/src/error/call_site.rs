//! Overrides the reported call site for work that this crate starts itself, in a backward pass or
//! behind a closure. `#[track_caller]` does not report the caller of a closure.

use std::cell::Cell;
use std::panic::Location;

use super::outside;

type Line = &'static Location<'static>;

thread_local! {
    static OVERRIDE: Cell<Option<Line>> = const { Cell::new(None) };
}

/// A guard that replaces call sites in this crate. While the guard lives, allocations and
/// computations of this crate on the thread are recorded with the guard's line.
#[must_use]
#[derive(Debug)]
pub struct CallSiteOverride {
    before: Option<Line>,
}

impl CallSiteOverride {
    /// Records work of this crate at `line` while the guard lives. If `line` is in this crate, the
    /// line of the enclosing guard stays in effect.
    pub fn at(line: Line) -> Self {
        Self {
            before: OVERRIDE.replace(Some(reported_call_site(line))),
        }
    }
}

impl Drop for CallSiteOverride {
    fn drop(&mut self) {
        OVERRIDE.set(self.before);
    }
}

/// Returns the line to record for work at `line`. If `line` is in this crate, returns the call site
/// that a [`CallSiteOverride`] has set.
pub fn reported_call_site(line: Line) -> Line {
    match OVERRIDE.get() {
        Some(site) if outside(line).is_none() => site,
        _ => line,
    }
}
