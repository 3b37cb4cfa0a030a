//! Virtual memory: addresses reserved separately from memory.

use std::fmt;

use super::DevicePtr;
use crate::error::Result;

/// The cost to commit and decommit pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCost {
    /// Slightly above the cost of a page's first use. Pages may be committed and decommitted one by
    /// one.
    Low,
    /// The cost of many allocations. Growth should use few calls, and memory should rarely move
    /// between ranges.
    High,
}

/// The destination of decommitted memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The device.
    Device,
    /// The next growth, for which the decommit makes space. The device may keep the memory until
    /// this growth.
    NextGrowth,
}

/// A device with virtual memory. A range of addresses is reserved once. Its pages are then
/// committed and decommitted, so segments grow and shrink in place.
///
/// Ranges begin and end at multiples of [`page_bytes`](Self::page_bytes). Parts of ranges begin and
/// end at multiples of [`min_page_bytes`](Self::min_page_bytes).
///
/// On CUDA, `cuMemAddressReserve` reserves a range. `cuMemCreate`, `cuMemMap` and `cuMemSetAccess`
/// commit a part. `cuMemUnmap` and `cuMemRelease` decommit a part.
pub trait VirtualMemory: fmt::Debug + Send + Sync {
    /// Returns the preferred page size.
    fn page_bytes(&self) -> u64;

    /// Returns the smallest page size: a power of two of at least 512 bytes that divides
    /// [`page_bytes`](Self::page_bytes).
    fn min_page_bytes(&self) -> u64;

    /// Returns the cost to commit and decommit pages.
    fn page_cost(&self) -> PageCost;

    /// Reserves a range of addresses without memory. Returns `None` if the platform refuses.
    fn reserve_range(&self, bytes: u64) -> Result<Option<DevicePtr>>;

    /// Releases a range and its committed memory.
    ///
    /// # Safety
    ///
    /// [`reserve_range`](Self::reserve_range) returned the range for the same `bytes`. Nothing uses
    /// the range any longer.
    unsafe fn release_range(&self, range: DevicePtr, bytes: u64) -> Result<()>;

    /// Commits a part of a range. The contents of the part are undefined. If the device is
    /// exhausted, returns false and changes nothing. If the memory is mapped in handles, each new
    /// handle has at most `max_handle_bytes`, a multiple of the page size.
    ///
    /// # Safety
    ///
    /// The part lies in a reserved range and has no committed page.
    unsafe fn commit(&self, address: DevicePtr, bytes: u64, max_handle_bytes: u64) -> Result<bool>;

    /// Decommits a part of a range. If the memory is mapped in handles, the part consists of pieces
    /// that [`separable`](Self::separable) returned. Otherwise, any pages are allowed.
    ///
    /// # Safety
    ///
    /// The part lies in a reserved range and is fully committed. Nothing uses the part any longer.
    unsafe fn decommit(&self, address: DevicePtr, bytes: u64, to: Destination) -> Result<()>;

    /// Returns the pieces of a committed part that can be decommitted, sorted by address. If the
    /// memory is mapped in handles, the pieces are the handles that lie completely in the part.
    fn separable(&self, address: DevicePtr, bytes: u64) -> Vec<(DevicePtr, u64)> {
        vec![(address, bytes)]
    }

    /// Returns the bytes kept for the [next growth](Destination::NextGrowth).
    fn kept_bytes(&self) -> u64 {
        0
    }

    /// Releases the memory that is kept for the next growth.
    fn release_kept(&self) -> Result<()> {
        Ok(())
    }
}
