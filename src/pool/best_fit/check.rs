//! The invariants of the pool, for its tests.

use super::{BestFit, Segment, Side};
use crate::pool::SegmentId;
use crate::pool::blocks::{NONE, State};
use crate::size::UNIT_BYTES;

/// What was seen on a walk over blocks.
#[derive(Default)]
struct Seen {
    blocks: usize,
    free: usize,
    free_bytes: u64,
    absent: usize,
}

impl BestFit {
    pub(super) fn assert_invariants(&self) {
        let mut seen = Seen::default();
        for (id, segment) in self.present() {
            self.walk(id, segment, &mut seen);
        }
        assert_eq!(seen.blocks, self.blocks.check(), "a block is in no segment");
        assert_eq!(seen.free_bytes, self.free_bytes);
        let (mut free, mut absent) = (0, 0);
        for side in [Side::Small, Side::Large] {
            let is_here = |index| assert_eq!(self.blocks.get(index).side, side, "block {index}");
            let stock = self.stock_of(side);
            stock.free.check(&self.blocks, |index| {
                is_here(index);
                free += 1;
            });
            stock.absent.check(&self.blocks, |index| {
                is_here(index);
                absent += 1;
            });
        }
        assert_eq!(free, seen.free, "a free block is in no bin");
        assert_eq!(absent, seen.absent, "an absent block is lost");
    }

    /// Follows the blocks of one segment.
    fn walk(&self, id: SegmentId, segment: Segment, seen: &mut Seen) {
        let (mut end, mut before, mut before_joins) = (0, NONE, [false, false]);
        let side = self.blocks.get(segment.first).side;
        let mut node = segment.first;
        while node != NONE {
            let block = self.blocks.get(node);
            assert_ne!(block.state, State::Vacant, "block {node} of {id:?}");
            assert_eq!(block.segment, id, "block {node}");
            assert_eq!(block.side, side, "block {node}");
            assert_eq!(block.before, before, "block {node}");
            assert_eq!(block.offset, end, "block {node} leaves a gap");
            assert_eq!(block.offset % UNIT_BYTES, 0, "block {node}");
            assert!(block.bytes > 0, "block {node}");
            let is_free = self.blocks.is_free(node);
            let joins = [is_free, block.state == State::Absent];
            let apart = joins == before_joins && joins != [false, false];
            assert!(!apart, "{before} and {node} are apart");
            if is_free {
                let is_tail = self.blocks.free_state(block.after) == State::Tail;
                assert_eq!(block.state == State::Tail, is_tail, "block {node}");
                seen.free += 1;
                seen.free_bytes += block.bytes;
            }
            if block.state == State::Absent {
                assert!(segment.is_range, "block {node}");
                seen.absent += 1;
            }
            seen.blocks += 1;
            end += block.bytes;
            (before, before_joins, node) = (node, joins, block.after);
        }
        assert_eq!(end, segment.bytes, "the blocks of {id:?} do not tile it");
    }
}
