//! The caches of one device over its memory, and the counted handle on the caches.
//!
//! A shard refers to its device, and the device refers to its shards. Only files of one folder may
//! import each other, so these types are in the folder of the shard.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::RefUnwindSafe;
use std::rc::Rc;

use super::named::Registry;
use super::{BlockHandle, Guard, RemoteFreeList, Shard};
use crate::cache::settings::{CacheConfig, CacheSettings};
use crate::cache::sweep::SweepTimer;
use crate::cache::totals::DeviceTotals;
use crate::error::{Error, Result};
use crate::memory::header::{HandedOut, List};
use crate::memory::{DeviceMemory, Reclaim, WaitMode};
use crate::recorder::{EventKind, EventRecord};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, Weak, plain};

/// A thread's reference to a shard. The thread counts the `Arc` once, so an entry changes no atomic
/// count.
pub(in crate::cache) type LocalShard = Rc<Arc<Shard>>;

/// Returns true if the block is a suballocation of the slab that serves this thread's current
/// entry. After the drop of the block, other requests reuse its memory.
pub(crate) fn is_planned(handle: &BlockHandle) -> bool {
    handle.is_of_slab() && handle.home().is_held()
}

#[derive(Debug, Default)]
pub(crate) struct CachesConfig {
    /// The settings of caches that were never configured.
    pub(crate) default_cache: CacheConfig,
    /// The byte that overwrites every block before the block is handed out.
    pub(crate) fill_recycled: Option<u8>,
    /// The error of every allocation, if the device is broken.
    pub(crate) broken: Option<Error>,
}

pub(crate) struct Caches {
    pub(in crate::cache) memory: DeviceMemory,
    pub(in crate::cache) config: CachesConfig,
    /// A weak reference to this value, for its shards and for the reclaim calls of its memory.
    pub(in crate::cache) this: Weak<Caches>,
    /// The number of [`CachesRef`] handles. The drop of the last handle closes the caches.
    handles: AtomicUsize,
    /// True if a handle exists until the process ends.
    permanent: plain::AtomicBool,
    pub(in crate::cache) registry: Mutex<Registry>,
    /// The lock that serialises transfers from shards to the pool, so that a reclaim that finds
    /// nothing is conclusive.
    pub(in crate::cache) moving: Mutex<()>,
    /// The idle blocks that threads inside scopes released while they dropped another block. The
    /// next request that is not a hit returns the idle blocks to the pool.
    handed_over: RemoteFreeList,
    /// The home of blocks that belong to no cache. This shard is created at its first use.
    pub(in crate::cache) uncached: Mutex<Option<Arc<Shard>>>,
    /// The lock that serialises the updates of shards after the recorder starts or stops.
    pub(in crate::cache) following_recorder: Mutex<()>,
    pub(in crate::cache) totals: DeviceTotals,
    pub(in crate::cache) sweep_timer: SweepTimer,
}

// After a panic in an entry, a callback or a destructor, the caches are still consistent. Unwinding
// runs the exits, and an incomplete operation calls no foreign code.
impl RefUnwindSafe for Caches {}

impl Caches {
    pub(crate) fn over(memory: DeviceMemory, config: CachesConfig) -> CachesRef {
        let caches = Arc::new_cyclic(|this: &Weak<Self>| {
            let reclaim: Weak<dyn Reclaim> = this.clone();
            memory.set_reclaim(reclaim);
            Self {
                memory,
                config,
                this: this.clone(),
                handles: AtomicUsize::new(0),
                permanent: plain::AtomicBool::new(false),
                registry: Mutex::default(),
                moving: Mutex::default(),
                handed_over: RemoteFreeList::new(),
                uncached: Mutex::new(None),
                following_recorder: Mutex::new(()),
                totals: DeviceTotals::default(),
                sweep_timer: SweepTimer::new(),
            }
        });
        CachesRef::first(caches)
    }

