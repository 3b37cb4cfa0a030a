//! The blocks that an allocator releases to the pool: to make room for a request, or by age.

use super::{Allocator, AllocatorState};
use crate::cache::arena::{ARENA, SUBALLOCATION};
use crate::cache::policy::Trim;
use crate::cache::request::Request;
use crate::device::StreamId;
use crate::memory::ExchangeCost;
use crate::memory::header::{Header, List};

impl AllocatorState {
    /// Returns the bytes of the shard's idle blocks that belong to other streams than `stream`.
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
    /// Evicts idle blocks to the pool, for a request that no idle block can serve. All are evicted
    /// at once, so that neighbours coalesce.
    ///
    /// The peak is the maximum that was ever handed out at once. If the cache would exceed the
    /// peak, or the memory would have to grow (`to_grow`), unused blocks are evicted. An unused
    /// block has served nothing since the entry began. If both conditions hold, the other blocks
    /// are evicted as well, and the slab if no plan is followed. In a first entry, these other
    /// blocks are evicted only if the cache would exceed twice the peak. So an entry that repeats
    /// finds a block for each of its requests. An entry that varies takes its memory from blocks
    /// that it does not need.
    ///
    /// The memory reports the cost of an exchange. If the memory keeps nothing idle, each exchange
    /// would be two driver calls. The cache may then own twice the peak before it evicts anything.
    /// If growth is expensive and an exchange is not, each miss evicts the unused blocks. Blocks
    /// that coalesce early leave no gaps to grow around.
    ///
    /// Each stream is treated separately: an idle block of another stream would make this stream
    /// wait for it.
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
        // In a first entry, it is not known yet which sizes will be requested again.
        let is_first = self.known_out_bytes == 0;
        let slack_bytes = if is_first { peak_bytes } else { 0 };
        if to_grow && wanted_bytes.saturating_sub(peak_bytes) > slack_bytes {
            self.store
                .release_where(|header| header.block.stream == stream);
            self.trim(Trim::Unused);
        }
    }

    /// Releases, between two entries, the blocks that the policy does not keep, and the blocks that
    /// were unused for too long.
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

    /// Releases every idle block, pending ones included.
    pub(in crate::cache) fn release_idle(&mut self) -> List {
        self.release_unused();
        self.take_released()
    }

    fn release_unused(&mut self) {
        // There may be idle headers of suballocations but no idle arena, and the reverse.
        if self.counters.cached_bytes() > 0 || self.counters.idle_headers() > 0 {
            self.release_all();
        }
        if self.store.has_pending() {
            self.state.store.release_pending(self.counters);
        }
    }

    /// Takes the blocks that go to the pool.
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
