//! The slow path of requests. The policy or the pool serves them.

use super::{Allocator, AllocatorState, EMPTY_EPOCH, UNCACHED_EPOCH};
use crate::cache::arena::SUBALLOCATION;
use crate::cache::policy::{CachePolicy, Need, dispatch};
use crate::cache::record::RECORDED;
use crate::cache::request::Request;
use crate::memory::Block;
use crate::memory::header::{HandedOut, Header};

impl Allocator<'_> {
    /// Serves a request that missed, or returns the kind of memory that the request needs. A
    /// request between two entries is never served from an arena, because the next entry hands out
    /// the whole arena.
    pub(in crate::cache) fn refill(&mut self, request: &Request) -> Result<HandedOut, Need> {
        let AllocatorState {
            store,
            policies,
            depth,
            ..
        } = &mut *self.state;
        let served = if *depth == 0 {
            let fit = store.pop_tightest(request.size, request.stream);
            fit.ok_or(Need::Block)
        } else {
            dispatch!(policies, policy => policy.refill(store, self.counters, request))
        };
        self.update_fast_path();
        let header = served?;
        self.counters.hits.add(1);
        Ok(self.hand_out(header, request))
    }

    /// Hands out a block of the pool. The shard becomes the home of the block.
    pub(in crate::cache) fn adopt(&mut self, block: Block, request: &Request) -> HandedOut {
        self.counters.misses.add(1);
        let header = self.state.store.new_header(self.counters, block);
        self.hand_out(header, request)
    }

    /// Like [`adopt`](Self::adopt), for a block that the memory provided without growth. If the
    /// shard then owns at most 9/8 of `known_out_bytes`, the request counts as a hit.
    pub(in crate::cache) fn adopt_free(&mut self, block: Block, request: &Request) -> HandedOut {
        let owned_bytes = self.counters.owned_bytes.get() + block.bytes();
        if owned_bytes > self.known_out_bytes + self.known_out_bytes / 8 {
            return self.adopt(block, request);
        }
        self.counters.hits.add(1);
        let header = self.state.store.new_header(self.counters, block);
        self.hand_out(header, request)
    }

    pub(in crate::cache) fn adopt_uncached(
        &mut self,
        block: Block,
        requested_bytes: u64,
    ) -> HandedOut {
        self.counters.count_out(block.bytes(), requested_bytes);
        let header = self.state.store.new_header(self.counters, block);
        header.hand_out(requested_bytes, UNCACHED_EPOCH)
    }

    pub(in crate::cache) fn hand_out_empty(&mut self) -> HandedOut {
        self.empties += 1;
        Header::new(Block::EMPTY, 0, self.store.home()).hand_out(0, EMPTY_EPOCH)
    }

    /// Hands out the block of a request on the slow path. If the entry is recorded, records the
    /// allocation.
    pub(super) fn hand_out(&mut self, mut header: Box<Header>, request: &Request) -> HandedOut {
        let mut epoch = self.store.epoch;
        if let Some(index) = self.state.store.record_allocation(self.counters, request) {
            header.record_index = index;
            epoch |= RECORDED;
        }
        if header.class != SUBALLOCATION && self.is_entered() {
            self.note_block(request);
        }
        self.update_fast_path();
        let requested_bytes = request.size.requested_bytes;
        self.counters
            .count_out(header.block.bytes(), requested_bytes);
        header.hand_out(requested_bytes, epoch)
    }
}
