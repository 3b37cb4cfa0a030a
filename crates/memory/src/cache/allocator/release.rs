//! The blocks that an allocator releases to the pool, for a request or because of their age.

use super::{Allocator, AllocatorState};
use crate::cache::arena::{ARENA, SUBALLOCATION};
use crate::cache::policy::Trim;
use crate::cache::request::Request;
use crate::device::StreamId;
use crate::memory::ExchangeCost;
use crate::memory::header::{Header, List};

impl AllocatorState {
    pub(in crate::cache) fn idle_bytes_beside(&self, stream: StreamId) -> u64 {
        let others = self.store.idle();
        let others = others.filter(|header| header.block.stream != stream);
        others.map(|header| header.block.bytes()).sum()
    }

    pub(super) fn trim(&mut self, trim: Trim) {
        if let Some(policy) = self.policies.arenas() {
            policy.trim(&mut self.store, trim);
        }
    }

    pub(super) fn release_all(&mut self) {
        (self.peak_out_bytes, self.known_out_bytes) = (0, 0);
        self.store.release_free_lists();
        self.trim(Trim::All);
    }
}

impl Allocator<'_> {
    /// Evicts idle blocks to the pool, for a request that no idle block can serve. All evicted
    /// blocks are released together, so that neighbours coalesce.
    ///
    /// The peak is the maximum of allocated bytes so far. If the cache would exceed the peak, or
    /// the memory would have to grow (`to_grow`), unused blocks are evicted. An unused block has
    /// served no request since the entry began. If the cache would exceed the peak and the memory
    /// would have to grow, used blocks are evicted too. If no plan is active, the slab is then
    /// evicted too. In a first entry, used blocks are evicted only if the cache would exceed twice
    /// the peak. So an entry that repeats finds a block for each of its requests. An entry that
    /// varies gets its memory from blocks that it does not need.
    ///
    /// An exchange returns an idle block to the pool and takes another block. `exchange` is the
    /// cost of an exchange. If the pool keeps no idle blocks, an exchange needs two driver calls.
    /// The cache may then own twice the peak before it evicts a block. If an exchange costs less
    /// than growth, each miss evicts the unused blocks. Early coalescing leaves no gaps that would
    /// force growth.
    ///
    /// Each stream is treated separately, because a block of another stream would make this stream
    /// wait.
    pub(in crate::cache) fn evict(
        &mut self,
        request: &Request,
        elsewhere_bytes: u64,
        to_grow: bool,
        exchange: ExchangeCost,
    ) {
        let (bytes, stream) = (request.size.rounded_bytes, request.stream);
        let out_bytes = self.counters.allocated_bytes.get() + bytes;
        self.peak_out_bytes = self.peak_out_bytes.max(out_bytes);
        let peak_bytes = self.peak_out_bytes;
        let wanted_bytes = self.counters.owned_bytes.get() - elsewhere_bytes + bytes;
        if exchange == ExchangeCost::High && wanted_bytes <= peak_bytes.saturating_mul(2) {
            return;
        }
        let epoch = self.store.epoch;
        let is_early = exchange == ExchangeCost::BelowGrowth;
        if wanted_bytes > peak_bytes || to_grow || is_early {
            let is_unused = |header: &Header| header.epoch() < epoch;
            self.store
                .release_where(|header| header.block.stream == stream && is_unused(header));
        }
        // In a first entry, the sizes that repeat are not known yet.
        let is_first = self.known_out_bytes == 0;
        let slack_bytes = if is_first { peak_bytes } else { 0 };
        if to_grow && wanted_bytes.saturating_sub(peak_bytes) > slack_bytes {
            self.store
                .release_where(|header| header.block.stream == stream);
            self.trim(Trim::Unused);
        }
    }

    /// Releases blocks between two entries: blocks that the policy does not keep, and blocks above
    /// the age limit.
    pub(in crate::cache) fn trim_between_entries(&mut self) {
        if self.is_entered() || self.store.epoch < self.due_epoch {
            return;
        }
        if !self.keeps_idle() {
            return self.release_unused();
        }
        let epoch = self.store.epoch;
        let expiry_epoch = self.aging.sweep(epoch);
        self.due_epoch = self.aging.due_epoch();
        if expiry_epoch > 0 {
            self.store
                .release_where(|header| header.epoch() < expiry_epoch);
            self.trim(Trim::OlderThan(expiry_epoch));
        }
    }

    /// Releases every idle block, including pending blocks.
    pub(in crate::cache) fn release_idle(&mut self) -> List {
        self.release_unused();
        self.take_released()
    }

    fn release_unused(&mut self) {
        // Idle headers of suballocations can exist without idle bytes, and idle arenas without idle
        // headers.
        if self.counters.cached_bytes() > 0 || self.counters.idle_headers() > 0 {
            self.release_all();
        }
        if self.store.has_pending() {
            self.state.store.release_pending(self.counters);
        }
    }

    /// Removes and returns the blocks that go to the pool.
    pub(in crate::cache) fn take_released(&mut self) -> List {
        let released = std::mem::take(&mut self.store.to_release);
        let mut blocks = List::new();
        for header in released {
            self.counters
                .owned_blocks
                .sub(u64::from(header.class != ARENA));
            if header.class >= SUBALLOCATION {
                self.counters.count_released(header.class == ARENA);
            }
            if header.class != SUBALLOCATION {
                self.counters.owned_bytes.sub(header.block.bytes());
                blocks.push(header);
            }
        }
        blocks
    }
}
