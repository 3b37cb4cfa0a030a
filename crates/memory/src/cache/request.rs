//! A request for a block.

use std::panic::Location;

use crate::device::StreamId;
use crate::pool::Rounding;

#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) requested_bytes: u64,
    /// The size after the pool's rounding. Because of the rounding, a freed block is in the class
    /// that later requests of this size search.
    pub(super) rounded_bytes: u64,
}

impl Size {
    /// Creates a size. Returns `None` if rounding up overflows.
    pub(super) fn new(requested_bytes: u64, rounding: Rounding) -> Option<Self> {
        Some(Self {
            requested_bytes,
            rounded_bytes: rounding.round(requested_bytes)?,
        })
    }
}

/// A request that the fast path did not serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) size: Size,
    pub(super) stream: StreamId,
    pub(super) call_site: &'static Location<'static>,
}
