//! Named caches over one device's memory, and the thread-local stack that says which of them a
//! request goes to.
//!
//! The way of a request: [`Caches::allocate_at`] asks the shard that is bound to this thread, the
//! nearest enclosing scope of this device; a miss goes on to the memory below, and what comes back
//! has the shard as its home from then on.
//!
//! Architecture invariant: a cache owns idle blocks and nothing else. It never copies, never
//! touches what a block holds, and knows nothing of arrays.

mod access;
mod aging;
mod bump;
mod chunk;
mod frames;
mod gaps;
mod handle;
mod identity;
mod inner;
mod ledger;
#[cfg(all(test, loom))]
mod model;
mod named;
mod plan;
mod plans;
mod policy;
mod reclaim;
mod record;
mod registry;
mod remote;
mod report;
mod sequence;
mod serve;
mod shard;
mod site;
pub(crate) mod stack;
mod stats;
mod stream;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{Location, RefUnwindSafe};

use crate::device::StreamId;
use crate::error::{Error, Result};
use crate::memory::header::{Handle, List};
use crate::memory::{DeviceMemory, Reclaim, WaitMode};
use crate::pool::Rounding;
use crate::pool::size_class::floor_class;
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, Weak, plain};
use access::Access;
pub(crate) use access::is_planned;
pub(crate) use handle::{CachesRef, WeakCaches};
use ledger::Ledger;
pub(crate) use policy::EntryOptions;
pub use policy::{CacheConfig, Policy};
pub use record::AllocationRecord;
use registry::Registry;
pub use report::{CacheReport, ScopeReport};
pub(crate) use shard::Shard;
pub use site::CallSite;
pub(crate) use stack::Entered;
pub use stats::{CacheStats, Invalidation};
pub(crate) use stream::{KeptStream, current_stream};

/// A counted handle on a block of some device's memory.
pub(crate) type BlockHandle = Handle<Shard>;

/// The size of a request, with what is derived from it once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    requested_bytes: u64,
    rounded_bytes: u64,
    class: usize,
}

impl Size {
    /// `None` where rounding up overflows.
    #[inline]
    fn new(requested_bytes: u64, rounding: Rounding) -> Option<Self> {
        let rounded_bytes = rounding.round(requested_bytes)?;
        Some(Self {
            requested_bytes,
            rounded_bytes,
            class: floor_class(rounded_bytes),
        })
    }
}

/// A request that was not served at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    size: Size,
    stream: StreamId,
    call_site: &'static Location<'static>,
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
    ledger: Ledger,
    /// Moves on at each miss; the recency that rung 3 orders shards by.
    epoch: plain::AtomicU64,
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
                ledger: Ledger::default(),
                epoch: plain::AtomicU64::new(1),
            }
        });
        CachesRef::first(caches)
    }

    pub(crate) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Runs `f` on the home of the blocks that belong to no cache.
    fn with_uncached<R>(&self, f: impl FnOnce(&mut Access<'_>) -> R) -> Result<R> {
        let (result, idle) = {
            let mut slot = self.uncached.lock();
            // A device that is asked for again after its last handle was gone has a closed one.
            if slot.as_ref().is_none_or(|shard| shard.is_closed()) {
                *slot = Some(Shard::new(self, None));
            }
            let shard = slot.as_ref().expect("just made");
            let mut access = shard
                .access()
                .expect("nobody is ever inside of it, and it is open");
            let idle = access.settle();
            let result = f(&mut access);
            access.publish();
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
    fn settle_uncached(&self) -> u64 {
        let slot = self.uncached.lock();
        let Some(mut access) = slot.as_ref().and_then(|shard| shard.access()) else {
            return 0;
        };
        let idle = access.settle();
        access.publish();
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
    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Bounds what is reserved.
    pub(crate) fn set_limit(&self, limit_bytes: Option<u64>) {
        self.settle_all();
        self.memory.set_limit(limit_bytes);
    }

    /// Releases what is idle in the pool, and nothing of what named caches hold; waits for the work
    /// on it.
    pub(crate) fn trim(&self, keep_bytes: u64) -> u64 {
        self.settle_all();
        self.memory.trim(keep_bytes, WaitMode::Wait)
    }

    /// Waits for everything that any stream was given, brings home what was pending, and tells an
    /// error that nobody could tell before.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.memory.synchronize()?;
        self.settle_all();
        // What came home just now waits for events behind all that: a short wait, if any.
        self.memory.drain_pending(WaitMode::Wait);
        self.memory.flush_deferred_error()
    }

    /// A handle that is not counted, for the device's own shards.
    fn uncounted(&self) -> ManuallyDrop<CachesRef> {
        shard::uncounted(&self.this)
    }

    /// What is done to every block before it leaves; the hit leaves such a device alone.
    fn ready(&self, handle: BlockHandle) -> Result<BlockHandle> {
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
