//! Pools: algorithms that cut segments into blocks. A pool computes on offsets, and uses no
//! pointer, no lock, no device and no `unsafe`.
//!
//! Architecture invariant: a pool never reserves or releases memory. It is given segments, and
//! returns `None` when no block fits. A new pool is one file here, one variant of [`PoolKind`], and
//! one line in the conformance suite.

mod best_fit;
mod binned;
mod bins;
mod blocks;
#[cfg(test)]
mod conformance;
mod direct;
mod owner;
pub(crate) mod simulated;
pub(crate) mod size_class;
mod uncommitted;
mod unsplit;

use std::fmt;

use crate::device::StreamId;
use crate::naming::names;
use crate::size::{UNIT_BYTES, round_up};
pub(crate) use owner::StreamOwner;

/// The number of a segment, chosen by the layer above. Numbers are reused after
/// [`Pool::remove_segment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentId(pub(crate) u32);

/// A block that the pool has handed out: a contiguous part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) segment: SegmentId,
    /// The offset in the segment; a multiple of 512.
    pub(crate) offset: u64,
    /// The length: the request, rounded up by [`Pool::rounding`]. If the remainder of the block is
    /// too small to split off, the length includes the remainder.
    pub(crate) bytes: u64,
    /// The pool's own handle.
    pub(crate) node: u32,
}

/// A part of a range that is committed or decommitted in one step. Its bounds are multiples of the
/// page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
    /// The length; not 0.
    pub(crate) bytes: u64,
    /// The pool's own handle, valid until the block that contains the pages changes.
    pub(crate) node: u32,
}

/// The rounding of a pool's requests. It is plain data, so that the caches round like the pool
/// without calling the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// Rounding up to a multiple of 512 bytes.
    Units,
    /// Rounding up to a power of two, at least 512 bytes.
    PowersOfTwo,
}

impl Rounding {
    /// Returns the minimal size of a block for a request of `bytes`; `None` on overflow.
    #[inline]
    pub(crate) fn round(self, bytes: u64) -> Option<u64> {
        let units_bytes = round_up(bytes, UNIT_BYTES)?;
        match self {
            Self::Units => Some(units_bytes),
            Self::PowersOfTwo if units_bytes == 0 => Some(0),
            Self::PowersOfTwo => units_bytes.checked_next_power_of_two(),
        }
    }

    /// Returns the maximum total length of blocks for requests of `bytes` in total, without the
    /// rounding to units.
    pub(crate) fn most_bytes(self, bytes: u64) -> u64 {
        match self {
            Self::Units => bytes,
            Self::PowersOfTwo => bytes.saturating_mul(2),
        }
    }
}

pub(crate) trait Pool: fmt::Debug + Send {
    /// Returns the rounding of requests, which is constant.
    fn rounding(&self) -> Rounding;

    /// Returns the preferred size of a new segment for a request of `bytes` (rounded); at least
    /// `bytes`.
    fn segment_bytes(&self, bytes: u64) -> u64;

    /// Returns whether idle segments are kept for later requests. If not, the layer above releases
    /// each segment as soon as it is idle.
    fn keeps_idle_segments(&self) -> bool {
        true
    }

    /// Returns the idle segments that should be released, because they were not needed for a long
    /// time (jemalloc's decay). Called before each take. Usually returns none.
    fn decayed_segments(&mut self) -> Vec<SegmentId> {
        Vec::new()
    }

    /// Adds a segment of `segment_bytes`, reserved for a request of `request_bytes` (rounded).
    fn add_segment(&mut self, segment: SegmentId, segment_bytes: u64, request_bytes: u64);

    /// Removes a segment whose every byte is free, or a range without committed pages. Returns its
    /// owner. For any other segment, changes nothing and returns `None`.
    fn remove_segment(&mut self, segment: SegmentId) -> Option<StreamOwner>;

    /// Returns the owner of an idle segment; `None` if the segment is not idle.
    fn owner_of_idle(&self, segment: SegmentId) -> Option<StreamOwner>;

    /// Hands out a block of at least `bytes` (rounded, not 0), with its last owner. Returns `None`
    /// if no block fits. Unless the owner [is ready](StreamOwner::is_ready_for) for `stream`, the
    /// layer above orders `stream` after the owner. Among blocks of similar fit, a ready block is
    /// preferred. A block that is not ready is preferred to a refusal.
    fn take(&mut self, bytes: u64, stream: StreamId) -> Option<(Span, StreamOwner)>;

