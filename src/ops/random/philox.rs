//! The words of a seed: Philox 4x32-10 over a counter.

/// Words that one application of the cipher yields.
const BLOCK_WORDS: usize = 4;

/// Ten rounds of Philox 4x32 on one counter.
#[inline]
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

/// The words of one block of a seed's `sequence`.
#[inline]
fn block(seed: u64, sequence: u32, index: u64) -> [u32; BLOCK_WORDS] {
    let halves = |wide: u64| [wide as u32, (wide >> 32) as u32];
    let [low, high] = halves(index);
    philox([low, high, sequence, 0], halves(seed))
}

/// The number that one or two words, the lower one first, write.
#[inline]
pub(super) fn number(words: &[u32]) -> u64 {
    let wider = |number, &word: &u32| number << 32 | u64::from(word);
    words.iter().rev().fold(0, wider)
}

/// The words of a seed from `start` on. A seed has many sequences of words; draws for different
/// purposes come from different ones, because a normal number consumes words that a later draw of
/// another kind would otherwise use again.
#[derive(Clone, Copy)]
pub(super) struct Draws {
    pub(super) seed: u64,
    pub(super) start: u64,
}

impl Draws {
    /// What follows after `words` more words.
    pub(super) fn after(self, words: usize) -> Self {
        Self {
            start: self.start.wrapping_add(words as u64),
            ..self
        }
    }

    /// From the last multiple of `words` on, and how many words that is further back.
    pub(super) fn align(self, words: usize) -> (Self, usize) {
        let back = self.start % words as u64;
        let start = self.start - back;
        (Self { start, ..self }, back as usize)
    }

    /// The first two words of `sequence` as a number; the start must be even.
    pub(super) fn pair(self, sequence: u32) -> u64 {
        let (aligned, at) = self.align(BLOCK_WORDS);
        let words = block(self.seed, sequence, aligned.start / BLOCK_WORDS as u64);
        number(&words[at..at + 2])
    }

    /// Calls `f` with the position and the `words` words of each of `count` draws in `sequence`.
    #[inline]
    pub(super) fn each(
        self,
        sequence: u32,
        words: usize,
        count: usize,
        mut f: impl FnMut(usize, &[u32]),
    ) {
        let (aligned, mut skipped) = self.align(BLOCK_WORDS);
        let mut index = aligned.start / BLOCK_WORDS as u64;
        let mut done = 0;
        while done < count {
            let drawn = block(self.seed, sequence, index);
            for draw in drawn[skipped..].chunks_exact(words).take(count - done) {
                f(done, draw);
                done += 1;
            }
            // Only the first block may begin with words that others drew.
            skipped = 0;
            index = index.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random123's published vectors for philox4x32-10.
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
        // Across the carry from the low word of a block's index to the high one.
        let seed = 0x1234_5678_9ABC_DEF0;
        let draws = Draws {
            seed,
            start: (1 << 34) - 500,
        };
        let words = |start: usize, count: usize| {
            let mut words = Vec::new();
            draws
                .after(start)
                .each(1, 1, count, |_, draw| words.extend_from_slice(draw));
            words
        };
        let whole = words(0, 1000);
        assert_eq!(whole[500..504], block(seed, 1, 1 << 32));
        for cut in [0, 1, 5, 255, 256, 257, 999] {
            let parts = [words(0, cut), words(cut, 1000 - cut)].concat();
            assert_eq!(parts, whole, "cut at {cut}");
        }
        let pairs = (0..4).map(|at| draws.after(2 * at).pair(1));
        assert!(pairs.eq(whole[..8].chunks(2).map(number)));
        assert_ne!(draws.pair(0), draws.pair(1), "sequences differ");
    }
}