    #[inline]
    pub(crate) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    pub(crate) fn set_permanent(&self) {
        self.permanent.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(in crate::cache) fn is_permanent(&self) -> bool {
        self.permanent.load(Ordering::Relaxed)
    }

    /// Calls `hand_out` with the home of blocks that belong to no cache. Returns the handed-out
    /// block.
    pub(in crate::cache) fn with_uncached(
        &self,
        hand_out: impl FnOnce(&mut Guard<'_>) -> HandedOut,
    ) -> Result<BlockHandle> {
        let (block, idle) = {
            let mut slot = self.uncached.lock();
            // The shard may be closed, if a live array returned the device after its last handle
            // had dropped.
            if slot.as_ref().is_none_or(|shard| shard.is_closed()) {
                *slot = Some(self.new_shard(None));
            }
            let shard = slot.as_ref().expect("the shard was just created");
            let mut guard = shard
                .guard()
                .expect("the shard is open, and no thread enters it");
            let idle = guard.drain_deferred();
            let block = hand_out(&mut guard);
            guard.publish();
            (block, idle)
        };
        self.return_idle(idle);
        // A live array may return its device without a counted handle. If `close` ran before the
        // lock of `uncached` above, this load returns 0. Then a temporary handle closes the caches
        // again, after the new block was handed out. The block becomes an orphan, which keeps the
        // caches alive.
        if self.handles.load(Ordering::Relaxed) == 0 {
            drop(CachesRef::clone(&self.uncounted()));
        }
        Ok(block.into())
    }

    /// Releases dropped uncached blocks and handed-over blocks to the pool. Returns their bytes.
    pub(in crate::cache) fn drain_uncached(&self) -> u64 {
        let handed_over_bytes = self.return_idle(self.handed_over.drain());
        let slot = self.uncached.lock();
        let Some(mut guard) = slot.as_ref().and_then(|shard| shard.guard()) else {
            return handed_over_bytes;
        };
        let idle = guard.drain_and_publish();
        handed_over_bytes + self.return_idle(idle)
    }

    /// Stores idle blocks of a thread that must not wait. The next request that is not a hit
    /// returns them to the pool.
    pub(super) fn hand_over(&self, idle: List) {
        for header in idle {
            let pushed = self.handed_over.push(header);
            debug_assert!(pushed.is_ok(), "the list is never closed");
        }
    }

    /// Releases blocks to the pool in one locked step. Returns their bytes.
    pub(in crate::cache) fn return_idle(&self, idle: List) -> u64 {
        if idle.is_empty() {
            return 0;
        }
        let mut bytes = 0;
        self.memory.free(idle.map(|header| {
            let block = header.into_block();
            bytes += block.bytes();
            block
        }));
        bytes
    }

    pub(crate) fn set_limit(&self, limit_bytes: Option<u64>) {
        self.drain_all();
        self.memory.set_limit(limit_bytes);
    }

    /// Releases idle segments and pages of the pool, but no memory that named caches hold. Waits
    /// for the work that uses the released memory. Returns the released bytes.
    pub(crate) fn trim(&self, keep_bytes: u64) -> u64 {
        self.drain_all();
        let released_bytes = self.memory.trim(keep_bytes, WaitMode::Wait);
        let recorder = self.memory.recorder();
        recorder.record(|| EventRecord::of(EventKind::Trim, released_bytes));
        released_bytes
    }

    /// Waits for all work enqueued on any stream, and frees pending blocks. Fails with an error
    /// that an earlier call could not return.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.memory.synchronize()?;
        let recorder = self.memory.recorder();
        recorder.record(|| EventRecord::of(EventKind::Wait, 0));
        self.memory.finish_kernels();
        self.drain_all();
        // The blocks that `drain_all` freed wait for new events, but the work before these events
        // has completed. So this wait is short.
        self.memory.drain_pending(WaitMode::Wait);
        self.memory.take_deferred_error()
    }

    pub(in crate::cache) fn uncounted(&self) -> ManuallyDrop<CachesRef> {
        let caches = ManuallyDrop::into_inner(super::uncounted(&self.this));
        ManuallyDrop::new(CachesRef(caches))
    }

    pub(in crate::cache) fn new_shard(&self, settings: Option<Arc<CacheSettings>>) -> Arc<Shard> {
        let fills = self.config.fill_recycled.is_some();
        Shard::new(self.uncounted(), settings, fills)
    }

    /// If `fill_recycled` is set, overwrites a block before it is handed out. Then no request is a
    /// hit, so this function is called for every block.
    pub(in crate::cache) fn filled(&self, handle: BlockHandle) -> Result<BlockHandle> {
        match self.config.fill_recycled {
            None => Ok(handle),
            Some(byte) => self.overwritten(handle, byte),
        }
    }

    #[cold]
    fn overwritten(&self, handle: BlockHandle, byte: u8) -> Result<BlockHandle> {
        super::fill(self.memory.backend(), &handle, byte)?;
        Ok(handle)
    }
}

impl Drop for Caches {
    fn drop(&mut self) {
        self.return_idle(self.handed_over.drain());
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches")
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// A counted handle on the caches of a device. The drop of the last handle closes the caches, and
/// their idle blocks return to the device. A live block keeps the `Arc` alive, but is not a handle.
/// So the caches are dropped with the last live block.
pub(crate) struct CachesRef(pub(in crate::cache) Arc<Caches>);

impl CachesRef {
    pub(in crate::cache) fn first(caches: Arc<Caches>) -> Self {
        caches.handles.fetch_add(1, Ordering::Relaxed);
        Self(caches)
    }

    pub(crate) fn as_ptr(&self) -> *const Caches {
        Arc::as_ptr(&self.0)
    }

    pub(crate) fn downgrade(&self) -> WeakCaches {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A reference that does not keep the caches alive. The upgraded reference does not count as a
/// handle.
pub(crate) type WeakCaches = Weak<Caches>;

impl Clone for CachesRef {
    fn clone(&self) -> Self {
        // The count may rise from 0, because a live array that outlived every handle can return its
        // device.
        Self::first(Arc::clone(&self.0))
    }
}

impl Drop for CachesRef {
    fn drop(&mut self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.close();
        }
    }
}

impl Deref for CachesRef {
    type Target = Caches;

    #[inline]
    fn deref(&self) -> &Caches {
        &self.0
    }
}

impl fmt::Debug for CachesRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
