//! Ranges (expandable segments): address ranges whose pages are committed and decommitted.
//!
//! Uncommitted addresses form an uncommitted block between its neighbours. Commit makes pages of
//! this block free, and decommit makes free pages uncommitted. So a range grows behind its used
//! part. An idle page in the middle can be released to the device.

use super::{BestFit, Partition, SegmentEntry};
use crate::pool::blocks::{BlockNode, BlockState, NONE};
use crate::pool::{Pages, SegmentId, StreamOwner};
use crate::size::round_up;

impl BestFit {
    pub(super) fn insert_range(&mut self, id: SegmentId, bytes: u64, partition: Partition) {
        let first = self.first_block(id, bytes, partition, BlockState::Uncommitted);
        let (lists, blocks) = self.lists(partition);
        lists.uncommitted.insert(blocks, first);
        let range = SegmentEntry {
            bytes,
            first,
            is_range: true,
        };
        self.insert_segment(id, range);
    }

    /// Removes the block of a range without committed pages.
    pub(super) fn remove_uncommitted_range(&mut self, range: SegmentEntry) -> Option<StreamOwner> {
        let BlockNode {
            after,
            partition,
            state,
            ..
        } = *self.blocks.get(range.first);
        if state != BlockState::Uncommitted || after != NONE {
            return None;
        }
        let (lists, blocks) = self.lists(partition);
        lists.uncommitted.remove(blocks, range.first);
        blocks.remove(range.first);
        Some(StreamOwner::NONE)
    }

    pub(super) fn commit_pages(&mut self, pages: Pages) {
        let BlockNode {
            partition,
            before,
            offset,
            bytes,
            ..
        } = *self.blocks.get(pages.node);
        let (lists, blocks) = self.lists(partition);
        lists.uncommitted.remove(blocks, pages.node);
        // In the usual growth of a range, its wilderness gets longer and stays in its bin.
        let extends = offset == pages.offset && bytes > pages.bytes;
        if extends && blocks.is(before, BlockState::Wilderness) {
            blocks.extend_before(pages.node, pages.bytes);
            lists.uncommitted.insert(blocks, pages.node);
            self.free_bytes += pages.bytes;
            return;
        }
        let (front, node, back) = blocks.carve(pages);
        for rest in [front, back].into_iter().flatten() {
            lists.uncommitted.insert(blocks, rest);
        }
        self.insert_free(node, StreamOwner::NONE);
        if let Some(front) = front {
            self.rebin(self.blocks.get(front).before);
        }
    }

    pub(super) fn decommit_pages(&mut self, pages: Pages) -> StreamOwner {
        let BlockNode {
            partition,
            owner,
            state,
            ..
        } = *self.blocks.get(pages.node);
        self.free_bytes -= pages.bytes;
        let (lists, blocks) = self.lists(partition);
        lists.free.remove(blocks, pages.node);
        let (front, mut node, back) = blocks.carve(pages);
        for rest in [front, back].into_iter().flatten() {
            lists.free.insert(blocks, rest, state);
        }
        let BlockNode { before, after, .. } = *blocks.get(node);
        if blocks.is(after, BlockState::Uncommitted) {
            lists.uncommitted.remove(blocks, after);
            blocks.coalesce_after(node);
        }
        if blocks.is(before, BlockState::Uncommitted) {
            lists.uncommitted.remove(blocks, before);
            blocks.coalesce_after(before);
            node = before;
        }
        let block = blocks.get_mut(node);
        block.state = BlockState::Uncommitted;
        block.owner = StreamOwner::NONE;
        lists.uncommitted.insert(blocks, node);
        self.rebin(self.blocks.get(node).before);
        owner
    }

    /// Moves a free block to the right bin after the block behind it has changed. The free block
    /// may have become wilderness, or may no longer be wilderness.
    fn rebin(&mut self, node: u32) {
        if !self.blocks.is_free(node) {
            return;
        }
        let BlockNode {
            partition, after, ..
        } = *self.blocks.get(node);
        let (lists, blocks) = self.lists(partition);
        lists.free.remove(blocks, node);
        let state = blocks.free_state(after);
        lists.free.insert(blocks, node, state);
    }

    pub(super) fn free_pages(&self, page_bytes: u64) -> Vec<Pages> {
        let mut idle = Vec::new();
        for lists in [&self.small, &self.large] {
            lists.free.for_each_from(&self.blocks, page_bytes, |node| {
                let block = self.blocks.get(node);
                if !self.is_segment(block.segment) {
                    idle.extend(pages_in(block, node, page_bytes));
                }
            });
        }
        idle.sort_unstable_by_key(|pages| std::cmp::Reverse((pages.offset, pages.segment)));
        idle
    }
}

fn pages_in(block: &BlockNode, node: u32, page_bytes: u64) -> Option<Pages> {
    let offset = round_up(block.offset, page_bytes)?;
    let end = (block.offset + block.bytes) & !(page_bytes - 1);
    let bytes = end.checked_sub(offset)?;
    (bytes > 0).then_some(Pages {
        segment: block.segment,
        offset,
        bytes,
        node,
    })
}
