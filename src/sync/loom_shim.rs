//! The same as [`plain`](super::plain) on top of loom, which runs a model through every order of steps
//! that its threads may take, with every value that a load may see.

use std::cell::Cell;

pub(crate) use loom::sync::MutexGuard;
pub(crate) use loom::sync::atomic::{
    AtomicI64, AtomicPtr, AtomicU16, AtomicU64, AtomicUsize, Ordering,
};
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

/// A cell that fails the model where two threads reach for the inside and no order stands between.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    /// For who is about to change the inside.
    #[track_caller]
    pub(crate) fn get(&self) -> *mut T {
        self.0.with_mut(|inside| inside)
    }
}

/// Changes a number that nobody else sees, which the model verifies.
#[track_caller]
pub(crate) fn with_mut<R>(number: &mut AtomicU64, change: impl FnOnce(&mut u64) -> R) -> R {
    number.with_mut(change)
}

/// Watches a value that goes from thread to thread without a cell around it: fails the model where no
/// order stands between those who read it and who owns it.
#[derive(Debug)]
pub(crate) struct RaceDetector(loom::cell::UnsafeCell<()>);

impl RaceDetector {
    pub(crate) fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(()))
    }

    /// The value is about to be read, by one of several perhaps.
    #[track_caller]
    pub(crate) fn read(&self) {
        self.0.with(|_| ());
    }

    /// The value is the caller's alone from here on.
    #[track_caller]
    pub(crate) fn own(&self) {
        self.0.with_mut(|_| ());
    }
}

/// A key of loom's, with the methods of std's that this crate uses.
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

/// As std's, for values that have a destructor or none: loom's threads run on one of the system's, which
/// therefore cannot tell them apart.
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

/// See [`barrier`](super::barrier) of the ordinary build. Not fences, between which loom stops no thread,
/// and which would order two light ones as well.
pub(crate) mod barrier {
    use std::cell::Cell;

    use super::{AtomicU64, Ordering};

    loom::lazy_static! {
        /// What those who took a heavy barrier knew.
        static ref HEAVY: AtomicU64 = AtomicU64::new(0);
        /// What those who took a light one knew.
        static ref LIGHT: AtomicU64 = AtomicU64::new(0);
    }

    // Of the system's thread: a model is one, with all the threads in it.
    std::thread_local! {
        static SYMMETRIC: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs a model on a platform that has no heavy barrier.
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
