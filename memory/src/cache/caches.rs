//! The caches of one device over its memory, and the counted handle on both.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::RefUnwindSafe;
use std::rc::Rc;

use super::named::Registry;
use super::settings::{CacheConfig, CacheSettings};
use super::shard;
use super::totals::DeviceTotals;
use crate::error::{Error, Result};
use crate::memory::header::{Handle, List};
use crate::memory::{DeviceMemory, Reclaim, WaitMode};
use crate::recorder::{EventKind, EventRecord};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, Weak};

/// A shard of some device.
pub(crate) type Shard = shard::Shard<CachesRef>;

/// The right to its inside.
pub(super) type Guard<'a> = shard::Guard<'a, CachesRef>;

/// A shard as its thread keeps it: counted once for the thread, so that entering counts nothing.
pub(super) type LocalShard = Rc<Arc<Shard>>;

/// A counted handle on a block of some device's memory.
pub(crate) type BlockHandle = Handle<Shard>;

/// Whether the block is a suballocation of the slab that the present entry of this thread plans
/// with: others have it in their turn once it drops.
pub(crate) fn is_planned(handle: &BlockHandle) -> bool {
    handle.is_of_slab() && handle.home().is_held()
}

/// How the caches of a device are set.
#[derive(Debug, Default)]
pub(crate) struct CachesConfig {
    /// For caches that nobody configured.
    pub(crate) default_cache: CacheConfig,
    /// What every block is overwritten with before it is handed out.
    pub(crate) fill_recycled: Option<u8>,
    /// Why this device can allocate nothing, if it cannot.
    pub(crate) broken: Option<Error>,
}

/// The caches of one device, and the memory below them.
pub(crate) struct Caches {
    pub(super) memory: DeviceMemory,
    pub(super) config: CachesConfig,
    /// This very value: shards name it, and its memory calls it.
    pub(super) this: Weak<Caches>,
    /// Handles held on purpose; the last one closes the caches.
    handles: AtomicUsize,
    pub(super) registry: Mutex<Registry<CachesRef>>,
    /// Held while blocks are on their way from shards to the memory: who finds nothing to reclaim
    /// then knows that nothing was under way.
    pub(super) moving: Mutex<()>,
    /// The home of blocks that belong to no cache; made when first needed.
    pub(super) uncached: Mutex<Option<Arc<Shard>>>,
    /// Held while shards are made to do as the recorder wants.
    pub(super) following_recorder: Mutex<()>,
    pub(super) totals: DeviceTotals,
}

// A panic in an entry, a callback or a destructor leaves them whole: exits run, and nothing foreign
// is called while something is half done.
impl RefUnwindSafe for Caches {}

impl Caches {
    /// The caches over `memory`, and the first handle on them.
    pub(crate) fn over(memory: DeviceMemory, config: CachesConfig) -> CachesRef {
        let caches = Arc::new_cyclic(|this: &Weak<Self>| {
            let reclaim: Weak<dyn Reclaim> = this.clone();
            memory.set_reclaim(reclaim);
            Self {
                memory,
                config,
                this: this.clone(),
                handles: AtomicUsize::new(0),
                registry: Mutex::default(),
                moving: Mutex::default(),
                uncached: Mutex::new(None),
                following_recorder: Mutex::new(()),
                totals: DeviceTotals::default(),
            }
        });
        CachesRef::first(caches)
    }

