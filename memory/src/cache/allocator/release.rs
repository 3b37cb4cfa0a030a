//! What an allocator releases to the pool: to make room for a request, and what it keeps no longer.

use super::Allocator;
use crate::cache::arena::{ARENA, SUBALLOCATION};
use crate::cache::policy::{CachePolicy, Trim, dispatch};
use crate::cache::request::Request;
use crate::cache::stats::Counters;
use crate::device::StreamId;
use crate::memory::ExchangeCost;
use crate::memory::header::{Header, Home, List};

impl<H: Home> Allocator<H> {
    /// Evicts idle blocks of other sizes, by way of the pool, for a request that none of them fits.
    /// All at once, so that neighbours coalesce.
    ///
    /// Where the cache would own more than was ever out at once, or the memory would have to grow
    /// (`to_grow`), it evicts blocks that served nothing since the entry. Where the memory would
    /// have to grow, and the cache would own more than the peak too (twice the peak, in a first
    /// entry), it evicts the others as well, and the slab where no plan is followed. So an entry
    /// that repeats finds a block for each of its requests, and one that varies takes what it needs
    /// out of what it does not.
    ///
    /// What an exchange costs is told by the memory below. Where nothing there keeps idle memory,
    /// each would be two calls of the driver: there the cache may own twice the peak before it
    /// evicts anything. Where growth costs much and an exchange does not, each miss evicts what
    /// served nothing since the entry: what coalesces early leaves no gaps to grow around.
    ///
    /// Streams are looked at one by one: another's idle block would make this one wait for it.
    pub(in crate::cache) fn evict(
        &mut self,
        counters: &Counters,
        request: &Request,
        elsewhere_bytes: u64,
        to_grow: bool,
        exchange: ExchangeCost,
    ) {
        let (bytes, stream) = (request.size.rounded_bytes, request.stream);
        let out_bytes = counters.allocated_bytes.get() + bytes;
        self.peak_out_bytes = self.peak_out_bytes.max(out_bytes);
        let peak_bytes = self.peak_out_bytes;
        let wanted_bytes = counters.owned_bytes.get() - elsewhere_bytes + bytes;
        if exchange == ExchangeCost::High && wanted_bytes <= peak_bytes.saturating_mul(2) {
            return;
        }
        let epoch = self.store.epoch;
        let is_early = exchange == ExchangeCost::BelowGrowth;
        if wanted_bytes > peak_bytes || to_grow || is_early {
            let is_unused = |header: &Header<H>| header.epoch() < epoch;
            self.store
                .release_where(|header| header.block.stream == stream && is_unused(header));
        }
        // A first entry does not know yet what it will request again.
        let is_first = self.known_out_bytes == 0;
        let slack_bytes = if is_first { peak_bytes } else { 0 };
        if to_grow && wanted_bytes.saturating_sub(peak_bytes) > slack_bytes {
            self.store
                .release_where(|header| header.block.stream == stream);
            self.trim(Trim::Unused);
        }
    }

    /// Bytes idle here that follow other streams.
    pub(in crate::cache) fn idle_bytes_beside(&self, stream: StreamId) -> u64 {
        let others = self.store.idle();
        let others = others.filter(|header| header.block.stream != stream);
        others.map(|header| header.block.bytes()).sum()
    }

    pub(super) fn trim(&mut self, trim: Trim) {
        dispatch!(self.policies, policy => policy.trim(&mut self.store, trim));
    }

    /// Between two entries: releases what the policy does not keep, and what has gone unused for
    /// too long.
    pub(in crate::cache) fn trim_between_entries(&mut self, counters: &Counters) {
        if self.is_entered() || self.store.epoch < self.due_epoch {
            return;
        }
        if !self.keeps_idle() {
            return self.release_idle(counters);
        }
        let expiry_epoch = self.aging.sweep(self.store.epoch);
        self.due_epoch = self.aging.due_epoch();
        if expiry_epoch > 0 {
            self.store
                .release_where(|header| header.epoch() < expiry_epoch);
            self.trim(Trim::OlderThan(expiry_epoch));
        }
    }

    /// Releases every idle block, pending ones included.
    pub(in crate::cache) fn release_idle(&mut self, counters: &Counters) {
        // Headers of suballocations may be idle without an arena, and an arena without any.
        if counters.cached_bytes() > 0 || counters.idle_headers() > 0 {
            self.release_all();
        }
        if self.store.has_pending() {
            self.store.release_pending(counters);
        }
    }

    pub(super) fn release_all(&mut self) {
        (self.peak_out_bytes, self.known_out_bytes) = (0, 0);
        self.store.release_free_lists();
        self.trim(Trim::All);
    }

    /// The blocks that go to the pool.
    pub(in crate::cache) fn take_released(&mut self, counters: &Counters) -> List<H> {
        let released = std::mem::replace(&mut self.store.to_release, List::new());
        let mut blocks = List::new();
        for header in released {
            counters.owned_blocks.sub(u64::from(header.class != ARENA));
            if header.class >= SUBALLOCATION {
                counters.count_released(header.class == ARENA);
            }
            if header.class != SUBALLOCATION {
                counters.owned_bytes.sub(header.block.bytes());
                blocks.push(header);
            }
        }
        blocks
    }
}
