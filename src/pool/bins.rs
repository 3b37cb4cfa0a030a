//! Free blocks by size class, found in constant time by two levels of bitmaps.

use super::blocks::{Block, Blocks, NONE};
use super::size_class::{CLASSES, floor_class};
use crate::device::StreamId;

const WORDS: usize = CLASSES.div_ceil(64);

/// How many blocks of a bin are compared for the best fit before one from the next bin is taken.
const SCAN: usize = 16;

/// The free blocks of one side, in a list for each class.
///
/// Invariants:
/// - the list of a class holds exactly the free blocks with that [`floor_class`], linked both ways;
/// - bit `c % 64` of `words[c / 64]` is set where the list of class `c` is not empty, and bit `w`
///   of `summary` where `words[w]` is not 0.
#[derive(Debug)]
pub(crate) struct Bins {
    summary: u64,
    words: [u64; WORDS],
    heads: [u32; CLASSES],
}

// One bit of the summary for each word.
const _: () = assert!(WORDS <= 64);

impl Bins {
    pub(crate) fn new() -> Self {
        Self {
            summary: 0,
            words: [0; WORDS],
            heads: [NONE; CLASSES],
        }
    }

    /// Puts a free block into its bin.
    #[inline]
    pub(crate) fn insert(&mut self, blocks: &mut Blocks, index: u32) {
        let block = blocks.get_mut(index);
        let class = floor_class(block.bytes);
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

    /// Takes a free block, of unchanged size, out of its bin.
    #[inline]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, index: u32) {
        let Block {
            bytes,
            bin_previous,
            bin_next,
            ..
        } = *blocks.get(index);
        if bin_next != NONE {
            blocks.get_mut(bin_next).bin_previous = bin_previous;
        }
        if bin_previous != NONE {
            blocks.get_mut(bin_previous).bin_next = bin_next;
            return;
        }
        let class = floor_class(bytes);
        self.heads[class] = bin_next;
        if bin_next == NONE {
            self.words[class / 64] &= !(1 << (class % 64));
            if self.words[class / 64] == 0 {
                self.summary &= !(1 << (class / 64));
            }
        }
    }

    /// The block to serve `bytes` to `stream` from: the smallest that fits among the first [`SCAN`]
    /// of its own bin; else among the first of the next bin that has any, where each fits; else any
    /// of its own bin that fits. Among those looked at, one that is ready for `stream` comes before
    /// the rest. `None` only where no block of this side is long enough.
    #[inline]
    pub(crate) fn find(&self, blocks: &Blocks, bytes: u64, stream: StreamId) -> Option<u32> {
        let class = floor_class(bytes);
        let own = self.heads[class];
        let found = smallest_fit(blocks, own, bytes, stream, SCAN);
        if found != NONE {
            return Some(found);
        }
        let next = self.first_from(class + 1);
        if next < CLASSES {
            return Some(smallest_fit(blocks, self.heads[next], bytes, stream, SCAN));
        }
        let found = smallest_fit(blocks, own, bytes, stream, usize::MAX);
        (found != NONE).then_some(found)
    }

    /// The lowest class from `class` on that has a block; [`CLASSES`] where there is none.
    #[inline]
    fn first_from(&self, class: usize) -> usize {
        let word = class / 64;
        if word >= WORDS {
            return CLASSES;
        }
        let here = self.words[word] & (u64::MAX << (class % 64));
        if here != 0 {
            return word * 64 + here.trailing_zeros() as usize;
        }
        // WORDS is below 64, so that the shift is in range.
        let later = self.summary & (u64::MAX << (word + 1));
        if later == 0 {
            return CLASSES;
        }
        let word = later.trailing_zeros() as usize;
        word * 64 + self.words[word].trailing_zeros() as usize
    }

    /// The length of the longest block.
    pub(crate) fn largest_bytes(&self, blocks: &Blocks) -> u64 {
        let Some(word) = self.summary.checked_ilog2() else {
            return 0;
        };
        let bit = self.words[word as usize].ilog2();
        let class = (word * 64 + bit) as usize;
        list(blocks, self.heads[class])
            .map(|index| blocks.get(index).bytes)
            .max()
            .unwrap_or(0)
    }

    /// Calls `visit` with every block of at least `bytes`, and with some shorter ones.
    pub(crate) fn for_each_from(&self, blocks: &Blocks, bytes: u64, mut visit: impl FnMut(u32)) {
        let mut class = self.first_from(floor_class(bytes));
        while class < CLASSES {
            list(blocks, self.heads[class]).for_each(&mut visit);
            class = self.first_from(class + 1);
        }
    }

    /// Asserts the invariants, calls `seen` with every block, and so shows who is in the bins.
    #[cfg(test)]
    pub(crate) fn check(&self, blocks: &Blocks, mut seen: impl FnMut(u32)) {
        for (class, &head) in self.heads.iter().enumerate() {
            let bit = self.words[class / 64] >> (class % 64) & 1;
            assert_eq!(bit == 1, head != NONE, "bitmap of class {class}");
            let mut previous = NONE;
            for index in list(blocks, head) {
                let block = blocks.get(index);
                assert!(blocks.is_free(index), "block {index} in bin {class}");
                assert_eq!(floor_class(block.bytes), class, "block {index}");
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

/// The blocks of a bin.
fn list(blocks: &Blocks, head: u32) -> impl Iterator<Item = u32> {
    let link = |index: u32| (index != NONE).then_some(index);
    std::iter::successors(link(head), move |&index| link(blocks.get(index).bin_next))
}

/// The smallest block of at least `bytes` among the first `limit` of a bin, those that are ready for
/// `stream` before the others, or [`NONE`].
#[inline]
fn smallest_fit(blocks: &Blocks, head: u32, bytes: u64, stream: StreamId, limit: usize) -> u32 {
    let (mut best, mut best_order) = (NONE, u64::MAX);
    let (mut index, mut left) = (head, limit);
    while index != NONE && left > 0 {
        let block = blocks.get(index);
        let order = order(block, stream);
        if order == bytes {
            return index;
        }
        if bytes <= block.bytes && order < best_order {
            (best, best_order) = (index, order);
        }
        index = block.bin_next;
        left -= 1;
    }
    best
}

/// By length, after all that are ready where it is not: lengths are below 2⁶³.
#[inline]
fn order(block: &Block, stream: StreamId) -> u64 {
    let waits = !block.owner.is_ready_for(stream);
    block.bytes | u64::from(waits) << 63
}
