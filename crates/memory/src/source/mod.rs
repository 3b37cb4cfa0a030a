//! Sources of segments. `direct` reserves from the backend. `expandable` also commits pages of
//! ranges. `stream_ordered` uses a pool of the driver. The adaptors (`limit`, `fault`) wrap any
//! source and compose in any order.

use std::fmt;
use std::ops::Deref;

use crate::device::{Destination, DevicePtr, StreamId};
use crate::error::Result;

pub(crate) mod direct;
pub(crate) mod expandable;
pub(crate) mod fault;
pub(crate) mod limit;
pub(crate) mod stream_ordered;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

/// The address of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReserveAt {
    /// Any address, for a segment of its own.
    Anywhere,
    /// This address, for pages of a range of [`Expandable`](expandable::Expandable).
    Address(DevicePtr),
}

/// A segment, or pages of a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourcePart {
    pub(crate) address: DevicePtr,
    pub(crate) bytes: u64,
    /// The stream for which a segment was reserved.
    pub(crate) stream: StreamId,
}

impl SourcePart {
    pub(crate) fn new(address: DevicePtr, bytes: u64, stream: StreamId) -> Self {
        Self {
            address,
            bytes,
            stream,
        }
    }
}

/// A source of segments, and of pages of ranges.
pub(crate) trait Source: fmt::Debug + Send + Sync {
    /// Reserves `bytes` (not 0) for first use by `stream`. Returns `None` if this source or a
    /// source below is exhausted, and an error if the device failed.
    fn reserve(&self, at: ReserveAt, bytes: u64, stream: StreamId) -> Result<Option<DevicePtr>>;

    /// Releases memory that [`reserve`](Self::reserve) returned: a whole segment, or any pages of a
    /// range.
    fn release(&self, part: SourcePart, to: Destination) -> Result<()>;
}

impl<P> Source for P
where
    P: Deref<Target: Source> + fmt::Debug + Send + Sync,
{
    fn reserve(&self, at: ReserveAt, bytes: u64, stream: StreamId) -> Result<Option<DevicePtr>> {
        (**self).reserve(at, bytes, stream)
    }

    fn release(&self, part: SourcePart, to: Destination) -> Result<()> {
        (**self).release(part, to)
    }
}
