//! Random arrays from a counter-based generator: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw,
//! "Parallel random numbers: as easy as 1, 2, 3", 2011).
//!
//! The generator is a fixed sequence of 32-bit words for each seed. An element is a function of the
//! words at its position alone, so the numbers are the same whatever computes them in whatever
//! parts.

use std::cell::RefCell;
use std::f64::consts::TAU;
use std::hash::{BuildHasher, RandomState};

use crate::array::{Array, Float, Shape, Writer};
use crate::error::Result;

/// Words that one application of the cipher yields.
const BLOCK_WORDS: usize = 4;

/// Ten rounds of Philox 4x32 on one counter.
#[inline]
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
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

/// A seeded source of random numbers: the same numbers for the same seed, on every device.
///
/// Drawing ten numbers at once gives what drawing four and then six gives.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Generator};
///
/// let whole = Array::<f32>::rand_with(&mut Generator::new(7), 10)?.to_vec()?;
/// let mut generator = Generator::new(7);
/// let head = Array::<f32>::rand_with(&mut generator, 4)?.to_vec()?;
/// let tail = Array::<f32>::rand_with(&mut generator, 6)?.to_vec()?;
/// assert_eq!(whole, [head, tail].concat());
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generator {
    seed: u64,
    // The next word that nothing has drawn yet.
    position: u64,
}

impl Generator {
    /// The generator of `seed`, from its first number.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Generator;
    ///
    /// assert_eq!(Generator::new(1), Generator::new(1));
    /// assert_ne!(Generator::new(1), Generator::new(2));
    /// ```
    pub fn new(seed: u64) -> Self {
        Self { seed, position: 0 }
    }

    /// Takes `count` draws of `words` words each (1 or 2), aligned to their size.
    fn advance(&mut self, count: usize, words: usize) -> Draws {
        let start = self.position.next_multiple_of(words as u64);
        self.position = start.wrapping_add((count * words) as u64);
        Draws {
            seed: self.seed,
            start,
            words,
        }
    }

