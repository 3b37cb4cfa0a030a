//! The absent blocks of one side: parts of ranges that have an address and no memory behind them.

use std::collections::BTreeSet;

#[cfg(test)]
use super::blocks::State;
use super::blocks::{Block, Blocks};
use super::{Pages, SegmentId};

/// Up to so many are compared to find the best one to commit a part of.
const SCAN: usize = 64;

/// The absent blocks, the shortest first.
///
/// There is one behind what is used of each range, and one for each hole that was decommitted; both
/// change only as memory is committed or decommitted, so that no take and no give comes here.
///
/// Invariant: each absent block of the side is here once, under its length and its place.
#[derive(Debug, Default)]
pub(crate) struct Absent(BTreeSet<Key>);

type Key = (u64, SegmentId, u64, u32);

impl Absent {
    pub(crate) fn insert(&mut self, blocks: &Blocks, index: u32) {
        let is_new = self.0.insert(key(blocks, index));
        debug_assert!(is_new, "block {index} is here");
    }

    pub(crate) fn remove(&mut self, blocks: &Blocks, index: u32) {
        let was_here = self.0.remove(&key(blocks, index));
        debug_assert!(was_here, "block {index} is not here");
    }

    /// The fewest pages with which there is a free block of `bytes`, then those at the lowest place.
    ///
    /// Where there are more than [`SCAN`] absent blocks, only so many are compared, the shortest that
    /// are long enough by themselves. All are where none is, so that `None` says that no absent block
    /// together with its free neighbours is long enough.
    pub(crate) fn find(&self, blocks: &Blocks, bytes: u64, page_bytes: u64) -> Option<Pages> {
        let best = |keys: &mut dyn Iterator<Item = &Key>| {
            let all = keys.filter_map(|&key| pages_of(blocks, key, bytes, page_bytes));
            all.min_by_key(|pages| (pages.bytes, pages.segment, pages.offset))
        };
        let near = if self.0.len() > SCAN {
            best(&mut self.0.range((bytes, SegmentId(0), 0, 0)..).take(SCAN))
        } else {
            None
        };
        near.or_else(|| best(&mut self.0.iter()))
    }

    /// Asserts the invariant for what is here, and calls `seen` with every block.
    #[cfg(test)]
    pub(crate) fn check(&self, blocks: &Blocks, mut seen: impl FnMut(u32)) {
        for &key @ (_, _, _, index) in &self.0 {
            assert_eq!(key, self::key(blocks, index));
            assert!(blocks.is(index, State::Absent), "block {index}");
            seen(index);
        }
    }
}

fn key(blocks: &Blocks, index: u32) -> Key {
    let block = blocks.get(index);
    (block.bytes, block.segment, block.offset, index)
}

/// What to commit of one absent block so that there is a free block of `bytes`: pages next to the
/// free block before it, pages next to the one after it, or all, which joins the two.
fn pages_of(blocks: &Blocks, key: Key, bytes: u64, page_bytes: u64) -> Option<Pages> {
    let (absent_bytes, segment, offset, node) = key;
    let Block { before, after, .. } = *blocks.get(node);
    let [before_bytes, after_bytes] = [before, after].map(|index| free_bytes(blocks, index));
    let beside = |free_bytes: u64| {
        let missing_bytes = bytes.saturating_sub(free_bytes).max(1);
        let committed_bytes = missing_bytes.checked_next_multiple_of(page_bytes)?;
        (committed_bytes <= absent_bytes).then_some(committed_bytes)
    };
    let front = beside(before_bytes).map(|bytes| (bytes, offset));
    let back = beside(after_bytes).map(|bytes| (bytes, offset + absent_bytes - bytes));
    let joins = before_bytes + absent_bytes + after_bytes >= bytes;
    let all = joins.then_some((absent_bytes, offset));
    let (bytes, offset) = [front, back, all].into_iter().flatten().min()?;
    Some(Pages {
        segment,
        offset,
        bytes,
        node,
    })
}

/// The length of a block that is free, else 0.
fn free_bytes(blocks: &Blocks, index: u32) -> u64 {
    if blocks.is_free(index) {
        blocks.get(index).bytes
    } else {
        0
    }
}
