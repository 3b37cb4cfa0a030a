//! Rung 5 of the ladder: what the user's program can give back.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sync::{Arc, Mutex, thread_local};

/// Bytes wanted to bytes given back. A panic of its destructor ends here: that may run wherever the last
/// handle on its device is gone, so in the drop of an array too.
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
            std::mem::forget(panic); // What was thrown may throw again as it drops.
        }
    }
}

/// Names a callback to its remover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallbackId(u64);

/// The callbacks of one memory, in the order of their registration.
#[derive(Default)]
pub(super) struct Callbacks(Mutex<Registered>);

#[derive(Default)]
struct Registered {
    list: Vec<(CallbackId, Arc<Callback>)>,
    last: u64,
}

impl Callbacks {
    pub(super) fn add(&self, callback: impl Fn(u64) -> u64 + Send + Sync + 'static) -> CallbackId {
        let callback = Arc::new(Callback(Some(Box::new(callback))));
        let mut registered = self.0.lock();
        registered.last += 1;
        let id = CallbackId(registered.last);
        registered.list.push((id, callback));
        id
    }

    pub(super) fn remove(&self, id: CallbackId) {
        let mut registered = self.0.lock();
        let index = registered.list.iter().position(|(other, _)| *other == id);
        let removed = index.map(|index| registered.list.remove(index));
        // What the callback owns may allocate when it drops.
        drop(registered);
        drop(removed);
    }

    /// Calls each, with no lock held, until `need_bytes` came back; answers the sum. Within a
    /// callback of this thread there is nothing to call: it would only come back here.
    pub(super) fn call(&self, need_bytes: u64) -> u64 {
        let Some(_within) = Within::begin() else {
            return 0;
        };
        let callbacks: Vec<_> = self
            .0
            .lock()
            .list
            .iter()
            .map(|(_, callback)| Arc::clone(callback))
            .collect();
        let mut given_bytes: u64 = 0;
        for callback in callbacks {
            if given_bytes >= need_bytes {
                break;
            }
            given_bytes = given_bytes.saturating_add(callback.call(need_bytes - given_bytes));
        }
        given_bytes
    }
}

thread_local! {
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// While this lives, the thread is inside a callback; a panic there ends it too.
struct Within;

impl Within {
    fn begin() -> Option<Self> {
        // Made only where it is one: its drop ends the callback.
        (!WITHIN.replace(true)).then(|| Self)
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        WITHIN.set(false);
    }
}
