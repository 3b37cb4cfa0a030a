//! The thread-local stack of bindings: which device is current, which cache each scope binds, and
//! which stream work goes to.
//!
//! Frames leave the way they came. A guard that is dropped out of order marks its frame, which then
//! leaves when it reaches the top; a guard that is forgotten leaves its frame, and what is below it,
//! to the end of the thread.
//!
//! Architecture invariant: a frame is taken off the stack, and the stack let go of, before what it
//! held is dropped: that may run anything, this module included.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ptr;
use std::rc::Rc;

use thread_local::ThreadLocal;

use super::identity::Identity;
use super::policy::EntryOptions;
use super::shard::{LocalShard, bind, publish_bound};
use super::site::{CallSite, Memos};
use super::stream::bind_stream;
use super::{Caches, CachesRef};
use crate::device::StreamId;
use crate::sync::Arc;

/// What a frame binds requests to.
enum Binding {
    /// To nothing new: the frame only changes the current device.
    Below,
    /// To a cache.
    Cache(LocalShard),
    /// To no cache.
    Uncached,
    /// Work on the device of the same frame to a stream; requests as below.
    Stream(StreamId),
}

struct Frame {
    serial: u64,
    /// The device that this frame made current.
    device: Option<Rc<CachesRef>>,
    binding: Binding,
    /// Its guard is gone.
    dead: bool,
}

/// What a frame held, once it is off the stack; dropping it leaves the scope, and then lets go of the
/// device. Two words, which travel in registers: a frame as a whole does not.
#[derive(Default)]
struct Left {
    shard: Option<LocalShard>,
    #[expect(dead_code, reason = "held for its drop")]
    device: Option<Rc<CachesRef>>,
}

impl Drop for Left {
    #[inline]
    fn drop(&mut self) {
        if let Some(shard) = &self.shard {
            shard.exit();
        }
    }
}

/// Invariants:
/// - the serials rise from the bottom to the top;
/// - the shard that [`bind`] was last given is that of [`innermost`](Self::innermost);
/// - the stream that [`bind_stream`] was last given is that of
///   [`innermost_stream`](Self::innermost_stream).
struct Stack {
    frames: Vec<Frame>,
    serials: u64,
    memos: Memos,
}

thread_local! {
    static STACK: RefCell<Stack> = {
        // `thread_local` keeps the identity of a thread in a thread-local of its own: used first,
        // it is dropped after this one, which may still need it.
        static FIRST: ThreadLocal<()> = ThreadLocal::new();
        FIRST.get_or(|| ());
        const {
            RefCell::new(Stack { frames: Vec::new(), serials: 0, memos: Memos::new() })
        }
    };
}

impl Drop for Stack {
    /// The thread ends with guards forgotten: their scopes are left now, the innermost first.
    fn drop(&mut self) {
        while !self.frames.is_empty() {
            drop(self.pop());
        }
    }
}

impl Stack {
    /// The device that a frame made current, or null.
    #[inline]
    fn current(&self) -> *const Caches {
        let devices = self
            .frames
            .iter()
            .rev()
            .filter_map(|frame| frame.device.as_ref());
        devices
            .map(|device| ptr::from_ref::<Caches>(device))
            .next()
            .unwrap_or(ptr::null())
    }

    /// The shards of the scopes that were not left, the innermost first.
    fn shards(&self) -> impl Iterator<Item = &LocalShard> {
        self.frames
            .iter()
            .rev()
            .filter_map(|frame| match &frame.binding {
                Binding::Cache(shard) => Some(shard),
                Binding::Below | Binding::Uncached | Binding::Stream(_) => None,
            })
    }

    /// The shard of the cache `identity` that the thread is inside of.
    fn held(&self, identity: &Arc<Identity>) -> Option<&LocalShard> {
        self.shards().find(|shard| shard.is_of(identity))
    }

    /// The shard of the nearest scope that binds on `caches`; `None` beyond an `uncached!`.
    fn shard_of(&self, caches: &Caches) -> Option<&LocalShard> {
        for frame in self.frames.iter().rev() {
            match &frame.binding {
                Binding::Cache(shard) if ptr::eq::<Caches>(&**shard.device(), caches) => {
                    return Some(shard);
                }
                Binding::Uncached => return None,
                Binding::Cache(_) | Binding::Below | Binding::Stream(_) => {}
            }
        }
        None
    }

