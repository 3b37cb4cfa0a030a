//! The memory of a meta device: read-only addresses that contain zeros.

use super::ranges::Ranges;
use crate::device::budget::Budget;
use crate::device::{DevicePtr, VirtualMemory};
use crate::error::Result;

/// Reserves a segment in its own range. Returns `None` if the device is exhausted. The budget
/// counts `bytes` and not whole pages, like on a host device.
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
    // SAFETY: the caller passes an address that `reserve` returned for the same `bytes`. Nothing
    // uses the range any longer.
    unsafe { ranges.release_range(address, mapped)? };
    budget.unclaim(bytes);
    Ok(())
}

/// Reserves a readable range. Returns `None` if the platform refuses.
fn readable_range(ranges: &Ranges, bytes: u64) -> Result<Option<DevicePtr>> {
    let Some(range) = ranges.reserve_range(bytes)? else {
        return Ok(None);
    };
    let changed = ranges.make_readable(range, bytes);
    if matches!(changed, Ok(true)) {
        return Ok(Some(range));
    }
    // SAFETY: `reserve_range` returned the range for the same `bytes`, and nothing uses it.
    unsafe { ranges.release_range(range, bytes)? };
    changed.map(|_| None)
}

/// Returns `bytes` rounded up to whole pages; `None` if the result overflows.
fn whole_pages(ranges: &Ranges, bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(ranges.min_page_bytes())
}
