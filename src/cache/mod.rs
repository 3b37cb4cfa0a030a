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
mod handle;
mod identity;
mod inner;
mod ledger;
mod named;
mod plan;
mod plans;
mod policy;
mod reclaim;
mod record;
mod registry;
mod remote;
mod report;
mod shard;
mod site;
pub(crate) mod stack;
mod stats;
mod stream;
#[cfg(test)]
mod tests;

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{Location, RefUnwindSafe};

use crate::device::StreamId;
use crate::error::{Error, Result};
use crate::memory::header::{Handle, List};
use crate::memory::{Block, DeviceMemory, Patience, Reclaim, Request, unaddressable};
use crate::pool::Rounding;
use crate::pool::size_class::floor_class;
use crate::sync::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering, Weak};
use access::{Access, Way};
pub(crate) use handle::{CachesRef, WeakCaches};
use ledger::Ledger;
pub(crate) use policy::EntryOptions;
pub use policy::{CacheConfig, Policy};
pub use record::AllocationRecord;
use registry::Registry;
pub use report::{CacheReport, ScopeReport};
pub(crate) use shard::Shard;
use shard::{LocalShard, publish_bound, take_at_once, take_bound, take_bound_slowly};
pub use site::CallSite;
pub(crate) use stack::Entered;
pub use stats::{CacheStats, Invalidation};
pub(crate) use stream::current_stream;

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
    epoch: AtomicU64,
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
                epoch: AtomicU64::new(1),
            }
        });
        CachesRef::first(caches)
    }

    pub(crate) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// The hit: the block of the size that came back last to the scope that is bound, on the device's
    /// own stream. `None` where there is more to look at.
    #[inline]
    pub(crate) fn take_at_once(&self, bytes: u64) -> Option<BlockHandle> {
        take_at_once(self, self.size(bytes)?)
    }

    /// Hands out a block for `bytes`, from the nearest scope of this device if there is one, to the caller
    /// at `call_site`.
    pub(crate) fn allocate_at(
        &self,
        bytes: u64,
        stream: StreamId,
        call_site: &'static Location<'static>,
    ) -> Result<BlockHandle> {
        let Some(size) = self.size(bytes).filter(|_| bytes > 0) else {
            return self.ready(self.serve_nothing(bytes)?);
        };
        if let Some(handle) = take_bound(self, size, stream) {
            return self.ready(handle);
        }
        let wanted = Wanted {
            size,
            stream,
            call_site,
        };
        match take_bound_slowly(self, &wanted) {
            Some(handle) => self.ready(handle),
            None => self.ready(self.miss(&wanted)?),
        }
    }

    /// A request of no bytes gets a header without a block; one that overflows gets an error.
    #[cold]
    fn serve_nothing(&self, bytes: u64) -> Result<BlockHandle> {
        self.ask_whether_broken()?;
        if bytes > 0 {
            return Err(unaddressable(bytes));
        }
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the method's path is not general enough over the lifetime"
        )]
        self.with_uncached(|access| access.adopt_empty())
    }

    /// Hands out a block that belongs to no cache.
    pub(crate) fn allocate_uncached(
        &self,
        bytes: u64,
        stream: StreamId,
        call_site: &'static Location<'static>,
    ) -> Result<BlockHandle> {
        publish_bound();
        let Some(size) = self.size(bytes).filter(|_| bytes > 0) else {
            return self.ready(self.serve_nothing(bytes)?);
        };
        let wanted = Wanted {
            size,
            stream,
            call_site,
        };
        self.ready(self.serve_from_memory(None, &wanted)?)
    }

    /// A size as the pool below rounds it, so that its blocks are found in their class again.
    #[inline]
    fn size(&self, bytes: u64) -> Option<Size> {
        Size::new(bytes, self.memory.rounding())
    }

    fn ask_whether_broken(&self) -> Result<()> {
        self.config.broken.clone().map_or(Ok(()), Err)
    }

    /// What the bound shard could not serve from what it has.
    #[cold]
    fn miss(&self, wanted: &Wanted) -> Result<BlockHandle> {
        let Some(shard) = stack::shard_of(self) else {
            return self.serve_from_memory(None, wanted);
        };
        if let Some(handle) = self.take_after_settling(&shard, wanted) {
            return Ok(handle);
        }
        if !self.has_room(&shard, wanted.size.rounded_bytes) {
            let handle = self.serve_from_memory(None, wanted)?;
            shard.counters.misses.add(1);
            return Ok(handle);
        }
        if let Some(handle) = self.serve_from_chunk(&shard, wanted)? {
            return Ok(handle);
        }
        if let Some(handle) = self.serve_from_free(&shard, wanted) {
            return Ok(handle);
        }
        self.serve_from_memory(Some(&shard), wanted)
    }

    /// From a new chunk: as long as the scope will probably need, or as the request is where there is
    /// no room for that; or from a new slab, if there is room for that. `None` where the scope has
    /// neither.
    fn serve_from_chunk(&self, shard: &LocalShard, wanted: &Wanted) -> Result<Option<BlockHandle>> {
        let way = shard.access().map(|mut access| access.way_of(wanted));
        let chunk = match way {
            Some(Way::Chunk(bytes)) => match self.allocate_chunk(shard, bytes, wanted)? {
                Some(chunk) => Some(chunk),
                None => Some(self.memory.allocate(&request(Some(shard), wanted))?),
            },
            Some(Way::Slab(bytes)) => self.allocate_chunk(shard, bytes, wanted)?,
            Some(Way::Bins | Way::Part) | None => return Ok(None),
        };
        let mut access = shard.access();
        let Some(chunk) = chunk else {
            access.iter_mut().for_each(Access::stop_following);
            return Ok(None);
        };
        if let Some(access) = &mut access
            && access.has_use_for(&chunk, wanted)
        {
            return Ok(access.take_from_chunk(chunk, wanted));
        }
        self.memory.free([chunk]);
        Ok(None)
    }

    /// A block for many requests, if there is room for it without taking from anybody.
    fn allocate_chunk(
        &self,
        shard: &LocalShard,
        bytes: u64,
        wanted: &Wanted,
    ) -> Result<Option<Block>> {
        if !self.has_room(shard, bytes) {
            return Ok(None);
        }
        self.settle_uncached();
        let request = Request {
            bytes,
            ..request(Some(shard), wanted)
        };
        self.memory.allocate_idle(&request)
    }

    /// From what is free in the pool, idle blocks of other sizes included that this shard has no use
    /// for; `None` where the memory has to grow.
    fn serve_from_free(&self, shard: &LocalShard, wanted: &Wanted) -> Option<BlockHandle> {
        self.settle_uncached();
        for to_grow in [false, true] {
            let moving = self.moving.lock();
            self.give(shard.access()?.excess(wanted, to_grow));
            drop(moving);
            let request = request(Some(shard), wanted);
            let Some(block) = self.memory.allocate_free(&request) else {
                continue;
            };
            let Some(mut access) = shard.access() else {
                self.memory.free([block]);
                return None;
            };
            return Some(access.adopt_free(block, wanted));
        }
        None
    }

    /// From the memory below, into the shard or into no cache.
    fn serve_from_memory(
        &self,
        shard: Option<&LocalShard>,
        wanted: &Wanted,
    ) -> Result<BlockHandle> {
        self.ask_whether_broken()?;
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.settle_uncached();
        // No borrow of the shard is alive here: the ladder's third rung may come back to it.
        let block = self.memory.allocate(&request(shard, wanted))?;
        match shard.and_then(|shard| shard.access()) {
            Some(mut access) => Ok(access.adopt(block, wanted)),
            None => self
                .with_uncached(|access| access.adopt_uncached(block, wanted.size.requested_bytes)),
        }
    }

    /// Brings home what other threads dropped, and looks once more; also for a scope of this device
    /// that is not the innermost one.
    fn take_after_settling(&self, shard: &LocalShard, wanted: &Wanted) -> Option<BlockHandle> {
        let mut access = shard.access()?;
        self.give(access.settle());
        access.take(wanted)
    }

    /// Whether the shard's cache may own `bytes` more; its idle blocks here make room for them.
    fn has_room(&self, shard: &LocalShard, bytes: u64) -> bool {
        let Some(max_bytes) = shard.identity.as_ref().map(|identity| identity.max_bytes()) else {
            return true;
        };
        if max_bytes == u64::MAX {
            return true;
        }
        let fits = |owned: u64| owned.checked_add(bytes).is_some_and(|sum| sum <= max_bytes);
        if fits(self.owned_bytes(shard)) {
            return true;
        }
        let idle_bytes = shard.counters.cached_bytes() + shard.counters.pending_bytes.get();
        if !fits(self.owned_bytes(shard).saturating_sub(idle_bytes)) {
            return false;
        }
        if let Some(mut access) = shard.access() {
            self.give(access.drain());
        }
        fits(self.owned_bytes(shard))
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
        self.memory.trim(keep_bytes, Patience::Wait)
    }

    /// Waits for everything that any stream was given, brings home what was pending, and tells an
    /// error that nobody could tell before.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.memory.synchronize()?;
        self.settle_all();
        self.memory.deferred_error()
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

/// What a shard asks the memory for.
fn request<'a>(shard: Option<&'a LocalShard>, wanted: &Wanted) -> Request<'a> {
    let identity = shard.and_then(|shard| shard.identity.as_ref());
    Request {
        bytes: wanted.size.requested_bytes,
        stream: wanted.stream,
        scope: identity.map(|identity| &*identity.name),
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches")
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}
