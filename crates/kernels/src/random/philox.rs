//! The random words of a seed: Philox 4x32-10 over a counter.
//!
//! The counter consists of the index of a block of four words, the block's sequence, and the number
//! of refusals. A refusal is a draw that was not used. After a refusal, words are drawn again at
//! the same position.

/// The number of random words that one application of the cipher returns.
const BLOCK_WORDS: usize = 4;

/// The number of blocks that are computed together, in vector registers.
const TOGETHER: usize = 32;

/// Applies ten rounds of Philox 4x32 to one counter.
#[inline(always)]
fn philox(mut counter: [u32; BLOCK_WORDS], mut key: [u32; 2]) -> [u32; BLOCK_WORDS] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let first = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// Returns the 64-bit integer of two words. The first word is the lower half.
#[inline(always)]
pub fn number(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The random words of a seed from `start` on. A seed has many sequences of words. Draws for
/// different purposes use different sequences. Otherwise, a later draw could reuse words that a
/// normal number consumed.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    pub seed: u64,
    pub sequence: u32,
    pub start: u64,
}

impl Draws {
    /// Visits the members of the structure `Draws` of `draws.cuh`.
    pub fn operands(self, visit: &mut dyn FnMut(u64)) {
        [self.seed, u64::from(self.sequence), self.start]
            .into_iter()
            .for_each(visit);
    }

    /// Returns the draws that begin `words` words later.
    #[inline(always)]
    pub fn after(self, words: usize) -> Self {
        Self {
            start: self.start.wrapping_add(words as u64),
            ..self
        }
    }

    /// Returns the draws from the last multiple of `words` on, and the distance from the multiple
    /// to the start.
    #[inline(always)]
    pub fn align(self, words: usize) -> (Self, usize) {
        let back = self.start % words as u64;
        let start = self.start - back;
        (Self { start, ..self }, back as usize)
    }

    /// Returns the block with index `index`, after `refusals` refusals.
    #[inline(always)]
    fn block(self, index: u64, refusals: u32) -> [u32; BLOCK_WORDS] {
        let counter = [index as u32, (index >> 32) as u32, self.sequence, refusals];
        philox(counter, [self.seed as u32, (self.seed >> 32) as u32])
    }

    /// Returns the first two words as a 64-bit integer, after `refusals` refusals. The start must
    /// be even.
    #[inline(always)]
    pub fn pair(self, refusals: u32) -> u64 {
        let (aligned, at) = self.align(BLOCK_WORDS);
        let words = self.block(aligned.start / BLOCK_WORDS as u64, refusals);
        number(words[at], words[at + 1])
    }

    /// Returns the first word, after `refusals` refusals.
    #[inline(always)]
    pub fn word(self, refusals: u32) -> u32 {
        let (aligned, at) = self.align(BLOCK_WORDS);
        self.block(aligned.start / BLOCK_WORDS as u64, refusals)[at]
    }

    #[inline(always)]
    pub fn write(self, words: &mut [u32]) {
        let (aligned, skipped) = self.align(BLOCK_WORDS);
        let mut index = aligned.start / BLOCK_WORDS as u64;
        // Only the first block may begin with words before the start.
        let first = words.len().min((BLOCK_WORDS - skipped) % BLOCK_WORDS);
        let (head, rest) = words.split_at_mut(first);
        if !head.is_empty() {
            head.copy_from_slice(&self.block(index, 0)[skipped..][..first]);
            index = index.wrapping_add(1);
        }
        for part in rest.chunks_mut(TOGETHER * BLOCK_WORDS) {
            let mut blocks = [[0; BLOCK_WORDS]; TOGETHER];
            self.blocks(index, &mut blocks);
            let drawn = blocks.as_flattened();
            part.copy_from_slice(&drawn[..part.len()]);
            index = index.wrapping_add(TOGETHER as u64);
        }
    }

    #[inline(always)]
    fn blocks(self, index: u64, blocks: &mut [[u32; BLOCK_WORDS]; TOGETHER]) {
        // The words at one position of all blocks are stored side by side, so that the loop is
        // vectorised.
        let mut columns = [[0; TOGETHER]; BLOCK_WORDS];
        for at in 0..TOGETHER {
            let block = self.block(index.wrapping_add(at as u64), 0);
            for (column, word) in columns.iter_mut().zip(block) {
                column[at] = word;
            }
        }
        for (at, block) in blocks.iter_mut().enumerate() {
            for (word, column) in block.iter_mut().zip(&columns) {
                *word = column[at];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases are Random123's published test vectors for philox4x32-10.
    #[test]
    fn philox_gives_its_published_vectors() {
        let cases = [
            (
                [0; 4],
                [0; 2],
                [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
            ),
            (
                [u32::MAX; 4],
                [u32::MAX; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox(counter, key), expected);
        }
    }

    #[test]
    fn a_sequence_of_draws_does_not_depend_on_its_parts() {
        // The words include the carry from the lower word of a block's index to the upper word.
        let draws = Draws {
            seed: 0x1234_5678_9ABC_DEF0,
            sequence: 1,
            start: (1 << 34) - 500,
        };
        let words = |start: usize, count: usize| {
            let mut words = vec![0; count];
            draws.after(start).write(&mut words);
            words
        };
        let whole = words(0, 1000);
        assert_eq!(whole[500..504], draws.block(1 << 32, 0));
        for cut in [0, 1, 5, 127, 128, 255, 256, 257, 999] {
            let parts = [words(0, cut), words(cut, 1000 - cut)].concat();
            assert_eq!(parts, whole, "cut at {cut}");
        }
        for at in 0..4 {
            let pair = number(whole[2 * at], whole[2 * at + 1]);
            assert_eq!(draws.after(2 * at).pair(0), pair);
            assert_ne!(draws.after(2 * at).pair(1), pair, "after a refusal");
            assert_eq!(draws.after(at).word(0), whole[at]);
        }
        let other = Draws {
            sequence: 0,
            ..draws
        };
        assert_ne!(draws.pair(0), other.pair(0), "sequences differ");
    }
}
