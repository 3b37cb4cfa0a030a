//! The deadline of a search.

use std::time::{Duration, Instant};

/// A deadline; `None` if it is beyond the clock's range.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    end: Option<Instant>,
}

impl Deadline {
    /// Returns the deadline that is `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self {
            end: Instant::now().checked_add(limit),
        }
    }

    /// Returns true if the deadline has passed.
    pub fn has_passed(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Returns true if work of this duration ends before the deadline.
    pub fn allows(&self, time: Duration) -> bool {
        self.end.is_none_or(|end| Instant::now() + time < end)
    }

    /// Returns the deadline of one of `shares` equal shares of the remaining time.
    pub fn share(&self, shares: usize) -> Self {
        let now = Instant::now();
        let part = |end: Instant| now + end.saturating_duration_since(now) / shares.max(1) as u32;
        Self {
            end: self.end.map(part),
        }
    }
}
