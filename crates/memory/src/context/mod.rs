//! The public device: a cheap handle on a backend, its memory and its caches. This layer also has
//! the current device, streams and scopes.
//!
//! Architecture invariant: this layer composes and delegates. It makes no decisions about blocks.

mod config;
#[cfg(feature = "cuda")]
pub(crate) mod cudarc;
mod current;
mod environment;
mod meta;
mod pressure;
mod recording;
pub mod scope;
mod stream;
mod timing;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;

use bytemuck::TransparentWrapper;

use crate::cache::{
    AllocationRecord, CacheConfig, CacheStats, CachesRef, Invalidation, SharedBlock, SharedCache,
    current_stream,
};
use crate::device::{Backend, StreamId};
use crate::error::{AtCaller, Result};
use crate::memory::order::Streams;
use crate::memory::{DeviceMemory, MemoryReport, MemoryStats};
pub use config::DeviceConfig;
pub use current::DeviceGuard;
pub use environment::{Switch, setting, size_setting};
pub use meta::{MetaKind, MetaOptions};
pub use pressure::PressureGuard;
pub use recording::{RecordOptions, RecordedEvent, Recording};
use scope::ScopeHandle;
pub use stream::{Stream, StreamGuard};
pub use timing::Timed;

/// A device with its own memory and named caches.
///
/// A handle is cheap to clone and equal to every other handle on the same device. Arrays may
/// outlive the handles. The device is freed after its last handle and its last array drop.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device};
///
/// let device = Device::host();
/// let _guard = device.enter();
/// let buffer = Buffer::new(&Device::current(), 24)?;
/// assert_eq!(buffer.device(), &device);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, TransparentWrapper)]
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
    /// Hashes the device's identity, which `eq` compares.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.caches.as_ptr().hash(state);
    }
}

impl Device {
    #[inline]
    pub(crate) fn from_caches(caches: &CachesRef) -> &Self {
        Self::wrap_ref(caches)
    }

    #[inline]
    pub(crate) fn caches(&self) -> &CachesRef {
        &self.caches
    }

    #[doc(hidden)]
    #[inline]
    pub fn memory(&self) -> &DeviceMemory {
        self.caches.memory()
    }

    #[doc(hidden)]
    #[inline]
    pub fn backend(&self) -> &dyn Backend {
        self.caches.memory().backend()
    }

