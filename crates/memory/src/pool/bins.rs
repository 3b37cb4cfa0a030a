//! Free blocks by size class, found in constant time by a two-level bitmap.

use super::blocks::{BlockNode, BlockState, BlockTable, NONE};
use super::size_class::{CLASSES, floor_class};
use crate::device::StreamId;

/// The bin of wilderness blocks of any length, after all size classes.
const WILDERNESS_BIN: usize = CLASSES;

const BINS: usize = CLASSES + 1;

const WORDS: usize = BINS.div_ceil(64);

/// The number of blocks of a bin that are compared for the best fit.
const SCAN: usize = 8;

/// The free blocks of one partition: a list for each size class, and one for wilderness blocks.
///
/// Invariants:
/// - the doubly linked list of a class has exactly the free blocks of this [`floor_class`], without
///   wilderness blocks. The last list has the wilderness blocks;
/// - bit `c % 64` of `words[c / 64]` is set if the list of class `c` is not empty. Bit `w` of
///   `summary` is set if `words[w]` is not 0.
#[derive(Debug)]
pub(crate) struct Bins {
    summary: u64,
    words: [u64; WORDS],
    heads: [u32; BINS],
}

// `summary` has one bit for each word.
const _: () = assert!(WORDS <= 64);

impl Bins {
    pub(crate) fn new() -> Self {
        Self {
            summary: 0,
            words: [0; WORDS],
            heads: [NONE; BINS],
        }
    }

    /// Marks a block free (`Free` or `Wilderness`) and inserts it into its bin.
    #[inline]
    pub(crate) fn insert(&mut self, blocks: &mut BlockTable, index: u32, state: BlockState) {
        let block = blocks.get_mut(index);
        block.state = state;
        let class = bin_of(block);
        let head = self.heads[class];
        block.bin_previous = NONE;
        block.bin_next = head;
        if head == NONE {
            self.words[class / 64] |= 1 << (class % 64);
            self.summary |= 1 << (class / 64);
        } else {
            blocks.get_mut(head).bin_previous = index;
        }
        self.heads[class] = index;
    }

    /// Removes a free block from its bin. The block must still have its size from the insertion.
    #[inline]
    pub(crate) fn remove(&mut self, blocks: &mut BlockTable, index: u32) {
        let block = blocks.get(index);
        let class = bin_of(block);
        let BlockNode {
            bin_previous,
            bin_next,
            ..
        } = *block;
        if bin_next != NONE {
            blocks.get_mut(bin_next).bin_previous = bin_previous;
        }
        if bin_previous != NONE {
            blocks.get_mut(bin_previous).bin_next = bin_next;
            return;
        }
        self.heads[class] = bin_next;
        if bin_next == NONE {
            self.words[class / 64] &= !(1 << (class % 64));
            if self.words[class / 64] == 0 {
                self.summary &= !(1 << (class / 64));
            }
        }
    }

    /// Returns a block from which `bytes` can be served to `stream`. Tries, in this order:
    ///
    /// 1. the smallest block that fits among the first [`SCAN`] blocks of the request's bin,
    /// 2. the smallest block among the first [`SCAN`] blocks of the next non-empty bin, where every
    ///    block fits,
    /// 3. any block of the request's bin that fits,
    /// 4. a wilderness block.
    ///
    /// Among the compared blocks, a block that is ready for `stream` is preferred. Returns `None`
    /// only if no block of this partition fits.
    #[inline]
    pub(crate) fn find(&self, blocks: &BlockTable, bytes: u64, stream: StreamId) -> Option<u32> {
        let class = floor_class(bytes);
        let fit = |list: u32, limit: usize| smallest_fit(blocks, list, bytes, stream, limit);
        let (found, rest) = fit(self.heads[class], SCAN);
        if found != NONE {
            return Some(found);
        }
        let next = self.first_nonempty(class + 1);
        if next < CLASSES {
            return Some(fit(self.heads[next], SCAN).0);
        }
        let (found, _) = fit(rest, usize::MAX);
        if found != NONE {
            return Some(found);
        }
        let (found, _) = fit(self.heads[WILDERNESS_BIN], usize::MAX);
        (found != NONE).then_some(found)
    }

