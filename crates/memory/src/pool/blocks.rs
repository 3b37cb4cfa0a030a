//! The block table of a pool. Its nodes are linked to their neighbours in the segment. Nodes of
//! free blocks are also linked in their bin.

use super::{Pages, SegmentId, StreamOwner};

/// The index of no block. A table with a block of this index would occupy 160 GiB.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// Free, in a bin.
    Free,
    /// Free, and followed only by uncommitted memory (Lea's wilderness, dlmalloc's top).
    Wilderness,
    /// Handed out.
    Used,
    /// An address range without memory.
    Uncommitted,
    /// An unused node of the table.
    Vacant,
}

/// The partition of a block: small and large requests are served from separate segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partition {
    Small,
    Large,
}

impl Partition {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Small => Self::Large,
            Self::Large => Self::Small,
        }
    }
}

/// A contiguous part of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockNode {
    pub(crate) bytes: u64,
    pub(crate) offset: u64,
    pub(crate) segment: SegmentId,
    pub(crate) before: u32,
    pub(crate) after: u32,
    /// While free, the previous block of the bin. While used, the number of the take that handed
    /// this block out.
    pub(crate) bin_previous: u32,
    /// The next block of the bin, for a free node. The next vacant node, for a vacant node.
    pub(crate) bin_next: u32,
    /// The streams that may still use the block, while free.
    pub(crate) owner: StreamOwner,
    pub(crate) partition: Partition,
    pub(crate) state: BlockState,
}

// Nodes are kept small, because visits to nodes cost cache misses.
const _: () = assert!(size_of::<BlockNode>() == 40);

impl BlockNode {
    /// Returns the number of the take that handed out this used block.
    #[inline]
    pub(crate) fn taken_at(&self) -> u32 {
        debug_assert_eq!(self.state, BlockState::Used);
        self.bin_previous
    }

    /// Marks the block as used, by the take with the number `take`.
    #[inline]
    pub(crate) fn hand_out(&mut self, take: u32) {
        self.state = BlockState::Used;
        self.bin_previous = take;
    }
}

/// A slab of block nodes with a list of vacant nodes.
#[derive(Debug)]
pub(crate) struct BlockTable {
    nodes: Vec<BlockNode>,
    vacant: u32,
}

impl BlockTable {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            vacant: NONE,
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &BlockNode {
        &self.nodes[index as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut BlockNode {
        &mut self.nodes[index as usize]
    }

    #[inline]
    pub(crate) fn insert(&mut self, block: BlockNode) -> u32 {
        let index = self.vacant;
        if index == NONE {
            self.nodes.push(block);
            return (self.nodes.len() - 1) as u32;
        }
        self.vacant = self.get(index).bin_next;
        *self.get_mut(index) = block;
        index
    }

    /// Removes a block to which its neighbours no longer refer.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        let vacant = self.vacant;
        let node = self.get_mut(index);
        debug_assert_ne!(node.state, BlockState::Vacant);
        node.state = BlockState::Vacant;
        node.bin_next = vacant;
        self.vacant = index;
    }

    #[inline]
    pub(crate) fn is_free(&self, index: u32) -> bool {
        index != NONE
            && matches!(
                self.get(index).state,
                BlockState::Free | BlockState::Wilderness
            )
    }

    /// Returns the state of a free block that `after` follows.
    #[inline]
    pub(crate) fn free_state(&self, after: u32) -> BlockState {
        if self.is(after, BlockState::Uncommitted) && self.get(after).after == NONE {
            BlockState::Wilderness
        } else {
            BlockState::Free
        }
    }

    #[inline]
    pub(crate) fn is(&self, index: u32, state: BlockState) -> bool {
        index != NONE && self.get(index).state == state
    }

    /// Moves the boundary between an uncommitted block and the free block before it by `bytes`. The
    /// uncommitted block is longer than `bytes`.
    pub(crate) fn extend_before(&mut self, uncommitted: u32, bytes: u64) {
        let block = self.get_mut(uncommitted);
        block.offset += bytes;
        block.bytes -= bytes;
        let before = block.before;
        self.get_mut(before).bytes += bytes;
    }

    /// Isolates `pages` from the block that contains them. Returns the part in front, the pages'
    /// own block, and the part behind. None of these blocks is in a bin.
    pub(crate) fn carve(&mut self, pages: Pages) -> (Option<u32>, u32, Option<u32>) {
        let BlockNode { offset, bytes, .. } = *self.get(pages.node);
        let end = pages.offset + pages.bytes;
        debug_assert!(
            offset <= pages.offset && end <= offset + bytes,
            "{pages:?} are outside of their block"
        );
        let (front, node) = if pages.offset > offset {
            let node = self.split(pages.node, pages.offset - offset);
            (Some(pages.node), node)
        } else {
            (None, pages.node)
        };
        let back = (offset + bytes > end).then(|| self.split(node, pages.bytes));
        (front, node, back)
    }

    /// Splits a block after its first `bytes`. Returns the remaining block, which is in no bin.
    #[inline]
    pub(crate) fn split(&mut self, index: u32, bytes: u64) -> u32 {
        let front = *self.get(index);
        debug_assert!(0 < bytes && bytes < front.bytes);
        let rest = self.insert(BlockNode {
            bytes: front.bytes - bytes,
            offset: front.offset + bytes,
            before: index,
            ..front
        });
        if front.after != NONE {
            self.get_mut(front.after).before = rest;
        }
        let front = self.get_mut(index);
        front.bytes = bytes;
        front.after = rest;
        rest
    }

    /// Merges a block with the following block, which is in no bin.
    #[inline]
    pub(crate) fn coalesce_after(&mut self, index: u32) {
        let absorbed = self.get(index).after;
        let BlockNode {
            bytes,
            after,
            owner,
            ..
        } = *self.get(absorbed);
        self.remove(absorbed);
        if after != NONE {
            self.get_mut(after).before = index;
        }
        let front = self.get_mut(index);
        front.bytes += bytes;
        front.after = after;
        front.owner = front.owner.merge(owner);
    }

    /// Asserts that exactly the vacant nodes are in the list. Returns the number of blocks.
    #[cfg(test)]
    pub(crate) fn check(&self) -> usize {
        let mut vacant = 0;
        let mut index = self.vacant;
        while index != NONE {
            assert_eq!(
                self.get(index).state,
                BlockState::Vacant,
                "vacant node {index}"
            );
            vacant += 1;
            assert!(
                vacant <= self.nodes.len(),
                "the list of vacant nodes has a cycle"
            );
            index = self.get(index).bin_next;
        }
        let blocks = self
            .nodes
            .iter()
            .filter(|node| node.state != BlockState::Vacant);
        let count = blocks.count();
        assert_eq!(count + vacant, self.nodes.len(), "a vacant node is lost");
        count
    }
}
