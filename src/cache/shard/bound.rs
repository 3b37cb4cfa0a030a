//! The shard of this thread's innermost scope: what every request and every drop looks at.
//!
//! Architecture invariant: a thread is inside of the shard that is bound on it. It enters before it
//! binds, and binds the next one before it leaves.

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use super::Shard;
use crate::cache::{Caches, Size, Wanted};
use crate::device::StreamId;
use crate::memory::header::Handle;
use crate::sync::{Arc, thread_local};

/// A shard as its thread keeps it: counted once for the thread, so that entering counts nothing.
pub(in crate::cache) type LocalShard = Rc<Arc<Shard>>;

/// What requests of a thread are bound to.
struct Bound {
    /// The shard of this thread's innermost scope, or null; it owns one count of it, out of
    /// `Rc::into_raw`, and the thread is inside of it.
    owned: Cell<*const Arc<Shard>>,
    /// The same shard itself: what every request looks at.
    shard: Cell<*const Shard>,
    /// The stream that this thread's work on the shard's device goes to.
    stream: Cell<StreamId>,
}

thread_local! {
    /// Without a destructor, so that it can be read at any time; the scope stack clears it when the
    /// thread ends.
    static BOUND: Bound = const {
        Bound {
            owned: Cell::new(ptr::null()),
            shard: Cell::new(ptr::null()),
            stream: Cell::new(StreamId(0)),
        }
    };
}

/// The shard that is bound, or null.
#[inline]
fn shard() -> *const Shard {
    BOUND.with(|bound| bound.shard.get())
}

#[inline]
fn stream() -> StreamId {
    BOUND.with(|bound| bound.stream.get())
}

/// Binds a shard, which the thread is inside of, for its requests; answers the one before.
#[inline]
pub(in crate::cache) fn bind(shard: Option<LocalShard>) -> Option<LocalShard> {
    let pointer = shard
        .as_ref()
        .map_or(ptr::null(), |shard| Arc::as_ptr(shard));
    let owned = shard.map_or(ptr::null(), Rc::into_raw);
    let before = BOUND.with(|bound| {
        bound.shard.set(pointer);
        bound.owned.replace(owned)
    });
    // SAFETY: what `owned` holds came out of `Rc::into_raw`, and was taken out of it.
    (!before.is_null()).then(|| unsafe { Rc::from_raw(before) })
}

/// Sends the requests that the bound shard serves to a stream of its device.
pub(in crate::cache) fn bind_stream(stream: StreamId) {
    BOUND.with(|bound| bound.stream.set(stream));
}

/// Shows `look` the shard that is bound. It is not to bind another.
pub(in crate::cache) fn with_bound<R>(look: impl FnOnce(Option<&LocalShard>) -> R) -> R {
    let bound = bind(None);
    let result = look(bound.as_ref());
    bind(bound);
    result
}

/// The shard that is bound.
pub(in crate::cache) fn bound_shard() -> Option<LocalShard> {
    let bound = bind(None);
    bind(bound.clone());
    bound
}

/// Whether requests of this thread are bound to that very shard.
#[inline]
pub(super) fn is_bound(shard: NonNull<Shard>) -> bool {
    ptr::eq(self::shard(), shard.as_ptr())
}

/// Tells the device's ledger what the bound shard has live.
#[inline]
pub(in crate::cache) fn publish_bound() {
    if !shard().is_null() {
        publish_outer();
    }
}

#[inline(never)]
fn publish_outer() {
    // SAFETY: null, or what `owned` owns; nothing below binds another.
    if let Some(shard) = unsafe { shard().as_ref() } {
        shard.mine().publish();
    }
}

/// The bound shard, if it is one of this device.
#[inline]
fn bound_on(caches: &Caches) -> Option<&Shard> {
    // SAFETY: null, or what `owned` owns; neither caller binds another while it has this.
    let shard = unsafe { shard().as_ref() }?;
    ptr::eq(Arc::as_ptr(&shard.device.0), caches).then_some(shard)
}

/// Serves a request from the bound shard, if it is one of this device, with the block that came back
/// last: the hit.
#[inline]
pub(in crate::cache) fn take_at_once(
    caches: &Caches,
    size: impl FnOnce() -> Option<Size>,
) -> Option<Handle<Shard>> {
    let shard = bound_on(caches)?;
    // SAFETY: this thread is inside of the shard that is bound, so nobody else has an `Access`, and
    // nothing below makes one.
    let inner = unsafe { &mut *shard.inner.get() };
    inner.take_at_once(&shard.counters, size, stream())
}

/// The same with the next part of a chunk.
#[inline]
pub(in crate::cache) fn take_bump(caches: &Caches, bytes: u64) -> Option<Handle<Shard>> {
    let shard = bound_on(caches)?;
    // SAFETY: as above.
    let inner = unsafe { &mut *shard.inner.get() };
    inner.take_bump(&shard.counters, bytes, stream())
}

/// The same with the next part of a slab.
#[inline]
pub(in crate::cache) fn take_planned(caches: &Caches, bytes: u64) -> Option<Handle<Shard>> {
    let shard = bound_on(caches)?;
    // SAFETY: as above.
    let inner = unsafe { &mut *shard.inner.get() };
    inner.take_planned(&shard.counters, bytes, stream())
}

/// The same the slow way.
pub(in crate::cache) fn take_bound_slowly(
    caches: &Caches,
    wanted: &Wanted,
) -> Option<Handle<Shard>> {
    bound_on(caches)?.mine().take(wanted)
}
