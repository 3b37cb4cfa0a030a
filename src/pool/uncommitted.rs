//! The absent blocks of one side: parts of ranges that have an address and no memory behind them.

#[cfg(test)]
use super::blocks::State;
use super::blocks::{Block, Blocks};
use super::{Pages, SegmentId};
use crate::size::round_up;

/// Up to so many are compared to find the best one to commit a part of.
const SCAN: usize = 64;

/// The absent blocks, the shortest first, then in the order of their places.
///
/// There is one behind what is used of each range, and one for each hole that was decommitted; both
/// change only as memory is committed or decommitted, so that no take and no give comes here.
///
/// Invariant: each absent block of the side is here once, in this order.
#[derive(Debug, Default)]
pub(crate) struct Absent(Vec<u32>);

impl Absent {
    #[inline]
    pub(crate) fn insert(&mut self, blocks: &Blocks, index: u32) {
        let at = self.lower_bound(blocks, key(blocks, index));
        self.0.insert(at, index);
    }

    #[inline]
    pub(crate) fn remove(&mut self, blocks: &Blocks, index: u32) {
        let at = self.lower_bound(blocks, key(blocks, index));
        let removed = self.0.remove(at);
        debug_assert_eq!(removed, index, "block {index} is not here");
    }

    /// The fewest pages with which there is a free block of `bytes`, then those at the lowest place.
    ///
    /// Where there are more than [`SCAN`] absent blocks, only so many are compared, the shortest that
    /// are long enough by themselves. All are where none is, so that `None` says that no absent block
    /// together with its free neighbours is long enough.
    pub(crate) fn find(&self, blocks: &Blocks, bytes: u64, page_bytes: u64) -> Option<Pages> {
        let best = |indices: &[u32]| {
            let indices = indices.iter();
            let all = indices.filter_map(|&index| pages_of(blocks, index, bytes, page_bytes));
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

    /// How many come before `key`.
    fn lower_bound(&self, blocks: &Blocks, key: Key) -> usize {
        self.0
            .partition_point(|&index| self::key(blocks, index) < key)
    }

    /// Asserts the invariant for what is here, and calls `seen` with every block.
    #[cfg(test)]
    pub(crate) fn check(&self, blocks: &Blocks, mut seen: impl FnMut(u32)) {
        let key = |&index: &u32| key(blocks, index);
        assert!(self.0.is_sorted_by(|a, b| key(a) < key(b)));
        for &index in &self.0 {
            assert!(blocks.is(index, State::Absent), "block {index}");
            seen(index);
        }
    }
}

/// How absent blocks compare: by their length, then by their place.
type Key = (u64, SegmentId, u64);

fn key(blocks: &Blocks, index: u32) -> Key {
    let block = blocks.get(index);
    (block.bytes, block.segment, block.offset)
}

/// What to commit of one absent block so that there is a free block of `bytes`: pages next to the
/// free block before it, pages next to the one after it, or all, which joins the two.
fn pages_of(blocks: &Blocks, node: u32, bytes: u64, page_bytes: u64) -> Option<Pages> {
    let Block {
        bytes: absent_bytes,
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
