//! For platforms without a safe asymmetric barrier.

use std::sync::atomic::{Ordering, fence};

pub fn is_asymmetric() -> bool {
    false
}

#[cold]
pub fn heavy_barrier() {
    fence(Ordering::SeqCst);
}
