//! Virtual memory: addresses reserved separately from memory.

use std::fmt;

use super::DevicePtr;
use crate::error::Result;

/// The cost to commit and decommit pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCost {
    /// Little more than the first use of a page: pages may be committed and decommitted one by one.
    Low,
    /// As much as many allocations: growth should take few calls, and pages should rarely move.
    High,
}

/// The destination of decommitted memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The device.
    Device,
    /// The growth that this release makes room for. The device may keep the memory until then.
    NextGrowth,
}

/// A device with virtual memory. A range of addresses is reserved once, and its pages are committed
/// and decommitted. So segments grow and shrink in place.
///
/// Ranges begin and end at multiples of [`page_bytes`](Self::page_bytes), parts of them at
/// multiples of [`min_page_bytes`](Self::min_page_bytes). On CUDA, `cuMemAddressReserve` reserves a
/// range; `cuMemCreate`, `cuMemMap` and `cuMemSetAccess` commit a part of it; `cuMemUnmap` and
/// `cuMemRelease` decommit it.
pub trait VirtualMemory: fmt::Debug + Send + Sync {
    /// Returns the preferred page size.
    fn page_bytes(&self) -> u64;

    /// Returns the smallest page size: a power of two of at least 512 bytes that divides
    /// [`page_bytes`](Self::page_bytes).
    fn min_page_bytes(&self) -> u64;

    /// Returns the cost of a page.
    fn page_cost(&self) -> PageCost;

    /// Reserves a range of addresses without memory; `None` if the platform refuses.
    fn reserve_range(&self, bytes: u64) -> Result<Option<DevicePtr>>;

    /// Releases a range and the memory still committed in it.
    ///
    /// # Safety
    ///
    /// [`reserve_range`](Self::reserve_range) returned the range with the same `bytes`, and nothing
    /// uses it any longer.
    unsafe fn release_range(&self, range: DevicePtr, bytes: u64) -> Result<()>;

    /// Commits a part of a range; its contents are undefined. If the device is exhausted, returns
    /// false and changes nothing. If memory comes in handles, none of them is larger than
    /// `max_handle_bytes`, a multiple of the page size.
    ///
    /// # Safety
    ///
    /// The part lies in a reserved range, and none of it is committed.
    unsafe fn commit(&self, address: DevicePtr, bytes: u64, max_handle_bytes: u64) -> Result<bool>;

    /// Decommits a part of a range. If memory comes in handles, the part is one or more of
    /// [`separable`](Self::separable)'s parts, else any pages.
    ///
    /// # Safety
    ///
    /// The part lies in a reserved range, all of it is committed, and nothing uses it any longer.
    unsafe fn decommit(&self, address: DevicePtr, bytes: u64, to: Destination) -> Result<()>;

    /// Returns the parts of a committed part that can be decommitted, by address. If memory comes
    /// in handles, these are the handles that lie completely in the committed part.
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
