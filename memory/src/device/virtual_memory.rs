//! Virtual memory: addresses reserved separately from memory.

use std::fmt;

use super::DevicePtr;
use crate::error::Result;

/// What it costs to commit and decommit pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCost {
    /// Little more than it costs to use them: pages may come and go one by one.
    Low,
    /// As much as many allocations: growth should take few calls, and pages should not move for
    /// little.
    High,
}

/// A device with virtual memory: a range of addresses is reserved once, and its pages are committed
/// and decommitted, so that segments grow and shrink in place.
///
/// Ranges begin and end at multiples of [`page_bytes`](Self::page_bytes), parts of them at
/// multiples of [`min_page_bytes`](Self::min_page_bytes). On CUDA, `cuMemAddressReserve` reserves a
/// range; `cuMemCreate`, `cuMemMap` and `cuMemSetAccess` commit a part of it; `cuMemUnmap` and
/// `cuMemRelease` decommit it.
pub trait VirtualMemory: fmt::Debug + Send + Sync {
    /// The preferred page size.
    fn page_bytes(&self) -> u64;

    /// The smallest page size: a power of two of at least 512 bytes that divides
    /// [`page_bytes`](Self::page_bytes).
    fn min_page_bytes(&self) -> u64;

    /// What a page costs.
    fn page_cost(&self) -> PageCost;

    /// Reserves a range of addresses without memory; `None` where the platform refuses.
    fn reserve_range(&self, bytes: u64) -> Result<Option<DevicePtr>>;

    /// Releases a range and the memory still committed in it.
    ///
    /// # Safety
    ///
    /// [`reserve_range`](Self::reserve_range) returned the range with the same `bytes`, and nothing
    /// uses it any longer.
    unsafe fn release_range(&self, range: DevicePtr, bytes: u64) -> Result<()>;

    /// Commits a part of a range; its contents are undefined. False, with nothing changed, where
    /// the device is exhausted. Where memory comes in handles, none of them is larger than
    /// `max_handle_bytes`, a multiple of the page size.
    ///
    /// # Safety
    ///
    /// The part lies in a reserved range, and none of it is committed.
    unsafe fn commit(&self, address: DevicePtr, bytes: u64, max_handle_bytes: u64) -> Result<bool>;

    /// Decommits a part of a range: where memory comes in handles, any of
    /// [`separable`](Self::separable)'s, else any pages.
    ///
    /// # Safety
    ///
    /// The part lies in a reserved range, all of it is committed, and nothing uses it any longer.
    unsafe fn decommit(&self, address: DevicePtr, bytes: u64) -> Result<()>;

    /// As [`decommit`](Self::decommit), for memory that is soon committed elsewhere: it may be kept
    /// until then.
    ///
    /// # Safety
    ///
    /// As for [`decommit`](Self::decommit).
    unsafe fn recycle(&self, address: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.decommit(address, bytes) }
    }

    /// The parts of a committed part that can be decommitted, by address: where memory comes in
    /// handles, those that lie in it as a whole.
    fn separable(&self, address: DevicePtr, bytes: u64) -> Vec<(DevicePtr, u64)> {
        vec![(address, bytes)]
    }

    /// The bytes kept by [`recycle`](Self::recycle).
    fn kept_bytes(&self) -> u64 {
        0
    }

    /// Gives back what [`recycle`](Self::recycle) kept.
    fn release_kept(&self) -> Result<()> {
        Ok(())
    }
}
