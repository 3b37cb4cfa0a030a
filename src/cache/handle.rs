//! The counted handle on a device's caches and memory.

use std::fmt;
use std::ops::Deref;

use super::Caches;
use crate::sync::{Arc, Ordering, Weak};

/// A handle that somebody holds on purpose. When the last one is gone, the caches close: their idle
/// blocks go back to the device, and what is left ends with its last live block, which keeps the
/// `Arc` but is no handle.
pub(crate) struct CachesRef(pub(super) Arc<Caches>);

impl CachesRef {
    pub(super) fn first(caches: Arc<Caches>) -> Self {
        caches.handles.fetch_add(1, Ordering::Relaxed);
        Self(caches)
    }

    pub(crate) fn as_ptr(&self) -> *const Caches {
        Arc::as_ptr(&self.0)
    }

    /// For who must not keep the device.
    pub(crate) fn downgrade(&self) -> WeakCaches {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What does not keep the caches; upgrading it counts no handle.
pub(crate) type WeakCaches = Weak<Caches>;

impl Clone for CachesRef {
    fn clone(&self) -> Self {
        // May raise it from 0: a live array outlasted every handle, and its device is asked for.
        Self::first(Arc::clone(&self.0))
    }
}

impl Drop for CachesRef {
    fn drop(&mut self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.close();
        }
    }
}

impl Deref for CachesRef {
    type Target = Caches;

    fn deref(&self) -> &Caches {
        &self.0
    }
}

impl fmt::Debug for CachesRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
