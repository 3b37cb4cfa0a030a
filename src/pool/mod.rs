//! Pools: how blocks are cut out of segments. Pure arithmetic over offsets; no pointer, no lock,
//! no device, no `unsafe`.
//!
//! Architecture invariant: a pool never reserves or releases. It is told of a segment, and it
//! answers `None` when nothing fits. A new pool is one file here, one variant of
//! [`PoolKind`], and one line in the conformance suite.

mod absent;
mod best_fit;
mod binned;
mod bins;
mod blocks;
#[cfg(test)]
mod conformance;
mod direct;
mod owner;
pub(crate) mod size_class;
mod whole;

use std::fmt;

use strum::{Display, EnumString, VariantNames};

use crate::device::StreamId;
use crate::error::Error;
use crate::naming::unknown;
use crate::size::{UNIT_BYTES, round_up};
pub(crate) use best_fit::BestFit;
pub(crate) use owner::Owner;

/// A segment, by the number that the layer above gave it; numbers may be reused after
/// [`Pool::remove_segment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentId(pub(crate) u32);

/// A block as a pool sees it: a contiguous part of a segment that is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The segment that it lies in.
    pub(crate) segment: SegmentId,
    /// Bytes from the beginning of that segment; a multiple of 512.
    pub(crate) offset: u64,
    /// Its length: what was asked, rounded up by [`Pool::rounding`] or further where the rest is too
    /// small to stand alone.
    pub(crate) bytes: u64,
    /// The pool's own handle.
    pub(crate) node: u32,
}

/// A part of a range that is committed or decommitted as one; its bounds are multiples of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    /// The range that they lie in.
    pub(crate) segment: SegmentId,
    /// Bytes from the beginning of that range.
    pub(crate) offset: u64,
    /// Their length; not 0.
    pub(crate) bytes: u64,
    /// The pool's own handle, good until the block that they lie in changes.
    pub(crate) node: u32,
}

/// How a pool rounds requests up: plain data, so that the caches above reckon as the pool does
/// without asking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To a multiple of 512 bytes.
    Units,
    /// To a power of two of at least 512 bytes.
    PowersOfTwo,
}

impl Rounding {
    /// The bytes that a block for a request of `bytes` takes at least; `None` where that overflows.
    #[inline]
    pub(crate) fn round(self, bytes: u64) -> Option<u64> {
        let units_bytes = round_up(bytes, UNIT_BYTES)?;
        match self {
            Self::Units => Some(units_bytes),
            Self::PowersOfTwo if units_bytes == 0 => Some(0),
            Self::PowersOfTwo => units_bytes.checked_next_power_of_two(),
        }
    }
}

/// An algorithm that hands out blocks of the segments it was given.
pub(crate) trait Pool: fmt::Debug + Send {
    /// How requests are rounded up; always the same.
    fn rounding(&self) -> Rounding;

    /// How large a segment this pool would like for a request of `bytes` (already rounded); at
    /// least `bytes`.
    fn segment_bytes(&self, bytes: u64) -> u64;

    /// Whether an idle segment is worth keeping for later requests. Where it is not, the layer above
    /// releases each as soon as it falls idle.
    fn keeps_idle_segments(&self) -> bool {
        true
    }

    /// Idle segments that have not been needed for so long that they are better released; asked
    /// before each take, and answered rarely.
    fn surplus(&mut self) -> Vec<SegmentId> {
        Vec::new()
    }

    /// Adds a segment of `segment_bytes`, reserved for a request of `request_bytes` (rounded).
    fn add_segment(&mut self, segment: SegmentId, segment_bytes: u64, request_bytes: u64);

    /// Takes a segment back whose every byte is free, or a range of which nothing is committed, and
    /// answers whose work may still touch it. `None`, and nothing changed, where it is neither.
    fn remove_segment(&mut self, segment: SegmentId) -> Option<Owner>;

    /// Whose work may still touch a segment whose every byte is free; `None` where one is not.
    fn owner_of_idle(&self, segment: SegmentId) -> Option<Owner>;

    /// Hands out a block of at least `bytes` (rounded, not 0), or `None` where none fits. With it
    /// comes whom the block followed until now: unless that [is ready](Owner::is_ready_for) for
    /// `stream`, the layer above orders `stream` after it. Of blocks that fit about equally one that
    /// is ready comes first, and one that is not comes before a refusal.
    fn take(&mut self, bytes: u64, stream: StreamId) -> Option<(Span, Owner)>;

