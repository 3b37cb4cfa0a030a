//! The expandable source: address ranges reserved ahead, with pages committed on demand.
//!
//! Pages are committed only when they are needed, so `reserved_bytes` stays at the working set. The
//! commits cost little: a commit is far cheaper than the first write to the page. In contrast,
//! separate segments cannot grow in place, so their sizes rise with the bytes of the pool.

use super::direct::{DirectSource, outside_ranges};
use super::{ReserveAt, Source, SourcePart};
use crate::device::{Backend, Destination, DevicePtr, PageCost, StreamId, VirtualMemory};
use crate::error::Result;
use crate::size::round_up;
use crate::sync::plain::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};

/// The source of pages of ranges, and of segments from a [`DirectSource`].
///
/// Invariants:
/// - each range in `ranges` is reserved from the backend until the source drops, and ranges do not
///   overlap;
/// - a page of a range is committed exactly while it is reserved from this source. The caller of
///   `reserve` has not reserved the page yet. The caller of `release` has reserved it.
#[derive(Debug)]
pub(crate) struct Expandable {
    backend: Arc<dyn Backend>,
    page_bytes: u64,
    cost: PageCost,
    /// The limit, or the device's memory without a limit. This field and `committed_bytes` publish
    /// no memory, so relaxed accesses suffice.
    usable_bytes: AtomicU64,
    committed_bytes: AtomicU64,
    /// The number of times that the largest handle was halved, plus 1. Without a limit, 0 until
    /// memory is short.
    halvings: AtomicU64,
    segments: DirectSource,
    ranges: Mutex<Vec<AddressRange>>,
}

/// The number of default pages below which a limit is tight.
const TIGHT_LIMIT_PAGES: u64 = 16;
/// The approximate number of pages under a tight limit.
const TIGHT_LIMIT_SHARE: u64 = 512;

/// Returns the page size. Under a tight limit pages are small, because idle memory between live
/// blocks can only be moved in whole pages. Under a limit below one default page there are no
/// pages, and each segment has the requested size.
fn page_bytes(memory: &dyn VirtualMemory, limit_bytes: u64) -> u64 {
    let usual_bytes = memory.page_bytes();
    if limit_bytes < usual_bytes || limit_bytes / TIGHT_LIMIT_PAGES >= usual_bytes {
        return usual_bytes;
    }
    let small_bytes = 1 << (limit_bytes / TIGHT_LIMIT_SHARE).ilog2();
    usual_bytes.min(small_bytes).max(memory.min_page_bytes())
}

const MAX_HANDLE_BYTES: u64 = 1 << 30;
/// The divisor of the usable memory. The quotient bounds the size of a handle. Idle memory moves in
/// whole handles, and a live block pins its handle.
const HANDLE_DIVISOR: u64 = 64;
/// The divisor of the usable memory that is not committed. The quotient bounds a handle's size,
/// too.
const REST_DIVISOR: u64 = 16;
/// The divisor of the usable memory. The quotient is the size of a small handle. Handles are small
/// under a limit, if little memory is left, or once memory was short.
const SHORT_HANDLE_DIVISOR: u64 = 512;
/// The divisor of a range's step of growth. If pages are expensive, the step is the committed bytes
/// divided by this number.
const STEP_DIVISOR: u64 = 24;
/// The step below which a range grows by pages, because little memory needs few calls in any case.
const MIN_STEP_BYTES: u64 = 8 << 20;

