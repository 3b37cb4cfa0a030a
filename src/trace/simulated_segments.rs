//! A pool whose segments are one block each, and what stands for the source of its segments.
//!
//! SimulatedSegments are placed in one range of addresses by best fit, so that those which the pool gives up
//! make room for others, as on a device.

use super::simulated_range::{STREAM, SimulatedRange};
use crate::pool::{Pool, SegmentId, Span, StreamOwner};

/// The pool, and where its segments lie.
///
/// Invariant: a number below the length of `places` is that of a segment that the pool has, or is in
/// `vacant`.
#[derive(Debug)]
pub(super) struct SimulatedSegments {
    pool: Box<dyn Pool>,
    range: SimulatedRange,
    /// By number; of those in `vacant` nothing is meant.
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

    /// A block of at least `bytes`, and where in the range it begins. What a device's memory does, it
    /// does in the same order: the pool, a new segment, and with every idle one released once more.
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

    /// Takes a block back; a pool that keeps nothing loses the segment.
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

    /// Gives the pool a segment for a request of `bytes`; answers false where none has room.
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
        // To list the idle ones the pool looks at every segment.
        if self.pool.free_bytes() > 0 {
            for segment in self.pool.idle_segments() {
                self.release(segment);
            }
        }
    }

    /// Takes an idle segment from the pool.
    fn release(&mut self, segment: SegmentId) {
        if self.pool.remove_segment(segment).is_some() {
            self.range.give(self.places[segment.0 as usize]);
            self.vacant.push(segment);
        }
    }
}
