//! Best fit over one range of addresses.

use crate::device::StreamId;
use crate::pool::{BestFit, Owner, Pool, SegmentId, Span};

/// The stream of every request: that of a device that has one.
pub(super) const STREAM: StreamId = StreamId(0);

/// The one range.
const RANGE: SegmentId = SegmentId(0);

/// A range of addresses from 0, of which nothing is out at first.
#[derive(Debug)]
pub(super) struct Range {
    pool: BestFit,
}

impl Range {
    /// A range that reaches to `bytes`, a multiple of the pool's unit.
    pub(super) fn new(bytes: u64) -> Self {
        let mut pool = BestFit::new();
        if bytes > 0 {
            pool.add_segment(RANGE, bytes, bytes);
        }
        Self { pool }
    }

    /// The lowest part that the pool would hand out for `bytes`, a multiple of its unit and not 0.
    #[inline]
    pub(super) fn take(&mut self, bytes: u64) -> Option<Span> {
        self.pool.take_from_any(bytes, STREAM).map(|(span, _)| span)
    }

    /// Takes a part back.
    #[inline]
    pub(super) fn give(&mut self, span: Span) {
        self.pool.give(span, Owner::of(STREAM));
    }
}
