//! The census: the reserved bytes of a device by use, at one moment.

use super::DeviceMemory;
use crate::error::OutOfMemoryReport;

/// The bytes of a device at one moment.
///
/// Invariant: each reserved byte is counted in exactly one of the fields from `kept_bytes` to
/// `moving_bytes`. So these fields sum up to `reserved_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Bytes held from the device, including the bytes that a source keeps for the next growth.
    pub(crate) reserved_bytes: u64,
    pub(crate) kept_bytes: u64,
    /// Free bytes of the pool.
    pub(crate) free_bytes: u64,
    /// Freed bytes that await an event.
    pub(crate) pending_bytes: u64,
    /// Requested bytes of live blocks.
    pub(crate) live_bytes: u64,
    /// Bytes that live blocks occupy beyond the requested bytes, by rounding and in shared arenas.
    pub(crate) rounding_bytes: u64,
    /// Idle bytes of the layer above.
    pub(crate) cached_bytes: u64,
    /// Bytes in transit between a thread and the pool.
    pub(crate) moving_bytes: u64,
    /// The bytes of the largest free block; part of `free_bytes`.
    pub(crate) largest_free_block_bytes: u64,
    /// Bytes, live or idle, of caches that other threads have entered.
    pub(crate) entered_bytes: u64,
    /// True if blocks that were dropped still count as live, until a drain.
    pub(crate) has_remote: bool,
}

impl Census {
    /// Moves bytes of the layer above from `moving_bytes` to the fields of their uses. Returns the
    /// moved bytes.
    pub(crate) fn count(&mut self, owned: OwnedBytes) -> OwnedBytes {
        let pending_bytes = owned.pending_bytes.min(owned.bytes);
        let allocated_bytes = owned.allocated_bytes.min(owned.bytes - pending_bytes);
        let live_bytes = owned.live_bytes.min(allocated_bytes);
        debug_assert!(owned.bytes <= self.moving_bytes, "a block is counted twice");
        self.moving_bytes = self.moving_bytes.saturating_sub(owned.bytes);
        self.pending_bytes += pending_bytes;
        self.live_bytes += live_bytes;
        let idle_bytes = owned.bytes - pending_bytes - allocated_bytes;
        let detached_bytes = owned.detached_bytes.min(idle_bytes);
        self.rounding_bytes += allocated_bytes - live_bytes + detached_bytes;
        self.cached_bytes += idle_bytes - detached_bytes;
        OwnedBytes {
            bytes: owned.bytes,
            pending_bytes,
            allocated_bytes,
            live_bytes,
            detached_bytes,
        }
    }

    pub(crate) fn write_to(&self, report: &mut OutOfMemoryReport) {
        report.reserved_bytes = self.reserved_bytes;
        report.kept_bytes = self.kept_bytes;
        report.free_bytes = self.free_bytes;
        report.largest_free_block_bytes = self.largest_free_block_bytes;
        report.pending_bytes = self.pending_bytes;
        report.live_bytes = self.live_bytes;
        report.rounding_bytes = self.rounding_bytes;
        report.idle_bytes = self.cached_bytes;
        report.moving_bytes = self.moving_bytes;
    }

    /// Returns true if there is room for a request of `bytes` beside live blocks, under a limit of
    /// `ceiling_bytes`.
    pub(super) fn has_room(&self, bytes: u64, ceiling_bytes: u64) -> bool {
        let taken_bytes = self.live_bytes + self.rounding_bytes;
        let is_free = taken_bytes.saturating_add(bytes) <= ceiling_bytes;
        is_free || self.has_remote && bytes <= ceiling_bytes
    }

    /// Returns true if other threads may release idle memory, or blocks that separate free blocks.
    pub(super) fn is_changing(&self) -> bool {
        self.entered_bytes + self.moving_bytes > 0 || self.has_remote
    }
}

/// The bytes that a component of the layer above owns, by use. The component may change while the
/// fields are read, so [`Census::count`] clamps the fields to `bytes`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnedBytes {
    pub(crate) bytes: u64,
    pub(crate) pending_bytes: u64,
    /// Bytes of live blocks.
    pub(crate) allocated_bytes: u64,
    /// Requested bytes of live blocks. If memory was imported, this number may exceed
    /// `allocated_bytes`.
    pub(crate) live_bytes: u64,
    /// Bytes of arenas that serve no request, because live blocks share the arenas.
    pub(crate) detached_bytes: u64,
}

impl OwnedBytes {
    /// Returns the bytes of counted memory that could serve requests.
    pub(crate) fn idle_bytes(&self) -> u64 {
        self.bytes - self.pending_bytes - self.allocated_bytes - self.detached_bytes
    }
}

impl DeviceMemory {
    /// Calls `count` while no block leaves or enters the pool. At first, all memory that is neither
    /// free nor pending counts as in transit. Returns the census that `count` completed.
    pub(crate) fn census(&self, count: impl FnOnce(&mut Census)) -> Census {
        let state = self.state.lock();
        let (free_bytes, pending_bytes) = (state.pool.free_bytes(), state.pending.bytes());
        let in_segments_bytes = self.source.reserved_bytes();
        let kept_bytes = self.kept_bytes();
        let mut census = Census {
            reserved_bytes: in_segments_bytes + kept_bytes,
            kept_bytes,
            free_bytes,
            pending_bytes,
            moving_bytes: in_segments_bytes - free_bytes - pending_bytes,
            largest_free_block_bytes: state.pool.largest_free_block_bytes(),
            ..Census::default()
        };
        count(&mut census);
        census
    }
}
