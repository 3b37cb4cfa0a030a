//! No pooling: each request has its own segment, and no idle segment is kept.
//!
//! This pool is the baseline of the benchmarks. `PoolKind::StreamOrdered` uses it over the driver's
//! own pool.

use super::unsplit::UnsplitSegments;
use super::{Pool, Rounding, SegmentId, Span, StreamOwner};
use crate::device::StreamId;

/// A pool whose blocks are whole segments, none of which is kept idle.
///
/// Invariant: `idle` lists the free segments. The layer above releases each segment as soon as it
/// is idle. So `idle` is empty between calls of that layer.
#[derive(Debug)]
pub(crate) struct Direct {
    segments: UnsplitSegments,
    idle: Vec<SegmentId>,
}

impl Direct {
    pub(crate) fn new() -> Self {
        Self {
            segments: UnsplitSegments::default(),
            idle: Vec::new(),
        }
    }
}

impl Pool for Direct {
    fn rounding(&self) -> Rounding {
        Rounding::Units
    }

    fn segment_bytes(&self, bytes: u64) -> u64 {
        bytes
    }

    fn keeps_idle_segments(&self) -> bool {
        false
    }

    fn add_segment(&mut self, segment: SegmentId, segment_bytes: u64, _request_bytes: u64) {
        self.segments.insert(segment, segment_bytes);
        self.idle.push(segment);
    }

    fn remove_segment(&mut self, segment: SegmentId) -> Option<StreamOwner> {
        let (_, owner) = self.segments.remove(segment)?;
        self.idle.retain(|&idle| idle != segment);
        Some(owner)
    }

    fn owner_of_idle(&self, segment: SegmentId) -> Option<StreamOwner> {
        self.segments.owner_of_free(segment)
    }

    /// Takes the smallest idle segment that fits, as a whole. If several segments have its length,
    /// prefers a ready segment.
    fn take(&mut self, bytes: u64, stream: StreamId) -> Option<(Span, StreamOwner)> {
        let segments = &self.segments;
        let fitting = (0..)
            .zip(&self.idle)
            .map(|(index, &id)| {
                (
                    segments.bytes(id),
                    !segments.is_ready_for(id, stream),
                    index,
                )
            })
            .filter(|&(segment_bytes, _, _)| segment_bytes >= bytes);
        let (_, _, index) = fitting.min()?;
        let segment = self.idle.swap_remove(index);
        Some(self.segments.take(segment))
    }

    fn give(&mut self, span: Span, owner: StreamOwner) -> bool {
        self.segments.give(span, owner);
        self.idle.push(span.segment);
        true
    }

    fn idle_segments(&self) -> Vec<SegmentId> {
        self.segments.idle()
    }

    fn free_bytes(&self) -> u64 {
        self.segments.free_bytes()
    }

    fn largest_free_block_bytes(&self) -> u64 {
        let lengths = self
            .idle
            .iter()
            .map(|&segment| self.segments.bytes(segment));
        lengths.max().unwrap_or(0)
    }

    #[cfg(test)]
    fn check(&self) {
        self.segments.check(self.idle.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_as_long_as_its_request() {
        let pool = Direct::new();
        for bytes in [512, 1536, 3 << 20, 1 << 40] {
            assert_eq!(pool.segment_bytes(bytes), bytes);
        }
        assert!(!pool.keeps_idle_segments());
    }

    #[test]
    fn the_smallest_idle_segment_that_fits_is_taken() {
        let mut pool = Direct::new();
        for (number, units) in [(0, 9), (1, 4), (2, 6)] {
            pool.add_segment(SegmentId(number), units * 512, units * 512);
        }
        let taken = [5, 5, 5].map(|units| {
            let taken = pool.take(units * 512, StreamId(0));
            taken.map(|(span, _)| span.segment)
        });
        pool.check();
        assert_eq!(taken, [Some(SegmentId(2)), Some(SegmentId(0)), None]);
    }
}
