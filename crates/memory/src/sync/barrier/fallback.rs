//! Barriers for platforms without a safe asymmetric barrier.

use std::sync::atomic::{Ordering, fence};

pub(crate) fn is_asymmetric() -> bool {
    false
}

#[cold]
pub(crate) fn heavy_barrier() {
    fence(Ordering::SeqCst);
}
