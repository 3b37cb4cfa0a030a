//! Named caches over one device's memory, and the thread-local stack that says which of them a
//! request goes to.
//!
//! The way of a request is [`Caches::allocate`]: the current shard, that of the nearest enclosing scope of this device,
//! or a miss, which goes to the memory below. What comes back has the shard as its home from then on.
//!
//! Architecture invariant: a cache owns idle blocks and nothing else. It never copies, never
//! touches what a block holds, and knows nothing of arrays.

mod allocate;
mod allocator;
mod arena;
mod handle;
#[cfg(all(test, loom))]
mod model;
mod named;
mod policy;
mod reclaim;
mod record;
mod registry;
mod report;
mod request;
pub(crate) mod scope;
mod settings;
mod shard;
mod stats;
mod store;
#[cfg(all(test, not(loom)))]
mod tests;
mod totals;

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::RefUnwindSafe;

use crate::error::{Error, Result};
use crate::memory::header::{Handle, List};
use crate::memory::{DeviceMemory, Patience, Reclaim};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, Weak, plain};
pub(crate) use handle::{CachesRef, WeakCaches};
pub use policy::Policy;
pub use record::AllocationRecord;
use registry::Registry;
pub use report::{CacheReport, ScopeReport};
pub use scope::CallSite;
pub(crate) use scope::{Entered, KeptStream, current_stream};
pub use settings::CacheConfig;
pub(crate) use settings::EntryOptions;
use shard::Guard;
pub(crate) use shard::Shard;
pub use stats::{CacheStats, Invalidation};
use totals::DeviceTotals;

/// A counted handle on a block of some device's memory.
pub(crate) type BlockHandle = Handle<Shard>;

/// Whether the block is a suballocation of the slab that the present entry of this thread plans with: others have it
/// in their turn once it drops.
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
    memory: DeviceMemory,
    config: CachesConfig,
    /// This very value: shards name it, and its memory calls it.
    this: Weak<Caches>,
    /// Handles held on purpose; the last one closes the caches.
    handles: AtomicUsize,
    registry: Mutex<Registry>,
    /// Held while blocks are on their way from shards to the memory: who finds nothing to reclaim
    /// then knows that nothing was under way.
    moving: Mutex<()>,
    /// The home of blocks that belong to no cache; made when first needed.
    uncached: Mutex<Option<Arc<Shard>>>,
    totals: DeviceTotals,
    /// Moves on at each miss; the recency that rung 3 orders shards by.
    miss_epoch: plain::AtomicU64,
}

// A panic in an entry, a callback or a destructor leaves them whole: exits run, and nothing foreign is
// called while something is half done.
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
                totals: DeviceTotals::default(),
                miss_epoch: plain::AtomicU64::new(1),
            }
        });
        CachesRef::first(caches)
    }

    pub(crate) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Runs `f` on the home of the blocks that belong to no cache.
    fn with_uncached<R>(&self, f: impl FnOnce(&mut Guard<'_>) -> R) -> Result<R> {
        let (result, idle) = {
            let mut slot = self.uncached.lock();
            // A device that is asked for again after its last handle was gone has a closed one.
            if slot.as_ref().is_none_or(|shard| shard.is_closed()) {
                *slot = Some(Shard::new(self, None));
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
        // A live array may be asked for its device when no handle is left. If `close` came before the
        // lock above, this sees that; a handle that comes and goes closes the caches again, behind
        // the new block, which then keeps them as any orphan does.
        if self.handles.load(Ordering::Relaxed) == 0 {
            drop(CachesRef::clone(&self.uncounted()));
        }
        Ok(result)
    }

    /// Gives what was dropped outside of every cache back to the memory; answers its bytes.
    fn drain_uncached(&self) -> u64 {
        let slot = self.uncached.lock();
        let Some(mut guard) = slot.as_ref().and_then(|shard| shard.guard()) else {
            return 0;
        };
        let idle = guard.drain_deferred();
        guard.publish();
        self.give(idle)
    }

    /// Gives blocks back to the memory in one locked step; answers their bytes.
    fn give(&self, idle: List<Shard>) -> u64 {
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

    #[inline]
    fn miss_epoch(&self) -> u64 {
        self.miss_epoch.load(Ordering::Relaxed)
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
        self.memory.trim(keep_bytes, Patience::Wait)
    }

    /// Waits for everything that any stream was given, brings home what was pending, and tells an
    /// error that nobody could tell before.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.memory.synchronize()?;
        self.drain_all();
        // What came home just now waits for events behind all that: a short wait, if any.
        self.memory.settle(Patience::Wait);
        self.memory.deferred_error()
    }

    /// A handle that is not counted, for the device's own shards.
    fn uncounted(&self) -> ManuallyDrop<CachesRef> {
        shard::uncounted(&self.this)
    }

    /// What is done to every block before it leaves; the hit leaves such a device alone.
    fn filled(&self, handle: BlockHandle) -> Result<BlockHandle> {
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
