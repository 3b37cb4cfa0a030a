//! The public device: a backend, its memory and its caches behind one cheap handle; which device is
//! current; and the scopes that people enter.
//!
//! Architecture invariant: this layer composes and delegates. It decides nothing about blocks.

mod config;
mod current;
mod environment;
mod pressure;
pub(crate) mod scope;
mod stream;

use std::fmt;
use std::hash::{Hash, Hasher};

use ref_cast::{RefCastCustom, ref_cast_custom};

use crate::cache::{
    AllocationRecord, CacheConfig, CacheStats, CachesRef, Invalidation, current_stream,
};
use crate::device::{Backend, StreamId};
use crate::error::{AtCaller, Result};
use crate::memory::{MemoryReport, MemoryStats};
pub use config::DeviceConfig;
pub use current::DeviceGuard;
pub use pressure::PressureGuard;
use scope::ScopeHandle;
pub use stream::{Stream, StreamGuard};

/// A device: where arrays live, with its own memory and its own named caches.
///
/// A handle is cheap to clone, and equal to every other handle on the same device. Arrays outlive
/// the handles: the device's memory ends when both are gone.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Device};
///
/// let device = Device::host();
/// let _guard = device.enter();
/// let a = Array::<f32>::ones([2, 3])?;
/// assert_eq!(a.device(), &device);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, RefCastCustom)]
#[repr(transparent)]
pub struct Device {
    caches: CachesRef,
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.caches.is_same(&other.caches)
    }
}

impl Eq for Device {}

impl Hash for Device {
    /// By identity, as equality is.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.caches.as_ptr().hash(state);
    }
}

impl Device {
    /// The handle that a block's home keeps.
    #[ref_cast_custom]
    pub(crate) fn from_caches(caches: &CachesRef) -> &Self;

    pub(crate) fn caches(&self) -> &CachesRef {
        &self.caches
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        self.caches.memory().backend()
    }

    /// Sets up the cache `name` of this device; a new policy takes effect at the cache's next
    /// outermost entry.
    pub fn configure_cache(&self, name: &str, config: CacheConfig) {
        self.caches.configure(name, config);
    }

    /// Gives every idle block of the cache `name` back to the pool, and to the device what thereby
    /// falls idle there; answers what was given back at once.
    ///
    /// Live arrays stay valid, and their blocks go to the pool when they drop. The part of a thread
    /// that is inside the scope right now follows at its exit. The cache, its configuration and its
    /// counters stay. An unknown name gives back nothing.
    pub fn invalidate_cache(&self, name: &str) -> Invalidation {
        self.caches.invalidate(name)
    }

    /// [`invalidate_cache`](Self::invalidate_cache) for every cache of this device.
    pub fn invalidate_all_caches(&self) -> Invalidation {
        self.caches.invalidate_all()
    }

    /// Invalidates the cache `name` and forgets it, its configuration and counters included.
    pub fn remove_cache(&self, name: &str) -> Invalidation {
        self.caches.remove(name)
    }

    /// What the cache `name` counts over all threads; `None` where this device has no such cache.
    pub fn cache_stats(&self, name: &str) -> Option<CacheStats> {
        self.caches.cache_stats(name)
    }

    /// What the last finished entry of the cache `name` allocated, in its order, where
    /// [`CacheConfig::record`] (or [`Policy::Plan`](crate::Policy::Plan), of the entries that it
    /// plans by) asked for it; empty elsewhere. Requests that `max_bytes` kept out of the cache are not
    /// in it, nor those beyond the first 131,072 of an entry, which
    /// [`CacheStats::unrecorded`](crate::CacheStats::unrecorded) counts; then drops of what is not
    /// recorded take no step either.
    pub fn cache_record(&self, name: &str) -> Vec<AllocationRecord> {
        self.caches.cache_record(name)
    }

    /// The scope `name` of this device, for code that cannot use [`cache_scope!`](crate::cache_scope).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Device};
    ///
    /// let scope = Device::host().scope("worker");
    /// std::thread::spawn(move || {
    ///     let _guard = scope.enter();
    ///     Array::<f32>::zeros([8]).map(drop)
    /// })
    /// .join()
    /// .unwrap()?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn scope(&self, name: &str) -> ScopeHandle {
        ScopeHandle::new(self.clone(), name.into())
    }

    /// What the device's memory and all its caches hold.
    pub fn memory_stats(&self) -> MemoryStats {
        self.caches.memory_stats()
    }

    /// What the device's memory holds and where its time went, as a table for people.
    pub fn memory_report(&self) -> MemoryReport {
        MemoryReport {
            device: self.to_string(),
            stats: self.memory_stats(),
            phases: self.caches.memory().phases(),
        }
    }

    /// Lets every peak begin anew from what is held now.
    pub fn reset_peaks(&self) {
        self.caches.reset_peaks();
    }

    /// Bounds the bytes reserved from the device from now on; below what is reserved, idle memory
    /// of the pool is released at once.
    pub fn set_memory_limit(&self, limit_bytes: Option<u64>) {
        self.caches.set_limit(limit_bytes);
    }

    /// Releases the pool's idle memory while more than `keep_bytes` are reserved, and answers the
    /// bytes released. Named caches keep what they hold: see
    /// [`invalidate_all_caches`](Self::invalidate_all_caches).
    pub fn trim(&self, keep_bytes: u64) -> u64 {
        self.caches.trim(keep_bytes)
    }

    /// The stream that this thread's work on the device goes to.
    #[inline]
    pub(crate) fn stream(&self) -> StreamId {
        current_stream(&self.caches)
    }

    /// Waits until everything that was asked of the device, on whichever stream, is done.
    ///
    /// # Errors
    ///
    /// What the device's driver reports; the first error of an earlier call that could not return one, with
    /// how many more there were; and on a CUDA device [`InvalidArgument`](crate::ErrorKind::InvalidArgument)
    /// where an operation met an index that is out of range.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        self.caches.synchronize().at_caller()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}

impl fmt::Display for Device {
    /// "host" or "cuda:0", as `CACHESCOPE_DEVICE` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend().id().fmt(f)
    }
}
