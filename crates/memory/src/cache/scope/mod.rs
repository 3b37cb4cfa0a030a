//! The thread-local stack of bindings: the current device, the cache that each scope binds, and the
//! current stream.
//!
//! Frames are removed in the reverse order of their creation. If a guard drops out of order, its
//! frame is marked as dead. The frame is removed when it is at the top. If a guard is forgotten,
//! its frame and the frames below it remain until the thread ends.
//!
//! Architecture invariant: the contents of a frame drop after the removal of the frame, outside the
//! borrow of the stack. The drop may run any code, including code of this module.

mod bindings;
mod call_site;
mod deferred;
mod entrance;
mod frames;
mod stream;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ptr;
use std::rc::Rc;

use super::settings::{CacheSettings, EntryOptions};
use super::shard::{
    Caches, CachesRef, LocalShard, current_shard, publish_current, set_current, set_current_stream,
    with_current,
};
use crate::device::StreamId;
use crate::memory::header::List;
use crate::sync::{Arc, OfThisThread, thread_local};
use bindings::ThreadBindings;
pub use call_site::CallSite;
pub(crate) use call_site::Place;
use deferred::{end_deferred, end_thread, remember_at};
pub(crate) use deferred::{reenter, settle};
use entrance::entrance;
use frames::{CurrentDevice, Frame, FrameKind, Frames};
pub(crate) use stream::StreamLease;
use stream::{entered_stream, note_stream};

/// The contents of a removed frame. The drop of this value exits the scope, and then releases the
/// device. The value has two words, so functions return it in registers. A whole frame would be
/// returned in memory.
#[derive(Default)]
struct Popped {
    shard: Option<LocalShard>,
    #[expect(dead_code, reason = "held for its drop")]
    device: Option<Rc<CurrentDevice>>,
}

impl Drop for Popped {
    #[inline]
    fn drop(&mut self) {
        if let Some(shard) = &self.shard {
            shard.exit();
        }
    }
}

/// A thread's stack of bindings.
///
/// Invariants:
/// - Each frame that changed the current shard stores the previous shard. The lowest of these
///   frames stores no shard.
/// - [`entrance()`] has the [`current_device`](Self::current_device), or null. It also has the
///   number of frames of the kind [`FrameKind::Shard`].
/// - The last call of [`note_stream`] passed [`innermost_stream`](Self::innermost_stream). The last
///   call of [`set_current_stream`] passed the stream for the current shard's device.
struct Stack {
    frames: Frames,
    /// The shards bound to the thread. The bindings end with the thread, after the thread has left
    /// its scopes.
    bindings: ThreadBindings,
}

thread_local! {
    static STACK: RefCell<Stack> = const { RefCell::new(Stack::new()) };
}

impl Drop for Stack {
    /// At the end of the thread, exits the scopes whose guards were forgotten, from the innermost
    /// scope.
    fn drop(&mut self) {
        end_thread();
        while !self.frames.is_empty() {
            let (left, _) = self.pop();
            drop(left);
        }
    }
}

impl Stack {
    const fn new() -> Self {
        Self {
            frames: Frames::new(),
            bindings: ThreadBindings::new(),
        }
    }

    fn current_device(&self) -> Option<&Rc<CurrentDevice>> {
        self.frames.iter().find_map(|frame| frame.device.as_ref())
    }

