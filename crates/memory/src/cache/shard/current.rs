//! The current shard: the shard of this thread's innermost scope. Every request and every drop
//! reads it.
//!
//! Architecture invariant: a thread is inside its current shard. It enters a shard before the shard
//! becomes current, and makes the next shard current before it leaves.

use std::cell::Cell;
use std::panic::Location;
use std::ptr;
use std::rc::Rc;

use super::{BlockHandle, Caches, LocalShard, Shard};
use crate::cache::policy::Policy;
use crate::cache::request::Request;
use crate::device::StreamId;
use crate::error::Result;
use crate::sync::{Arc, thread_local};

/// The destination of a thread's requests.
struct CurrentShard {
    /// The shard of this thread's innermost scope, or null. Owns one reference count, out of
    /// `Rc::into_raw`; the thread is inside the shard.
    owned: Cell<*const Arc<Shard>>,
    /// The address of that shard itself, which every request and every drop reads.
    shard: Cell<*const Shard>,
    /// The device of that shard. Null if there is no shard, or if requests do not see it.
    device: Cell<*const Caches>,
    /// The stream that this thread's work on the shard's device goes to.
    stream: Cell<StreamId>,
}

thread_local! {
    /// The current shard of this thread. It has no destructor, so that it can be read at any time.
    /// The scope stack clears it when the thread ends.
    static CURRENT: CurrentShard = const {
        CurrentShard {
            owned: Cell::new(ptr::null()),
            shard: Cell::new(ptr::null()),
            device: Cell::new(ptr::null()),
            stream: Cell::new(StreamId(0)),
        }
    };
}

#[inline]
pub(super) fn current() -> *const Shard {
    CURRENT.with(|current| current.shard.get())
}

#[inline]
fn stream() -> StreamId {
    CURRENT.with(|current| current.stream.get())
}

/// Makes current a shard that the thread is inside. Returns the previous one.
#[inline]
pub(in crate::cache) fn set_current(shard: Option<LocalShard>) -> Option<LocalShard> {
    let (pointer, device) = match &shard {
        Some(shard) => (Arc::as_ptr(shard), shard.device().as_ptr()),
        None => (ptr::null(), ptr::null()),
    };
    let owned = shard.map_or(ptr::null(), Rc::into_raw);
    let before = CURRENT.with(|current| {
        current.shard.set(pointer);
        current.device.set(device);
        current.owned.replace(owned)
    });
    // SAFETY: the pointer in `owned` came out of `Rc::into_raw`, and was taken out of `owned`.
    (!before.is_null()).then(|| unsafe { Rc::from_raw(before) })
}

/// Hides the current shard from requests. Returns its device, for [`reveal_current`].
#[inline]
pub(in crate::cache) fn hide_current() -> *const Caches {
    CURRENT.with(|current| current.device.replace(ptr::null()))
}

/// Reverses [`hide_current`].
#[inline]
pub(in crate::cache) fn reveal_current(device: *const Caches) {
    CURRENT.with(|current| current.device.set(device));
}

/// Sets the stream that requests to the current shard are for. It must be a stream of the shard's
/// device.
pub(in crate::cache) fn set_current_stream(stream: StreamId) {
    CURRENT.with(|current| current.stream.set(stream));
}

/// Calls `look` with the current shard. `look` must not make another shard current.
pub(in crate::cache) fn with_current<R>(look: impl FnOnce(Option<&LocalShard>) -> R) -> R {
    let current = set_current(None);
    let result = look(current.as_ref());
    set_current(current);
    result
}

pub(in crate::cache) fn current_shard() -> Option<LocalShard> {
    let current = set_current(None);
    set_current(current.clone());
    current
}

/// Publishes the live bytes of the current shard to the device's totals.
#[inline]
pub(in crate::cache) fn publish_current() {
    if !current().is_null() {
        publish_outer();
    }
}

#[inline(never)]
fn publish_outer() {
    // SAFETY: null, or the shard that `owned` owns; nothing below makes another current.
    if let Some(shard) = unsafe { current().as_ref() } {
        shard.own().publish();
    }
}

/// Returns the current shard, if it belongs to this device and requests see it.
#[inline]
fn current_on(caches: &Caches) -> Option<&Shard> {
    if CURRENT.with(|current| current.device.get()) != ptr::from_ref(caches) {
        return None;
    }
    // SAFETY: `device` is not null, so `owned` owns the shard. No caller makes another one current
    // while it has this reference.
    Some(unsafe { &*current() })
}

impl Caches {
    /// Hands out a block of `bytes` on the thread's stream, to the caller at `call_site`. The block
    /// is from the nearest scope of this device, if there is one.
    #[inline]
    pub(crate) fn allocate(
        &self,
        bytes: u64,
        call_site: &'static Location<'static>,
    ) -> Result<BlockHandle> {
        match self.hit(Policy::Recycle, bytes) {
            Some(block) => Ok(block),
            None => self.allocate_by_policy(bytes, call_site),
        }
    }

    /// Tries the other policies. The function of each policy is a tail call of the previous
    /// function, and saves no registers for other policies. `#[cold]`, so that the compiler does
    /// not inline it into its caller. `#[inline]` nevertheless, so that it is compiled with the
    /// executable, which accesses its thread-locals without a call.
    #[cold]
    #[inline]
    fn allocate_by_policy(
        &self,
        bytes: u64,
        call_site: &'static Location<'static>,
    ) -> Result<BlockHandle> {
        match self.hit(Policy::Bump, bytes) {
            Some(block) => Ok(block),
            None => self.allocate_planned(bytes, call_site),
        }
    }

    #[cold]
    #[inline]
    fn allocate_planned(
        &self,
        bytes: u64,
        call_site: &'static Location<'static>,
    ) -> Result<BlockHandle> {
        match self.hit(Policy::Plan, bytes) {
            Some(block) => Ok(block),
            None => self.allocate_otherwise(bytes, call_site),
        }
    }

    /// Serves a hit from the current shard, if the shard belongs to this device, and `policy`
    /// serves the request.
    #[inline(always)]
    pub(in crate::cache) fn hit(&self, policy: Policy, bytes: u64) -> Option<BlockHandle> {
        let shard = current_on(self)?;
        // SAFETY: this thread is inside the current shard, so no other `Guard` is in use, and
        // nothing below makes one.
        let mut allocator = unsafe { shard.allocator() };
        let hit = allocator.hit(policy, bytes, stream());
        hit.map(BlockHandle::from)
    }
}

/// Returns true if a thread waits for the idle blocks of this thread.
#[inline]
pub(in crate::cache) fn current_has_waiter() -> bool {
    // SAFETY: null, or the shard that `owned` owns.
    unsafe { current().as_ref() }.is_some_and(Shard::has_waiter)
}

/// Serves a request that missed, without draining the blocks that other threads dropped.
pub(in crate::cache) fn refill_current(caches: &Caches, request: &Request) -> Option<BlockHandle> {
    let mut guard = current_on(caches)?.own();
    let served = guard.slow_hit(request);
    let served = served.or_else(|| guard.refill(request).ok());
    served.map(BlockHandle::from)
}
