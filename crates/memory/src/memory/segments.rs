//! The state under a memory's lock: the pool, and the segments by the numbers that the pool uses.

use cachescope_reports::internal::Reserved;

use super::Block;
use super::attachments::Attachments;
use super::foreign::ImportedBlocks;
use super::pending::PendingBlocks;
use super::stats::MemoryStats;
use super::uses::StreamUses;
use crate::device::{DevicePtr, StreamId};
use crate::error::{Error, Result};
use crate::pool::{Pool, SegmentId, Span};

/// A segment or range.
///
/// Invariants: a segment that is not a range holds all its bytes by one reservation. A range
/// without memory has no reservations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) address: DevicePtr,
    /// The stream that the segment was reserved for; stream 0 for a range.
    pub(super) stream: StreamId,
    /// The bytes held from the source; of a range, its committed pages.
    pub(super) held_bytes: u64,
    /// The number of reservations that do not count as released yet.
    pub(super) reserves: u64,
    pub(super) is_range: bool,
}

impl Segment {
    pub(super) fn whole(address: DevicePtr, bytes: u64, stream: StreamId) -> Self {
        Self {
            address,
            stream,
            held_bytes: bytes,
            reserves: 1,
            is_range: false,
        }
    }

    pub(super) fn range(address: DevicePtr) -> Self {
        Self {
            address,
            stream: StreamId::default(),
            held_bytes: 0,
            reserves: 0,
            is_range: true,
        }
    }

    /// Subtracts `bytes`, and returns the number of reservations that end. If bytes remain, at most
    /// one reservation ends, and at least one remains. With the last byte, all reservations end.
    pub(super) fn shrink(&mut self, bytes: u64) -> u64 {
        self.held_bytes -= bytes;
        let ended = match self.held_bytes {
            0 => self.reserves,
            _ => self.reserves.saturating_sub(1).min(1),
        };
        self.reserves -= ended;
        ended
    }
}

/// The state under a memory's lock.
///
/// Invariants, asserted by [`DeviceMemory::check`](super::DeviceMemory::check):
/// - the pool contains exactly the segments and ranges in `segments`, under their index;
/// - the bytes held by segments and ranges sum to the source's reserved bytes. The reservations of
///   all segments and ranges sum to `reserves` less `releases`;
/// - `vacant` lists the unused indices;
/// - a pool that does not keep idle segments has no idle segment;
/// - a block is pending only if its streams were not known to be done at the last check. The
///   exception is a block whose memory is released in the order of a stream that was being
///   captured.
pub(super) struct MemoryState {
    pub(super) pool: Box<dyn Pool>,
    pub(super) pending: PendingBlocks,
    pub(super) imported: ImportedBlocks,
    pub(super) reserved: Reserved,
    pub(super) attachments: Attachments,
    segments: Vec<Option<Segment>>,
    vacant: Vec<SegmentId>,
    /// The first deferred error, and the number of later errors.
    deferred: Option<(Error, u64)>,
    /// The statistics that are updated at each change. All other statistics are computed when they
    /// are read.
    pub(super) counted: MemoryStats,
    /// The peak of the used bytes, sampled as pages are reserved.
    pub(super) peak_used_bytes: u64,
    /// The rise of the growth bound, if pages are expensive.
    pub(super) slack_bytes: u64,
}

impl MemoryState {
    pub(super) fn new(pool: Box<dyn Pool>) -> Self {
        Self {
            pool,
            pending: PendingBlocks::new(),
            imported: ImportedBlocks::default(),
            reserved: Reserved::default(),
            attachments: Attachments::default(),
            segments: Vec::new(),
            vacant: Vec::new(),
            deferred: None,
            counted: MemoryStats::default(),
            peak_used_bytes: 0,
            slack_bytes: 0,
        }
    }

    pub(super) fn take_deferred_error(&mut self) -> Result<()> {
        match self.deferred.take() {
            None => Ok(()),
            Some((first, more)) => Err(first.with_omitted(more)),
        }
    }

    pub(super) fn defer(&mut self, error: Error) {
        match &mut self.deferred {
            Some((_, more)) => *more += 1,
            none => *none = Some((error, 0)),
        }
    }

    /// Stores a segment under a vacant number. The caller adds the segment to the pool.
    pub(super) fn insert(&mut self, segment: Segment) -> SegmentId {
        let id = self.vacant.pop().unwrap_or_else(|| {
            let number =
                u32::try_from(self.segments.len()).expect("the number of segments is below 2^32");
            self.segments.push(None);
            SegmentId(number)
        });
        self.segments[id.0 as usize] = Some(segment);
        id
    }

    pub(super) fn remove(&mut self, id: SegmentId) -> Option<Segment> {
        let segment = self.segments[id.0 as usize].take()?;
        self.vacant.push(id);
        Some(segment)
    }

    pub(super) fn segment(&self, id: SegmentId) -> Segment {
        self.segments[id.0 as usize].expect("the pool returns only known segments")
    }

    pub(super) fn segment_mut(&mut self, id: SegmentId) -> &mut Segment {
        let segment = self.segments[id.0 as usize].as_mut();
        segment.expect("the pool returns only known segments")
    }

    pub(super) fn numbered(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        let numbered = (0..).map(SegmentId).zip(&self.segments);
        numbered.filter_map(|(id, segment)| Some((id, segment.as_ref()?)))
    }

    pub(super) fn held(&self) -> impl Iterator<Item = Segment> {
        let present = self.segments.iter().flatten().copied();
        present.filter(|segment| segment.held_bytes > 0)
    }

    /// Returns the index in `idle` of the largest segment of at most `bytes`. `idle` is sorted by
    /// length.
    pub(super) fn largest_within(&self, idle: &[SegmentId], bytes: u64) -> Option<usize> {
        idle.partition_point(|&id| self.segment(id).held_bytes <= bytes)
            .checked_sub(1)
    }

    pub(super) fn block(&self, span: Span, stream: StreamId) -> Block {
        let address = self.segment(span.segment).address.offset(span.offset);
        Block {
            address,
            stream,
            other_uses: StreamUses::NONE,
            span,
        }
    }

    #[cfg(test)]
    pub(super) fn check(&self, reserved_bytes: u64) {
        self.pool.check();
        let held_bytes: u64 = self.held().map(|segment| segment.held_bytes).sum();
        assert_eq!(
            held_bytes, reserved_bytes,
            "the held bytes of segments differ from the reserved bytes"
        );
        let by_address: u64 = self.reserved.iter().map(|part| part.span.bytes()).sum();
        assert_eq!(
            by_address, reserved_bytes,
            "the bytes of address ranges differ from the reserved bytes"
        );
        let reserves: u64 = self.held().map(|segment| segment.reserves).sum();
        assert_eq!(
            reserves,
            self.counted.reserves - self.counted.releases,
            "the number of reservations is wrong"
        );
        let count = self.segments.iter().flatten().count();
        assert_eq!(
            self.vacant.len() + count,
            self.segments.len(),
            "a segment number is lost"
        );
        let mut vacant = self.vacant.iter();
        assert!(vacant.all(|id| self.segments[id.0 as usize].is_none()));
        let free_bytes = self.pool.free_bytes();
        assert!(free_bytes <= held_bytes, "more bytes are free than held");
        assert!(
            self.pool.keeps_idle_segments() || free_bytes == 0,
            "a pool without idle segments has free bytes"
        );
    }
}