    /// Iterates over the shards that frames made current, from the innermost. `current` is the
    /// current shard.
    fn shards<'a>(
        &'a self,
        mut current: Option<&'a LocalShard>,
    ) -> impl Iterator<Item = Option<&'a LocalShard>> {
        let binds = |frame: &&Frame| frame.kind == FrameKind::Shard;
        let before = self.frames.iter().filter(binds);
        let before = before.map(|frame| frame.before.as_ref());
        before.map(move |before| std::mem::replace(&mut current, before))
    }

    /// Returns the shard of the cache with `settings`, if the thread is inside this cache.
    fn held(&self, settings: &Arc<CacheSettings>) -> Option<LocalShard> {
        with_current(|current| {
            let mut shards = self.shards(current).flatten();
            shards.find(|shard| shard.is_of(settings)).cloned()
        })
    }

    /// Returns the shard of the nearest scope on the device `caches`. Returns `None` if an
    /// `uncached!` is nearer.
    fn shard_of(&self, caches: &Caches) -> Option<LocalShard> {
        with_current(|current| {
            let mut shards = self.shards(current).map_while(|shard| shard);
            let is_own = |shard: &&LocalShard| ptr::eq::<Caches>(&**shard.device(), caches);
            shards.find(is_own).cloned()
        })
    }

    /// Iterates over the entered streams and their devices, from the innermost.
    fn streams(&self) -> impl Iterator<Item = (*const Caches, StreamId)> {
        self.frames.iter().filter_map(|frame| {
            let device = frame.device.as_ref()?;
            Some((device.as_ptr(), device.stream.as_ref()?.id()))
        })
    }

    fn stream_of(&self, caches: &Caches) -> StreamId {
        let mut streams = self.streams();
        let own = streams.find(|(device, _)| ptr::eq(*device, caches));
        own.map_or(StreamId::default(), |(_, stream)| stream)
    }

    fn innermost_stream(&self) -> Option<(*const Caches, StreamId)> {
        self.streams().next()
    }

    /// Enters a shard that the thread has entered before. Returns `None` if the shard cannot be
    /// entered.
    #[inline(always)]
    fn enter_again(&mut self, shard: &LocalShard, makes_current: bool) -> Option<u64> {
        let shard = if self.frames.is_empty() {
            Rc::clone(shard)
        } else {
            self.held_instead(shard)
        };
        if !shard.enter() {
            return None;
        }
        if makes_current {
            let device = CurrentDevice::new(shard.device());
            return Some(self.push(Some(device), Some(shard)));
        }
        Some(self.push(None, Some(shard)))
    }

    /// Returns the shard that the thread must enter. If the thread is already inside a shard of
    /// `shard`'s cache, returns this shard. Otherwise, returns `shard`. A thread is inside at most
    /// one shard of a cache.
    fn held_instead(&self, shard: &LocalShard) -> LocalShard {
        let held = shard.settings.as_ref().and_then(|own| self.held(own));
        held.unwrap_or_else(|| Rc::clone(shard))
    }

    /// Binds requests to an entered shard. If `device` is given, makes `device` current. If `shard`
    /// is `None`, does not bind requests.
    fn push_on(&mut self, device: Option<&CachesRef>, shard: Option<LocalShard>) -> u64 {
        let device = device.map(CurrentDevice::new);
        match shard {
            Some(shard) => self.push(device, Some(shard)),
            None => self.push_frame(FrameKind::Device, device, None),
        }
    }

    /// Binds requests to `shard`, or to no cache if `shard` is `None`.
    #[inline(always)]
    fn push(&mut self, device: Option<Rc<CurrentDevice>>, shard: Option<LocalShard>) -> u64 {
        // Requests now go to another shard, so the previous shard publishes its live bytes.
        publish_current();
        let before = set_current(shard);
        let serial = self.push_frame(FrameKind::Shard, device, before);
        self.follow_streams();
        serial
    }

    #[inline(always)]
    fn push_frame(
        &mut self,
        kind: FrameKind,
        device: Option<Rc<CurrentDevice>>,
        before: Option<LocalShard>,
    ) -> u64 {
        if let Some(device) = &device {
            entrance().device.set(device.as_ptr());
        }
        if kind == FrameKind::Shard {
            let bindings = &entrance().bindings;
            bindings.set(bindings.get() + 1);
        }
        self.frames.push(kind, device, before)
    }

    /// If the frame of `serial` is at the top, removes the frame. Otherwise, marks the frame as
    /// dead. Returns the contents of the removed frame, and whether the frame below must also be
    /// removed.
    #[inline(always)]
    fn leave(&mut self, serial: u64) -> (Popped, bool) {
        if self.frames.is_on_top(serial) {
            self.pop()
        } else {
            self.count_out_of_order(serial);
            (Popped::default(), false)
        }
    }

    /// Counts an exit out of order: the guard of a frame below the top has dropped.
    #[cold]
    #[inline(never)]
    fn count_out_of_order(&self, serial: u64) {
        with_current(|current| {
            let binds = |frame: &&Frame| frame.kind == FrameKind::Shard;
            let mut frames = self.frames.iter().filter(binds).zip(self.shards(current));
            let left = frames.find(|(frame, _)| frame.serial == serial);
            // The thread is still inside the shard. It exits the shard when the frame reaches the
            // top of the stack.
            if let Some((_, Some(shard))) = left {
                shard.counters.out_of_order_exits.add(1);
            }
        });
    }

    #[cold]
    #[inline(never)]
    fn pop_dead(&mut self) -> (Popped, bool) {
        if !self.frames.is_top_dead() {
            return (Popped::default(), false);
        }
        self.pop()
    }

    /// Removes the top frame. Returns its contents, and whether the guard of the frame below has
    /// dropped.
    #[inline(always)]
    fn pop(&mut self) -> (Popped, bool) {
        let Some(frame) = self.frames.pop() else {
            return (Popped::default(), false);
        };
        let (kind, device, before) = (frame.kind, frame.device.take(), frame.before.take());
        let shard = match kind {
            FrameKind::Shard => {
                let bindings = &entrance().bindings;
                bindings.set(bindings.get() - 1);
                set_current(before)
            }
            FrameKind::Device => before, // The value is `None`: the frame binds no shard.
        };
        if device.is_some() {
            self.forget_device(kind);
        }
        self.follow_streams();
        (Popped { shard, device }, self.frames.is_top_dead())
    }

    /// Updates the current device and stream after the removal of a frame that had made a device
    /// current.
    #[cold]
    #[inline(never)]
    fn forget_device(&mut self, kind: FrameKind) {
        let device = self.current_device();
        entrance()
            .device
            .set(device.map_or(ptr::null(), |device| device.as_ptr()));
        if kind != FrameKind::Shard {
            self.note_stream();
        }
    }

    /// Makes the device and the stream of `place` current.
    fn push_stream(&mut self, place: Rc<CurrentDevice>) -> u64 {
        let serial = self.push_frame(FrameKind::Device, Some(place), None);
        self.note_stream();
        serial
    }

    #[cold]
    #[inline(never)]
    fn note_stream(&self) {
        note_stream(self.innermost_stream());
        self.set_current_stream();
    }

    #[inline]
    fn follow_streams(&self) {
        if !entered_stream().0.is_null() {
            self.set_current_stream();
        }
    }

    #[cold]
    #[inline(never)]
    fn set_current_stream(&self) {
        let stream = |shard: &LocalShard| self.stream_of(shard.device());
        set_current_stream(with_current(|current| {
            current.map(stream).unwrap_or_default()
        }));
    }
}

