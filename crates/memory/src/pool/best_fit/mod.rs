//! Best fit with immediate split and coalesce.
//!
//! Small and large requests have separate segments, as in PyTorch's caching allocator. So a small
//! long-lived array does not pin a large segment. Within a partition, a request takes the smallest
//! fit of its size class, else of the next non-empty class. Only the first few blocks of a class
//! are compared. On random and recorded lifetimes, this search packs as tightly as an exhaustive
//! search. [`placement`] decides from which end of the block the request is cut. A take needs
//! constant time, unless all higher classes are empty. In this case, the request's own class and
//! the wilderness are searched completely. So a request is refused only if no block in its
//! partition fits. [`take_from_any`](Pool::take_from_any) also searches the other partition.

#[cfg(test)]
mod check;
mod placement;
mod ranges;
#[cfg(test)]
mod tests;

use super::bins::Bins;
use super::blocks::{BlockNode, BlockState, BlockTable, NONE, Partition};
use super::uncommitted::Uncommitted;
use super::{Pages, Pool, Rounding, SegmentId, Span, StreamOwner};
use crate::device::StreamId;
use crate::size::{UNIT_BYTES, round_up};

/// The maximum size (rounded) of a small request.
const SMALL_REQUEST_BYTES: u64 = 1 << 20;
/// The segment size for small requests.
const SMALL_SEGMENT_BYTES: u64 = 2 << 20;
/// The size below which large requests share segments.
const SHARED_REQUEST_BYTES: u64 = 10 << 20;
/// The segment size for large requests that share segments.
const SHARED_SEGMENT_BYTES: u64 = 20 << 20;
/// The unit of the segments of larger requests, each of which has its own segment.
const SEGMENT_UNIT_BYTES: u64 = 2 << 20;
/// A new large segment is at least as long as the total of the large segments, divided by this
/// number. So a growing program reserves rarely.
const GROWTH_DIVISOR: u64 = 8;
/// The upper bound of the growth by [`GROWTH_DIVISOR`].
const MAX_GROWTH_BYTES: u64 = 512 << 20;

/// The best-fit pool, which is the default.
///
/// Invariants:
/// - the blocks of a segment or range, from `first` along `after`, tile the segment or range
///   exactly, by offset. `first` is one node for the lifetime of the segment;
/// - of two neighbours at most one is free, and at most one is uncommitted;
/// - a free block is in the bin of its size in the partition of its segment. If only uncommitted
///   memory follows the block, it is in the wilderness bin instead. An uncommitted block (only
///   ranges have any) is in the partition's uncommitted list. A used block is in no bin and no
///   list;
/// - offsets are multiples of [`UNIT_BYTES`]. Lengths are multiples, too, except the length of a
///   segment's last block;
/// - `free_bytes` is the sum over the free blocks.
#[derive(Debug)]
pub(crate) struct BestFit {
    blocks: BlockTable,
    small: PartitionLists,
    large: PartitionLists,
    /// The maximum size (rounded) of a small request.
    small_request_bytes: u64,
    /// The number of takes so far. This number may wrap.
    takes: u32,
    /// The segments, indexed by segment number.
    segments: Vec<Option<SegmentEntry>>,
    free_bytes: u64,
}

/// The blocks of one partition that can serve the next request.
#[derive(Debug)]
struct PartitionLists {
    free: Bins,
    uncommitted: Uncommitted,
}

