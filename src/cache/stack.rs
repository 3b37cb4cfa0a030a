//! The thread-local stack of bindings: which device is current, and which cache each scope binds.
//!
//! Frames leave the way they came. A guard that is dropped out of order marks its frame, which then
//! leaves when it reaches the top; a guard that is forgotten leaves its frame to those below it, or
//! to the end of the thread.
//!
//! Architecture invariant: a frame is taken off the stack, and the stack let go of, before what it
//! held is dropped: that may run anything, this module included.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use thread_local::ThreadLocal;

use super::named::Identity;
use super::registry::EntryOptions;
use super::shard::{LocalShard, bind};
use super::site::CallSite;
use super::{Caches, CachesRef};
use crate::sync::Arc;

/// What a frame binds requests to.
enum Binding {
    /// To nothing new: the frame only changes the current device.
    Below,
    /// To a cache.
    Cache(LocalShard),
    /// To no cache.
    Uncached,
}

struct Frame {
    serial: u64,
    /// The device that this frame made current.
    device: Option<Rc<CachesRef>>,
    binding: Binding,
    /// Its guard is gone.
    dead: bool,
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Binding::Cache(shard) = &self.binding {
            shard.exit();
        }
    }
}

/// Invariant: the serials rise from the bottom to the top.
struct Stack {
    frames: Vec<Frame>,
    serials: u64,
}

thread_local! {
    static STACK: RefCell<Stack> = {
        // `thread_local` keeps the identity of a thread in a thread-local of its own: used first,
        // it is dropped after this one, which may still need it.
        static FIRST: ThreadLocal<()> = ThreadLocal::new();
        FIRST.get_or(|| ());
        const { RefCell::new(Stack { frames: Vec::new(), serials: 0 }) }
    };
}

impl Drop for Stack {
    /// The thread ends with guards forgotten: their scopes are left now, the innermost first.
    fn drop(&mut self) {
        bind(None);
        while let Some(frame) = self.frames.pop() {
            drop(frame);
        }
    }
}

impl Stack {
    /// The shard of the nearest scope that binds on `caches`; `None` beyond an `uncached!`.
    fn shard_of(&self, caches: &Caches) -> Option<&LocalShard> {
        for frame in self.frames.iter().rev() {
            match &frame.binding {
                Binding::Cache(shard) if std::ptr::eq(&**shard.device(), caches) => {
                    return Some(shard);
                }
                Binding::Uncached => return None,
                Binding::Cache(_) | Binding::Below => {}
            }
        }
        None
    }

    /// The shard of the innermost scope, whatever its device; `None` beyond an `uncached!`.
    fn innermost(&self) -> Option<&LocalShard> {
        let bindings = self.frames.iter().rev().map(|frame| &frame.binding);
        match bindings
            .into_iter()
            .find(|binding| !matches!(binding, Binding::Below))?
        {
            Binding::Cache(shard) => Some(shard),
            _ => None,
        }
    }

    fn push(&mut self, device: Option<Rc<CachesRef>>, binding: Binding) -> u64 {
        if let Some(outer) = self.innermost()
            && let Some(mut access) = outer.access()
        {
            // From here on its live bytes stand still while others' move.
            access.publish_exactly();
        }
        self.serials += 1;
        self.frames.push(Frame {
            serial: self.serials,
            device,
            binding,
            dead: false,
        });
        bind(self.innermost());
        self.serials
    }

    /// Marks the frame of `serial`, and takes off the top one if its guard is gone.
    fn leave(&mut self, serial: u64) {
        if let Ok(index) = self
            .frames
            .binary_search_by_key(&serial, |frame| frame.serial)
        {
            self.frames[index].dead = true;
        }
    }

    fn pop_dead(&mut self) -> Option<Frame> {
        self.frames.last().filter(|frame| frame.dead)?;
        let frame = self.frames.pop();
        bind(self.innermost());
        frame
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
    fn push(device: Option<Rc<CachesRef>>, binding: Binding) -> Self {
        let mut parts = Some((device, binding));
        let serial = STACK.try_with(|stack| {
            let (device, binding) = parts.take().expect("called once");
            stack.borrow_mut().push(device, binding)
        });
        if let Some((_, Binding::Cache(shard))) = parts {
            shard.exit();
        }
        Self {
            serial: serial.unwrap_or(0),
            of_this_thread: PhantomData,
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let _ = STACK.try_with(|stack| {
            stack.borrow_mut().leave(self.serial);
            loop {
                let frame = stack.borrow_mut().pop_dead();
                if frame.is_none() {
                    break;
                }
                drop(frame);
            }
        });
    }
}

/// Makes a device current.
pub(crate) fn enter_device(device: &CachesRef) -> Entered {
    Entered::push(Some(Rc::new(device.clone())), Binding::Below)
}

/// Binds requests to no cache.
pub(crate) fn enter_uncached() -> Entered {
    Entered::push(None, Binding::Uncached)
}

/// Binds the cache that `site` names on `caches`. With `device`, that device becomes current too
/// and is kept; without, something else keeps it.
pub(crate) fn enter_site(
    caches: &CachesRef,
    site: &'static CallSite,
    options: &EntryOptions,
    owned: bool,
) -> Entered {
    enter(caches, caches.enter_site(site, options), owned)
}

/// The same by name.
pub(crate) fn enter_name(
    caches: &CachesRef,
    name: &str,
    options: &EntryOptions,
    owned: bool,
) -> Entered {
    enter(caches, caches.enter_shard(name, options), owned)
}

fn enter(caches: &CachesRef, shard: Option<LocalShard>, owned: bool) -> Entered {
    let device = owned.then(|| Rc::new(caches.clone()));
    Entered::push(device, shard.map_or(Binding::Below, Binding::Cache))
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
        .try_with(|stack| {
            let stack = stack.borrow();
            let shards = stack
                .frames
                .iter()
                .filter_map(|frame| match &frame.binding {
                    Binding::Cache(shard) => Some(shard),
                    _ => None,
                });
            let mut same = shards.filter(|shard| {
                shard
                    .identity
                    .as_ref()
                    .is_some_and(|other| Arc::ptr_eq(other, identity))
            });
            same.next().cloned()
        })
        .ok()
        .flatten()
}