/// The guard of an entry. The entry ends when the guard drops. The guard cannot move to another
/// thread.
#[must_use = "the scope ends when this is dropped"]
#[derive(Debug)]
pub(crate) struct Entered {
    /// The serial of the entry's frame. If the thread's locals were being destroyed, there is no
    /// frame, and the value is 0.
    serial: u64,
    of_this_thread: OfThisThread,
}

impl Entered {
    fn new(serial: u64) -> Self {
        Self {
            serial,
            of_this_thread: PhantomData,
        }
    }

    /// Returns the guard of the frame that `push` pushes. If the thread's locals are being
    /// destroyed, does not call `push`.
    fn by(push: impl FnOnce(&mut Stack) -> u64) -> Self {
        settle();
        let serial = STACK.try_with(|stack| push(&mut stack.borrow_mut()));
        Self::new(serial.unwrap_or(0))
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if !end_deferred(self.serial) {
            leave(self.serial);
        }
    }
}

/// Leaves an entry that is not deferred.
#[inline(never)]
fn leave(serial: u64) {
    settle();
    let _ = STACK.try_with(|stack| {
        let (left, mut more) = stack.borrow_mut().leave(serial);
        drop(left);
        while more {
            // The drop may have run program code that entered a scope.
            settle();
            let (left, below) = stack.borrow_mut().pop_dead();
            more = below;
            drop(left);
        }
    });
}

pub(crate) fn enter_device(device: &CachesRef) -> Entered {
    Entered::by(|stack| stack.push_on(Some(device), None))
}

pub(crate) fn enter_stream(stream: &Arc<StreamLease>) -> Entered {
    let place = CurrentDevice::on(Arc::clone(stream));
    Entered::by(|stack| stack.push_stream(place))
}

pub(crate) fn enter_uncached() -> Entered {
    Entered::by(|stack| stack.push(None, None))
}

