//! The live bytes of a device, summed over all shards without a shared counter on the hit path.
//!
//! Each shard publishes its live bytes at an exit, at the entry of an inner scope, and at a visit.
//! Between publications, each shard tracks its own peak. The device's peak is computed from the
//! shards' peaks, and is never below the true peak. If only one thread allocates and drops inside
//! its scopes, the computed peak is exact.

use crate::memory::OwnedBytes;
use crate::sync::plain::{AtomicI64, AtomicU64, Ordering};

/// The device-wide sums.
#[derive(Debug, Default)]
pub(crate) struct DeviceTotals {
    /// The sum of the last published live bytes of all shards, and of the live bytes of orphans.
    published_bytes: AtomicI64,
    peak_bytes: AtomicU64,
    orphan_blocks: AtomicI64,
    orphan_bytes: AtomicI64,
    /// The bytes of the orphans' blocks and arenas.
    orphan_owned_bytes: AtomicI64,
    /// The clock for the recency of shards. Rung 3 sorts the shards by recency. The clock advances
    /// at each miss.
    miss_epoch: AtomicU64,
}

impl DeviceTotals {
    /// Publishes the `live` bytes of a shard. `before` is the shard's last published value, and
    /// `peak` is its peak since this publication.
    pub(super) fn publish(&self, before: u64, live: u64, peak: u64) {
        let others = self.published_bytes.load(Ordering::Relaxed) - before as i64;
        self.raise_peak(others + peak as i64);
        if live != before {
            self.published_bytes
                .fetch_add(live as i64 - before as i64, Ordering::Relaxed);
        }
    }

    pub(super) fn would_raise(&self, before: u64, peak: u64) -> bool {
        let others = self.published_bytes.load(Ordering::Relaxed) - before as i64;
        others + peak as i64 > self.peak_bytes.load(Ordering::Relaxed) as i64
    }

    #[inline]
    pub(super) fn miss_epoch(&self) -> u64 {
        self.miss_epoch.load(Ordering::Relaxed)
    }

    pub(super) fn count_miss(&self) {
        self.miss_epoch.fetch_add(1, Ordering::Relaxed);
    }

    fn raise_peak(&self, bytes: i64) {
        let bytes = bytes.max(0) as u64;
        if bytes > self.peak_bytes.load(Ordering::Relaxed) {
            self.peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn reset_peak(&self) {
        let live = self.published_bytes.load(Ordering::Relaxed).max(0);
        self.peak_bytes.store(live as u64, Ordering::Relaxed);
    }

    /// Counts the live blocks of a closed shard, their requested bytes, and the bytes that the
    /// shard owned.
    pub(super) fn adopt_orphans(&self, blocks: u64, bytes: u64, owned_bytes: u64) {
        self.orphan_blocks
            .fetch_add(blocks as i64, Ordering::Relaxed);
        self.orphan_bytes.fetch_add(bytes as i64, Ordering::Relaxed);
        self.orphan_owned_bytes
            .fetch_add(owned_bytes as i64, Ordering::Relaxed);
    }

    pub(super) fn release_orphaned(&self, bytes: u64) {
        self.orphan_owned_bytes
            .fetch_sub(bytes as i64, Ordering::Relaxed);
    }

    pub(super) fn orphans_owned(&self) -> OwnedBytes {
        let bytes = self.orphan_owned_bytes.load(Ordering::Relaxed).max(0) as u64;
        OwnedBytes {
            bytes,
            allocated_bytes: bytes,
            live_bytes: self.orphans().1,
            ..OwnedBytes::default()
        }
    }

    /// Subtracts a dropped orphan. The drop may precede the shard's call of
    /// [`adopt_orphans`](Self::adopt_orphans).
    pub(super) fn drop_orphan(&self, bytes: u64) {
        self.orphan_blocks.fetch_sub(1, Ordering::Relaxed);
        self.orphan_bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
        self.published_bytes
            .fetch_sub(bytes as i64, Ordering::Relaxed);
    }

    /// Returns the live blocks of closed shards, and their requested bytes.
    pub(super) fn orphans(&self) -> (u64, u64) {
        let blocks = self.orphan_blocks.load(Ordering::Relaxed).max(0);
        let bytes = self.orphan_bytes.load(Ordering::Relaxed).max(0);
        (blocks as u64, bytes as u64)
    }
}
