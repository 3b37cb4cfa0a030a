//! A platform that has none, or none that is safe to call.

use std::sync::atomic::{Ordering, fence};

pub(crate) fn is_asymmetric() -> bool {
    false
}

#[cold]
pub(crate) fn heavy_barrier() {
    fence(Ordering::SeqCst);
}