    /// One number below `bound`, which must not be 0, each as likely as the others (Lemire, "Fast
    /// random integer generation in an interval", 2019).
    fn below(&mut self, bound: u64) -> u64 {
        loop {
            let draws = self.advance(1, 2);
            let mut drawn = 0;
            draws.each(UNIFORM, 0, 1, |words| drawn = number(words));
            let product = u128::from(drawn) * u128::from(bound);
            let low = product as u64;
            // The few draws below this would favour some numbers.
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// `0..n`, in an order each as likely as the others (Fisher and Yates).
    fn shuffled(&mut self, n: usize) -> Vec<i64> {
        let mut order: Vec<i64> = (0..n as i64).collect();
        for last in (1..n).rev() {
            let other = self.below(last as u64 + 1) as usize;
            order.swap(last, other);
        }
        order
    }
}

/// What `f` makes of the calling thread's generator. It is borrowed meanwhile, so `f` must not
/// allocate device memory: a callback under memory pressure may draw numbers too.
fn of_thread<R>(f: impl FnOnce(&mut Generator) -> R) -> R {
    thread_local! {
        static GENERATOR: RefCell<Option<Generator>> = const { RefCell::new(None) };
    }
    GENERATOR.with_borrow_mut(|generator| {
        // Threads that were not seeded must not repeat each other's numbers.
        f(generator.get_or_insert_with(|| Generator::new(RandomState::new().hash_one(()))))
    })
}

/// Seeds the calling thread's generator, which every random array without an explicit
/// [`Generator`] draws from; a thread that is never seeded begins at an unpredictable seed.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, manual_seed};
///
/// manual_seed(7);
/// let first = Array::<f32>::randn(3)?;
/// manual_seed(7);
/// assert_eq!(Array::<f32>::randn(3)?, first);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub fn manual_seed(seed: u64) {
    of_thread(|generator| *generator = Generator::new(seed));
}

// Draws for different purposes come from different sequences of a seed, because a normal number
// consumes words that a later draw of another kind would otherwise use again.
const UNIFORM: u32 = 0;

/// The sequence of normal numbers that take draws of `words` words.
const fn normal(words: usize) -> u32 {
    words as u32
}

/// Draws that a generator has given out.
#[derive(Clone, Copy)]
struct Draws {
    seed: u64,
    start: u64,
    words: usize,
}

impl Draws {
    /// Calls `f` with the words of each of `count` draws in `sequence`, from draw `first` on.
    #[inline]
    fn each(&self, sequence: u32, first: u64, count: usize, mut f: impl FnMut(&[u32])) {
        let mut scratch = [[0; BLOCK_WORDS]; 64];
        let mut word = self.start.wrapping_add(first * self.words as u64);
        let mut remaining = count * self.words;
        while remaining > 0 {
            let skipped = (word % BLOCK_WORDS as u64) as usize;
            let used = (skipped + remaining)
                .div_ceil(BLOCK_WORDS)
                .min(scratch.len());
            blocks(
                self.seed,
                sequence,
                word / BLOCK_WORDS as u64,
                &mut scratch[..used],
            );
            let words = &scratch[..used].as_flattened()[skipped..];
            let words = &words[..words.len().min(remaining)];
            words.chunks_exact(self.words).for_each(&mut f);
            word = word.wrapping_add(words.len() as u64);
            remaining -= words.len();
        }
    }
}

/// Fills `words` with the words of a seed's `sequence` from `BLOCK_WORDS * first` on.
fn blocks(seed: u64, sequence: u32, first: u64, words: &mut [[u32; BLOCK_WORDS]]) {
    let halves = |wide: u64| [wide as u32, (wide >> 32) as u32];
    for (index, words) in words.iter_mut().enumerate() {
        let [low, high] = halves(first.wrapping_add(index as u64));
        *words = philox([low, high, sequence, 0], halves(seed));
    }
}

/// The number that one or two words, the lower one first, write.
#[inline]
fn number(words: &[u32]) -> u64 {
    let wider = |number, &word: &u32| number << 32 | u64::from(word);
    words.iter().rev().fold(0, wider)
}

/// How many words a draw for one element of `T` has.
const fn words_of<T: Float>() -> usize {
    if T::MANTISSA_DIGITS > 32 { 2 } else { 1 }
}

/// A number in `0.0..1.0`: a multiple of the spacing just below one, so that none rounds up to it.
#[inline]
fn uniform<T: Float>(words: &[u32]) -> T {
    let spare = u32::BITS * words_of::<T>() as u32 - T::MANTISSA_DIGITS;
    let steps = (1u64 << T::MANTISSA_DIGITS) as f64;
    T::from_f64((number(words) >> spare) as f64 / steps)
}

/// A number between 0 and 1, neither of them included, so that its logarithm is finite.
#[inline]
fn open_uniform(words: &[u32]) -> f64 {
    // One binary digit of an f64 is for the half.
    let digits = (u32::BITS * words.len() as u32).min(f64::MANTISSA_DIGITS - 1);
    let spare = u32::BITS * words.len() as u32 - digits;
    ((number(words) >> spare) as f64 + 0.5) / (1u64 << digits) as f64
}

/// Two independent standard normal numbers from two draws (Box and Muller, 1958); in `f64` for
/// every type, so that the devices' functions differ by less than the result is rounded.
#[inline]
fn normals<T: Float>(first: &[u32], second: &[u32]) -> [T; 2] {
    let radius = (-2.0 * open_uniform(first).ln()).sqrt();
    let (sine, cosine) = (TAU * open_uniform(second)).sin_cos();
    [T::from_f64(radius * cosine), T::from_f64(radius * sine)]
}

fn write_uniform<T: Float>(mut writer: Writer<T>, draws: Draws) -> Result<Array<T>> {
    writer.fill_parts(|first, part| {
        let mut slots = part.iter_mut();
        draws.each(UNIFORM, first as u64, slots.len(), |words| {
            if let Some(slot) = slots.next() {
                *slot = uniform(words);
            }
        });
    })?;
    writer.finish()
}

fn write_normal<T: Float>(mut writer: Writer<T>, draws: Draws) -> Result<Array<T>> {
    // Draws 2k and 2k + 1 of the sequence make its elements 2k and 2k + 1, wherever a call begins.
    let begin = draws.start / draws.words as u64;
    let pairs = Draws {
        start: 0,
        words: 2 * draws.words,
        ..draws
    };
    writer.fill_parts(|first, part| {
        let from = begin + first as u64;
        let mut skipped = (from % 2) as usize;
        let count = (skipped + part.len()).div_ceil(2);
        let mut slots = part.iter_mut();
        pairs.each(normal(draws.words), from / 2, count, |words| {
            let (first, second) = words.split_at(words.len() / 2);
            let pair = normals(first, second);
            // The slots stand second, because a zip takes from its first side before it finds the
            // other at its end.
            for (value, slot) in pair[skipped..].iter().zip(&mut slots) {
                *slot = *value;
            }
            skipped = 0;
        });
    })?;
    writer.finish()
}

impl<T: Float> Array<T> {
    /// Numbers in `0.0..1.0`, each as likely as the others, from the calling thread's generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::<f32>::rand([2, 3])?;
    /// assert!(array.to_vec()?.iter().all(|value| (0.0..1.0).contains(value)));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) where the rank is above 8 or the size overflows,
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) where the device has no room; nothing is drawn then.
    pub fn rand(shape: impl Into<Shape>) -> Result<Self> {
        let writer = Writer::on_current(&shape.into())?;
        let draws = of_thread(|generator| generator.advance(writer.remaining(), words_of::<T>()));
        write_uniform(writer, draws)
    }

