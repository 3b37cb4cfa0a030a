//! The path of a request that is not a hit. The path first tries free memory of the shard. Then it
//! evicts blocks and tries the pool. Last, it uses the reclaim ladder of the memory.

use std::panic::Location;
use std::ptr;

use super::policy::Need;
use super::request::{Request, Size};
use super::scope::{self, current_stream};
use super::shard::{
    BlockHandle, Caches, Shard, current_has_waiter, publish_current, refill_current,
};
use crate::device::{DevicePtr, StreamId, Use};
use crate::error::{Error, ErrorCode, Result, reported_call_site};
use crate::memory::{self, Destructor};
use crate::recorder::EventKind;

impl Caches {
    /// Serves a request that missed in the current shard.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_otherwise(
        &self,
        bytes: u64,
        call_site: &'static Location<'static>,
    ) -> Result<BlockHandle> {
        if scope::settle() {
            return self.allocate(bytes, call_site);
        }
        self.allocate_slowly(bytes, current_stream(self), call_site)
    }

    #[inline(never)]
    pub(super) fn allocate_slowly(
        &self,
        bytes: u64,
        stream: StreamId,
        call_site: &'static Location<'static>,
    ) -> Result<BlockHandle> {
        let Some(size) = self.size(bytes, call_site)? else {
            return self.allocate_nothing();
        };
        let request = Request {
            size,
            stream,
            call_site: reported_call_site(call_site),
        };
        if current_has_waiter() {
            self.return_idle(scope::release_for_waiter(self));
        }
        let (block, kind) = match refill_current(self, &request) {
            Some(block) => (block, EventKind::Hit),
            None => self.miss(&request).map_err(|error| error.at(call_site))?,
        };
        self.record_allocation(kind, &block, &request);
        self.filled(block)
    }

    /// Allocates a block that belongs to no cache.
    pub(crate) fn allocate_uncached(
        &self,
        bytes: u64,
        call_site: &'static Location<'static>,
    ) -> Result<BlockHandle> {
        scope::settle();
        publish_current();
        let Some(size) = self.size(bytes, call_site)? else {
            return self.allocate_nothing();
        };
        let request = Request {
            size,
            stream: current_stream(self),
            call_site: reported_call_site(call_site),
        };
        let block = self.allocate_from_memory(None, &request);
        let block = block.map_err(|error| error.at(call_site))?;
        self.record_allocation(EventKind::Uncached, &block, &request);
        self.filled(block)
    }

    /// Serves a miss by the slow path. Returns the block, and whether the request counts as a hit,
    /// a miss or uncached.
    #[cold]
    fn miss(&self, request: &Request) -> Result<(BlockHandle, EventKind)> {
        let Some(shard) = scope::shard_of(self) else {
            let block = self.allocate_from_memory(None, request)?;
            return Ok((block, EventKind::Uncached));
        };
        self.miss_in(&shard, request)
    }

    /// Serves a miss in a scope. Returns the block, and whether the request counts as a hit or a
    /// miss.
    pub(super) fn miss_in(
        &self,
        shard: &Shard,
        request: &Request,
    ) -> Result<(BlockHandle, EventKind)> {
        let misses = shard.counters.misses.get();
        let block = self.serve_miss(shard, request)?;
        let kind = match shard.counters.misses.get() == misses {
            true => EventKind::Hit,
            false => EventKind::Miss,
        };
        Ok((block, kind))
    }

    fn serve_miss(&self, shard: &Shard, request: &Request) -> Result<BlockHandle> {
        let need = match self.refill(shard, request) {
            Ok(block) => return Ok(block),
            Err(need) => need,
        };
        if !self.has_room(shard, request.size.rounded_bytes) {
            let block = self.allocate_from_memory(None, request)?;
            shard.counters.misses.add(1);
            return Ok(block);
        }
        if let Need::Arena { bytes, min_bytes } = need
            && let Some(block) = self.refill_from_arena(shard, bytes, min_bytes, request)?
        {
            return Ok(block);
        }
        if let Some(block) = self.allocate_from_pool(shard, request) {
            return Ok(block);
        }
        self.allocate_from_memory(Some(shard), request)
    }

    /// Serves a request from free memory of the shard. First takes back the blocks that other
    /// threads dropped. The shard's scope need not be the innermost scope.
    fn refill(&self, shard: &Shard, request: &Request) -> std::result::Result<BlockHandle, Need> {
        let Some(mut guard) = shard.guard() else {
            return Err(Need::Block);
        };
        self.return_idle(guard.drain_deferred());
        guard.refill(request).map(BlockHandle::from)
    }

    /// Serves a request from free memory of the pool. The shard first evicts idle blocks of other
    /// sizes to the pool. Returns `None` if the memory must grow.
    fn allocate_from_pool(&self, shard: &Shard, request: &Request) -> Option<BlockHandle> {
        self.drain_uncached();
        for to_grow in [false, true] {
            let moving = self.moving.lock();
            self.return_idle(shard.guard()?.evict(request, to_grow));
            drop(moving);
            let Some(block) = self
                .memory
                .allocate_without_reserve(&to_memory(Some(shard), request))
            else {
                continue;
            };
            let Some(mut guard) = shard.guard() else {
                self.memory.free([block]);
                return None;
            };
            return Some(guard.adopt_free(block, request).into());
        }
        None
    }

    /// Serves a request from the memory, with its reclaim ladder. Without a shard, the block
    /// belongs to no cache.
    pub(super) fn allocate_from_memory(
        &self,
        shard: Option<&Shard>,
        request: &Request,
    ) -> Result<BlockHandle> {
        self.check_not_broken()?;
        self.totals.count_miss();
        self.drain_uncached();
        self.sweep_by_time();
        // No borrow of the shard may exist during this call, because rung 3 may access the shard.
        let block = self.memory.allocate(&to_memory(shard, request))?;
        match shard.and_then(Shard::guard) {
            Some(mut guard) => Ok(guard.adopt(block, request).into()),
            None => self
                .with_uncached(|guard| guard.adopt_uncached(block, request.size.requested_bytes)),
        }
    }

    /// Returns true if the shard's cache may own another `bytes` bytes. If `max_bytes` allows this
    /// only without the shard's idle blocks, releases these blocks.
    pub(super) fn has_room(&self, shard: &Shard, bytes: u64) -> bool {
        let settings = shard.settings.as_ref();
        let max_bytes = settings.map_or(u64::MAX, |settings| settings.max_bytes());
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
        if let Some(mut guard) = shard.guard() {
            self.return_idle(guard.release_idle());
        }
        fits(self.owned_bytes(shard))
    }

    /// Returns the size of a request, or `None` for a request of 0 bytes.
    pub(super) fn size(
        &self,
        bytes: u64,
        call_site: &'static Location<'static>,
    ) -> Result<Option<Size>> {
        if bytes > isize::MAX as u64 {
            let text = format!("a buffer of {bytes} bytes exceeds the address space");
            return Err(Error::new(ErrorCode::Size, text).at(call_site));
        }
        self.check_not_broken()
            .map_err(|error| error.at(call_site))?;
        let size = Size::new(bytes, self.memory.rounding());
        Ok(size.filter(|_| bytes > 0))
    }

    /// Serves a request of 0 bytes with a header that has no block.
    #[cold]
    fn allocate_nothing(&self) -> Result<BlockHandle> {
        self.with_uncached(|guard| guard.hand_out_empty())
    }

    /// Imports foreign memory, which belongs to no cache. `allowed` is the maximum access to the
    /// memory. Calls `destructor` once, after the last use of the memory.
    pub(crate) fn import(
        &self,
        address: DevicePtr,
        bytes: u64,
        allowed: Use,
        destructor: Destructor,
    ) -> Result<BlockHandle> {
        scope::settle();
        publish_current();
        self.check_not_broken()?;
        // Unused imported memory is freed first. Otherwise, it would accumulate in a program in
        // which every allocation is a hit.
        self.drain_uncached();
        self.memory.free_imported();
        self.memory.take_deferred_error()?;
        let block = self
            .memory
            .import_foreign(address, current_stream(self), allowed, destructor);
        self.with_uncached(|guard| guard.adopt_uncached(block, bytes))
    }

    /// Counts a copy-on-write in the thread's scope. `shared_at` is the call site that created the
    /// handle which forced the copy. If the scope's entry allocated the copy, marks the copy in the
    /// record of the entry.
    #[cold]
    pub(crate) fn note_copy_on_write(
        &self,
        copy: &BlockHandle,
        shared_at: Option<&'static Location<'static>>,
    ) {
        self.record_copy_on_write(copy);
        let Some(shard) = scope::shard_of(self) else {
            return;
        };
        shard.counters.copies_on_write.add(1);
        if ptr::eq(copy.home(), &**shard)
            && let Some(mut guard) = shard.guard()
        {
            guard.mark_copy_on_write(copy, shared_at);
        }
    }

    fn check_not_broken(&self) -> Result<()> {
        self.config.broken.clone().map_or(Ok(()), Err)
    }
}

pub(super) fn to_memory<'a>(shard: Option<&'a Shard>, request: &Request) -> memory::Request<'a> {
    let settings = shard.and_then(|shard| shard.settings.as_ref());
    memory::Request {
        bytes: request.size.requested_bytes,
        stream: request.stream,
        scope: settings.map(|settings| &*settings.name),
    }
}