/// Returns the largest power of two of at most `bytes`.
fn power_below(bytes: u64) -> u64 {
    1 << bytes.max(1).ilog2()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressRange {
    pub(crate) address: DevicePtr,
    pub(crate) bytes: u64,
}

impl AddressRange {
    fn contains(self, address: DevicePtr, bytes: u64) -> bool {
        let offset = address.0.checked_sub(self.address.0);
        let end = offset.and_then(|offset| offset.checked_add(bytes));
        end.is_some_and(|end| end <= self.bytes)
    }
}

impl Expandable {
    /// Creates a source of `backend` under this limit; `None` if the backend has no virtual memory.
    pub(crate) fn new(backend: &Arc<dyn Backend>, limit_bytes: Option<u64>) -> Option<Self> {
        let memory = backend.virtual_memory()?;
        let source = Self {
            backend: Arc::clone(backend),
            page_bytes: page_bytes(memory, limit_bytes.unwrap_or(u64::MAX)),
            cost: memory.page_cost(),
            usable_bytes: AtomicU64::new(0),
            committed_bytes: AtomicU64::new(0),
            halvings: AtomicU64::new(0),
            segments: DirectSource::new(Arc::clone(backend)),
            ranges: Mutex::default(),
        };
        source.set_limit(limit_bytes);
        Some(source)
    }

    /// Adapts the size of new handles to a limit.
    pub(crate) fn set_limit(&self, limit_bytes: Option<u64>) {
        let total_bytes = self.backend.total_bytes();
        let usable_bytes = limit_bytes.unwrap_or(u64::MAX).min(total_bytes);
        self.usable_bytes.store(usable_bytes, Ordering::Relaxed);
        match limit_bytes {
            Some(_) => self.halvings.fetch_max(1, Ordering::Relaxed),
            None => self.halvings.swap(0, Ordering::Relaxed),
        };
    }

    /// Records that memory is short: a request of `bytes` was refused. From now on handles are
    /// small. If `is_stuck` is set, enough bytes were idle, but could not be moved. Each further
    /// shortage with `is_stuck` halves the handles. A request of more than the usable memory is
    /// ignored.
    pub(crate) fn note_shortage(&self, bytes: u64, is_stuck: bool) {
        if bytes > self.usable_bytes.load(Ordering::Relaxed) {
            return;
        }
        let before = self.halvings.fetch_max(1, Ordering::Relaxed);
        if is_stuck && before > 0 && self.max_handle_bytes() > self.page_bytes {
            self.halvings.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn page_cost(&self) -> PageCost {
        self.cost
    }

    /// Returns the maximum size of a handle of the next commit.
    fn max_handle_bytes(&self) -> u64 {
        let usable_bytes = self.usable_bytes.load(Ordering::Relaxed);
        let halvings = self.halvings.load(Ordering::Relaxed);
        let short_bytes = usable_bytes / SHORT_HANDLE_DIVISOR;
        let bytes = if halvings > 0 {
            short_bytes >> (halvings - 1)
        } else {
            let committed_bytes = self.committed_bytes.load(Ordering::Relaxed);
            let rest_bytes = usable_bytes.saturating_sub(committed_bytes);
            let share_bytes = usable_bytes / HANDLE_DIVISOR;
            share_bytes.min(rest_bytes / REST_DIVISOR).max(short_bytes)
        };
        power_below(bytes)
            .min(MAX_HANDLE_BYTES)
            .max(self.page_bytes)
    }

    /// Returns the unit of growth. If pages are cheap, the unit is a page. Otherwise, the unit is a
    /// fraction of the committed bytes, so that calls become rare as memory grows.
    pub(crate) fn step_bytes(&self) -> u64 {
        if self.cost == PageCost::Low {
            return self.page_bytes;
        }
        let committed_bytes = self.committed_bytes.load(Ordering::Relaxed);
        let bytes = power_below(committed_bytes / STEP_DIVISOR);
        if bytes < MIN_STEP_BYTES {
            return self.page_bytes;
        }
        let bytes = bytes.min(self.max_handle_bytes());
        bytes.max(self.page_bytes)
    }

    /// Returns the parts of these pages that can be released separately, by address.
    pub(crate) fn separable(&self, address: DevicePtr, bytes: u64) -> Vec<(DevicePtr, u64)> {
        self.memory().separable(address, bytes)
    }

    /// Returns the bytes that are released, but still held from the device for the next growth.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.memory().kept_bytes()
    }

    pub(crate) fn release_kept(&self) -> Result<()> {
        self.memory().release_kept()
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Reserves another range of at least `min_bytes`. The range has twice the size of the device's
    /// memory, so that there is space between scattered blocks. If the platform has fewer
    /// addresses, the range has half of these addresses, because the process needs addresses, too.
    /// Returns `None` if there are too few addresses, or if the device has less memory than
    /// `min_bytes`.
    pub(crate) fn add_range(&self, min_bytes: u64) -> Result<Option<AddressRange>> {
        let total_bytes = self.backend.total_bytes();
        if min_bytes > total_bytes {
            return Ok(None);
        }
        let wanted_bytes = total_bytes.saturating_mul(2);
        let mut range = self.reserve_range(wanted_bytes)?;
        let mut tried_bytes = wanted_bytes;
        while range.is_none() && tried_bytes / 4 >= min_bytes {
            tried_bytes /= 2;
            range = match self.reserve_range(tried_bytes)? {
                Some(most) => self.halve(most)?,
                None => None,
            };
        }
        self.ranges.lock().extend(range);
        Ok(range)
    }

    /// Reserves a range of `bytes`, rounded up to pages, if the platform has the addresses.
    fn reserve_range(&self, bytes: u64) -> Result<Option<AddressRange>> {
        let Some(bytes) = round_up(bytes, self.memory().page_bytes()) else {
            return Ok(None);
        };
        let address = self.memory().reserve_range(bytes)?;
        Ok(address.map(|address| AddressRange { address, bytes }))
    }

    fn halve(&self, range: AddressRange) -> Result<Option<AddressRange>> {
        // SAFETY: the range was just reserved, and nothing else has its address.
        unsafe { self.memory().release_range(range.address, range.bytes) }?;
        self.reserve_range(range.bytes / 2)
    }

    fn memory(&self) -> &dyn VirtualMemory {
        let memory = self.backend.virtual_memory();
        memory.expect("the device has virtual memory, as `new` has checked")
    }

    fn has_pages(&self, address: DevicePtr, bytes: u64) -> bool {
        let page_bytes = self.page_bytes();
        let ranges = self.ranges.lock();
        ranges.iter().any(|range| range.contains(address, bytes))
            && address.0.is_multiple_of(page_bytes)
            && bytes.is_multiple_of(page_bytes)
    }
}

impl Source for Expandable {
    fn reserve(&self, at: ReserveAt, bytes: u64, stream: StreamId) -> Result<Option<DevicePtr>> {
        let ReserveAt::Address(address) = at else {
            self.release_kept()?;
            return self.segments.reserve(at, bytes, stream);
        };
        if !self.has_pages(address, bytes) {
            return Err(outside_ranges(address, bytes));
        }
        // SAFETY: the pages lie in a range, as checked above. They are not committed, because the
        // caller has not reserved them yet.
        let committed = unsafe {
            let most_bytes = self.max_handle_bytes();
            self.memory().commit(address, bytes, most_bytes)
        }?;
        if committed {
            self.committed_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(committed.then_some(address))
    }

    fn release(&self, part: SourcePart, to: Destination) -> Result<()> {
        let SourcePart { address, bytes, .. } = part;
        if !self.has_pages(address, bytes) {
            return self.segments.release(part, to);
        }
        // SAFETY: the pages lie in a range, as checked above. They are committed and unused,
        // because the caller reserved them and now releases them.
        unsafe { self.memory().decommit(address, bytes, to) }?;
        self.committed_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Expandable {
    fn drop(&mut self) {
        let ranges = std::mem::take(&mut *self.ranges.lock());
        for AddressRange { address, bytes } in ranges {
            // SAFETY: the range is still reserved, and no block of it outlives the source. No
            // caller can receive an error.
            let _ = unsafe { self.memory().release_range(address, bytes) };
        }
    }
}
