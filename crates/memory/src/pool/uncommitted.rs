//! The uncommitted blocks of one partition: parts of ranges that have addresses but no memory.

#[cfg(test)]
use super::blocks::BlockState;
use super::blocks::{BlockNode, BlockTable};
use super::{Pages, SegmentId};
use crate::size::round_up;

/// The number of blocks that are compared for the best block to commit.
const SCAN: usize = 64;

/// The uncommitted blocks, by length, then by position.
///
/// Each range has one uncommitted block behind its committed part, and one for each decommitted
/// hole. Only commit and decommit change this list. Take and give never change it.
///
/// Invariant: each uncommitted block of the partition is listed once, in this order.
#[derive(Debug, Default)]
pub(crate) struct Uncommitted(Vec<u32>);

impl Uncommitted {
    #[inline]
    pub(crate) fn insert(&mut self, blocks: &BlockTable, index: u32) {
        let at = self.lower_bound(blocks, key(blocks, index));
        self.0.insert(at, index);
    }

    #[inline]
    pub(crate) fn remove(&mut self, blocks: &BlockTable, index: u32) {
        let at = self.lower_bound(blocks, key(blocks, index));
        let removed = self.0.remove(at);
        debug_assert_eq!(removed, index, "block {index} is not in the list");
    }

    /// Returns the smallest run of pages whose commit makes a free block of `bytes`. If several
    /// runs have the minimum size, returns the first in the order of segment and offset.
    ///
    /// If there are more than [`SCAN`] uncommitted blocks, compares only the [`SCAN`] shortest
    /// blocks that are long enough by themselves. If no block is long enough by itself, compares
    /// all blocks. So `None` means that no uncommitted block with its free neighbours is long
    /// enough.
    pub(crate) fn find(&self, blocks: &BlockTable, bytes: u64, page_bytes: u64) -> Option<Pages> {
        let best = |indices: &[u32]| {
            let indices = indices.iter();
            let all = indices.filter_map(|&index| best_pages(blocks, index, bytes, page_bytes));
            all.min_by_key(|pages| (pages.bytes, pages.segment, pages.offset))
        };
        if self.0.len() > SCAN {
            let longer = &self.0[self.lower_bound(blocks, (bytes, SegmentId(0), 0))..];
            let near = best(&longer[..longer.len().min(SCAN)]);
            if near.is_some() {
                return near;
            }
        }
        best(&self.0)
    }

    fn lower_bound(&self, blocks: &BlockTable, key: SizeOrder) -> usize {
        self.0
            .partition_point(|&index| self::key(blocks, index) < key)
    }

    #[cfg(test)]
    pub(crate) fn check(&self, blocks: &BlockTable, mut seen: impl FnMut(u32)) {
        let key = |&index: &u32| key(blocks, index);
        assert!(self.0.is_sorted_by(|a, b| key(a) < key(b)));
        for &index in &self.0 {
            assert!(blocks.is(index, BlockState::Uncommitted), "block {index}");
            seen(index);
        }
    }
}

/// The order of uncommitted blocks: by length, then by position.
type SizeOrder = (u64, SegmentId, u64);

fn key(blocks: &BlockTable, index: u32) -> SizeOrder {
    let block = blocks.get(index);
    (block.bytes, block.segment, block.offset)
}

/// Returns the pages of one uncommitted block to commit for a free block of `bytes`. The pages are
/// at the front or the back of the uncommitted block. If the block beside that end is free, the
/// pages extend that block. If the whole uncommitted block is committed, the free blocks before and
/// after it are joined.
fn best_pages(blocks: &BlockTable, node: u32, bytes: u64, page_bytes: u64) -> Option<Pages> {
    let BlockNode {
        bytes: uncommitted_bytes,
        offset,
        segment,
        before,
        after,
        ..
    } = *blocks.get(node);
    let [before_bytes, after_bytes] = [before, after].map(|index| free_bytes(blocks, index));
    let beside = |free_bytes: u64| {
        let missing_bytes = bytes.saturating_sub(free_bytes).max(1);
        let committed_bytes = round_up(missing_bytes, page_bytes)?;
        (committed_bytes <= uncommitted_bytes).then_some(committed_bytes)
    };
    let front = beside(before_bytes).map(|bytes| (bytes, offset));
    let back = beside(after_bytes).map(|bytes| (bytes, offset + uncommitted_bytes - bytes));
    let joins = before_bytes + uncommitted_bytes + after_bytes >= bytes;
    let all = joins.then_some((uncommitted_bytes, offset));
    let (bytes, offset) = [front, back, all].into_iter().flatten().min()?;
    Some(Pages {
        segment,
        offset,
        bytes,
        node,
    })
}

fn free_bytes(blocks: &BlockTable, index: u32) -> u64 {
    if blocks.is_free(index) {
        blocks.get(index).bytes
    } else {
        0
    }
}