    /// The shard of the innermost scope, whatever its device; `None` beyond an `uncached!`.
    #[inline]
    fn innermost(&self) -> Option<&LocalShard> {
        for frame in self.frames.iter().rev() {
            match &frame.binding {
                Binding::Cache(shard) => return Some(shard),
                Binding::Uncached => return None,
                Binding::Below | Binding::Stream(_) => {}
            }
        }
        None
    }

    /// The streams that were entered and not left, the innermost first, each with its device.
    fn streams(&self) -> impl Iterator<Item = (*const Caches, StreamId)> {
        self.frames
            .iter()
            .rev()
            .filter_map(|frame| match (&frame.device, &frame.binding) {
                (Some(device), Binding::Stream(stream)) => Some((device.as_ptr(), *stream)),
                _ => None,
            })
    }

    /// The stream that was entered last, whatever its device.
    fn innermost_stream(&self) -> Option<(*const Caches, StreamId)> {
        self.streams().next()
    }

    /// Enters the shard that was entered at this site before.
    #[inline]
    fn enter_remembered(&mut self, site: &'static CallSite) -> Option<u64> {
        let mut shard = self.memos.find(site, self.current())?;
        // A thread is in one shard of a cache at a time, whichever that is.
        if !self.frames.is_empty()
            && let Some(held) = shard
                .identity
                .as_ref()
                .and_then(|identity| self.held(identity))
        {
            shard = held;
        }
        if !shard.enter() {
            return None;
        }
        let shard = Rc::clone(shard);
        Some(self.push(None, Binding::Cache(shard)))
    }

    #[inline]
    fn push(&mut self, device: Option<Rc<CachesRef>>, binding: Binding) -> u64 {
        // From here on its live bytes stand still, while others' move.
        publish_bound();
        match &binding {
            Binding::Cache(shard) => bind(Some(shard)),
            Binding::Uncached => bind(None),
            Binding::Below => {}
            Binding::Stream(stream) => {
                bind_stream(device.as_ref().map(|device| (device.as_ptr(), *stream)));
            }
        }
        self.serials += 1;
        let serial = self.serials;
        self.frames.push(Frame {
            serial,
            device,
            binding,
            dead: false,
        });
        serial
    }

    /// Takes the frame of `serial` off the top, or marks it where it is not there.
    #[inline]
    fn leave(&mut self, serial: u64) -> Left {
        if self.frames.last().is_some_and(|top| top.serial == serial) {
            return self.pop();
        }
        if let Ok(index) = self
            .frames
            .binary_search_by_key(&serial, |frame| frame.serial)
        {
            self.frames[index].dead = true;
        }
        Left::default()
    }

    /// Takes the top frame off if its guard is gone.
    #[inline]
    fn pop_dead(&mut self) -> Option<Left> {
        self.frames.last()?.dead.then(|| self.pop())
    }

    #[inline]
    fn pop(&mut self) -> Left {
        let Some(frame) = self.frames.last_mut() else {
            return Left::default();
        };
        let device = frame.device.take();
        let shard = match std::mem::replace(&mut frame.binding, Binding::Below) {
            Binding::Cache(shard) => Some(shard),
            Binding::Below | Binding::Uncached => None,
            Binding::Stream(_) => return self.pop_stream(device),
        };
        self.frames.truncate(self.frames.len() - 1);
        bind(self.innermost());
        Left { shard, device }
    }

    /// The rest of that for a stream, which binds no shard.
    #[cold]
    fn pop_stream(&mut self, device: Option<Rc<CachesRef>>) -> Left {
        self.frames.truncate(self.frames.len() - 1);
        bind_stream(self.innermost_stream());
        Left {
            shard: None,
            device,
        }
    }
}

/// The proof of an entry, left by dropping it; it belongs to its thread.
#[must_use = "the scope ends when this is dropped"]
#[derive(Debug)]
pub(crate) struct Entered {
    /// 0 where nothing was bound, in a thread's last moments.
    serial: u64,
    of_this_thread: PhantomData<*const ()>,
}

impl Entered {
    fn new(serial: u64) -> Self {
        Self {
            serial,
            of_this_thread: PhantomData,
        }
    }

    fn push(device: Option<Rc<CachesRef>>, binding: Binding) -> Self {
        let mut parts = Some((device, binding));
        let serial = STACK.try_with(|stack| {
            let (device, binding) = parts.take().expect("called once");
            stack.borrow_mut().push(device, binding)
        });
        if let Some((_, Binding::Cache(shard))) = parts {
            shard.exit();
        }
        Self::new(serial.unwrap_or(0))
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        let _ = STACK.try_with(|stack| {
            let left = stack.borrow_mut().leave(self.serial);
            drop(left);
            loop {
                let dead = stack.borrow_mut().pop_dead();
                if dead.is_none() {
                    break;
                }
                drop(dead);
            }
        });
    }
}

