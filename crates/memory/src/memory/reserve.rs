//! Growth: reserves memory if nothing in the pool fits.
//!
//! A range grows in place by the pages that a request needs. Ranges are only addresses, so no
//! memory is reserved ahead. The growth bound is 17/16 of the peak of used bytes, plus a page.
//! Before growth beyond the bound, idle pages elsewhere are released. If few pages are in use,
//! memory for other sizes is used before growth beyond the bound. So even if drifting sizes leave
//! unusable gaps, reserved bytes do not rise far above used bytes. A program that repeats its sizes
//! has no extra cost. A separate segment is reserved if there are no ranges, or if the limit does
//! not allow whole pages.
//!
//! If a page is expensive, as on a GPU, growth within the bound reserves whole steps. Beyond the
//! bound, idle pages are released only while few pages are reserved. Each release raises the bound,
//! so that releases for growth soon stop. If many pages are reserved, pages move only when memory
//! is short.

use cachescope_reports::internal::AddressSpan;

use super::{DeviceMemory, MemoryState, Phase, Segment};
use crate::device::{PageCost, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pages;
use crate::recorder::EventKind;
use crate::source::{ReserveAt, Source, SourcePart};

/// The number of used pages below which a partly used page is expensive.
const FEW_PAGES: u64 = 16;
/// The number of reserved pages below which even expensive idle pages are released for growth.
/// Below this number, one more page is a large part of the memory.
const LITTLE_PAGES: u64 = 32;
/// After a release of expensive pages, the growth bound rises by the released bytes divided by this
/// number.
const SLACK_DIVISOR: u64 = 8;

impl DeviceMemory {
    /// Tries to reserve memory for a block of `bytes` (rounded). Reserves the missing pages of a
    /// range, else a segment of the pool's preferred size, else a segment of `bytes`.
    pub(super) fn reserve(
        &self,
        state: &mut MemoryState,
        bytes: u64,
        stream: StreamId,
    ) -> Result<bool> {
        if self.backend.is_capturing() {
            return Err(reserved_in_graph(bytes));
        }
        let wanted = match self.expansion(state, bytes)? {
            Some(pages) if self.expand(state, pages, bytes, stream)? => return Ok(true),
            Some(_) => bytes,
            None => state.pool.segment_bytes(bytes),
        };
        Ok(self.reserve_segment(state, wanted, bytes, stream)?
            || wanted > bytes && self.reserve_segment(state, bytes, bytes, stream)?)
    }

    /// Returns the bytes that must be reserved before the pool can serve `bytes`.
    pub(super) fn missing_bytes(&self, state: &MemoryState, bytes: u64) -> u64 {
        let pages = state.pool.pages_to_commit(bytes, self.page_bytes());
        pages.map_or(bytes, |pages| pages.bytes)
    }

    /// Returns the page size of ranges; the maximum without ranges.
    pub(super) fn page_bytes(&self) -> u64 {
        let source = self.expandable.as_ref();
        source.map_or(u64::MAX, |source| source.page_bytes())
    }

    pub(super) fn page_cost(&self) -> PageCost {
        let source = self.expandable.as_ref();
        source.map_or(PageCost::Low, |source| source.page_cost())
    }

    /// Returns the pages to commit for a block of `bytes`. If no existing range has space for the
    /// block, adds a range. Returns `None` without ranges.
    fn expansion(&self, state: &mut MemoryState, bytes: u64) -> Result<Option<Pages>> {
        let Some(source) = &self.expandable else {
            return Ok(None);
        };
        let page_bytes = self.page_bytes();
        if let Some(pages) = state.pool.pages_to_commit(bytes, page_bytes) {
            return Ok(Some(pages));
        }
        let Some(range) = source.add_range(bytes)? else {
            return Ok(None);
        };
        let id = state.insert(Segment::range(range.address));
        state.pool.add_range(id, range.bytes, bytes);
        Ok(state.pool.pages_to_commit(bytes, page_bytes))
    }

    /// Reserves `pages`, or a larger step if the growth bound allows the step.
    fn expand(
        &self,
        state: &mut MemoryState,
        pages: Pages,
        bytes: u64,
        stream: StreamId,
    ) -> Result<bool> {
        let pages = self.release_before_growth(state, pages, bytes);
        if let Some(step) = self.growth_step(state, pages, bytes)
            && self.reserve_pages(state, step, stream)?
        {
            return Ok(true);
        }
        self.reserve_pages(state, pages, stream)
    }

    /// Returns a step that is larger than `pages`, if a page is expensive and the growth bound
    /// allows the step.
    fn growth_step(&self, state: &MemoryState, pages: Pages, bytes: u64) -> Option<Pages> {
        let source = self.expandable.as_ref()?;
        if source.page_cost() == PageCost::Low {
            return None;
        }
        let step = state.pool.pages_to_commit(bytes, source.step_bytes())?;
        let is_larger = step.bytes > pages.bytes;
        (is_larger && self.excess_bytes(state, step, bytes) == 0).then_some(step)
    }

    fn reserve_pages(
        &self,
        state: &mut MemoryState,
        pages: Pages,
        stream: StreamId,
    ) -> Result<bool> {
        let address = state.segment(pages.segment).address.offset(pages.offset);
        let at = ReserveAt::Address(address);
        let reserve = || self.source.reserve(at, pages.bytes, stream);
        if self.phases.time(Phase::Reserve, reserve)?.is_none() {
            return Ok(false);
        }
        self.note_reserve(state, SourcePart::new(address, pages.bytes, stream));
        state.pool.commit(pages);
        let range = state.segment_mut(pages.segment);
        range.held_bytes += pages.bytes;
        range.reserves += 1;
        Ok(true)
    }

    /// While a commit of `pages` would exceed the growth bound, releases idle pages away from
    /// `pages`. Returns the pages to commit afterwards.
    fn release_before_growth(
        &self,
        state: &mut MemoryState,
        mut pages: Pages,
        bytes: u64,
    ) -> Pages {
        state.peak_used_bytes = self.max_used_bytes(state, bytes);
        let is_little = self.source.reserved_bytes() < LITTLE_PAGES * self.page_bytes();
        if self.page_cost() == PageCost::High && !is_little {
            return pages;
        }
        loop {
            let excess_bytes = self.excess_bytes(state, pages, bytes);
            if excess_bytes == 0 || state.pool.free_bytes() < self.page_bytes() {
                return pages;
            }
            let released_bytes = self.release_pages_away_from(state, pages, excess_bytes);
            if released_bytes == 0 {
                return pages;
            }
            if self.page_cost() == PageCost::High {
                state.slack_bytes += released_bytes / SLACK_DIVISOR;
            }
            let again = state.pool.pages_to_commit(bytes, self.page_bytes());
            pages = again.unwrap_or(pages);
        }
    }

    /// Returns the peak of the used bytes, with a block of `bytes` included.
    fn max_used_bytes(&self, state: &MemoryState, bytes: u64) -> u64 {
        let used_bytes = self.source.reserved_bytes() - state.pool.free_bytes() + bytes;
        state.peak_used_bytes.max(used_bytes)
    }

    /// Returns the bytes by which committing `pages` would exceed the growth bound.
    fn excess_bytes(&self, state: &MemoryState, pages: Pages, bytes: u64) -> u64 {
        let most_bytes = self.max_used_bytes(state, bytes);
        let allowed_bytes = most_bytes + most_bytes / 16 + self.page_bytes() + state.slack_bytes;
        let wanted_bytes = self.source.reserved_bytes() + pages.bytes;
        wanted_bytes.saturating_sub(allowed_bytes)
    }

    /// Returns true if a block of `bytes` should share memory for other sizes instead of growing.
    /// While few pages are in use, a partly used page costs more than the memory that a small block
    /// pins.
    pub(super) fn avoids_new_page(&self, state: &MemoryState, bytes: u64) -> bool {
        let page_bytes = self.page_bytes();
        let Some(pages) = state.pool.pages_to_commit(bytes, page_bytes) else {
            return false;
        };
        self.excess_bytes(state, pages, bytes) > 0 && state.peak_used_bytes < FEW_PAGES * page_bytes
    }

    fn reserve_segment(
        &self,
        state: &mut MemoryState,
        segment_bytes: u64,
        bytes: u64,
        stream: StreamId,
    ) -> Result<bool> {
        let reserve = || {
            self.source
                .reserve(ReserveAt::Anywhere, segment_bytes, stream)
        };
        let Some(address) = self.phases.time(Phase::Reserve, reserve)? else {
            return Ok(false);
        };
        self.note_reserve(state, SourcePart::new(address, segment_bytes, stream));
        let id = state.insert(Segment::whole(address, segment_bytes, stream));
        state.pool.add_segment(id, segment_bytes, bytes);
        Ok(true)
    }

    fn note_reserve(&self, state: &mut MemoryState, part: SourcePart) {
        self.record_segment(EventKind::Reserve, part);
        let span = AddressSpan::new(part.address.0, part.bytes);
        let gaps = state.reserved.fill(span, 0);
        debug_assert_eq!(gaps, [span], "memory was reserved twice");
        let counted = &mut state.counted;
        counted.reserves += 1;
        counted.peak_reserved_bytes = counted.peak_reserved_bytes.max(self.device_bytes());
    }
}

#[cold]
fn reserved_in_graph(bytes: u64) -> Error {
    let text = format!(
        "graph::capture: the body needs {bytes} bytes that are not reserved yet: run the scope twice before the \
         capture, under Policy::Plan"
    );
    Error::new(ErrorKind::Unsupported, text)
}
