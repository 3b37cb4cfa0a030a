//! Best fit over one simulated range of addresses.

use crate::device::StreamId;
use crate::pool::best_fit::BestFit;
use crate::pool::{Pool, SegmentId, Span, StreamOwner};
use crate::size::UNIT_BYTES;

pub(super) const STREAM: StreamId = StreamId(0);

const RANGE: SegmentId = SegmentId(0);

/// A range of addresses from 0, committed unit by unit as needed.
#[derive(Debug)]
pub(super) struct SimulatedRange {
    pool: BestFit,
}

impl SimulatedRange {
    /// Creates a range of `bytes`, a multiple of the pool's unit.
    pub(super) fn new(bytes: u64) -> Self {
        let mut pool = BestFit::unified();
        if bytes > 0 {
            pool.add_range(RANGE, bytes, bytes);
        }
        Self { pool }
    }

    /// Returns a block of `bytes`, or `None` if no block fits. `bytes` is a multiple of the pool's
    /// unit, and not 0.
    #[inline]
    pub(super) fn take(&mut self, bytes: u64) -> Option<Span> {
        match self.pool.take(bytes, STREAM) {
            Some((span, _)) => Some(span),
            None => self.take_beyond(bytes),
        }
    }

    #[inline]
    pub(super) fn give(&mut self, span: Span) {
        self.pool.give(span, StreamOwner::of(STREAM));
    }

    #[cold]
    fn take_beyond(&mut self, bytes: u64) -> Option<Span> {
        let pages = self.pool.pages_to_commit(bytes, UNIT_BYTES)?;
        self.pool.commit(pages);
        self.pool.take(bytes, STREAM).map(|(span, _)| span)
    }
}
