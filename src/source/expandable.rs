//! The source that reserves address space ahead, and puts memory behind it page by page.

use super::direct::{Direct, outside_of_ranges};
use super::{Place, Source};
use crate::device::{Backend, DevicePtr, StreamId, VirtualMemory};
use crate::error::Result;
use crate::size::round_up;
use crate::sync::{Arc, Mutex};

/// Pages of ranges, and beside them segments as [`Direct`] has them.
///
/// Invariants:
/// - each of `ranges` is reserved from the backend until this drops; they do not overlap;
/// - pages of a range are committed while they are reserved here and at no other time: whoever
///   reserves some does not have them yet, and whoever releases some has them.
#[derive(Debug)]
pub(crate) struct Expandable {
    backend: Arc<dyn Backend>,
    page_bytes: u64,
    segments: Direct,
    ranges: Mutex<Vec<Range>>,
}

/// A limit of so many pages of the usual length is not a tight one.
const ENOUGH_PAGES: u64 = 16;
/// Into about how many pages the memory under a tight limit falls.
const MANY_PAGES: u64 = 512;

/// Under a tight limit pages are small: what is idle between live blocks can only be put elsewhere by
/// whole ones. Under one that is less than a page of the usual length there are none, and each segment
/// is of what is asked.
fn page_bytes(memory: &dyn VirtualMemory, limit_bytes: u64) -> u64 {
    let usual_bytes = memory.page_bytes();
    if limit_bytes < usual_bytes || limit_bytes / ENOUGH_PAGES >= usual_bytes {
        return usual_bytes;
    }
    let small_bytes = 1 << (limit_bytes / MANY_PAGES).ilog2();
    usual_bytes.min(small_bytes).max(memory.least_page_bytes())
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) address: DevicePtr,
    pub(crate) bytes: u64,
}

impl Range {
    fn contains(self, address: DevicePtr, bytes: u64) -> bool {
        let offset = address.0.checked_sub(self.address.0);
        let end = offset.and_then(|offset| offset.checked_add(bytes));
        end.is_some_and(|end| end <= self.bytes)
    }
}

impl Expandable {
    /// Over `backend`, of which no more than the limit will be reserved; `None` where it has no virtual
    /// memory.
    pub(crate) fn new(backend: &Arc<dyn Backend>, limit_bytes: Option<u64>) -> Option<Self> {
        let memory = backend.virtual_memory()?;
        Some(Self {
            backend: Arc::clone(backend),
            page_bytes: page_bytes(memory, limit_bytes.unwrap_or(u64::MAX)),
            segments: Direct::new(Arc::clone(backend)),
            ranges: Mutex::default(),
        })
    }

    /// What ranges are committed in multiples of.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Reserves the addresses of one more range, at least `least_bytes`: twice as many as the device has
    /// bytes, so that blocks which lie scattered in it leave room for others. Where the platform has not
    /// so many, half of what it has: the process needs some too. `None` where that is too few, and where
    /// the device itself has fewer.
    pub(crate) fn add_range(&self, least_bytes: u64) -> Result<Option<Range>> {
        let total_bytes = self.backend.total_bytes();
        if least_bytes > total_bytes {
            return Ok(None);
        }
        let wanted_bytes = total_bytes.saturating_mul(2);
        let mut range = self.reserve_range(wanted_bytes)?;
        let mut tried_bytes = wanted_bytes;
        while range.is_none() && tried_bytes / 4 >= least_bytes {
            tried_bytes /= 2;
            range = match self.reserve_range(tried_bytes)? {
                Some(most) => self.halved(most)?,
                None => None,
            };
        }
        self.ranges.lock().extend(range);
        Ok(range)
    }

    /// A range of `bytes`, rounded up to pages, where the platform has the addresses.
    fn reserve_range(&self, bytes: u64) -> Result<Option<Range>> {
        let Some(bytes) = round_up(bytes, self.memory().page_bytes()) else {
            return Ok(None);
        };
        let address = self.memory().reserve_range(bytes)?;
        Ok(address.map(|address| Range { address, bytes }))
    }

    /// A range of half the addresses instead.
    fn halved(&self, range: Range) -> Result<Option<Range>> {
        // SAFETY: the range was reserved just now, and nobody knows of it.
        unsafe { self.memory().release_range(range.address, range.bytes) }?;
        self.reserve_range(range.bytes / 2)
    }

    fn memory(&self) -> &dyn VirtualMemory {
        let memory = self.backend.virtual_memory();
        memory.expect("asked for when this was made")
    }

    /// Whether these are whole pages of a range.
    fn has_pages(&self, address: DevicePtr, bytes: u64) -> bool {
        let page_bytes = self.page_bytes();
        let ranges = self.ranges.lock();
        ranges.iter().any(|range| range.contains(address, bytes))
            && address.0.is_multiple_of(page_bytes)
            && bytes.is_multiple_of(page_bytes)
    }
}

impl Source for Expandable {
    fn reserve(&self, place: Place, bytes: u64, stream: StreamId) -> Result<Option<DevicePtr>> {
        let Place::At(address) = place else {
            return self.segments.reserve(place, bytes, stream);
        };
        if !self.has_pages(address, bytes) {
            return Err(outside_of_ranges(address, bytes));
        }
        // SAFETY: the pages lie in a range, as was just found, and are not committed, because the
        // caller has not reserved them yet.
        let committed = unsafe { self.memory().commit(address, bytes) }?;
        Ok(committed.then_some(address))
    }

    fn release(&self, address: DevicePtr, bytes: u64, stream: StreamId) -> Result<()> {
        if !self.has_pages(address, bytes) {
            return self.segments.release(address, bytes, stream);
        }
        // SAFETY: the pages lie in a range, as was just found, and are committed and out of use,
        // because the caller has reserved them and gives them back.
        unsafe { self.memory().decommit(address, bytes) }
    }
}

impl Drop for Expandable {
    fn drop(&mut self) {
        let ranges = std::mem::take(&mut *self.ranges.lock());
        for Range { address, bytes } in ranges {
            // SAFETY: the range is reserved until here, and with its source every block of it has gone.
            // Nobody is left to tell an error.
            let _ = unsafe { self.memory().release_range(address, bytes) };
        }
    }
}
