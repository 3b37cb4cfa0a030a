//! What the crate takes from `std::sync`, and the identity of a thread.

use std::cell::Cell;
pub(crate) use std::sync::atomic::{
    AtomicI64, AtomicPtr, AtomicU16, AtomicU64, AtomicUsize, Ordering,
};
pub(crate) use std::sync::{Arc, MutexGuard, OnceLock, Weak};

/// A mutex without poisoning: no invariant of this crate is broken midway by a panic, because no
/// foreign code runs under a lock.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The identity of the calling thread: never 0, never reused, readable in a thread's last
/// destructors because it has none itself.
#[inline]
pub(crate) fn thread_token() -> u64 {
    thread_local!(static TOKEN: Cell<u64> = const { Cell::new(0) });
    TOKEN.with(|token| match token.get() {
        0 => assign(token),
        known => known,
    })
}

#[cold]
fn assign(token: &Cell<u64>) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
    token.set(fresh);
    fresh
}
