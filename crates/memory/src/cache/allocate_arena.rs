//! The steps of a miss that only arenas need.

use super::allocate::to_memory;
use super::policy::Need;
use super::request::Request;
use super::shard::{BlockHandle, Caches, Shard};
use crate::error::Result;
use crate::memory::{self, Block};

impl Caches {
    /// Serves a request from a new arena of `bytes` bytes. If the arena would need a reclaim or
    /// exceed `max_bytes`, the arena is only as long as the request. The request must then have at
    /// least `min_bytes` bytes.
    pub(super) fn refill_from_arena(
        &self,
        shard: &Shard,
        bytes: u64,
        min_bytes: u64,
        request: &Request,
    ) -> Result<Option<BlockHandle>> {
        let mut arena = self.allocate_arena(shard, bytes, request)?;
        if arena.is_none() && min_bytes <= request.size.rounded_bytes {
            arena = Some(self.memory.allocate(&to_memory(Some(shard), request))?);
        }
        let mut guard = shard.guard();
        let (served, surplus) = match (&mut guard, arena) {
            (Some(guard), Some(arena)) => guard.refill_from(arena, request),
            (Some(guard), None) => (guard.without_arena(request), None),
            (None, arena) => (Err(Need::Block), arena),
        };
        drop(guard);
        self.memory.free(surplus);
        Ok(served.ok().map(BlockHandle::from))
    }

    /// Allocates an arena. Returns `None` if the allocation would need a reclaim or exceed
    /// `max_bytes`.
    fn allocate_arena(
        &self,
        shard: &Shard,
        bytes: u64,
        request: &Request,
    ) -> Result<Option<Block>> {
        if !self.has_room(shard, bytes) {
            return Ok(None);
        }
        self.drain_uncached();
        let request = memory::Request {
            bytes,
            ..to_memory(Some(shard), request)
        };
        self.memory.allocate_without_reclaim(&request)
    }
}
