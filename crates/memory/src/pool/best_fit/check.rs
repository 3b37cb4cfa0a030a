//! The pool's invariants, for tests.

use super::{BestFit, Partition, SegmentEntry};
use crate::pool::SegmentId;
use crate::pool::blocks::{BlockState, NONE};
use crate::size::UNIT_BYTES;

#[derive(Default)]
struct Totals {
    blocks: usize,
    free: usize,
    free_bytes: u64,
    uncommitted: usize,
}

impl BestFit {
    pub(super) fn assert_invariants(&self) {
        let mut seen = Totals::default();
        for (id, segment) in self.segments_by_id() {
            self.walk(id, segment, &mut seen);
        }
        assert_eq!(seen.blocks, self.blocks.check(), "a block is in no segment");
        assert_eq!(seen.free_bytes, self.free_bytes);
        let (mut free, mut uncommitted) = (0, 0);
        for partition in [Partition::Small, Partition::Large] {
            let is_here =
                |index| assert_eq!(self.blocks.get(index).partition, partition, "block {index}");
            let lists = self.lists_of(partition);
            lists.free.check(&self.blocks, |index| {
                is_here(index);
                free += 1;
            });
            lists.uncommitted.check(&self.blocks, |index| {
                is_here(index);
                uncommitted += 1;
            });
        }
        assert_eq!(free, seen.free, "a free block is in no bin");
        assert_eq!(
            uncommitted, seen.uncommitted,
            "an uncommitted block is lost"
        );
    }

    fn walk(&self, id: SegmentId, segment: SegmentEntry, seen: &mut Totals) {
        let (mut end, mut before, mut before_joins) = (0, NONE, [false, false]);
        let partition = self.blocks.get(segment.first).partition;
        let mut node = segment.first;
        while node != NONE {
            let block = self.blocks.get(node);
            assert_ne!(block.state, BlockState::Vacant, "block {node} of {id:?}");
            assert_eq!(block.segment, id, "block {node}");
            assert_eq!(block.partition, partition, "block {node}");
            assert_eq!(block.before, before, "block {node}");
            assert_eq!(block.offset, end, "block {node} leaves a gap");
            assert_eq!(block.offset % UNIT_BYTES, 0, "block {node}");
            assert!(block.bytes > 0, "block {node}");
            let is_free = self.blocks.is_free(node);
            let joins = [is_free, block.state == BlockState::Uncommitted];
            let apart = joins == before_joins && joins != [false, false];
            assert!(!apart, "{before} and {node} are not coalesced");
            if is_free {
                let is_tail = self.blocks.free_state(block.after) == BlockState::Wilderness;
                assert_eq!(
                    block.state == BlockState::Wilderness,
                    is_tail,
                    "block {node}"
                );
                seen.free += 1;
                seen.free_bytes += block.bytes;
            }
            if block.state == BlockState::Uncommitted {
                assert!(segment.is_range, "block {node}");
                seen.uncommitted += 1;
            }
            seen.blocks += 1;
            end += block.bytes;
            (before, before_joins, node) = (node, joins, block.after);
        }
        assert_eq!(end, segment.bytes, "the blocks of {id:?} do not tile it");
    }
}
