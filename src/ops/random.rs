//! Random arrays from a counter-based generator: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw,
//! "Parallel random numbers: as easy as 1, 2, 3", 2011).
//!
//! The generator is a fixed sequence of 32-bit words for each seed. An element is a function of the
//! words at its position alone, so the numbers are the same whatever computes them in whatever
//! parts.

mod philox;

use std::cell::RefCell;
use std::f64::consts::TAU;
use std::hash::{BuildHasher, RandomState};

use philox::{Draws, number};

use crate::array::{Array, Float, Shape, Writer};
use crate::error::Result;

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
        }
    }

    /// One number below `bound`, which must not be 0, each as likely as the others (Lemire, "Fast
    /// random integer generation in an interval", 2019).
    fn below(&mut self, bound: u64) -> u64 {
        loop {
            let drawn = self.advance(1, 2).pair(UNIFORM);
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
fn normals<T: Float>(words: &[u32]) -> [T; 2] {
    let (first, second) = words.split_at(words_of::<T>());
    let radius = (-2.0 * open_uniform(first).ln()).sqrt();
    let (sine, cosine) = (TAU * open_uniform(second)).sin_cos();
    [T::from_f64(radius * cosine), T::from_f64(radius * sine)]
}

fn write_uniform<T: Float>(mut writer: Writer<'_, T>, draws: Draws) -> Result<Array<T>> {
    let words = words_of::<T>();
    writer.fill_parts(|first, part| {
        let start = draws.after(first * words);
        start.each(UNIFORM, words, part.len(), |index, words| {
            part[index] = uniform(words);
        });
    })?;
    writer.finish()
}

fn write_normal<T: Float>(mut writer: Writer<'_, T>, draws: Draws) -> Result<Array<T>> {
    let words = words_of::<T>();
    let sequence = normal(words);
    writer.fill_parts(|first, part| {
        // Draws 2k and 2k + 1 of the sequence make its elements 2k and 2k + 1, wherever a part
        // begins, so it may begin and end inside a pair.
        let (pairs, begun) = draws.after(first * words).align(2 * words);
        let skipped = begun / words;
        let count = (skipped + part.len()).div_ceil(2);
        pairs.each(sequence, 2 * words, count, |pair, words| {
            for (half, value) in normals(words).into_iter().enumerate() {
                let slot = (2 * pair + half).checked_sub(skipped);
                if let Some(slot) = slot.and_then(|index| part.get_mut(index)) {
                    *slot = value;
                }
            }
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
    #[track_caller]
    pub fn rand(shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let writer = Writer::on_current(&shape)?;
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
    #[track_caller]
    pub fn rand_with(generator: &mut Generator, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let writer = Writer::on_current(&shape)?;
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
    #[track_caller]
    pub fn randn(shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let writer = Writer::on_current(&shape)?;
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
    #[track_caller]
    pub fn randn_with(generator: &mut Generator, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let writer = Writer::on_current(&shape)?;
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
    #[track_caller]
    pub fn permutation(n: usize) -> Result<Self> {
        let shape = n.into();
        let writer = Writer::on_current(&shape)?;
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
    #[track_caller]
    pub fn permutation_with(generator: &mut Generator, n: usize) -> Result<Self> {
        let shape = n.into();
        let writer = Writer::on_current(&shape)?;
        let order = generator.shuffled(n);
        write_order(writer, &order)
    }
}

fn write_order(mut writer: Writer<'_, i64>, order: &[i64]) -> Result<Array<i64>> {
    writer.extend_from_slice(order)?;
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
