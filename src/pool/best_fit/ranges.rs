//! Ranges: segments that are only addresses at first, in which memory comes and goes by pages.
//!
//! What is not committed is an absent block. It lies between its neighbours as any other, and turns
//! free, by pages, as these are committed, and back. So a range grows behind what is used of it, and
//! a page in the middle that nobody uses can be given back to the device.

use super::{BestFit, Segment, Side};
use crate::pool::blocks::{Block, NONE, State};
use crate::pool::{Owner, Pages, SegmentId};
use crate::size::round_up;

impl BestFit {
    pub(super) fn insert_range(&mut self, id: SegmentId, bytes: u64, side: Side) {
        let first = self.first_block(id, bytes, side, State::Absent);
        let (stock, blocks) = self.stock(side);
        stock.absent.insert(blocks, first);
        let range = Segment {
            bytes,
            first,
            is_range: true,
        };
        self.insert_segment(id, range);
    }

    /// Takes the block of a range out of which nothing is committed.
    pub(super) fn remove_absent(&mut self, range: Segment) -> Option<Owner> {
        let Block {
            after, side, state, ..
        } = *self.blocks.get(range.first);
        if state != State::Absent || after != NONE {
            return None;
        }
        let (stock, blocks) = self.stock(side);
        stock.absent.remove(blocks, range.first);
        blocks.remove(range.first);
        Some(Owner::NOBODY)
    }

    pub(super) fn commit_pages(&mut self, pages: Pages) {
        let Block {
            side,
            before,
            offset,
            bytes,
            ..
        } = *self.blocks.get(pages.node);
        let (stock, blocks) = self.stock(side);
        stock.absent.remove(blocks, pages.node);
        // As a range grows: its tail gets longer, which stays in the bin where it is.
        let extends = offset == pages.offset && bytes > pages.bytes;
        if extends && blocks.is(before, State::Tail) {
            blocks.grow_before(pages.node, pages.bytes);
            stock.absent.insert(blocks, pages.node);
            self.free_bytes += pages.bytes;
            return;
        }
        let (front, node, back) = blocks.cut_out(pages);
        for rest in [front, back].into_iter().flatten() {
            stock.absent.insert(blocks, rest);
        }
        self.put_back(node, Owner::NOBODY);
        if let Some(front) = front {
            self.sort_in_again(self.blocks.get(front).before);
        }
    }

    pub(super) fn decommit_pages(&mut self, pages: Pages) -> Owner {
        let Block {
            side, owner, state, ..
        } = *self.blocks.get(pages.node);
        self.free_bytes -= pages.bytes;
        let (stock, blocks) = self.stock(side);
        stock.free.remove(blocks, pages.node);
        let (front, mut node, back) = blocks.cut_out(pages);
        for rest in [front, back].into_iter().flatten() {
            stock.free.insert(blocks, rest, state);
        }
        let Block { before, after, .. } = *blocks.get(node);
        if blocks.is(after, State::Absent) {
            stock.absent.remove(blocks, after);
            blocks.absorb_after(node);
        }
        if blocks.is(before, State::Absent) {
            stock.absent.remove(blocks, before);
            blocks.absorb_after(before);
            node = before;
        }
        let block = blocks.get_mut(node);
        block.state = State::Absent;
        block.owner = Owner::NOBODY;
        stock.absent.insert(blocks, node);
        self.sort_in_again(self.blocks.get(node).before);
        owner
    }

    /// Puts a block, where it is free, into the bin that it belongs into after what follows it
    /// changed: it may be a tail now, or no longer.
    fn sort_in_again(&mut self, node: u32) {
        if !self.blocks.is_free(node) {
            return;
        }
        let Block { side, after, .. } = *self.blocks.get(node);
        let (stock, blocks) = self.stock(side);
        stock.free.remove(blocks, node);
        let state = blocks.free_state(after);
        stock.free.insert(blocks, node, state);
    }

    pub(super) fn free_pages(&self, page_bytes: u64) -> Vec<Pages> {
        let mut idle = Vec::new();
        for stock in [&self.small, &self.large] {
            stock.free.for_each_from(&self.blocks, page_bytes, |node| {
                let block = self.blocks.get(node);
                if !self.is_whole(block.segment) {
                    idle.extend(pages_in(block, node, page_bytes));
                }
            });
        }
        idle.sort_unstable_by_key(|pages| std::cmp::Reverse((pages.offset, pages.segment)));
        idle
    }
}

/// The whole pages inside a block.
fn pages_in(block: &Block, node: u32, page_bytes: u64) -> Option<Pages> {
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
