//! A limit on held memory.

use crate::sync::plain::{AtomicU64, Ordering};

/// A memory limit, and the bytes held under the limit.
///
/// A claim checks the limit in one compare-and-swap, so concurrent claims cannot exceed the limit.
/// The counters publish no other memory, so their accesses use relaxed ordering.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: AtomicU64,
    held_bytes: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes: AtomicU64::new(limit_bytes),
            held_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Sets the limit, which may be below the held bytes. A concurrent claim may still use the old
    /// limit.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Adds `bytes` to the held bytes, unless the sum exceeds the limit. Returns whether the claim
    /// succeeded.
    pub(crate) fn claim(&self, bytes: u64) -> bool {
        let claimed = |held_bytes: u64| {
            let sum = held_bytes.checked_add(bytes)?;
            (sum <= self.limit_bytes()).then_some(sum)
        };
        self.held_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, claimed)
            .is_ok()
    }

    pub(crate) fn unclaim(&self, bytes: u64) {
        let before = self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "released more than was reserved");
    }
}