    pub(crate) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Runs `f` on the home of the blocks that belong to no cache.
    pub(super) fn with_uncached<R>(&self, f: impl FnOnce(&mut Guard<'_>) -> R) -> Result<R> {
        let (result, idle) = {
            let mut slot = self.uncached.lock();
            // A device that is asked for again after its last handle was gone has a closed one.
            if slot.as_ref().is_none_or(|shard| shard.is_closed()) {
                *slot = Some(self.new_shard(None));
            }
            let shard = slot.as_ref().expect("just made");
            let mut guard = shard
                .guard()
                .expect("nobody is ever inside of it, and it is open");
            let idle = guard.drain_deferred();
            let result = f(&mut guard);
            guard.publish();
            (result, idle)
        };
        self.give(idle);
        // A live array may be asked for its device when no handle is left. If `close` came before
        // the lock above, this sees that; a handle that comes and goes closes the caches again,
        // behind the new block, which then keeps them as any orphan does.
        if self.handles.load(Ordering::Relaxed) == 0 {
            drop(CachesRef::clone(&self.uncounted()));
        }
        Ok(result)
    }

    /// Gives what was dropped outside of every cache back to the memory; answers its bytes.
    pub(super) fn drain_uncached(&self) -> u64 {
        let slot = self.uncached.lock();
        let Some(mut guard) = slot.as_ref().and_then(|shard| shard.guard()) else {
            return 0;
        };
        let idle = guard.drain_deferred();
        guard.publish();
        self.give(idle)
    }

    /// Gives blocks back to the memory in one locked step; answers their bytes.
    pub(super) fn give(&self, idle: List<Shard>) -> u64 {
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

    /// Bounds what is reserved.
    pub(crate) fn set_limit(&self, limit_bytes: Option<u64>) {
        self.drain_all();
        self.memory.set_limit(limit_bytes);
    }

    /// Releases what is idle in the pool, and nothing of what named caches hold; waits for the work
    /// on it.
    pub(crate) fn trim(&self, keep_bytes: u64) -> u64 {
        self.drain_all();
        let released_bytes = self.memory.trim(keep_bytes, WaitMode::Wait);
        let recorder = self.memory.recorder();
        recorder.record(|| EventRecord::of(EventKind::Trim, released_bytes));
        released_bytes
    }

    /// Waits for everything that any stream was given, brings home what was pending, and tells an
    /// error that nobody could tell before.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.memory.synchronize()?;
        let recorder = self.memory.recorder();
        recorder.record(|| EventRecord::of(EventKind::Wait, 0));
        self.memory.finish_kernels();
        self.drain_all();
        // What came home just now waits for events behind all that: a short wait, if any.
        self.memory.drain_pending(WaitMode::Wait);
        self.memory.flush_deferred_error()
    }

    /// A handle that is not counted, for the device's own shards.
    pub(super) fn uncounted(&self) -> ManuallyDrop<CachesRef> {
        let caches = ManuallyDrop::into_inner(shard::uncounted(&self.this));
        ManuallyDrop::new(CachesRef(caches))
    }

    /// A shard of the cache `settings`, or of no cache.
    pub(super) fn new_shard(&self, settings: Option<Arc<CacheSettings>>) -> Arc<Shard> {
        let fills = self.config.fill_recycled.is_some();
        Shard::new(self.uncounted(), settings, fills)
    }

    /// What is done to every block before it leaves; the hit leaves such a device alone.
    pub(super) fn filled(&self, handle: BlockHandle) -> Result<BlockHandle> {
        match self.config.fill_recycled {
            None => Ok(handle),
            Some(byte) => self.overwritten(handle, byte),
        }
    }

    #[cold]
    fn overwritten(&self, handle: BlockHandle, byte: u8) -> Result<BlockHandle> {
        shard::fill(self.memory.backend(), &handle, byte)?;
        Ok(handle)
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches")
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// A handle that somebody holds on purpose. When the last one is gone, the caches close: their idle
/// blocks go back to the device, and what is left ends with its last live block, which keeps the
/// `Arc` but is no handle.
pub(crate) struct CachesRef(pub(super) Arc<Caches>);

impl CachesRef {
    pub(super) fn first(caches: Arc<Caches>) -> Self {
        caches.handles.fetch_add(1, Ordering::Relaxed);
        Self(caches)
    }

    pub(crate) fn as_ptr(&self) -> *const Caches {
        Arc::as_ptr(&self.0)
    }

    /// For who must not keep the device.
    pub(crate) fn downgrade(&self) -> WeakCaches {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What does not keep the caches; upgrading it counts no handle.
pub(crate) type WeakCaches = Weak<Caches>;

impl Clone for CachesRef {
    fn clone(&self) -> Self {
        // May raise it from 0: a live array outlasted every handle, and its device is asked for.
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

    fn deref(&self) -> &Caches {
        &self.0
    }
}

impl fmt::Debug for CachesRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