impl PartitionLists {
    fn new() -> Self {
        Self {
            free: Bins::new(),
            uncommitted: Uncommitted::default(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct SegmentEntry {
    bytes: u64,
    first: u32,
    is_range: bool,
}

impl BestFit {
    pub(crate) fn new() -> Self {
        Self::with_small(SMALL_REQUEST_BYTES)
    }

    pub(crate) fn unified() -> Self {
        Self::with_small(0)
    }

    fn with_small(small_request_bytes: u64) -> Self {
        Self {
            blocks: BlockTable::new(),
            small: PartitionLists::new(),
            large: PartitionLists::new(),
            small_request_bytes,
            takes: 0,
            segments: Vec::new(),
            free_bytes: 0,
        }
    }

    /// Returns the partition of requests of `bytes` (rounded).
    #[inline]
    fn partition_of(&self, bytes: u64) -> Partition {
        if bytes <= self.small_request_bytes {
            Partition::Small
        } else {
            Partition::Large
        }
    }

    /// Returns the lists of a partition, and the block table.
    #[inline]
    fn lists(&mut self, partition: Partition) -> (&mut PartitionLists, &mut BlockTable) {
        let lists = match partition {
            Partition::Small => &mut self.small,
            Partition::Large => &mut self.large,
        };
        (lists, &mut self.blocks)
    }

    fn lists_of(&self, partition: Partition) -> &PartitionLists {
        match partition {
            Partition::Small => &self.small,
            Partition::Large => &self.large,
        }
    }

    fn take_from(
        &mut self,
        partition: Partition,
        bytes: u64,
        stream: StreamId,
    ) -> Option<(Span, StreamOwner)> {
        debug_assert!(
            bytes > 0 && bytes.is_multiple_of(UNIT_BYTES),
            "{bytes} bytes"
        );
        let take = self.takes.wrapping_add(1);
        let (PartitionLists { free, .. }, blocks) = self.lists(partition);
        let hole = free.find(blocks, bytes, stream)?;
        free.remove(blocks, hole);
        let BlockNode {
            bytes: hole_bytes,
            state,
            ..
        } = *blocks.get(hole);
        // A remainder below a unit is not split off. Such a remainder occurs at the end of a
        // segment whose length is not a multiple of the unit.
        let rest_bytes = (hole_bytes - bytes) / UNIT_BYTES * UNIT_BYTES;
        let node = if rest_bytes == 0 {
            hole
        } else if placement::cuts_from_front(blocks, hole, bytes, take) {
            let rest = blocks.split(hole, bytes);
            free.insert(blocks, rest, state);
            hole
        } else {
            let node = blocks.split(hole, rest_bytes);
            free.insert(blocks, hole, BlockState::Free);
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

    /// Frees a block and coalesces it with free neighbours. Returns its node.
    #[inline]
    fn insert_free(&mut self, mut node: u32, owner: StreamOwner) -> u32 {
        let BlockNode {
            before,
            after,
            partition,
            bytes,
            ..
        } = *self.blocks.get(node);
        self.free_bytes += bytes;
        let (PartitionLists { free, .. }, blocks) = self.lists(partition);
        blocks.get_mut(node).owner = owner;
        let state = if blocks.is_free(after) {
            let state = blocks.get(after).state;
            free.remove(blocks, after);
            blocks.coalesce_after(node);
            state
        } else {
            blocks.free_state(after)
        };
        if blocks.is_free(before) {
            free.remove(blocks, before);
            blocks.coalesce_after(before);
            node = before;
        }
        free.insert(blocks, node, state);
        node
    }

    /// Inserts the single block of a new segment or range, in no bin. Returns its node.
    fn first_block(
        &mut self,
        segment: SegmentId,
        bytes: u64,
        partition: Partition,
        state: BlockState,
    ) -> u32 {
        self.blocks.insert(BlockNode {
            bytes,
            offset: 0,
            segment,
            before: NONE,
            after: NONE,
            bin_previous: NONE,
            bin_next: NONE,
            owner: StreamOwner::NONE,
            partition,
            state,
        })
    }

    fn insert_segment(&mut self, id: SegmentId, segment: SegmentEntry) {
        debug_assert!(self.segment(id).is_none(), "{id:?} is already in the pool");
        debug_assert!(segment.bytes > 0);
        let number = id.0 as usize;
        if number >= self.segments.len() {
            self.segments.resize(number + 1, None);
        }
        self.segments[number] = Some(segment);
    }

    fn segment(&self, segment: SegmentId) -> Option<SegmentEntry> {
        *self.segments.get(segment.0 as usize)?
    }

    fn is_segment(&self, id: SegmentId) -> bool {
        self.segment(id).is_some_and(|segment| !segment.is_range)
    }

    fn remove_idle(&mut self, segment: SegmentEntry) -> Option<StreamOwner> {
        if !self.is_idle(segment) {
            return None;
        }
        let BlockNode {
            partition, owner, ..
        } = *self.blocks.get(segment.first);
        let (PartitionLists { free, .. }, blocks) = self.lists(partition);
        free.remove(blocks, segment.first);
        blocks.remove(segment.first);
        self.free_bytes -= segment.bytes;
        Some(owner)
    }

    /// Returns whether `segment` is one free block, and not a range.
    fn is_idle(&self, segment: SegmentEntry) -> bool {
        let first = self.blocks.get(segment.first);
        first.state == BlockState::Free && first.after == NONE && !segment.is_range
    }

    fn large_bytes(&self) -> u64 {
        let whole = self
            .segments_by_id()
            .filter(|(_, segment)| !segment.is_range);
        let partition = |segment: SegmentEntry| self.blocks.get(segment.first).partition;
        let large = whole.filter(|&(_, segment)| partition(segment) == Partition::Large);
        large.map(|(_, segment)| segment.bytes).sum()
    }

    fn segments_by_id(&self) -> impl Iterator<Item = (SegmentId, SegmentEntry)> {
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
        let partition = self.partition_of(request_bytes);
        let first = self.first_block(segment, segment_bytes, partition, BlockState::Free);
        let (PartitionLists { free, .. }, blocks) = self.lists(partition);
        free.insert(blocks, first, BlockState::Free);
        self.free_bytes += segment_bytes;
        let whole = SegmentEntry {
            bytes: segment_bytes,
            first,
            is_range: false,
        };
        self.insert_segment(segment, whole);
    }

    fn remove_segment(&mut self, segment: SegmentId) -> Option<StreamOwner> {
        let found = self.segment(segment)?;
        let owner = if found.is_range {
            self.remove_uncommitted_range(found)
        } else {
            self.remove_idle(found)
        };
        if owner.is_some() {
            self.segments[segment.0 as usize] = None;
        }
        owner
    }

    fn owner_of_idle(&self, segment: SegmentId) -> Option<StreamOwner> {
        let found = self.segment(segment).filter(|&found| self.is_idle(found))?;
        Some(self.blocks.get(found.first).owner)
    }

    fn take(&mut self, bytes: u64, stream: StreamId) -> Option<(Span, StreamOwner)> {
        self.take_from(self.partition_of(bytes), bytes, stream)
    }

    fn take_from_any(&mut self, bytes: u64, stream: StreamId) -> Option<(Span, StreamOwner)> {
        let own = self.partition_of(bytes);
        self.take_from(own, bytes, stream)
            .or_else(|| self.take_from(own.other(), bytes, stream))
    }

    fn give(&mut self, span: Span, owner: StreamOwner) -> bool {
        let block = self.blocks.get(span.node);
        debug_assert!(
            block.state == BlockState::Used && block.offset == span.offset,
            "{span:?} is not in use"
        );
        let node = self.insert_free(span.node, owner);
        let BlockNode {
            before,
            after,
            segment,
            ..
        } = *self.blocks.get(node);
        before == NONE && after == NONE && self.is_segment(segment)
    }

    fn idle_segments(&self) -> Vec<SegmentId> {
        let mut idle: Vec<_> = self
            .segments_by_id()
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

    fn supports_ranges(&self) -> bool {
        true
    }

    fn add_range(&mut self, segment: SegmentId, range_bytes: u64, request_bytes: u64) {
        let partition = self.partition_of(request_bytes);
        self.insert_range(segment, range_bytes, partition);
    }

    fn pages_to_commit(&self, bytes: u64, page_bytes: u64) -> Option<Pages> {
        let uncommitted = &self.lists_of(self.partition_of(bytes)).uncommitted;
        uncommitted.find(&self.blocks, bytes, page_bytes)
    }

    fn commit(&mut self, pages: Pages) {
        self.commit_pages(pages);
    }

    fn idle_pages(&self, page_bytes: u64) -> Vec<Pages> {
        self.free_pages(page_bytes)
    }

    fn owner_of_pages(&self, pages: Pages) -> StreamOwner {
        self.blocks.get(pages.node).owner
    }

    fn decommit(&mut self, pages: Pages) -> StreamOwner {
        self.decommit_pages(pages)
    }

    #[cfg(test)]
    fn check(&self) {
        self.assert_invariants();
    }
}
