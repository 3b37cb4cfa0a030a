//! How much time is left.

use std::time::{Duration, Instant};

/// A moment at which work must come to its end; `None` lies beyond what a clock can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    end: Option<Instant>,
}

impl Clock {
    pub(crate) fn starting(limit: Duration) -> Self {
        Self {
            end: Instant::now().checked_add(limit),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Whether there is time for something that takes that long.
    pub(crate) fn leaves(&self, time: Duration) -> bool {
        self.end.is_none_or(|end| Instant::now() + time < end)
    }

    /// A clock that is up after one of `shares` equal parts of what is left.
    pub(crate) fn share(&self, shares: usize) -> Self {
        let now = Instant::now();
        let part = |end: Instant| now + end.saturating_duration_since(now) / shares.max(1) as u32;
        Self {
            end: self.end.map(part),
        }
    }
}