/// Enters the scope at `site` again, on the device that was current at the last time; `None` where
/// that cannot be done without looking things up.
#[inline]
pub(crate) fn reenter(site: &'static CallSite) -> Option<Entered> {
    let serial = STACK
        .try_with(|stack| stack.borrow_mut().enter_remembered(site))
        .ok()??;
    Some(Entered::new(serial))
}

/// Makes a device current.
pub(crate) fn enter_device(device: &CachesRef) -> Entered {
    Entered::push(Some(Rc::new(device.clone())), Binding::Below)
}

/// Sends work on a device to one of its streams, and makes the device current.
pub(crate) fn enter_stream(device: &CachesRef, stream: StreamId) -> Entered {
    Entered::push(Some(Rc::new(device.clone())), Binding::Stream(stream))
}

/// Binds requests to no cache.
pub(crate) fn enter_uncached() -> Entered {
    Entered::push(None, Binding::Uncached)
}

/// Binds the cache that `site` names on the current device, `caches`, and remembers it.
pub(crate) fn enter_site(
    caches: &CachesRef,
    site: &'static CallSite,
    options: &EntryOptions,
) -> Entered {
    let shard = enter_shard(caches, site.name(), options);
    if let Some(shard) = &shard {
        let _ = STACK.try_with(|stack| {
            let mut stack = stack.borrow_mut();
            let current = stack.current();
            stack.memos.insert(site, current, shard);
        });
    }
    Entered::push(None, shard.map_or(Binding::Below, Binding::Cache))
}

/// Binds the cache `name` on the current device, `caches`.
pub(crate) fn enter_name(caches: &CachesRef, name: &str, options: &EntryOptions) -> Entered {
    let shard = enter_shard(caches, name, options);
    Entered::push(None, shard.map_or(Binding::Below, Binding::Cache))
}

/// Binds the cache `name` on `caches`, and makes that device current.
pub(crate) fn enter_name_on(caches: &CachesRef, name: &str, options: &EntryOptions) -> Entered {
    let shard = enter_shard(caches, name, options);
    let device = Some(Rc::new(caches.clone()));
    Entered::push(device, shard.map_or(Binding::Below, Binding::Cache))
}

/// In a thread's last moments there is no stack to bind on, and nothing is looked up.
fn enter_shard(caches: &CachesRef, name: &str, options: &EntryOptions) -> Option<LocalShard> {
    STACK.try_with(|_| ()).ok()?;
    caches.enter_shard(name, options)
}

/// The device that a frame of this thread made current.
pub(crate) fn current_device() -> Option<Rc<CachesRef>> {
    STACK
        .try_with(|stack| {
            stack
                .borrow()
                .frames
                .iter()
                .rev()
                .find_map(|frame| frame.device.clone())
        })
        .ok()
        .flatten()
}

/// The device and the name of the innermost scope; `None` outside, and beyond an `uncached!`.
pub(crate) fn current_scope() -> Option<(CachesRef, Arc<Identity>)> {
    let shard = STACK
        .try_with(|stack| stack.borrow().innermost().cloned())
        .ok()??;
    Some((shard.device().clone(), shard.identity.clone()?))
}

/// The stream that work of this thread on `caches` goes to, whatever stream of another device was
/// entered since.
pub(super) fn stream_of(caches: &Caches) -> StreamId {
    STACK
        .try_with(|stack| {
            let stack = stack.borrow();
            let mut streams = stack.streams();
            let own = streams.find(|(device, _)| ptr::eq(*device, caches));
            own.map_or(StreamId::default(), |(_, stream)| stream)
        })
        .unwrap_or_default()
}

/// The shard that requests of this thread to `caches` go to.
pub(super) fn shard_of(caches: &Caches) -> Option<LocalShard> {
    STACK
        .try_with(|stack| stack.borrow().shard_of(caches).cloned())
        .ok()
        .flatten()
}

/// The shard of this very cache that the thread is inside of.
pub(super) fn held_shard(identity: &Arc<Identity>) -> Option<LocalShard> {
    STACK
        .try_with(|stack| stack.borrow().held(identity).cloned())
        .ok()
        .flatten()
}
