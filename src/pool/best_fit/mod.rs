//! Best fit with immediate split and coalesce.
//!
//! Small and large requests are kept apart, as PyTorch's caching allocator keeps them, so that a
//! small array that lives long pins no large segment. Within a side a request is served by the
//! smallest of the first few blocks of its own size class that fit, else of the next class that has
//! any; on random and on recorded lifetimes that packs as a search through all blocks does. Which end
//! of a longer block the request is cut from, and when the end of a range is used, says
//! [`placement`]. A take costs constant time but for one case: where no longer class has a block, the
//! whole of its own class is searched, and the tails, so that a request is refused only when nothing of
//! its side fits. Where nothing else is left, [`take_from_any`](Pool::take_from_any) crosses over.

#[cfg(test)]
mod check;
mod placement;
mod ranges;
#[cfg(test)]
mod tests;

use super::absent::Absent;
use super::bins::Bins;
use super::blocks::{Block, Blocks, NONE, Side, State};
use super::{Owner, Pages, Pool, Rounding, SegmentId, Span};
use crate::device::StreamId;
use crate::size::{UNIT_BYTES, round_up};

/// Requests up to this (rounded) are small.
const SMALL_REQUEST_BYTES: u64 = 1 << 20;
/// What small requests share.
const SMALL_SEGMENT_BYTES: u64 = 2 << 20;
/// Large requests below this share segments too.
const SHARED_REQUEST_BYTES: u64 = 10 << 20;
/// What those share.
const SHARED_SEGMENT_BYTES: u64 = 20 << 20;
/// Larger requests have a segment of their own, of a multiple of this.
const SEGMENT_UNIT_BYTES: u64 = 2 << 20;
/// A new large segment is at least this part of what the large ones hold already, so that a program
/// that keeps growing reserves seldom.
const GROWTH_DIVISOR: u64 = 8;
/// Up to this, which growth alone does not exceed.
const MAX_GROWTH_BYTES: u64 = 512 << 20;

/// The default pool.
///
/// Invariants:
/// - the blocks of a segment or range, from `first` along `after`, tile it exactly, in the order of
///   their offsets; `first` stays the same node for as long as the segment is here;
/// - of two neighbours at most one is free, and at most one is absent;
/// - a free block is in the bin of its size on the side of its segment, or in that of the tails where
///   only absent memory follows it; an absent one, which only ranges have, is among the absent blocks
///   of that side, a used one in neither;
/// - offsets are multiples of [`UNIT_BYTES`], and so are lengths but for a segment's last block;
/// - `free_bytes` is the sum over the free blocks.
#[derive(Debug)]
pub(crate) struct BestFit {
    blocks: Blocks,
    small: Stock,
    large: Stock,
    /// Requests up to this (rounded) are small.
    small_request_bytes: u64,
    /// How often a block was handed out; it may wrap.
    takes: u32,
    /// By number, with holes.
    segments: Vec<Option<Segment>>,
    free_bytes: u64,
}

/// What one side has for the next request.
#[derive(Debug)]
struct Stock {
    free: Bins,
    absent: Absent,
}

