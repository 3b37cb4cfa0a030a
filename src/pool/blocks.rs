//! The blocks of a pool in one slab: each is a node that knows its neighbours in its segment and,
//! while free, its neighbours in its bin.

use super::{Owner, Pages, SegmentId};

/// No block. A slab as full would itself take 160 GiB.
pub(crate) const NONE: u32 = u32::MAX;

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody; it is in a bin.
    Free,
    /// The same, and what follows up to the end of its range is not committed.
    Tail,
    /// A caller.
    Used,
    /// Nobody, and no memory is committed there.
    Absent,
    /// The node stands for no block, and waits in the slab to be used again.
    Vacant,
}

/// Which requests a segment serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Small,
    Large,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Small => Self::Large,
            Self::Large => Self::Small,
        }
    }
}

/// A contiguous part of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) bytes: u64,
    /// From the beginning of the segment.
    pub(crate) offset: u64,
    pub(crate) segment: SegmentId,
    /// The block that ends where this one begins, in the same segment.
    pub(crate) before: u32,
    /// The block that begins where this one ends, in the same segment.
    pub(crate) after: u32,
    /// Of the bin while free; while used, the number of the take that handed it out.
    pub(crate) bin_previous: u32,
    /// Of the bin while free; of the slab's vacant nodes while vacant.
    pub(crate) bin_next: u32,
    /// Whose work may still touch it, while free.
    pub(crate) owner: Owner,
    pub(crate) side: Side,
    pub(crate) state: State,
}

// A step waits for the nodes it visits; they stay small.
const _: () = assert!(size_of::<Block>() == 40);

impl Block {
    /// The number of the take that handed out this block, which is used.
    #[inline]
    pub(crate) fn taken_at(&self) -> u32 {
        debug_assert_eq!(self.state, State::Used);
        self.bin_previous
    }

    /// Makes it used, from the take of this number on.
    #[inline]
    pub(crate) fn hand_out(&mut self, take: u32) {
        self.state = State::Used;
        self.bin_previous = take;
    }
}

/// A slab of blocks with the vacant nodes in a list.
#[derive(Debug)]
pub(crate) struct Blocks {
    nodes: Vec<Block>,
    vacant: u32,
}

impl Blocks {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            vacant: NONE,
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Block {
        &self.nodes[index as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Block {
        &mut self.nodes[index as usize]
    }

    /// Puts `block` into the slab, and answers its index.
    #[inline]
    pub(crate) fn insert(&mut self, block: Block) -> u32 {
        let index = self.vacant;
        if index == NONE {
            self.nodes.push(block);
            return (self.nodes.len() - 1) as u32;
        }
        self.vacant = self.get(index).bin_next;
        *self.get_mut(index) = block;
        index
    }

    /// Takes a block out, whose neighbours no longer name it.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        let vacant = self.vacant;
        let node = self.get_mut(index);
        debug_assert_ne!(node.state, State::Vacant);
        node.state = State::Vacant;
        node.bin_next = vacant;
        self.vacant = index;
    }

    /// Whether there is a block `index`, and it is free.
    #[inline]
    pub(crate) fn is_free(&self, index: u32) -> bool {
        index != NONE && matches!(self.get(index).state, State::Free | State::Tail)
    }

    /// What a free block is that `after` follows.
    #[inline]
    pub(crate) fn free_state(&self, after: u32) -> State {
        if self.is(after, State::Absent) && self.get(after).after == NONE {
            State::Tail
        } else {
            State::Free
        }
    }

    /// Whether there is a block `index`, and it is in `state`.
    #[inline]
    pub(crate) fn is(&self, index: u32, state: State) -> bool {
        index != NONE && self.get(index).state == state
    }

    /// Moves the bound between an absent block and the free one before it up by `bytes`, which are
    /// fewer than the absent block has.
    pub(crate) fn grow_before(&mut self, absent: u32, bytes: u64) {
        let block = self.get_mut(absent);
        block.offset += bytes;
        block.bytes -= bytes;
        let before = block.before;
        self.get_mut(before).bytes += bytes;
    }

    /// Cuts `pages` out of the block that they lie in. Answers what is left in front of them, their
    /// own block, and what is left behind, none of which is in a bin.
    pub(crate) fn cut_out(&mut self, pages: Pages) -> (Option<u32>, u32, Option<u32>) {
        let Block { offset, bytes, .. } = *self.get(pages.node);
        let end = pages.offset + pages.bytes;
        debug_assert!(
            offset <= pages.offset && end <= offset + bytes,
            "{pages:?} do not lie in their block"
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

    /// Cuts a block after its first `bytes`, and answers the rest, which is in no bin.
    #[inline]
    pub(crate) fn split(&mut self, index: u32, bytes: u64) -> u32 {
        let front = *self.get(index);
        debug_assert!(0 < bytes && bytes < front.bytes);
        let rest = self.insert(Block {
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

    /// Joins a block with the one after it, which is in no bin.
    #[inline]
    pub(crate) fn absorb_after(&mut self, index: u32) {
        let absorbed = self.get(index).after;
        let Block {
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

    /// Asserts that the vacant nodes are exactly those in the list, and answers how many nodes
    /// stand for a block.
    #[cfg(test)]
    pub(crate) fn check(&self) -> usize {
        let mut vacant = 0;
        let mut index = self.vacant;
        while index != NONE {
            assert_eq!(self.get(index).state, State::Vacant, "vacant node {index}");
            vacant += 1;
            assert!(vacant <= self.nodes.len(), "the vacant nodes form a circle");
            index = self.get(index).bin_next;
        }
        let blocks = self.nodes.iter().filter(|node| node.state != State::Vacant);
        let count = blocks.count();
        assert_eq!(count + vacant, self.nodes.len(), "a vacant node is lost");
        count
    }
}