    /// Returns the lowest non-empty bin from `class` on; [`BINS`] if there is none.
    #[inline]
    fn first_nonempty(&self, class: usize) -> usize {
        let word = class / 64;
        if word >= WORDS {
            return BINS;
        }
        let here = self.words[word] & (u64::MAX << (class % 64));
        if here != 0 {
            return word * 64 + here.trailing_zeros() as usize;
        }
        // `WORDS` is below 64, so the shift is in range.
        let later = self.summary & (u64::MAX << (word + 1));
        if later == 0 {
            return BINS;
        }
        let word = later.trailing_zeros() as usize;
        word * 64 + self.words[word].trailing_zeros() as usize
    }

    pub(crate) fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        let highest = (0..WORDS).rev().find_map(|word| {
            let bit = self.class_bits(word).checked_ilog2()?;
            Some(self.heads[word * 64 + bit as usize])
        });
        let heads = [highest.unwrap_or(NONE), self.heads[WILDERNESS_BIN]];
        let longest = heads.into_iter().flat_map(|head| list(blocks, head));
        let lengths = longest.map(|index| blocks.get(index).bytes);
        lengths.max().unwrap_or(0)
    }

    /// Returns a word without the wilderness bit.
    fn class_bits(&self, word: usize) -> u64 {
        let wilderness = if word == WILDERNESS_BIN / 64 {
            1 << (WILDERNESS_BIN % 64)
        } else {
            0
        };
        self.words[word] & !wilderness
    }

    /// Calls `visit` for every block of at least `bytes`, and for some shorter blocks.
    pub(crate) fn for_each_from(
        &self,
        blocks: &BlockTable,
        bytes: u64,
        mut visit: impl FnMut(u32),
    ) {
        let mut class = self.first_nonempty(floor_class(bytes));
        while class < BINS {
            list(blocks, self.heads[class]).for_each(&mut visit);
            class = self.first_nonempty(class + 1);
        }
    }

    #[cfg(test)]
    pub(crate) fn check(&self, blocks: &BlockTable, mut seen: impl FnMut(u32)) {
        for (class, &head) in self.heads.iter().enumerate() {
            let bit = self.words[class / 64] >> (class % 64) & 1;
            assert_eq!(bit == 1, head != NONE, "bitmap of class {class}");
            let mut previous = NONE;
            for index in list(blocks, head) {
                let block = blocks.get(index);
                assert!(blocks.is_free(index), "block {index} in bin {class}");
                assert_eq!(bin_of(block), class, "block {index}");
                assert_eq!(block.bin_previous, previous, "block {index}");
                previous = index;
                seen(index);
            }
        }
        for (word, &bits) in self.words.iter().enumerate() {
            assert_eq!(
                self.summary >> word & 1 == 1,
                bits != 0,
                "summary of {word}"
            );
        }
    }
}

#[inline]
fn bin_of(block: &BlockNode) -> usize {
    if block.state == BlockState::Wilderness {
        WILDERNESS_BIN
    } else {
        floor_class(block.bytes)
    }
}

fn list(blocks: &BlockTable, head: u32) -> impl Iterator<Item = u32> {
    let link = |index: u32| (index != NONE).then_some(index);
    std::iter::successors(link(head), move |&index| link(blocks.get(index).bin_next))
}

/// Returns the smallest block of at least `bytes` among the first `limit` blocks from `index`, or
/// [`NONE`]. Ready blocks are preferred. Also returns the first block that was not compared.
#[inline]
fn smallest_fit(
    blocks: &BlockTable,
    mut index: u32,
    bytes: u64,
    stream: StreamId,
    limit: usize,
) -> (u32, u32) {
    let (mut best, mut best_order) = (NONE, u64::MAX);
    let mut left = limit;
    while index != NONE && left > 0 {
        let block = blocks.get(index);
        let order = order(block, stream);
        if order == bytes {
            return (index, block.bin_next);
        }
        if bytes <= block.bytes && order < best_order {
            (best, best_order) = (index, order);
        }
        index = block.bin_next;
        left -= 1;
    }
    (best, index)
}

/// Returns a sort key: ready blocks first, then by length. Lengths are below 2⁶³.
#[inline]
fn order(block: &BlockNode, stream: StreamId) -> u64 {
    let waits = !block.owner.is_ready_for(stream);
    block.bytes | u64::from(waits) << 63
}
