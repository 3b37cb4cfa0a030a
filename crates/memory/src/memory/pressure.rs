//! Rung 5 of the ladder: memory-pressure callbacks.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sync::{Arc, Mutex, thread_local};

/// A function from the bytes needed to the bytes freed. The drop of an array may drop the last
/// handle on its device, and with it the closure. So this type catches a panic of the closure's
/// drop.
struct Callback(Option<Box<dyn Fn(u64) -> u64 + Send + Sync>>);

impl Callback {
    fn call(&self, need_bytes: u64) -> u64 {
        self.0.as_ref().map_or(0, |call| call(need_bytes))
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        let call = self.0.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(call))) {
            std::mem::forget(panic); // A payload may panic again as it drops.
        }
    }
}

/// The identity of a callback, for its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallbackId(u64);

/// The callbacks of one memory, in order of registration.
#[derive(Default)]
pub(crate) struct Callbacks(Mutex<Registered>);

#[derive(Default)]
struct Registered {
    list: Vec<(CallbackId, Arc<Callback>)>,
    last: u64,
}

impl Callbacks {
    /// Registers a callback. The callback is passed the bytes needed, and returns the bytes that it
    /// freed.
    pub(crate) fn add(&self, callback: impl Fn(u64) -> u64 + Send + Sync + 'static) -> CallbackId {
        let callback = Arc::new(Callback(Some(Box::new(callback))));
        let mut registered = self.0.lock();
        registered.last += 1;
        let id = CallbackId(registered.last);
        registered.list.push((id, callback));
        id
    }

    pub(crate) fn remove(&self, id: CallbackId) {
        let mut registered = self.0.lock();
        let index = registered.list.iter().position(|(other, _)| *other == id);
        let removed = index.map(|index| registered.list.remove(index));
        // The lock is released first, because the drop of the callback's closure may allocate.
        drop(registered);
        drop(removed);
    }

    /// Calls the callbacks, without a lock held, until `need_bytes` are freed. Returns the bytes
    /// freed. If the thread is inside a callback, returns 0, which prevents recursion.
    pub(super) fn call(&self, need_bytes: u64) -> u64 {
        let Some(_guard) = CallbackGuard::begin() else {
            return 0;
        };
        let callbacks: Vec<_> = self
            .0
            .lock()
            .list
            .iter()
            .map(|(_, callback)| Arc::clone(callback))
            .collect();
        let mut freed_bytes: u64 = 0;
        for callback in callbacks {
            if freed_bytes >= need_bytes {
                break;
            }
            freed_bytes = freed_bytes.saturating_add(callback.call(need_bytes - freed_bytes));
        }
        freed_bytes
    }
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// A guard that marks the thread as inside a callback until it drops, also on panic.
struct CallbackGuard;

impl CallbackGuard {
    fn begin() -> Option<Self> {
        // The guard is created lazily, because dropping an unused guard would end the outer
        // callback.
        (!IN_CALLBACK.replace(true)).then(|| Self)
    }
}

impl Drop for CallbackGuard {
    fn drop(&mut self) {
        IN_CALLBACK.set(false);
    }
}
