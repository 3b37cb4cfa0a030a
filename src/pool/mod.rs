//! Pools: how blocks are cut out of segments. Pure arithmetic over offsets; no pointer, no lock,
//! no device, no `unsafe`.
//!
//! Architecture invariant: a pool never reserves or releases. It is told of a segment, and it
//! answers `None` when nothing fits. A new pool is one file here, one variant of
//! [`PoolKind`], and one line in the conformance suite.

mod best_fit;
mod bins;
mod blocks;
#[cfg(test)]
mod conformance;
pub(crate) mod size_class;

use std::fmt;

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
    /// Its length: what was asked, rounded up by [`Pool::round`] or further where the rest is too
    /// small to stand alone.
    pub(crate) bytes: u64,
    /// The pool's own handle.
    pub(crate) node: u32,
}

/// An algorithm that hands out blocks of the segments it was given.
pub(crate) trait Pool: fmt::Debug + Send {
    /// The bytes that a block for a request of `bytes` takes at least; `None` where that overflows.
    fn round(&self, bytes: u64) -> Option<u64>;

    /// How large a segment this pool would like for a request of `bytes` (already rounded); at
    /// least `bytes`.
    fn segment_bytes(&self, bytes: u64) -> u64;

    /// Adds a segment of `segment_bytes`, reserved for a request of `request_bytes` (rounded).
    fn add_segment(&mut self, segment: SegmentId, segment_bytes: u64, request_bytes: u64);

    /// Takes a segment back whose every byte is free. Answers false, and changes nothing, where
    /// one is not.
    fn remove_segment(&mut self, segment: SegmentId) -> bool;

    /// Hands out a block of at least `bytes` (rounded, not 0), or `None` where none fits.
    fn take(&mut self, bytes: u64) -> Option<Span>;

    /// The same out of any segment, those included that were added for requests of other sizes: for
    /// when the choice is between that and failing.
    fn take_from_any(&mut self, bytes: u64) -> Option<Span> {
        self.take(bytes)
    }

    /// Takes a block back, and answers whether its segment is idle now.
    fn give(&mut self, span: Span) -> bool;

    /// The segments whose every byte is free, the smallest first.
    fn idle_segments(&self) -> Vec<SegmentId>;

    /// Free bytes over all segments.
    fn free_bytes(&self) -> u64;

    /// The longest contiguous free part.
    fn largest_free_block_bytes(&self) -> u64;

    /// Asserts every invariant of the structure.
    #[cfg(test)]
    fn check(&self);
}

named_enum! {
    /// Which pool cuts a device's segments into blocks.
    pub enum PoolKind {
        /// Best fit with immediate split and coalesce.
        #[default]
        BestFit = "best-fit",
    }
}

impl PoolKind {
    /// A pool of this kind, without a segment.
    pub(crate) fn build(self) -> Box<dyn Pool> {
        match self {
            Self::BestFit => Box::new(best_fit::BestFit::new()),
        }
    }
}
