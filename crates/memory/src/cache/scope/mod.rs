//! The thread-local stack of bindings: the current device, the cache that each scope binds, and the
//! current stream.
//!
//! Frames are removed in the reverse order of their entry. A guard that is dropped out of order
//! marks its frame, which is removed when it reaches the top. A guard that is forgotten leaves its
//! frame, and the frames below it, until the thread ends.
//!
//! Architecture invariant: the contents of a frame drop after the frame is removed and the borrow
//! of the stack ends. Their drop may run any code, including this module.

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

/// The contents of a removed frame. Dropping it leaves the scope, and then releases the device. Its
/// two words are returned in registers; a whole frame would not be.
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
/// - each frame that changed the current shard holds the previous shard, the lowest one none;
/// - [`entrance()`] has the [`current_device`](Self::current_device), or null, and the number of
///   frames that bind requests to a shard, or to no shard;
/// - [`note_stream`] was last given [`innermost_stream`](Self::innermost_stream), and
///   [`set_current_stream`] the stream of the current shard's device.
struct Stack {
    frames: Frames,
    /// The shards bound to the thread. They end with the thread, after its scopes were left.
    bindings: ThreadBindings,
}

thread_local! {
    static STACK: RefCell<Stack> = const { RefCell::new(Stack::new()) };
}

impl Drop for Stack {
    /// Leaves the scopes whose guards were forgotten when the thread ends, the innermost first.
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

    /// Returns the device that a frame made current.
    fn current_device(&self) -> Option<&Rc<CurrentDevice>> {
        self.frames.iter().find_map(|frame| frame.device.as_ref())
    }

    /// Iterates over the shards that frames made current, the innermost first; `current` is the
    /// present one.
    fn shards<'a>(
        &'a self,
        mut current: Option<&'a LocalShard>,
    ) -> impl Iterator<Item = Option<&'a LocalShard>> {
        let binds = |frame: &&Frame| frame.kind == FrameKind::Shard;
        let before = self.frames.iter().filter(binds);
        let before = before.map(|frame| frame.before.as_ref());
        before.map(move |before| std::mem::replace(&mut current, before))
    }

    /// Returns the shard of the cache `settings` that the thread is inside.
    fn held(&self, settings: &Arc<CacheSettings>) -> Option<LocalShard> {
        with_current(|current| {
            let mut shards = self.shards(current).flatten();
            shards.find(|shard| shard.is_of(settings)).cloned()
        })
    }

    /// Returns the shard of the nearest scope that binds on `caches`; `None` if an `uncached!` is
    /// nearer.
    fn shard_of(&self, caches: &Caches) -> Option<LocalShard> {
        with_current(|current| {
            let mut shards = self.shards(current).map_while(|shard| shard);
            let is_own = |shard: &&LocalShard| ptr::eq::<Caches>(&**shard.device(), caches);
            shards.find(is_own).cloned()
        })
    }

    /// Iterates over the streams that were entered and not left, the innermost first, each with its
    /// device.
    fn streams(&self) -> impl Iterator<Item = (*const Caches, StreamId)> {
        self.frames.iter().filter_map(|frame| {
            let device = frame.device.as_ref()?;
            Some((device.as_ptr(), device.stream.as_ref()?.id()))
        })
    }

    /// Returns the stream that work on `caches` goes to.
    fn stream_of(&self, caches: &Caches) -> StreamId {
        let mut streams = self.streams();
        let own = streams.find(|(device, _)| ptr::eq(*device, caches));
        own.map_or(StreamId::default(), |(_, stream)| stream)
    }

    /// Returns the stream that was entered last, of any device.
    fn innermost_stream(&self) -> Option<(*const Caches, StreamId)> {
        self.streams().next()
    }

    /// Enters a shard that the thread entered before. Returns `None` if it cannot be entered.
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

    /// Returns the shard of the cache that the thread is already inside, or else `shard`. A thread
    /// is inside at most one shard of a cache.
    fn held_instead(&self, shard: &LocalShard) -> LocalShard {
        let held = shard.settings.as_ref().and_then(|own| self.held(own));
        held.unwrap_or_else(|| Rc::clone(shard))
    }

    /// Binds requests to a shard that was entered, and makes a device current. If there is no
    /// shard, makes at most a device current.
    fn push_on(&mut self, device: Option<&CachesRef>, shard: Option<LocalShard>) -> u64 {
        let device = device.map(CurrentDevice::new);
        match shard {
            Some(shard) => self.push(device, Some(shard)),
            None => self.push_frame(FrameKind::Device, device, None),
        }
    }

    /// Binds requests to a shard, or to none.
    #[inline(always)]
    fn push(&mut self, device: Option<Rc<CurrentDevice>>, shard: Option<LocalShard>) -> u64 {
        // From here on, this shard's live bytes are constant, and other shards' change.
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

    /// Removes the frame of `serial` from the top, or marks it if it is not there. Returns the
    /// contents of the frame, and whether the frame below must be removed too.
    #[inline(always)]
    fn leave(&mut self, serial: u64) -> (Popped, bool) {
        if self.frames.is_on_top(serial) {
            self.pop()
        } else {
            self.count_out_of_order(serial);
            (Popped::default(), false)
        }
    }

    /// Counts an exit out of order, after the guard of a frame that is not at the top has dropped.
    #[cold]
    #[inline(never)]
    fn count_out_of_order(&self, serial: u64) {
        with_current(|current| {
            let binds = |frame: &&Frame| frame.kind == FrameKind::Shard;
            let mut frames = self.frames.iter().filter(binds).zip(self.shards(current));
            let left = frames.find(|(frame, _)| frame.serial == serial);
            // The shard is still held: it is exited when the frame reaches the top.
            if let Some((_, Some(shard))) = left {
                shard.counters.out_of_order_exits.add(1);
            }
        });
    }

    /// Calls [`pop`](Self::pop) if the guard of the top frame has dropped.
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
            FrameKind::Device => before, // `None`: it binds no shard.
        };
        if device.is_some() {
            self.forget_device(kind);
        }
        self.follow_streams();
        (Popped { shard, device }, self.frames.is_top_dead())
    }

    /// Updates device and stream after the removal of a frame that had made a device current.
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

    /// Sends work on a device to one of its streams.
    fn push_stream(&mut self, place: Rc<CurrentDevice>) -> u64 {
        let serial = self.push_frame(FrameKind::Device, Some(place), None);
        self.note_stream();
        serial
    }

    /// Updates the stored streams after the innermost stream has changed.
    #[cold]
    #[inline(never)]
    fn note_stream(&self) {
        note_stream(self.innermost_stream());
        self.set_current_stream();
    }

    /// Updates the stream of the current shard after that shard has changed.
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

