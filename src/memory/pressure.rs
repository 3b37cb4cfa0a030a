//! Rung 5 of the ladder: what the user's program can give back.

use std::cell::Cell;

use crate::sync::{Arc, Mutex, thread_local};

/// Bytes wanted to bytes given back.
type Callback = Arc<dyn Fn(u64) -> u64 + Send + Sync>;

/// Names a callback to its remover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallbackId(u64);

/// The callbacks of one memory, in the order of their registration.
#[derive(Default)]
pub(super) struct Callbacks(Mutex<Registered>);

#[derive(Default)]
struct Registered {
    list: Vec<(CallbackId, Callback)>,
    last: u64,
}

impl Callbacks {
    pub(super) fn add(&self, callback: Callback) -> CallbackId {
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
            .map(|(_, call)| Arc::clone(call))
            .collect();
        let mut given_bytes: u64 = 0;
        for call in callbacks {
            if given_bytes >= need_bytes {
                break;
            }
            given_bytes = given_bytes.saturating_add(call(need_bytes - given_bytes));
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