    /// As [`rand`](Self::rand), from `generator`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Generator};
    ///
    /// let first = Array::<f64>::rand_with(&mut Generator::new(7), 3)?;
    /// assert_eq!(Array::<f64>::rand_with(&mut Generator::new(7), 3)?, first);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`rand`](Self::rand).
    pub fn rand_with(generator: &mut Generator, shape: impl Into<Shape>) -> Result<Self> {
        let writer = Writer::on_current(&shape.into())?;
        let draws = generator.advance(writer.remaining(), words_of::<T>());
        write_uniform(writer, draws)
    }

    /// Normally distributed numbers of mean 0 and variance 1, from the calling thread's generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let weights = Array::<f32>::randn([64, 10])?;
    /// assert!(weights.to_vec()?.iter().any(|&weight| weight < 0.0));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`rand`](Self::rand).
    pub fn randn(shape: impl Into<Shape>) -> Result<Self> {
        let writer = Writer::on_current(&shape.into())?;
        let draws = of_thread(|generator| generator.advance(writer.remaining(), words_of::<T>()));
        write_normal(writer, draws)
    }

    /// As [`randn`](Self::randn), from `generator`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Generator};
    ///
    /// let first = Array::<f64>::randn_with(&mut Generator::new(7), 3)?;
    /// assert_eq!(Array::<f64>::randn_with(&mut Generator::new(7), 3)?, first);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`rand`](Self::rand).
    pub fn randn_with(generator: &mut Generator, shape: impl Into<Shape>) -> Result<Self> {
        let writer = Writer::on_current(&shape.into())?;
        let draws = generator.advance(writer.remaining(), words_of::<T>());
        write_normal(writer, draws)
    }
}

impl Array<i64> {
    /// The numbers from 0 to `n - 1` in random order, from the calling thread's generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let rows = Array::<f32>::rand([10, 2])?;
    /// let shuffled = rows.take(&Array::permutation(10)?, 0)?;
    /// assert_eq!(shuffled.shape(), rows.shape());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`rand`](Self::rand).
    pub fn permutation(n: usize) -> Result<Self> {
        let writer = Writer::on_current(&n.into())?;
        let order = of_thread(|generator| generator.shuffled(n));
        write_order(writer, &order)
    }

    /// As [`permutation`](Self::permutation), from `generator`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Generator};
    ///
    /// let mut order = Array::permutation_with(&mut Generator::new(7), 5)?.to_vec()?;
    /// order.sort();
    /// assert_eq!(order, [0, 1, 2, 3, 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`rand`](Self::rand).
    pub fn permutation_with(generator: &mut Generator, n: usize) -> Result<Self> {
        let writer = Writer::on_current(&n.into())?;
        let order = generator.shuffled(n);
        write_order(writer, &order)
    }
}

fn write_order(mut writer: Writer<i64>, order: &[i64]) -> Result<Array<i64>> {
    writer.extend_from_slice(order)?;
    writer.finish()
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
    fn the_first_numbers_are_those_of_the_published_vector() -> Result<()> {
        let array = Array::<f32>::rand_with(&mut Generator::new(0), 2)?;
        let expected = [0x6627_e8d5u32, 0xe169_c58d].map(|word| (word >> 8) as f32 / 16_777_216.0);
        assert_eq!(array.to_vec()?, expected);
        let array = Array::<f64>::rand_with(&mut Generator::new(0), 1)?;
        let expected = (0xe169_c58d_6627_e8d5u64 >> 11) as f64 / 9_007_199_254_740_992.0;
        assert_eq!(array.item()?, expected);
        Ok(())
    }

    #[test]
    fn the_extreme_words_stay_inside_their_intervals() {
        let (none, all) = ([0; 2], [u32::MAX; 2]);
        assert_eq!(uniform::<f64>(&none), 0.0);
        assert!(uniform::<f64>(&all) < 1.0);
        assert!(uniform::<f32>(&all[..1]) < 1.0);
        assert!(uniform::<half::f16>(&all[..1]) < half::f16::ONE);
        assert!(uniform::<half::bf16>(&all[..1]) < half::bf16::ONE);
        for words in [&none[..1], &none, &all[..1], &all] {
            let number = open_uniform(words);
            assert!(0.0 < number && number < 1.0, "{words:?} gave {number}");
        }
    }

    #[test]
    fn a_sequence_of_draws_does_not_depend_on_its_parts() {
        let draws = Generator::new(3).advance(1000, 1);
        let mut whole = Vec::new();
        draws.each(UNIFORM, 0, 1000, |words| whole.extend(words.to_vec()));
        for cut in [0, 1, 5, 255, 256, 257, 999] {
            let mut parts = Vec::new();
            draws.each(UNIFORM, 0, cut, |words| parts.extend(words.to_vec()));
            draws.each(UNIFORM, cut as u64, 1000 - cut, |words| {
                parts.extend(words.to_vec());
            });
            assert_eq!(parts, whole, "cut at {cut}");
        }
    }
}
