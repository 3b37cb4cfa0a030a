//! A pool over one range of addresses that grows from 0: the pool's algorithm without a device.
//!
//! Best fit runs as in a range of virtual memory, committed unit by unit. The pools of unsplit
//! segments reserve the segments from a source. A best fit over the range simulates the source. So
//! released memory makes room for other sizes, as on a device.

mod range;
mod segments;

use crate::error::{Error, ErrorKind, Result};
use crate::pool::{PoolKind, SegmentId, Span};
use crate::size::UNIT_BYTES;
use range::SimulatedRange;
use segments::SimulatedSegments;

/// The end of the longest range: offsets fit in any 64-bit integer type.
const MAX_BYTES: u64 = 1 << 63;

/// A pool whose source is simulated. Sizes and offsets are in units.
#[derive(Debug)]
pub struct SimulatedPool {
    model: PoolModel,
    /// The highest end of a block so far, in bytes.
    peak_end: u64,
}

/// A block of a [`SimulatedPool`].
#[derive(Debug)]
pub struct SimulatedBlock(Span);

#[derive(Debug)]
enum PoolModel {
    Range(SimulatedRange),
    Segments(SimulatedSegments),
}

impl SimulatedPool {
    /// The pools that can be simulated: all except the driver's own.
    pub const KINDS: [PoolKind; 3] = PoolKind::ON_HOST;

    /// Creates a pool over a range of `units` units.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) for [`PoolKind::StreamOrdered`].
    pub fn new(kind: PoolKind, units: u64) -> Result<Self> {
        check_simulated(kind)?;
        let range = SimulatedRange::new(units.saturating_mul(UNIT_BYTES).min(MAX_BYTES));
        let model = match kind {
            PoolKind::BestFit => PoolModel::Range(range),
            _ => PoolModel::Segments(SimulatedSegments::new(kind.build(), range)),
        };
        Ok(Self { model, peak_end: 0 })
    }

    /// Returns a block of at least `units` units (not 0) and its offset. Returns `None` if no block
    /// fits in the range.
    #[inline]
    pub fn take(&mut self, units: u64) -> Option<(SimulatedBlock, u64)> {
        let bytes = units.checked_mul(UNIT_BYTES)?;
        let (span, begin) = match &mut self.model {
            PoolModel::Range(range) => range.take(bytes).map(|span| (span, span.offset)),
            PoolModel::Segments(segments) => segments.take(bytes),
        }?;
        self.peak_end = self.peak_end.max(begin + span.bytes);
        Some((SimulatedBlock(span), begin / UNIT_BYTES))
    }

    /// Returns a block to the pool.
    #[inline]
    pub fn give(&mut self, SimulatedBlock(span): SimulatedBlock) {
        if span.bytes == 0 {
            return;
        }
        match &mut self.model {
            PoolModel::Range(range) => range.give(span),
            PoolModel::Segments(segments) => segments.give(span),
        }
    }

    /// Returns the highest end of a block so far.
    pub fn peak_units(&self) -> u64 {
        self.peak_end / UNIT_BYTES
    }
}

impl SimulatedBlock {
    /// A block of 0 units.
    pub const EMPTY: Self = Self(Span {
        segment: SegmentId(0),
        offset: 0,
        bytes: 0,
        node: 0,
    });
}

/// Returns an error for the driver's own pool, which cannot be simulated.
#[track_caller]
pub(crate) fn check_simulated(kind: PoolKind) -> Result<()> {
    if kind == PoolKind::StreamOrdered {
        let text = "the stream-ordered pool belongs to the driver, and cannot be simulated";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(())
}