/// The guard of an entry, which ends when it drops. It stays on its thread.
#[must_use = "the scope ends when this is dropped"]
#[derive(Debug)]
pub(crate) struct Entered {
    /// 0 if nothing was entered, because the thread's locals are being destroyed.
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

    /// Enters by `push`, which is not called while the thread's locals are being destroyed.
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
            // The drop may have run code of the program, which may have entered a scope.
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

/// Sends work on a device to one of its streams, and makes the device current.
pub(crate) fn enter_stream(stream: &Arc<StreamLease>) -> Entered {
    let place = CurrentDevice::on(Arc::clone(stream));
    Entered::by(|stack| stack.push_stream(place))
}

/// Binds requests to no cache.
pub(crate) fn enter_uncached() -> Entered {
    Entered::by(|stack| stack.push(None, None))
}

/// Binds the cache `name` on the current device, `caches`.
pub(crate) fn enter_name(caches: &CachesRef, name: &str, options: &EntryOptions) -> Entered {
    let shard = enter_shard(caches, name, options);
    Entered::by(|stack| stack.push_on(None, shard))
}

/// Binds the cache `name` on `caches`, and makes that device current.
pub(crate) fn enter_name_on(caches: &CachesRef, name: &str, options: &EntryOptions) -> Entered {
    let shard = enter_shard(caches, name, options);
    Entered::by(|stack| stack.push_on(Some(caches), shard))
}

/// Remembers the current shard, which was `entered` just now with `options`, for later entries at
/// `place`.
pub(crate) fn remember(entered: &Entered, place: Place<'_>, options: &EntryOptions) {
    settle();
    if entered.serial == 0 {
        return; // The thread's locals are being destroyed.
    }
    if let Some(shard) = current_shard() {
        remember_at(place, options, &shard);
    }
}

/// Enters a shard of the cache `name`. Returns `None` while the thread's locals are being
/// destroyed: there is no stack to bind on.
fn enter_shard(caches: &CachesRef, name: &str, options: &EntryOptions) -> Option<LocalShard> {
    settle();
    STACK.try_with(|_| ()).ok()?;
    caches.enter_shard(name, options)
}

/// Releases the idle blocks of all shards of `caches` that this thread is inside, for a thread that
/// waits. Returns the blocks, for the pool.
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

/// Calls `look`, except while the thread's locals are being destroyed.
fn with_stack<R>(look: impl FnOnce(&Stack) -> Option<R>) -> Option<R> {
    let found = STACK.try_with(|stack| look(&stack.borrow()));
    found.ok().flatten()
}

/// Returns the device that a frame of this thread made current.
pub(crate) fn current_device() -> Option<Rc<CurrentDevice>> {
    settle();
    with_stack(|stack| stack.current_device().cloned())
}

/// Returns the device and the settings of the innermost scope; `None` outside of scopes, and if an
/// `uncached!` is nearer.
pub(crate) fn current_scope() -> Option<(CachesRef, Arc<CacheSettings>)> {
    settle();
    let shard = current_shard()?;
    Some((shard.device().clone(), shard.settings.clone()?))
}

/// Returns the stream of a device that work of this thread goes to.
#[inline]
pub(crate) fn current_stream(caches: &Caches) -> StreamId {
    let (device, _) = entered_stream();
    if device.is_null() {
        return StreamId::default();
    }
    stream_of(caches)
}

/// Returns this thread's stream for work on `caches`, even if the thread has since entered another
/// device's stream.
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

/// Returns the shard that requests of this thread to `caches` go to.
pub(in crate::cache) fn shard_of(caches: &Caches) -> Option<LocalShard> {
    settle();
    with_stack(|stack| stack.shard_of(caches))
}

/// Returns the shard of exactly this cache that the thread is inside.
pub(in crate::cache) fn held_shard(settings: &Arc<CacheSettings>) -> Option<LocalShard> {
    settle();
    with_stack(|stack| stack.held(settings))
}

/// Returns the shard of exactly this cache that is bound to the thread.
pub(in crate::cache) fn thread_shard(settings: &Arc<CacheSettings>) -> Option<LocalShard> {
    with_stack(|stack| stack.bindings.find(settings).cloned())
}

/// Binds a shard to the thread until the thread ends.
pub(in crate::cache) fn keep_binding(shard: &LocalShard) {
    let closed = STACK.try_with(|stack| stack.borrow_mut().bindings.insert(shard));
    drop(closed);
}
