//! The current shard: the shard of this thread's innermost scope. Every request and every drop
//! reads it.
//!
//! Architecture invariant: a thread is inside its current shard. The thread enters a shard before
//! the shard becomes current. It leaves the shard after another shard, or no shard, has become
//! current.

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

/// The current shard of a thread, with its device and stream.
struct CurrentShard {
    /// The shard of this thread's innermost scope, or null. The pointer comes from `Rc::into_raw`,
    /// and owns one reference count. The thread is inside the shard.
    owned: Cell<*const Arc<Shard>>,
    /// The address of the shard in `owned`. Every request and every drop reads this address.
    shard: Cell<*const Shard>,
    /// The device of the shard in `owned`. The pointer is null if there is no shard, or if the
    /// shard is hidden from requests.
    device: Cell<*const Caches>,
    /// This thread's stream for work on the shard's device.
    stream: Cell<StreamId>,
}

thread_local! {
    /// The current shard of this thread. It has no destructor, so it can be read at any time. At
    /// the end of the thread, the scope stack clears it.
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

/// Makes `shard` current. The thread must be inside the shard. Returns the previous current shard.
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
    // SAFETY: the pointer in `owned` came from `Rc::into_raw`. `replace` removed the pointer, so it
    // is converted back only once.
    (!before.is_null()).then(|| unsafe { Rc::from_raw(before) })
}

/// Hides the current shard from requests. Returns the shard's device, for [`reveal_current`].
#[inline]
pub(in crate::cache) fn hide_current() -> *const Caches {
    CURRENT.with(|current| current.device.replace(ptr::null()))
}

/// Reverses [`hide_current`].
#[inline]
pub(in crate::cache) fn reveal_current(device: *const Caches) {
    CURRENT.with(|current| current.device.set(device));
}

/// Sets the stream for requests to the current shard. The stream must belong to the shard's device.
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
    // SAFETY: the pointer is null, or `owned` keeps the shard alive. `publish` makes no other shard
    // current.
    if let Some(shard) = unsafe { current().as_ref() } {
        shard.own().publish();
    }
}

/// Returns the current shard, if it belongs to this device and is not hidden.
#[inline]
fn current_on(caches: &Caches) -> Option<&Shard> {
    if CURRENT.with(|current| current.device.get()) != ptr::from_ref(caches) {
        return None;
    }
    // SAFETY: `device` is not null, so `owned` keeps the shard alive. No caller makes another shard
    // current while it uses this reference.
    Some(unsafe { &*current() })
}

impl Caches {
    /// Allocates `bytes` bytes on the thread's stream, for the caller at `call_site`. If the thread
    /// is inside a scope of this device, the nearest scope serves the request.
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

    /// Tries the policies after Recycle. Each policy has a function. The previous policy's function
    /// calls it in tail position. So no function saves registers for other policies.
    ///
    /// `#[cold]` prevents inlining into the caller. `#[inline]` lets the compiler generate the
    /// function in the executable, where an access to a thread-local needs no call.
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

    /// Serves a hit from the current shard. Returns `None` on a miss, for a shard of another
    /// device, and if another policy serves requests.
    #[inline(always)]
    pub(in crate::cache) fn hit(&self, policy: Policy, bytes: u64) -> Option<BlockHandle> {
        let shard = current_on(self)?;
        // SAFETY: this thread is inside the current shard, so no other `Guard` is in use. `hit`
        // creates no guard.
        let mut allocator = unsafe { shard.allocator() };
        let hit = allocator.hit(policy, bytes, stream());
        hit.map(BlockHandle::from)
    }
}

/// Returns true if a thread waits for the idle blocks of this thread.
#[inline]
pub(in crate::cache) fn current_has_waiter() -> bool {
    // SAFETY: the pointer is null, or `owned` keeps the shard alive.
    unsafe { current().as_ref() }.is_some_and(Shard::has_waiter)
}

/// Serves a request that missed from the current shard. Does not drain the blocks that other
/// threads dropped.
pub(in crate::cache) fn refill_current(caches: &Caches, request: &Request) -> Option<BlockHandle> {
    let mut guard = current_on(caches)?.own();
    let served = guard.slow_hit(request);
    let served = served.or_else(|| guard.refill(request).ok());
    served.map(BlockHandle::from)
}
