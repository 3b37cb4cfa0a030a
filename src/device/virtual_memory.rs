//! Virtual memory: addresses reserved separately from memory.

use std::fmt;

use super::DevicePtr;
use crate::error::Result;

/// A device with virtual memory: a range of addresses is reserved once, and its pages are committed and
/// decommitted, so that segments grow and shrink in place.
///
/// Ranges begin and end at multiples of [`page_bytes`](Self::page_bytes), parts of them at multiples of
/// [`min_page_bytes`](Self::min_page_bytes). On CUDA, `cuMemAddressReserve` reserves a range; `cuMemCreate`,
/// `cuMemMap` and `cuMemSetAccess` commit a page; `cuMemUnmap` and `cuMemRelease` decommit it.
pub(crate) trait VirtualMemory: fmt::Debug + Send + Sync {
    /// The preferred page size.
    fn page_bytes(&self) -> u64;

    /// The smallest page size: a power of two of at least 512 bytes that divides
    /// [`page_bytes`](Self::page_bytes).
    fn min_page_bytes(&self) -> u64;

    /// Reserves a range of addresses without memory; `None` where the platform refuses.
    fn reserve_range(&self, bytes: u64) -> Result<Option<DevicePtr>>;

    /// Releases a range and the memory still committed in it.
    ///
    /// # Safety
    ///
    /// [`reserve_range`](Self::reserve_range) returned the range with the same `bytes`, and nothing uses it any
    /// longer.
    unsafe fn release_range(&self, range: DevicePtr, bytes: u64) -> Result<()>;

    /// Commits a part of a range; its contents are undefined. False, with nothing changed, where the device is
    /// exhausted.
    ///
    /// # Safety
    ///
    /// The part lies in a reserved range, and none of it is committed.
    unsafe fn commit(&self, address: DevicePtr, bytes: u64) -> Result<bool>;

    /// Decommits a part of a range. The part may span several commits, or be a part of one.
    ///
    /// # Safety
    ///
    /// The part lies in a reserved range, all of it is committed, and nothing uses it any longer.
    unsafe fn decommit(&self, address: DevicePtr, bytes: u64) -> Result<()>;
}