/// Binds the cache `name` on the device `caches`, which is the current device.
pub(crate) fn enter_name(caches: &CachesRef, name: &str, options: &EntryOptions) -> Entered {
    let shard = enter_shard(caches, name, options);
    Entered::by(|stack| stack.push_on(None, shard))
}

/// Binds the cache `name` on the device `caches`, and makes this device current.
pub(crate) fn enter_name_on(caches: &CachesRef, name: &str, options: &EntryOptions) -> Entered {
    let shard = enter_shard(caches, name, options);
    Entered::by(|stack| stack.push_on(Some(caches), shard))
}

/// Stores the current shard for later entries at `place`. The caller has just made the entry
/// `entered` with `options`.
pub(crate) fn remember(entered: &Entered, place: Place<'_>, options: &EntryOptions) {
    settle();
    if entered.serial == 0 {
        return; // The thread's locals are being destroyed.
    }
    if let Some(shard) = current_shard() {
        remember_at(place, options, &shard);
    }
}

/// Enters a shard of the cache `name`. Returns `None` if the thread's locals are being destroyed,
/// because the stack of bindings may already be destroyed.
fn enter_shard(caches: &CachesRef, name: &str, options: &EntryOptions) -> Option<LocalShard> {
    settle();
    STACK.try_with(|_| ()).ok()?;
    caches.enter_shard(name, options)
}

/// Releases idle blocks for a waiting thread, from all shards of `caches` that this thread is
/// inside. The caller returns the blocks to the pool.
#[cold]
pub(crate) fn release_for_waiter(caches: &Caches) -> List {
    let mut idle = List::new();
    let _ = STACK.try_with(|stack| {
        let stack = stack.borrow();
        with_current(|current| {
            let shards = stack.shards(current).flatten();
            for shard in shards.filter(|shard| ptr::eq::<Caches>(&**shard.device(), caches)) {
                idle.append(&mut shard.release_for_waiter());
            }
        });
    });
    idle
}

/// Calls `look`. If the thread's locals are being destroyed, returns `None`.
fn with_stack<R>(look: impl FnOnce(&Stack) -> Option<R>) -> Option<R> {
    let found = STACK.try_with(|stack| look(&stack.borrow()));
    found.ok().flatten()
}

pub(crate) fn current_device() -> Option<Rc<CurrentDevice>> {
    settle();
    with_stack(|stack| stack.current_device().cloned())
}

/// Returns the device and the settings of the innermost scope. Returns `None` outside scopes, and
/// if an `uncached!` is nearer.
pub(crate) fn current_scope() -> Option<(CachesRef, Arc<CacheSettings>)> {
    settle();
    let shard = current_shard()?;
    Some((shard.device().clone(), shard.settings.clone()?))
}

/// Returns this thread's stream for work on the device `caches`.
#[inline]
pub(crate) fn current_stream(caches: &Caches) -> StreamId {
    let (device, _) = entered_stream();
    if device.is_null() {
        return StreamId::default();
    }
    stream_of(caches)
}

/// Returns this thread's stream for work on the device `caches`. If the innermost stream belongs to
/// another device, searches the stack.
#[inline(never)]
fn stream_of(caches: &Caches) -> StreamId {
    let (device, stream) = entered_stream();
    if ptr::eq(device, caches) {
        return stream;
    }
    STACK
        .try_with(|stack| stack.borrow().stream_of(caches))
        .unwrap_or_default()
}

/// Returns the shard that serves this thread's requests to `caches`.
pub(in crate::cache) fn shard_of(caches: &Caches) -> Option<LocalShard> {
    settle();
    with_stack(|stack| stack.shard_of(caches))
}

pub(in crate::cache) fn held_shard(settings: &Arc<CacheSettings>) -> Option<LocalShard> {
    settle();
    with_stack(|stack| stack.held(settings))
}

pub(in crate::cache) fn thread_shard(settings: &Arc<CacheSettings>) -> Option<LocalShard> {
    with_stack(|stack| stack.bindings.find(settings).cloned())
}

/// Binds a shard to the thread until the thread ends.
pub(in crate::cache) fn keep_binding(shard: &LocalShard) {
    let closed = STACK.try_with(|stack| stack.borrow_mut().bindings.insert(shard));
    drop(closed);
}