    pub(crate) fn ordered_streams(&self) -> Streams<'_> {
        self.caches.memory().streams()
    }

    /// Returns a handle on the cache `name`. Any thread may use the handle without a scope.
    #[doc(hidden)]
    pub fn shared_cache(&self, name: &str) -> SharedCache {
        SharedCache::open(&self.caches, name)
    }

    /// Allocates a block of at least 1 byte for work of `stream`. The block belongs to no cache.
    #[doc(hidden)]
    #[track_caller]
    pub fn shared_block(&self, bytes: u64, stream: StreamId) -> Result<SharedBlock> {
        self.caches.allocate_for(bytes, stream, Location::caller())
    }

    /// Configures the cache `name`. A new policy takes effect at the cache's next outermost entry.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, CacheConfig, Device, DeviceConfig, Policy, cache_scope};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let _current = device.enter();
    /// device.configure_cache("step", CacheConfig { policy: Policy::Release, ..Default::default() });
    /// cache_scope!("step", { Buffer::new(&device, 4096)?; });
    /// assert_eq!(device.cache_stats("step").unwrap().cached_bytes, 0); // An exit releases all blocks.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn configure_cache(&self, name: &str, config: CacheConfig) {
        self.caches.configure(name, config);
    }

    /// Returns every idle block of the cache `name` to the pool, and releases segments that become
    /// idle in the pool. The result has the number and the bytes of the blocks that returned to the
    /// pool immediately.
    ///
    /// Live arrays stay valid, and their blocks return to the pool when the arrays drop. If a
    /// thread is inside the scope, its shard is invalidated when the thread exits the scope. The
    /// cache, its configuration and its counters remain. An unknown name has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig, cache_scope};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let _current = device.enter();
    /// cache_scope!("step", { Buffer::new(&device, 4096)?; });
    /// assert_eq!(device.invalidate_cache("step").bytes, 4096);
    /// assert_eq!(device.invalidate_cache("step").bytes, 0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn invalidate_cache(&self, name: &str) -> Invalidation {
        self.caches.invalidate(name)
    }

    /// Calls [`invalidate_cache`](Self::invalidate_cache) for every cache of this device.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig, cache_scope};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let _current = device.enter();
    /// cache_scope!("first", { Buffer::new(&device, 4096)?; });
    /// cache_scope!("second", { Buffer::new(&device, 4096)?; });
    /// let released = device.invalidate_all_caches();
    /// assert_eq!((released.blocks, released.bytes), (2, 8192));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn invalidate_all_caches(&self) -> Invalidation {
        self.caches.invalidate_all()
    }

    /// Invalidates and removes the cache `name`, with its configuration and counters.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig, cache_scope};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let _current = device.enter();
    /// cache_scope!("step", { Buffer::new(&device, 4096)?; });
    /// assert_eq!(device.remove_cache("step").bytes, 4096);
    /// assert!(device.cache_stats("step").is_none());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn remove_cache(&self, name: &str) -> Invalidation {
        self.caches.remove(name)
    }

    /// Returns the statistics of the cache `name` over all threads; `None` if this device has no
    /// cache `name`.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig, cache_scope};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let _current = device.enter();
    /// for _ in 0..3 {
    ///     cache_scope!("step", { Buffer::new(&device, 4096)?; });
    /// }
    /// let stats = device.cache_stats("step").unwrap();
    /// assert_eq!((stats.entries, stats.misses, stats.hits), (3, 1, 2));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn cache_stats(&self, name: &str) -> Option<CacheStats> {
        self.caches.cache_stats(name)
    }

    /// Returns the allocations of the last finished entry of the cache `name`, in order. If the
    /// entry was not recorded, the result is empty. [`CacheConfig::record`] enables recording.
    /// [`Policy::Plan`](crate::Policy::Plan) records the entries that it plans from.
    ///
    /// The result omits requests that bypassed the cache because of `max_bytes`. The result has at
    /// most the first 131,072 requests of an entry.
    /// [`CacheStats::unrecorded`](crate::CacheStats::unrecorded) counts the omitted requests above
    /// this limit. Frees of unrecorded allocations do not count as steps.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, CacheConfig, Device, DeviceConfig, cache_scope};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let _current = device.enter();
    /// device.configure_cache("step", CacheConfig { record: true, ..Default::default() });
    /// cache_scope!("step", { Buffer::new(&device, 1000)?; });
    /// let record = device.cache_record("step");
    /// assert_eq!((record.len(), record[0].bytes, record[0].freed_at), (1, 1000, Some(1)));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn cache_record(&self, name: &str) -> Vec<AllocationRecord> {
        self.caches.cache_record(name)
    }

    /// Returns a handle on the scope `name` of this device, for code that cannot use
    /// [`cache_scope!`](crate::cache_scope).
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device};
    ///
    /// let scope = Device::host().scope("worker");
    /// std::thread::spawn(move || {
    ///     let _guard = scope.enter();
    ///     Buffer::new(scope.device(), 32).map(drop)
    /// })
    /// .join()
    /// .unwrap()?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn scope(&self, name: &str) -> ScopeHandle {
        ScopeHandle::new(self.clone(), name.into())
    }

    /// Returns the statistics of the device's memory and all its caches.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let buffer = Buffer::new(&device, 1000)?;
    /// assert_eq!(device.memory_stats().live_bytes, 1000);
    /// drop(buffer);
    /// let stats = device.memory_stats();
    /// assert_eq!((stats.live_bytes, stats.peak_live_bytes), (0, 1000));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn memory_stats(&self) -> MemoryStats {
        self.caches.memory_stats()
    }

    /// Returns whether the device has a limit on reserved bytes.
    #[doc(hidden)]
    pub fn has_memory_limit(&self) -> bool {
        self.caches.memory().limit().is_some()
    }

    /// Adds `bytes` of recomputed results to the statistics.
    #[doc(hidden)]
    pub fn note_recomputed(&self, bytes: u64) {
        self.caches.memory().note_recomputed(bytes);
    }

    /// Returns the statistics of the device's memory and the time of its phases. `Display` writes a
    /// table.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let buffer = Buffer::new(&device, 1000)?;
    /// let report = device.memory_report();
    /// assert_eq!(report.stats.live_bytes, 1000);
    /// assert!(report.to_string().starts_with("memory of host"));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn memory_report(&self) -> MemoryReport {
        MemoryReport {
            device: self.to_string(),
            stats: self.memory_stats(),
            phases: self.caches.memory().phases(),
        }
    }

    /// Resets every peak to the current value.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// drop(Buffer::new(&device, 1000)?);
    /// assert_eq!(device.memory_stats().peak_live_bytes, 1000);
    /// device.reset_peaks();
    /// assert_eq!(device.memory_stats().peak_live_bytes, 0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn reset_peaks(&self) {
        self.caches.reset_peaks();
    }

    /// Sets the limit on reserved bytes. If the reserved bytes exceed the limit, releases idle
    /// memory of the pool immediately.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// device.set_memory_limit(Some(1 << 20));
    /// assert!(Buffer::new(&device, 2 << 20).unwrap_err().is_out_of_memory());
    /// device.set_memory_limit(None);
    /// assert!(Buffer::new(&device, 2 << 20).is_ok());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn set_memory_limit(&self, limit_bytes: Option<u64>) {
        self.caches.set_limit(limit_bytes);
    }

    /// Releases the pool's idle memory while more than `keep_bytes` are reserved. Returns the
    /// released bytes. Named caches keep their blocks. To release these blocks, call
    /// [`invalidate_all_caches`](Self::invalidate_all_caches).
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// drop(Buffer::new(&device, 1 << 20)?);
    /// let reserved_bytes = device.memory_stats().reserved_bytes;
    /// assert!(reserved_bytes >= 1 << 20);
    /// assert_eq!(device.trim(0), reserved_bytes);
    /// assert_eq!(device.memory_stats().reserved_bytes, 0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn trim(&self, keep_bytes: u64) -> u64 {
        self.caches.trim(keep_bytes)
    }

    /// Returns the current stream of this thread on the device.
    #[inline]
    #[doc(hidden)]
    pub fn stream(&self) -> StreamId {
        current_stream(&self.caches)
    }

    /// Waits until all work submitted to the device on any stream is done. Waits for a collective
    /// call only if this thread began it.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device};
    ///
    /// let buffer = Buffer::new(&Device::current(), 4096)?;
    /// assert!(buffer.device().synchronize().is_ok());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with an error of the driver. If earlier calls could not return their errors, fails
    /// with the first deferred error and the number of further errors. On a CUDA device, fails with
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an index out of range.
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
    /// Writes "meta", or a name in the format of `CACHESCOPE_DEVICE`, such as "host" or "cuda:0".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.backend().name())
    }
}
