//! The way of a request: at once, from the bound shard, from whatever that can make of what it has, and
//! from the memory below.

use std::panic::Location;

use super::access::{Access, Way};
use super::shard::{
    LocalShard, publish_bound, take_at_once, take_bound_slowly, take_bump, take_planned,
};
use super::{BlockHandle, Caches, Size, Wanted, stack};
use crate::device::{DevicePtr, StreamId};
use crate::error::Result;
use crate::memory::{Block, Destructor, Request, unaddressable};
use crate::pool::Rounding;
use crate::sync::Ordering;

impl Caches {
    /// The hit: the block of the size that came back last to the scope that is bound, for a request on
    /// the thread's stream. `None` where there is more to look at.
    ///
    /// It rounds to units whatever the pool does: a block that fits so exactly is right for any of them, and
    /// where one rounds further, the others are found the slow way.
    #[inline]
    pub(crate) fn take_at_once(&self, bytes: u64) -> Option<BlockHandle> {
        take_at_once(self, || Size::new(bytes, Rounding::Units))
    }

    /// The same under [`Policy::Bump`](super::Policy::Bump): the next part of the chunk.
    #[inline]
    pub(crate) fn take_bump(&self, bytes: u64) -> Option<BlockHandle> {
        take_bump(self, bytes)
    }

    /// The same under [`Policy::Plan`](super::Policy::Plan): the next part of the slab.
    #[inline]
    pub(crate) fn take_planned(&self, bytes: u64) -> Option<BlockHandle> {
        take_planned(self, bytes)
    }

    /// Hands out a block for `bytes`, which were not there at once, from the nearest scope of this device
    /// if there is one, to the caller at `call_site`.
    pub(crate) fn allocate_at(
        &self,
        bytes: u64,
        stream: StreamId,
        call_site: &'static Location<'static>,
    ) -> Result<BlockHandle> {
        let Some(size) = self.size(bytes).filter(|_| bytes > 0) else {
            return self.ready(self.serve_nothing(bytes)?);
        };
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

    /// Hands out memory that somebody else allocated, and that belongs to no cache; `destructor` is called
    /// once, when nobody uses it any more.
    pub(crate) fn import_foreign(
        &self,
        address: DevicePtr,
        bytes: u64,
        stream: StreamId,
        destructor: Destructor,
    ) -> Result<BlockHandle> {
        publish_bound();
        self.ask_whether_broken()?;
        // What was taken in before and is not used any more ends here, lest it pile up where every
        // allocation is a hit.
        self.settle_uncached();
        self.memory.free_imported();
        self.memory.take_deferred_error()?;
        let block = self.memory.import_foreign(address, stream, destructor);
        self.with_uncached(|access| access.adopt_uncached(block, bytes))
    }

    /// Counts a copy of an array that was written to while others shared its memory, in the scope that the thread is in.
    #[cold]
    pub(crate) fn note_copy_on_write(&self) {
        if let Some(shard) = stack::shard_of(self) {
            shard.counters.copies_on_write.add(1);
        }
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
            Some(Way::Bins | Way::Part | Way::Gap(_)) | None => return Ok(None),
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
        self.memory.allocate_without_reclaim(&request)
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
            let Some(block) = self.memory.allocate_without_reserve(&request) else {
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
