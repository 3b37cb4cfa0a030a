//! Overrides the reported call site for work that this crate starts itself. It does so in a
//! backward pass, or behind a closure, whose caller `#[track_caller]` does not report.

use std::cell::Cell;
use std::panic::Location;

use super::outside;

type Line = &'static Location<'static>;

thread_local! {
    static OVERRIDE: Cell<Option<Line>> = const { Cell::new(None) };
}

/// A guard that replaces call sites in this crate. While it lives, allocations and computations of
/// this crate on the thread are recorded with its line.
#[must_use]
#[derive(Debug)]
pub struct CallSiteOverride {
    before: Option<Line>,
}

impl CallSiteOverride {
    /// Records work of this crate at `line` while the guard lives. A line of this crate does not
    /// replace the line of the guard around it.
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

/// Returns the line to record for work at `line`. If `line` is in this crate, that is the call site
/// that a [`CallSiteOverride`] has set.
pub fn reported_call_site(line: Line) -> Line {
    match OVERRIDE.get() {
        Some(site) if outside(line).is_none() => site,
        _ => line,
    }
}