impl Stock {
    fn new() -> Self {
        Self {
            free: Bins::new(),
            absent: Absent::default(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    bytes: u64,
    first: u32,
    is_range: bool,
}

impl BestFit {
    pub(crate) fn new() -> Self {
        Self::with_small(SMALL_REQUEST_BYTES)
    }

    /// One that keeps nothing apart: every request may lie beside every other.
    pub(crate) fn unified() -> Self {
        Self::with_small(0)
    }

    fn with_small(small_request_bytes: u64) -> Self {
        Self {
            blocks: Blocks::new(),
            small: Stock::new(),
            large: Stock::new(),
            small_request_bytes,
            takes: 0,
            segments: Vec::new(),
            free_bytes: 0,
        }
    }

    /// The side that serves requests of `bytes` (rounded).
    #[inline]
    fn side_of(&self, bytes: u64) -> Side {
        if bytes <= self.small_request_bytes {
            Side::Small
        } else {
            Side::Large
        }
    }

    /// The stock of a side, and the blocks that it names.
    #[inline]
    fn stock(&mut self, side: Side) -> (&mut Stock, &mut Blocks) {
        let stock = match side {
            Side::Small => &mut self.small,
            Side::Large => &mut self.large,
        };
        (stock, &mut self.blocks)
    }

    fn stock_of(&self, side: Side) -> &Stock {
        match side {
            Side::Small => &self.small,
            Side::Large => &self.large,
        }
    }

    fn take_from(&mut self, side: Side, bytes: u64, stream: StreamId) -> Option<(Span, Owner)> {
        debug_assert!(
            bytes > 0 && bytes.is_multiple_of(UNIT_BYTES),
            "{bytes} bytes"
        );
        let take = self.takes.wrapping_add(1);
        let (Stock { free, .. }, blocks) = self.stock(side);
        let hole = free.find(blocks, bytes, stream)?;
        free.remove(blocks, hole);
        let Block {
            bytes: hole_bytes,
            state,
            ..
        } = *blocks.get(hole);
        // A rest below a unit, at the end of a segment of an odd length, could serve nobody.
        let rest_bytes = (hole_bytes - bytes) / UNIT_BYTES * UNIT_BYTES;
        let node = if rest_bytes == 0 {
            hole
        } else if placement::is_in_front(blocks, hole, bytes, take) {
            let rest = blocks.split(hole, bytes);
            free.insert(blocks, rest, state);
            hole
        } else {
            let node = blocks.split(hole, rest_bytes);
            free.insert(blocks, hole, State::Free);
            node
        };
        let block = blocks.get_mut(node);
        block.hand_out(take);
        let span = Span {
            segment: block.segment,
            offset: block.offset,
            bytes: block.bytes,
            node,
        };
        let owner = block.owner;
        self.takes = take;
        self.free_bytes -= span.bytes;
        Some((span, owner))
    }

    /// Makes a block, nobody's now, free, joined with what is free around it; answers its node.
    #[inline]
    fn put_back(&mut self, mut node: u32, owner: Owner) -> u32 {
        let Block {
            before,
            after,
            side,
            bytes,
            ..
        } = *self.blocks.get(node);
        self.free_bytes += bytes;
        let (Stock { free, .. }, blocks) = self.stock(side);
        blocks.get_mut(node).owner = owner;
        let state = if blocks.is_free(after) {
            let state = blocks.get(after).state;
            free.remove(blocks, after);
            blocks.absorb_after(node);
            state
        } else {
            blocks.free_state(after)
        };
        if blocks.is_free(before) {
            free.remove(blocks, before);
            blocks.absorb_after(before);
            node = before;
        }
        free.insert(blocks, node, state);
        node
    }

    /// The one block that a new segment or range is, in no bin.
    fn first_block(&mut self, segment: SegmentId, bytes: u64, side: Side, state: State) -> u32 {
        self.blocks.insert(Block {
            bytes,
            offset: 0,
            segment,
            before: NONE,
            after: NONE,
            bin_previous: NONE,
            bin_next: NONE,
            owner: Owner::NOBODY,
            side,
            state,
        })
    }

    fn insert_segment(&mut self, id: SegmentId, segment: Segment) {
        debug_assert!(self.segment(id).is_none(), "{id:?} is here");
        debug_assert!(segment.bytes > 0);
        let number = id.0 as usize;
        if number >= self.segments.len() {
            self.segments.resize(number + 1, None);
        }
        self.segments[number] = Some(segment);
    }

    fn segment(&self, segment: SegmentId) -> Option<Segment> {
        *self.segments.get(segment.0 as usize)?
    }

    fn is_whole(&self, id: SegmentId) -> bool {
        self.segment(id).is_some_and(|segment| !segment.is_range)
    }

    /// Takes the block of an idle segment out.
    fn remove_idle(&mut self, segment: Segment) -> Option<Owner> {
        if !self.is_idle(segment) {
            return None;
        }
        let Block { side, owner, .. } = *self.blocks.get(segment.first);
        let (Stock { free, .. }, blocks) = self.stock(side);
        free.remove(blocks, segment.first);
        blocks.remove(segment.first);
        self.free_bytes -= segment.bytes;
        Some(owner)
    }

    /// Whether `segment` is no range, and one free block.
    fn is_idle(&self, segment: Segment) -> bool {
        let first = self.blocks.get(segment.first);
        first.state == State::Free && first.after == NONE && !segment.is_range
    }

    /// What the segments for large requests hold.
    fn large_bytes(&self) -> u64 {
        let whole = self.present().filter(|(_, segment)| !segment.is_range);
        let side = |segment: Segment| self.blocks.get(segment.first).side;
        let large = whole.filter(|&(_, segment)| side(segment) == Side::Large);
        large.map(|(_, segment)| segment.bytes).sum()
    }

    /// The segments that are here, by number.
    fn present(&self) -> impl Iterator<Item = (SegmentId, Segment)> {
        let numbered = (0..).map(SegmentId).zip(&self.segments);
        numbered.filter_map(|(id, segment)| Some((id, (*segment)?)))
    }
}

impl Pool for BestFit {
    fn rounding(&self) -> Rounding {
        Rounding::Units
    }

    fn segment_bytes(&self, bytes: u64) -> u64 {
        let least_bytes = if bytes <= SMALL_REQUEST_BYTES {
            return SMALL_SEGMENT_BYTES;
        } else if bytes < SHARED_REQUEST_BYTES {
            SHARED_SEGMENT_BYTES
        } else {
            bytes
        };
        let growth_bytes = (self.large_bytes() / GROWTH_DIVISOR).min(MAX_GROWTH_BYTES);
        let wanted_bytes = least_bytes.max(growth_bytes);
        round_up(wanted_bytes, SEGMENT_UNIT_BYTES).unwrap_or(bytes)
    }

    fn add_segment(&mut self, segment: SegmentId, segment_bytes: u64, request_bytes: u64) {
        let side = self.side_of(request_bytes);
        let first = self.first_block(segment, segment_bytes, side, State::Free);
        let (Stock { free, .. }, blocks) = self.stock(side);
        free.insert(blocks, first, State::Free);
        self.free_bytes += segment_bytes;
        let whole = Segment {
            bytes: segment_bytes,
            first,
            is_range: false,
        };
        self.insert_segment(segment, whole);
    }

    fn remove_segment(&mut self, segment: SegmentId) -> Option<Owner> {
        let found = self.segment(segment)?;
        let owner = if found.is_range {
            self.remove_absent(found)
        } else {
            self.remove_idle(found)
        };
        if owner.is_some() {
            self.segments[segment.0 as usize] = None;
        }
        owner
    }

    fn owner_of_idle(&self, segment: SegmentId) -> Option<Owner> {
        let found = self.segment(segment).filter(|&found| self.is_idle(found))?;
        Some(self.blocks.get(found.first).owner)
    }

    fn take(&mut self, bytes: u64, stream: StreamId) -> Option<(Span, Owner)> {
        self.take_from(self.side_of(bytes), bytes, stream)
    }

    fn take_from_any(&mut self, bytes: u64, stream: StreamId) -> Option<(Span, Owner)> {
        let own = self.side_of(bytes);
        self.take_from(own, bytes, stream)
            .or_else(|| self.take_from(own.other(), bytes, stream))
    }

    fn give(&mut self, span: Span, owner: Owner) -> bool {
        let block = self.blocks.get(span.node);
        debug_assert!(
            block.state == State::Used && block.offset == span.offset,
            "{span:?} is not out"
        );
        let node = self.put_back(span.node, owner);
        let Block {
            before,
            after,
            segment,
            ..
        } = *self.blocks.get(node);
        before == NONE && after == NONE && self.is_whole(segment)
    }

    fn idle_segments(&self) -> Vec<SegmentId> {
        let mut idle: Vec<_> = self
            .present()
            .filter(|&(_, segment)| self.is_idle(segment))
            .map(|(id, segment)| (segment.bytes, id))
            .collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, id)| id).collect()
    }

    fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    fn largest_free_block_bytes(&self) -> u64 {
        let small = self.small.free.largest_bytes(&self.blocks);
        small.max(self.large.free.largest_bytes(&self.blocks))
    }

    fn expands(&self) -> bool {
        true
    }

    fn add_range(&mut self, segment: SegmentId, range_bytes: u64, request_bytes: u64) {
        let side = self.side_of(request_bytes);
        self.insert_range(segment, range_bytes, side);
    }

    fn expansion(&self, bytes: u64, page_bytes: u64) -> Option<Pages> {
        let absent = &self.stock_of(self.side_of(bytes)).absent;
        absent.find(&self.blocks, bytes, page_bytes)
    }

    fn commit(&mut self, pages: Pages) {
        self.commit_pages(pages);
    }

    fn idle_pages(&self, page_bytes: u64) -> Vec<Pages> {
        self.free_pages(page_bytes)
    }

    fn owner_of_pages(&self, pages: Pages) -> Owner {
        self.blocks.get(pages.node).owner
    }

    fn decommit(&mut self, pages: Pages) -> Owner {
        self.decommit_pages(pages)
    }

    #[cfg(test)]
    fn check(&self) {
        self.assert_invariants();
    }
}
