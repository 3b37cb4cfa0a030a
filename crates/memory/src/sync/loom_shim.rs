//! The types of [`plain`](super::plain) on top of loom. loom runs a model through every
//! interleaving of its threads, with every value that a load may return.

use std::cell::Cell;

pub(crate) use loom::sync::MutexGuard;
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
pub(crate) use loom::thread::yield_now;

/// See [`plain::Mutex`](super::plain::Mutex).
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A cell that fails the model on unordered access by two threads.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    #[track_caller]
    pub(crate) fn get(&self) -> *mut T {
        self.0.with_mut(|inside| inside)
    }
}

/// Changes an exclusively owned number. The model checks the exclusivity.
#[track_caller]
pub(crate) fn with_mut<R>(number: &mut AtomicU64, change: impl FnOnce(&mut u64) -> R) -> R {
    number.with_mut(change)
}

/// A detector of races on a value that moves between threads without a cell. If a read or an
/// ownership is not ordered with another ownership, the detector fails the model.
#[derive(Debug)]
pub(crate) struct RaceDetector(loom::cell::UnsafeCell<()>);

impl RaceDetector {
    pub(crate) fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(()))
    }

    /// Records that the value is about to be read, possibly by several threads.
    #[track_caller]
    pub(crate) fn read(&self) {
        self.0.with(|_| ());
    }

    /// Records that the value is exclusively owned from here on.
    #[track_caller]
    pub(crate) fn own(&self) {
        self.0.with_mut(|_| ());
    }
}

/// A thread-local key of loom, with the methods of std that this crate uses.
pub(crate) struct LocalKey<T: 'static>(pub(crate) loom::thread::LocalKey<T>);

impl<T: 'static> LocalKey<T> {
    pub(crate) fn with<R>(&'static self, work: impl FnOnce(&T) -> R) -> R {
        self.0.with(work)
    }

    pub(crate) fn try_with<R>(
        &'static self,
        work: impl FnOnce(&T) -> R,
    ) -> Result<R, loom::thread::AccessError> {
        self.0.try_with(work)
    }
}

impl<T: 'static> LocalKey<Cell<T>> {
    pub(crate) fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    pub(crate) fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }

    pub(crate) fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }
}

/// `thread_local!` for values with or without a destructor. loom's threads share an OS thread, so
/// std's thread-locals cannot distinguish loom's threads.
macro_rules! loom_thread_local {
    ($($(#[$meta:meta])* static $name:ident: $value:ty = const $init:block;)+) => {
        $(
            $(#[$meta])*
            static $name: $crate::sync::LocalKey<$value> =
                $crate::sync::LocalKey(::loom::thread::LocalKey {
                    init: || $init,
                    _p: std::marker::PhantomData,
                });
        )+
    };
}
pub(crate) use loom_thread_local as thread_local;

/// The model of the [`barrier`](super::barrier) of the ordinary build. It uses no fences: loom does
/// not switch threads at a fence, and fences would also order two light barriers.
pub(crate) mod barrier {
    use std::cell::Cell;

    use super::{AtomicU64, Ordering};

    loom::lazy_static! {
        static ref HEAVY: AtomicU64 = AtomicU64::new(0);
        static ref LIGHT: AtomicU64 = AtomicU64::new(0);
    }

    // The flag is per OS thread, because a model with all its threads runs on one OS thread.
    std::thread_local! {
        static SYMMETRIC: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs a model as on a platform without asymmetric barriers.
    #[cfg(test)]
    pub(crate) fn without(model: impl FnOnce()) {
        SYMMETRIC.set(true);
        model();
        SYMMETRIC.set(false);
    }

    pub(crate) fn is_asymmetric() -> bool {
        !SYMMETRIC.get()
    }

    pub(crate) fn light_barrier() {
        if is_asymmetric() {
            LIGHT.fetch_add(1, Ordering::Release);
            HEAVY.fetch_add(1, Ordering::Acquire);
        }
    }

    pub(crate) fn heavy_barrier() {
        HEAVY.fetch_add(1, Ordering::AcqRel);
        LIGHT.fetch_add(1, Ordering::Acquire);
    }
}
