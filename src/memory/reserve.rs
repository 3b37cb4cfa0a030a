//! Growth: what is reserved from the source where the pool has nothing that fits.
//!
//! A range grows in place by exactly the pages that a request needs, and a range is cheap, being only
//! addresses; so nothing is reserved ahead there. Where that would be a sixteenth and a page more than
//! was ever in use, idle pages elsewhere are given back first, and while only a few pages are in use,
//! memory that is kept for other sizes is used before that: so sizes that drift, and leave gaps that
//! nothing fits, do not lift what is reserved far above what is in use, and a program that repeats pays
//! nothing. A segment of its own is reserved where there are no ranges, and where a limit has no room
//! for whole pages.

use super::{DeviceMemory, Phase, Segment, State};
use crate::device::StreamId;
use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pages;
use crate::source::{Place, Source};

/// What is less than so many pages is little.
const FEW_PAGES: u64 = 16;

impl DeviceMemory {
    /// Tries to reserve what a block of `bytes` (rounded) fits in, for `stream`: the pages that a
    /// range lacks, else a segment, which is as large as the pool would like, or exactly what is asked
    /// where the source has no room for that.
    pub(super) fn reserve(&self, state: &mut State, bytes: u64, stream: StreamId) -> Result<bool> {
        if self.backend.is_capturing() {
            return Err(reserved_in_graph(bytes));
        }
        let wanted = match self.expansion(state, bytes)? {
            Some(pages) if self.reserve_pages(state, pages, bytes, stream)? => return Ok(true),
            Some(_) => bytes,
            None => state.pool.segment_bytes(bytes),
        };
        Ok(self.reserve_segment(state, wanted, bytes, stream)?
            || wanted > bytes && self.reserve_segment(state, bytes, bytes, stream)?)
    }

    /// The least that has to be reserved before the pool can serve `bytes` from where it would like
    /// to.
    pub(super) fn wanting_bytes(&self, state: &State, bytes: u64) -> u64 {
        let pages = state.pool.pages_to_commit(bytes, self.page_bytes());
        pages.map_or(bytes, |pages| pages.bytes)
    }

    /// What ranges are reserved in multiples of; without ranges nothing is.
    pub(super) fn page_bytes(&self) -> u64 {
        let source = self.expandable.as_ref();
        source.map_or(u64::MAX, |source| source.page_bytes())
    }

    /// The pages that a block of `bytes` needs beside what is free, of a new range where those that
    /// there are have no room; `None` where there can be no ranges.
    fn expansion(&self, state: &mut State, bytes: u64) -> Result<Option<Pages>> {
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

    fn reserve_pages(
        &self,
        state: &mut State,
        pages: Pages,
        bytes: u64,
        stream: StreamId,
    ) -> Result<bool> {
        let pages = self.give_way(state, pages, bytes);
        let address = state.segment(pages.segment).address.offset(pages.offset);
        let place = Place::At(address);
        let reserve = || self.source.reserve(place, pages.bytes, stream);
        if self.phases.time(Phase::Reserve, reserve)?.is_none() {
            return Ok(false);
        }
        state.pool.commit(pages);
        let range = state.segment_mut(pages.segment);
        range.held_bytes += pages.bytes;
        range.reserves += 1;
        self.count_reserve(state);
        Ok(true)
    }

    /// Releases idle pages that are not beside `pages`, as far as reserving these would be too much;
    /// answers the pages that a block of `bytes` needs then.
    fn give_way(&self, state: &mut State, mut pages: Pages, bytes: u64) -> Pages {
        state.peak_used_bytes = self.most_used_bytes(state, bytes);
        loop {
            let excess_bytes = self.excess_bytes(state, pages, bytes);
            if excess_bytes == 0
                || state.pool.free_bytes() < self.page_bytes()
                || self.release_pages_beside(state, pages, excess_bytes) == 0
            {
                return pages;
            }
            let again = state.pool.pages_to_commit(bytes, self.page_bytes());
            pages = again.unwrap_or(pages);
        }
    }

    /// The most that was ever in use as memory grew, and is with a block of `bytes`.
    fn most_used_bytes(&self, state: &State, bytes: u64) -> u64 {
        let used_bytes = self.source.reserved_bytes() - state.pool.free_bytes() + bytes;
        state.peak_used_bytes.max(used_bytes)
    }

    /// By how much more than a sixteenth and a page above that would be reserved with `pages`, which the
    /// block needs.
    fn excess_bytes(&self, state: &State, pages: Pages, bytes: u64) -> u64 {
        let most_bytes = self.most_used_bytes(state, bytes);
        let allowed_bytes = most_bytes + most_bytes / 16 + self.page_bytes();
        let wanted_bytes = self.source.reserved_bytes() + pages.bytes;
        wanted_bytes.saturating_sub(allowed_bytes)
    }

    /// Whether a block of `bytes` had better lie among those of other sizes than on pages of its own:
    /// while all that was ever in use are a few pages, each that is not full weighs more than what one
    /// small block pins.
    pub(super) fn is_page_dear(&self, state: &State, bytes: u64) -> bool {
        let page_bytes = self.page_bytes();
        let Some(pages) = state.pool.pages_to_commit(bytes, page_bytes) else {
            return false;
        };
        self.excess_bytes(state, pages, bytes) > 0 && state.peak_used_bytes < FEW_PAGES * page_bytes
    }

    /// Tries to add a segment of `segment_bytes` for a block of `bytes`.
    fn reserve_segment(
        &self,
        state: &mut State,
        segment_bytes: u64,
        bytes: u64,
        stream: StreamId,
    ) -> Result<bool> {
        let reserve = || self.source.reserve(Place::Anywhere, segment_bytes, stream);
        let Some(address) = self.phases.time(Phase::Reserve, reserve)? else {
            return Ok(false);
        };
        let id = state.insert(Segment::whole(address, segment_bytes, stream));
        state.pool.add_segment(id, segment_bytes, bytes);
        self.count_reserve(state);
        Ok(true)
    }

    fn count_reserve(&self, state: &mut State) {
        state.reserves += 1;
        let reserved_bytes = self.source.reserved_bytes();
        state.peak_reserved_bytes = state.peak_reserved_bytes.max(reserved_bytes);
    }
}

#[cold]
fn reserved_in_graph(bytes: u64) -> Error {
    let text = format!(
        "graph::capture: {bytes} bytes would have to be reserved from the device: run the scope once before, \
         under Policy::Plan, so that it has its memory by then"
    );
    Error::new(ErrorKind::Unsupported, text)
}
