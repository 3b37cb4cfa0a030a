//! The memory of a device without data: addresses that can be read, as zeros, and not written.

use super::budget::Budget;
use super::ranges::Ranges;
use crate::device::handles::{Handle, HandleDriver};
use crate::device::{DevicePtr, VirtualMemory};
use crate::error::Result;
use crate::sync::Arc;
use crate::sync::plain::{AtomicU64, Ordering};

/// The device whose memory a [`Device::meta`](crate::Device::meta) imitates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetaKind {
    /// A host: memory grows by pages as it is needed.
    #[default]
    Host,
    /// A CUDA device: memory grows by handles of at least 2 MiB, which rarely move.
    Cuda,
}

/// The unit of a GPU's virtual memory.
const GRANULARITY_BYTES: u64 = 2 << 20;

/// The driver of a GPU that is imitated: it counts handles, and maps nothing.
#[derive(Debug)]
pub(super) struct GpuAddresses {
    budget: Arc<Budget>,
    ranges: Ranges,
    handles: AtomicU64,
}

impl GpuAddresses {
    /// Creates a driver whose handles count in `budget`. Returns `None` on a platform without
    /// virtual memory.
    pub(super) fn new(budget: &Arc<Budget>) -> Option<Self> {
        Some(Self {
            budget: Arc::clone(budget),
            ranges: Ranges::without_data(budget)?,
            handles: AtomicU64::new(0),
        })
    }
}

impl HandleDriver for GpuAddresses {
    fn granularity_bytes(&self) -> u64 {
        GRANULARITY_BYTES
    }

    fn reserve_addresses(&self, bytes: u64, alignment_bytes: u64) -> Result<Option<DevicePtr>> {
        debug_assert!(
            alignment_bytes <= self.ranges.page_bytes(),
            "the alignment of a range"
        );
        readable_range(&self.ranges, bytes)
    }

    unsafe fn free_addresses(&self, address: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: by this function's contract.
        unsafe { self.ranges.release_range(address, bytes) }
    }

    fn create(&self, bytes: u64) -> Result<Option<Handle>> {
        let handle = || Handle {
            number: self.handles.fetch_add(1, Ordering::Relaxed),
            bytes,
        };
        Ok(self.budget.claim(bytes).then(handle))
    }

    unsafe fn map(&self, _address: DevicePtr, _handle: Handle) -> Result<bool> {
        Ok(true)
    }

    unsafe fn allow_access(&self, _address: DevicePtr, _bytes: u64) -> Result<bool> {
        Ok(true)
    }

    unsafe fn unmap(&self, _address: DevicePtr, _handle: Handle) -> Result<()> {
        Ok(())
    }

    unsafe fn release(&self, handle: Handle) -> Result<()> {
        self.budget.unclaim(handle.bytes);
        Ok(())
    }
}

/// Reserves a segment of its own; `None` if the device is exhausted. The budget counts `bytes`, and
/// not the pages, as it does for a host with memory.
pub(super) fn reserve(ranges: &Ranges, budget: &Budget, bytes: u64) -> Result<Option<DevicePtr>> {
    let Some(mapped) = whole_pages(ranges, bytes).filter(|&mapped| mapped > 0) else {
        return Ok(None);
    };
    if !budget.claim(bytes) {
        return Ok(None);
    }
    let range = readable_range(ranges, mapped);
    if !matches!(range, Ok(Some(_))) {
        budget.unclaim(bytes);
    }
    range
}

/// Releases a segment that [`reserve`] reserved.
pub(super) fn release(
    ranges: &Ranges,
    budget: &Budget,
    address: DevicePtr,
    bytes: u64,
) -> Result<()> {
    let mapped = whole_pages(ranges, bytes).unwrap_or(bytes);
    // SAFETY: the caller passes back an address that `reserve` gave for the same `bytes`, and
    // nothing uses the range any longer.
    unsafe { ranges.release_range(address, mapped)? };
    budget.unclaim(bytes);
    Ok(())
}

/// Reserves a range whose addresses can be read; `None` if the platform refuses.
fn readable_range(ranges: &Ranges, bytes: u64) -> Result<Option<DevicePtr>> {
    let Some(range) = ranges.reserve_range(bytes)? else {
        return Ok(None);
    };
    let changed = ranges.make_readable(range, bytes);
    if matches!(changed, Ok(true)) {
        return Ok(Some(range));
    }
    // SAFETY: the range is new, and has this length.
    unsafe { ranges.release_range(range, bytes)? };
    changed.map(|_| None)
}

/// Returns the bytes of the pages that `bytes` need; `None` beyond the address space.
fn whole_pages(ranges: &Ranges, bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(ranges.min_page_bytes())
}
