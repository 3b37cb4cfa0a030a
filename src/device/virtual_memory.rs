//! Address space apart from the memory behind it.

use std::fmt;

use super::DevicePtr;
use crate::error::Result;

/// What a device can do that hands out addresses and memory apart: a range of addresses is reserved
/// once, and its pages are committed and decommitted one by one, so that what stands on them grows
/// and shrinks in place.
///
/// Ranges begin and end on a multiple of [`page_bytes`](Self::page_bytes), and the parts of them named
/// here on one of [`min_page_bytes`](Self::min_page_bytes). On CUDA a range is `cuMemAddressReserve`, a committed page
/// `cuMemCreate`, `cuMemMap` and `cuMemSetAccess`, a decommitted one `cuMemUnmap` and
/// `cuMemRelease`.
pub(crate) trait VirtualMemory: fmt::Debug + Send + Sync {
    /// What is best committed as one.
    fn page_bytes(&self) -> u64;

    /// The smallest part that can be committed alone, a power of two of at least 512 bytes that divides
    /// [`page_bytes`](Self::page_bytes).
    fn min_page_bytes(&self) -> u64;

    /// Reserves a range of addresses with no memory behind it; `None` where the platform refuses
    /// so many.
    fn reserve_range(&self, bytes: u64) -> Result<Option<DevicePtr>>;

    /// Releases a range, and what memory is still behind it.
    ///
    /// # Safety
    ///
    /// [`reserve_range`](Self::reserve_range) gave the range with the same `bytes`, and nothing uses
    /// it any longer.
    unsafe fn release_range(&self, range: DevicePtr, bytes: u64) -> Result<()>;

    /// Puts memory behind a part of a range; its contents are undefined. False, with nothing
    /// changed, where the device is exhausted.
    ///
    /// # Safety
    ///
    /// The part lies in a reserved range, and none of it is committed.
    unsafe fn commit(&self, address: DevicePtr, bytes: u64) -> Result<bool>;

    /// Takes the memory behind a part of a range away. The part may span several commits, and be a
    /// part of one.
    ///
    /// # Safety
    ///
    /// The part lies in a reserved range, all of it is committed, and nothing uses it any longer.
    unsafe fn decommit(&self, address: DevicePtr, bytes: u64) -> Result<()>;
}
