//! A pool of unsplit segments over a simulated source.
//!
//! The source places segments in one range by best fit. So a released segment makes room for other
//! segments, as on a device.

use super::range::{STREAM, SimulatedRange};
use crate::pool::{Pool, SegmentId, Span, StreamOwner};

/// A pool of unsplit segments. A simulated source places the segments in one range.
///
/// Invariant: each number below the length of `places` is the number of a segment of the pool, or
/// in `vacant`.
#[derive(Debug)]
pub(super) struct SimulatedSegments {
    pool: Box<dyn Pool>,
    range: SimulatedRange,
    /// The span of each segment in the range, by segment number; unspecified for numbers in
    /// `vacant`.
    places: Vec<Span>,
    vacant: Vec<SegmentId>,
}

impl SimulatedSegments {
    pub(super) fn new(pool: Box<dyn Pool>, range: SimulatedRange) -> Self {
        Self {
            pool,
            range,
            places: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Returns a block of at least `bytes`, and its offset in the range. Like the memory of a
    /// device, tries the pool, then a new segment. Finally releases every idle segment, and tries a
    /// new segment again.
    #[inline]
    pub(super) fn take(&mut self, bytes: u64) -> Option<(Span, u64)> {
        let bytes = self.pool.rounding().round(bytes)?;
        for segment in self.pool.decayed_segments() {
            self.release(segment);
        }
        let (span, _) = match self.pool.take(bytes, STREAM) {
            Some(taken) => taken,
            None => self.take_from_new(bytes)?,
        };
        let begin = self.places[span.segment.0 as usize].offset + span.offset;
        Some((span, begin))
    }

    /// Returns a block to the pool. If the block's segment is idle and the pool keeps no idle
    /// segments, releases the segment.
    #[inline]
    pub(super) fn give(&mut self, span: Span) {
        let is_idle = self.pool.give(span, StreamOwner::of(STREAM));
        if is_idle && !self.pool.keeps_idle_segments() {
            self.release(span.segment);
        }
    }

    fn take_from_new(&mut self, bytes: u64) -> Option<(Span, StreamOwner)> {
        if !self.reserve(bytes) {
            self.release_idle();
            if !self.reserve(bytes) {
                return None;
            }
        }
        self.pool.take(bytes, STREAM)
    }

    /// Adds a segment for a request of `bytes`. Returns false if the segment does not fit in the
    /// range.
    fn reserve(&mut self, bytes: u64) -> bool {
        let segment_bytes = self.pool.segment_bytes(bytes);
        let Some(place) = self.range.take(segment_bytes) else {
            return false;
        };
        let segment = match self.vacant.pop() {
            Some(segment) => {
                self.places[segment.0 as usize] = place;
                segment
            }
            None => {
                self.places.push(place);
                SegmentId((self.places.len() - 1) as u32)
            }
        };
        self.pool.add_segment(segment, place.bytes, bytes);
        true
    }

    fn release_idle(&mut self) {
        // Listing the idle segments visits all segments, so they are listed only if some bytes are
        // free.
        if self.pool.free_bytes() > 0 {
            for segment in self.pool.idle_segments() {
                self.release(segment);
            }
        }
    }

    fn release(&mut self, segment: SegmentId) {
        if self.pool.remove_segment(segment).is_some() {
            self.range.give(self.places[segment.0 as usize]);
            self.vacant.push(segment);
        }
    }
}