    /// The same out of any segment, those included that were added for requests of other sizes: for
    /// when the choice is between that and failing.
    fn take_from_any(&mut self, bytes: u64, stream: StreamId) -> Option<(Span, Owner)> {
        self.take(bytes, stream)
    }

    /// Takes a block back that the work of `owner` may still touch, and answers whether its segment
    /// is idle now. (A range never is; what of it is idle are [pages](Self::idle_pages).)
    fn give(&mut self, span: Span, owner: Owner) -> bool;

    /// The segments whose every byte is free, the smallest first; ranges are not among them.
    fn idle_segments(&self) -> Vec<SegmentId>;

    /// Free bytes over all segments, of ranges those that are committed.
    fn free_bytes(&self) -> u64;

    /// The longest contiguous free part.
    fn largest_free_block_bytes(&self) -> u64;

    /// Whether this pool can use ranges: segments that are only addresses at first, in which memory
    /// is committed and decommitted by pages. One that cannot is never called with any.
    fn expands(&self) -> bool {
        false
    }

    /// Adds a range of addresses, a multiple of the page long, for requests such as one of
    /// `request_bytes` (rounded); nothing of it is committed.
    fn add_range(&mut self, _segment: SegmentId, _range_bytes: u64, _request_bytes: u64) {
        debug_assert!(self.expands(), "{self:?} has no ranges");
    }

    /// The pages to commit so that [`take`](Self::take), which has just refused `bytes`, hands them
    /// out: next to free blocks where that needs fewer, then at the lowest place. `None` where the
    /// ranges for such requests have no contiguous part left that is as long.
    fn expansion(&self, _bytes: u64, _page_bytes: u64) -> Option<Pages> {
        None
    }

    /// Makes what lay in one uncommitted part a free block, which nobody used yet.
    fn commit(&mut self, _pages: Pages) {
        debug_assert!(self.expands(), "{self:?} has no ranges");
    }

    /// All whole pages that are committed and free, each free block's as one, those at the largest
    /// offset first.
    fn idle_pages(&self, _page_bytes: u64) -> Vec<Pages> {
        Vec::new()
    }

    /// Whose work may still touch [`idle_pages`](Self::idle_pages).
    fn owner_of_pages(&self, _pages: Pages) -> Owner {
        debug_assert!(self.expands(), "{self:?} has no ranges");
        Owner::NOBODY
    }

    /// Takes pages out of use, one of [`idle_pages`](Self::idle_pages) or some of its pages; answers
    /// whose work may still touch them.
    fn decommit(&mut self, _pages: Pages) -> Owner {
        debug_assert!(self.expands(), "{self:?} has no ranges");
        Owner::NOBODY
    }

    /// Asserts every invariant of the structure.
    #[cfg(test)]
    fn check(&self);
}

/// Which pool cuts a device's segments into blocks.
///
/// # Examples
///
/// ```
/// use cachescope::{Buffer, Device, DeviceConfig, PoolKind};
///
/// let config = DeviceConfig { pool: PoolKind::Binned, ..Default::default() };
/// let device = Device::host_with(config)?;
/// let buffer = Buffer::new(&device, 5000)?;
/// assert_eq!(device.memory_stats().allocated_bytes, 8192);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Display, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case", parse_err_ty = Error, parse_err_fn = unknown::<PoolKind>)]
#[non_exhaustive]
pub enum PoolKind {
    /// Best fit with immediate split and coalesce.
    #[default]
    BestFit,
    /// Powers of two, each block a segment of its own; what has not been needed for some
    /// thousands of requests goes back to the device.
    Binned,
    /// No pooling: a segment for each request, released as soon as its block is given back.
    Direct,
    /// The driver's own stream-ordered pool; a CUDA device has it, the host does not. What that pool
    /// keeps idle counts as released here; [`trim`](crate::Device::trim) gives it back to the device.
    StreamOrdered,
}

impl PoolKind {
    /// Those that a host device can have.
    pub(crate) const ON_HOST: [Self; 3] = [Self::BestFit, Self::Binned, Self::Direct];

    /// A pool of this kind, without a segment. In front of a driver that pools by itself stands the
    /// direct one.
    pub(crate) fn build(self) -> Box<dyn Pool> {
        match self {
            Self::BestFit => Box::new(best_fit::BestFit::new()),
            Self::Binned => Box::new(binned::Binned::new()),
            Self::Direct | Self::StreamOrdered => Box::new(direct::Direct::new()),
        }
    }
}
