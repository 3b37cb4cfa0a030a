//! The memory budget of a host device.

use crate::sync::plain::{AtomicU64, Ordering};

/// The limit on held memory: at most the machine's. An overcommitting kernel would grant more, and
/// kill the process later.
///
/// Invariant: `held_bytes`, with reservations and commits in progress, never exceeds `total_bytes`.
/// It publishes no other memory, so its order is relaxed.
#[derive(Debug)]
pub(super) struct Budget {
    total_bytes: u64,
    held_bytes: AtomicU64,
}

impl Budget {
    pub(super) fn new(total_bytes: u64) -> Self {
        Self {
            total_bytes,
            held_bytes: AtomicU64::new(0),
        }
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Counts `bytes` as held, unless that would exceed the budget.
    pub(super) fn claim(&self, bytes: u64) -> bool {
        let claimed = |held_bytes: u64| {
            let sum = held_bytes.checked_add(bytes)?;
            (sum <= self.total_bytes).then_some(sum)
        };
        self.held_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, claimed)
            .is_ok()
    }

    pub(super) fn unclaim(&self, bytes: u64) {
        let before = self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "released more than was reserved");
    }
}