    /// Takes from any segment, including segments added for requests of other sizes: the last
    /// resort before failing.
    fn take_from_any(&mut self, bytes: u64, stream: StreamId) -> Option<(Span, StreamOwner)> {
        self.take(bytes, stream)
    }

    /// Puts a block that `owner` may still use back into the pool. Returns whether its segment is
    /// now idle. A range is never idle as a whole. See [`idle_pages`](Self::idle_pages).
    fn give(&mut self, span: Span, owner: StreamOwner) -> bool;

    /// Returns the segments whose every byte is free, smallest first. Ranges are not included.
    fn idle_segments(&self) -> Vec<SegmentId>;

    /// Returns the free bytes in all segments and in the committed pages of ranges.
    fn free_bytes(&self) -> u64;

    fn largest_free_block_bytes(&self) -> u64;

    /// Returns whether the pool supports ranges (expandable segments). The memory of a range is
    /// committed and decommitted by pages. Other pools never get ranges.
    fn supports_ranges(&self) -> bool {
        false
    }

    /// Adds a range of addresses for all requests that may share a segment with a request of
    /// `request_bytes` (rounded). The length of the range is a multiple of the page size. No page
    /// is committed.
    fn add_range(&mut self, _segment: SegmentId, _range_bytes: u64, _request_bytes: u64) {
        debug_assert!(self.supports_ranges(), "{self:?} does not support ranges");
    }

    /// Returns the pages to commit so that [`take`](Self::take), which has just refused `bytes`,
    /// succeeds. Chooses the smallest number of pages, next to free blocks if this saves pages.
    /// Among equal choices, chooses the lowest pages. Returns `None` if no range for these requests
    /// has a long enough contiguous part.
    fn pages_to_commit(&self, _bytes: u64, _page_bytes: u64) -> Option<Pages> {
        None
    }

    /// Marks pages of one uncommitted block as committed and free, without an owner.
    fn commit(&mut self, _pages: Pages) {
        debug_assert!(self.supports_ranges(), "{self:?} does not support ranges");
    }

    /// Returns the whole pages that are committed and free, one entry for each free block, by
    /// falling offset.
    fn idle_pages(&self, _page_bytes: u64) -> Vec<Pages> {
        Vec::new()
    }

    /// Returns the owner of [`idle_pages`](Self::idle_pages).
    fn owner_of_pages(&self, _pages: Pages) -> StreamOwner {
        debug_assert!(self.supports_ranges(), "{self:?} does not support ranges");
        StreamOwner::NONE
    }

    /// Marks pages as decommitted. The pages are an entry of [`idle_pages`](Self::idle_pages), or a
    /// part of an entry. Returns the owner of the pages.
    fn decommit(&mut self, _pages: Pages) -> StreamOwner {
        debug_assert!(self.supports_ranges(), "{self:?} does not support ranges");
        StreamOwner::NONE
    }

    #[cfg(test)]
    fn check(&self);
}

/// The pool that cuts a device's segments into blocks.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, DeviceConfig, PoolKind};
///
/// let config = DeviceConfig { pool: PoolKind::Binned, ..Default::default() };
/// let device = Device::host_with(config)?;
/// let buffer = Buffer::new(&device, 5000)?;
/// assert_eq!(device.memory_stats().allocated_bytes, 8192);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolKind {
    /// Best fit with immediate split and coalesce.
    #[default]
    BestFit,
    /// Powers of two, each block a segment of its own. Memory that was not needed for some
    /// thousands of requests is released to the device.
    Binned,
    /// No pooling: a segment for each request, released as soon as its block is freed.
    Direct,
    /// The driver's own stream-ordered pool, on CUDA devices only. Memory that is idle in that pool
    /// counts as released. [`trim`](crate::Device::trim) releases this memory to the device.
    StreamOrdered,
}

names!(PoolKind {
    BestFit => "best-fit",
    Binned => "binned",
    Direct => "direct",
    StreamOrdered => "stream-ordered",
});

impl PoolKind {
    /// The pools that a host device supports.
    pub(crate) const ON_HOST: [Self; 3] = [Self::BestFit, Self::Binned, Self::Direct];

    /// Creates an empty pool of this kind. The driver's own pool is used through the direct pool.
    pub(crate) fn build(self) -> Box<dyn Pool> {
        match self {
            Self::BestFit => Box::new(best_fit::BestFit::new()),
            Self::Binned => Box::new(binned::Binned::new()),
            Self::Direct | Self::StreamOrdered => Box::new(direct::Direct::new()),
        }
    }
}
