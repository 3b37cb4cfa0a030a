//! The parts of `std::sync` that this crate uses.

pub(crate) use std::cell::UnsafeCell;
pub(crate) use std::sync::MutexGuard;
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering,
};
#[cfg(feature = "cuda")]
pub(crate) use std::sync::{RwLockReadGuard, RwLockWriteGuard};
pub(crate) use std::thread::yield_now;
pub(crate) use std::thread_local;
use std::time::Duration;

/// A mutex without poisoning. No foreign code runs under a lock, so a panic leaves no invariant
/// broken.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Borrows the value of a mutex that no other thread can lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        // ThreadSanitizer cannot detect the ordering of a wait inside an uninstrumented standard
        // library. `try_lock` is inlined into this instrumented crate.
        #[cfg(tsan)]
        loop {
            match self.0.try_lock() {
                Ok(guard) => return guard,
                Err(std::sync::TryLockError::Poisoned(guard)) => return guard.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) => yield_now(),
            }
        }
        #[cfg(not(tsan))]
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A condition variable without poisoning.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits for a notification. May wake without a notification. `guard` is a guard of `mutex`.
    pub fn wait<'a, T>(&self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_timeout(mutex, guard, LONGEST_WAIT)
    }

    /// Waits like [`wait`](Self::wait), and wakes after `timeout` at the latest.
    pub fn wait_timeout<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        // std takes the lock again in code that the sanitizer does not instrument, as in `lock`.
        if cfg!(tsan) {
            drop(guard);
            std::thread::sleep(timeout.min(Duration::from_micros(100)));
            return mutex.lock();
        }
        let woken = self.0.wait_timeout(guard, timeout);
        woken.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }
}

/// The time after which a waiting thread checks its condition again.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// A read-write lock without poisoning.
#[cfg(feature = "cuda")]
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(std::sync::RwLock<T>);

#[cfg(feature = "cuda")]
impl<T> RwLock<T> {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Changes an exclusively owned number.
#[inline]
pub(crate) fn with_mut<R>(number: &mut AtomicU64, change: impl FnOnce(&mut u64) -> R) -> R {
    change(number.get_mut())
}

/// A stub, for ordinary builds, of the race detector of the loom models.
#[derive(Debug)]
pub(crate) struct RaceDetector;

impl RaceDetector {
    #[inline]
    pub(crate) fn new() -> Self {
        Self
    }

    #[inline]
    pub(crate) fn read(&self) {}

    #[inline]
    pub(crate) fn own(&self) {}
}
