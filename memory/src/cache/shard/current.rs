//! The current shard: the shard of this thread's innermost scope. Every request and every drop
//! reads it.
//!
//! Architecture invariant: a thread is inside its current shard. It enters a shard before that
//! becomes current, and makes the next one current before it leaves.

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

use super::{BlockHandle, Caches, LocalShard, Shard};
use crate::cache::policy::FastPath;
use crate::cache::request::Request;
use crate::device::StreamId;
use crate::sync::{Arc, thread_local};

/// The destination of a thread's requests.
struct CurrentShard {
    /// The shard of this thread's innermost scope, or null. Owns one reference count, out of
    /// `Rc::into_raw`; the thread is inside the shard.
    owned: Cell<*const Arc<Shard>>,
    /// The address of that shard itself, which every request reads.
    shard: Cell<*const Shard>,
    /// The stream that this thread's work on the shard's device goes to.
    stream: Cell<StreamId>,
}

thread_local! {
    /// It has no destructor, so that it can be read at any time; the scope stack clears it when the
    /// thread ends.
    static CURRENT: CurrentShard = const {
        CurrentShard {
            owned: Cell::new(ptr::null()),
            shard: Cell::new(ptr::null()),
            stream: Cell::new(StreamId(0)),
        }
    };
}

/// Returns the current shard, or null.
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
    let pointer = shard
        .as_ref()
        .map_or(ptr::null(), |shard| Arc::as_ptr(shard));
    let owned = shard.map_or(ptr::null(), Rc::into_raw);
    let before = CURRENT.with(|current| {
        current.shard.set(pointer);
        current.owned.replace(owned)
    });
    // SAFETY: the pointer in `owned` came out of `Rc::into_raw`, and was taken out of `owned`.
    (!before.is_null()).then(|| unsafe { Rc::from_raw(before) })
}

/// Hides the current shard from requests and drops. Returns it, for [`reveal_current`].
#[inline]
pub(in crate::cache) fn hide_current() -> *const Shard {
    CURRENT.with(|current| current.shard.replace(ptr::null()))
}

/// Reverses [`hide_current`].
#[inline]
pub(in crate::cache) fn reveal_current(shard: *const Shard) {
    CURRENT.with(|current| current.shard.set(shard));
}

/// Sets the stream of requests to the current shard, a stream of its device.
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

/// Returns the current shard.
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

/// Returns the current shard, if it is one of this device.
#[inline]
fn current_on(caches: &Caches) -> Option<&Shard> {
    // SAFETY: null, or the shard that `owned` owns; no caller makes another current while it has
    // this.
    let shard = unsafe { current().as_ref() }?;
    ptr::eq(shard.device().as_ptr(), caches).then_some(shard)
}

/// Serves a hit from the current shard, if it is one of this device and `P` serves the request.
#[inline]
pub(in crate::cache) fn allocate_current<P: FastPath>(
    caches: &Caches,
    bytes: u64,
) -> Option<BlockHandle> {
    let shard = current_on(caches)?;
    // SAFETY: this thread is inside the current shard, so no other `Guard` exists, and nothing below
    // makes one.
    let mut allocator = unsafe { shard.allocator() };
    allocator
        .allocate::<P>(bytes, stream())
        .map(BlockHandle::from)
}

/// Serves a request that was no hit, without draining the blocks that other threads dropped.
pub(in crate::cache) fn refill_current(caches: &Caches, request: &Request) -> Option<BlockHandle> {
    let mut guard = current_on(caches)?.own();
    let served = guard.observed_hit(request);
    let served = served.or_else(|| guard.refill(request).ok());
    served.map(BlockHandle::from)
}
