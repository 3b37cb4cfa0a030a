//! Hits and frees. A hit is a request that an idle block serves. A free makes a block idle.

use super::{Allocator, AllocatorState, EMPTY_EPOCH};
use crate::cache::arena::SUBALLOCATION;
use crate::cache::policy::Policy;
use crate::cache::record::RECORDED;
use crate::device::StreamId;
use crate::memory::Block;
use crate::memory::header::{HandedOut, Header};
use crate::pool::Rounding;
use crate::pool::size_class::floor_class;

impl Allocator<'_> {
    /// Returns the block of a hit, if `policy` serves the request. Callers pass `policy` as a
    /// constant, so the function is compiled for each policy.
    #[inline(always)]
    pub(in crate::cache) fn hit(
        &mut self,
        policy: Policy,
        bytes: u64,
        stream: StreamId,
    ) -> Option<HandedOut> {
        if !self.fast_path.serves(policy) {
            return None;
        }
        let header = self.pop(policy, bytes, stream)?;
        Some(self.hand_out_hit(header, bytes))
    }

    /// Returns the block of a hit under any policy, inside an entry or between two entries.
    pub(in crate::cache) fn any_hit(&mut self, bytes: u64, stream: StreamId) -> Option<HandedOut> {
        if self.is_slow() {
            return None;
        }
        let policy = self.hit_policy();
        let header = self.pop(policy, bytes, stream)?;
        Some(self.hand_out_hit(header, bytes))
    }

    /// Removes and returns the idle block with which `policy` serves a request. Rounds the size to
    /// 512 B, because an exact fit is valid under every pool. If a pool rounds further, `refill`
    /// finds its longer blocks.
    #[inline(always)]
    pub(super) fn pop(
        &mut self,
        policy: Policy,
        bytes: u64,
        stream: StreamId,
    ) -> Option<Box<Header>> {
        let rounded_bytes = Rounding::Units.round(bytes)?;
        let AllocatorState {
            store, policies, ..
        } = &mut *self.state;
        match policy {
            Policy::Bump => policies.bump.allocate(store, rounded_bytes, stream),
            Policy::Plan => policies.plan.allocate(store, rounded_bytes, stream),
            // Tries only the most recently freed block of the class. The size of the block must
            // match exactly.
            Policy::Recycle | Policy::Release => {
                let list = store.list(floor_class(rounded_bytes));
                let fits = |block: &Block| block.bytes() == rounded_bytes && block.stream == stream;
                list.pop_if(|header| fits(&header.block))
            }
        }
    }

    #[inline]
    pub(super) fn hand_out_hit(&self, header: Box<Header>, requested_bytes: u64) -> HandedOut {
        let block_bytes = header.block.bytes(); // Read first: counters may alias it.
        self.counters.hits.add(1);
        self.counters.count_out(block_bytes, requested_bytes);
        header.hand_out(requested_bytes, self.store.epoch)
    }

    /// Takes back a block that has no handles, on the fast path. This path requires a block of the
    /// current epoch that is unrecorded and unused by other streams. Any other block is returned,
    /// for [`free_slowly`](Self::free_slowly).
    #[inline]
    pub(in crate::cache) fn free(&mut self, header: Box<Header>) -> Option<Box<Header>> {
        if !self.fast_path.frees(header.epoch()) {
            return Some(header);
        }
        self.counters
            .count_back(header.block.bytes(), header.requested_bytes);
        self.store.push(header);
        None
    }

    /// Takes back a block of any kind.
    pub(in crate::cache) fn free_slowly(&mut self, mut header: Box<Header>) {
        header.end_uses();
        if header.epoch() == EMPTY_EPOCH {
            self.empties -= 1;
            return;
        }
        if header.epoch() & RECORDED != 0 {
            let epoch = header.epoch() & !RECORDED;
            header.set_epoch(epoch);
            self.store.record_drop(header.record_index, epoch);
        }
        self.counters
            .count_back(header.block.bytes(), header.requested_bytes);
        if header.epoch() < self.store.exit_epoch {
            self.counters.escaped_blocks.sub(1);
        }
        if header.class == SUBALLOCATION {
            self.free_suballocation(header);
        } else if header.epoch() < self.store.invalidation_epoch {
            self.store.to_release.push(header);
        } else if header.block.other_uses.is_empty() {
            self.store.push(header);
        } else {
            self.state.store.defer(self.counters, header);
        }
    }
}
