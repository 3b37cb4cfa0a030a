//! The state of a thread that an entry reads before it accesses the stack of bindings.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ptr;

use super::call_site::CallSiteCache;
use crate::cache::shard::{Caches, Shard};
use crate::sync::thread_local;

pub(super) const NOT_DEFERRED: u64 = u64::MAX;

pub(super) struct Entrance {
    /// The device that a frame made current, or null.
    pub(super) device: Cell<*const Caches>,
    pub(super) last_serial: Cell<u64>,
    /// The serial of the deferred entry's later frame, or [`NOT_DEFERRED`].
    pub(super) serial: Cell<u64>,
    /// True if only the frame of the deferred entry is deferred. The thread is then inside the
    /// shard, and the shard is current.
    pub(super) is_inside: Cell<bool>,
    /// The shard of the deferred entry, which the call-site cache keeps alive.
    pub(super) shard: Cell<*const Shard>,
    /// The slot of the deferred entry in the call-site cache.
    pub(super) slot: Cell<usize>,
    /// True if the deferred entry makes its device current.
    pub(super) makes_current: Cell<bool>,
    /// The device of the shard that was current before the deferred entry, or null.
    pub(super) outer: Cell<*const Caches>,
    /// The number of frames that bind requests to a shard or to no cache.
    pub(super) bindings: Cell<usize>,
    pub(super) call_sites: ManuallyDrop<RefCell<CallSiteCache>>,
}

impl Entrance {
    /// Returns the shard of the deferred entry, which must exist.
    #[inline(always)]
    pub(super) fn deferred_shard(&self) -> &Shard {
        // SAFETY: the call-site cache keeps the shard alive. The cache changes only after `settle`,
        // when no entry is deferred.
        unsafe { &*self.shard.get() }
    }
}

thread_local! {
    /// The state of this thread. It has no destructor, so it can be read at any time without a
    /// check. At the end of the thread, the scope stack clears it.
    static ENTRANCE: Entrance = const {
        Entrance {
            device: Cell::new(ptr::null()),
            last_serial: Cell::new(0),
            serial: Cell::new(NOT_DEFERRED),
            is_inside: Cell::new(false),
            shard: Cell::new(ptr::null()),
            slot: Cell::new(0),
            makes_current: Cell::new(false),
            outer: Cell::new(ptr::null()),
            bindings: Cell::new(0),
            call_sites: ManuallyDrop::new(RefCell::new(CallSiteCache::new())),
        }
    };
}

/// Returns the thread's state. The closure of `with` only returns a pointer, because a longer
/// closure would not be inlined.
#[inline(always)]
pub(super) fn entrance<'a>() -> &'a Entrance {
    let entrance = ENTRANCE.with(ptr::from_ref);
    // SAFETY: a thread-local without a destructor exists as long as its thread. The reference does
    // not leave the functions of the scope stack.
    unsafe { &*entrance }
}

/// Calls `work` with the thread's state, unless a loom model has destroyed the thread-local.
pub(super) fn with_entrance(work: impl FnOnce(&Entrance)) {
    let _ = ENTRANCE.try_with(work);
}
