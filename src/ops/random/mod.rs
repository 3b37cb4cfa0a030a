//! Random arrays from a counter-based generator: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw,
//! "Parallel random numbers: as easy as 1, 2, 3", 2011).
//!
//! The generator is a fixed sequence of 32-bit words for each seed. An element is a function of the
//! words at its position alone, so the numbers do not depend on how the work is divided: they are
//! equal for any number of threads, and on any device.

mod fill;
mod normal;
mod philox;
mod sampling;
mod single;

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};

use fill::{Below, Dropout, Normal, Truth, Uniform, below, words_of};
use philox::Draws;

use super::derivatives::{AnyArray, is_live, with_source};
use super::descriptors::Fill;
use super::host::RUN;
use super::precompiled::precompiled;
use crate::array::{AnyElement, Array, Float, Integer, Shape};
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};

/// A seeded source of random numbers: equal numbers for equal seeds, on every device.
///
/// Drawing ten numbers at once gives the numbers of drawing four and then six.
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
    // The next word that has not been drawn yet.
    position: u64,
}

impl Generator {
    /// Returns the generator of `seed`, from its first number.
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
    fn advance(&mut self, sequence: u32, count: usize, words: usize) -> Draws {
        let start = self.position.next_multiple_of(words as u64);
        self.position = start.wrapping_add((count * words) as u64);
        Draws {
            seed: self.seed,
            sequence,
            start,
        }
    }

    /// Returns `0..n` in random order, with uniform probability (Fisher and Yates).
    fn shuffled(&mut self, n: usize) -> Vec<i64> {
        let mut order: Vec<i64> = (0..n as i64).collect();
        let draws = self.advance(UNIFORM, n.saturating_sub(1), 2);
        let mut words = [0; 2 * RUN];
        for start in (1..n).step_by(RUN) {
            let draws = draws.after(2 * (start - 1));
            let words = &mut words[..2 * RUN.min(n - start)];
            draws.write(words);
            for (at, pair) in words.as_chunks().0.iter().enumerate() {
                let last = start + at;
                let other = below(*pair, last as u64 + 1, || draws.after(2 * at));
                order.swap(last, other as usize);
            }
        }
        order
    }
}

thread_local! {
    static GENERATOR: RefCell<Option<Generator>> = const { RefCell::new(None) };
}

/// Runs `f`, after which the calling thread's generator has its state of before.
pub(crate) fn keeping_generator<R>(f: impl FnOnce() -> R) -> R {
    let before = GENERATOR.with_borrow(Clone::clone);
    scopeguard::defer!(GENERATOR.set(before));
    f()
}

/// Returns the result of `f` for the calling thread's generator. The generator is borrowed
/// meanwhile, so `f` must not allocate device memory: a callback under memory pressure may draw
/// numbers too.
fn of_thread<R>(f: impl FnOnce(&mut Generator) -> R) -> R {
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

/// Returns a generator for another thread, seeded by a number of the calling thread's generator.
pub(crate) fn split_thread_generator() -> Generator {
    of_thread(|generator| Generator::new(generator.advance(UNIFORM, 1, 2).pair(0)))
}

/// Returns the state of the calling thread's generator.
pub(crate) fn thread_state() -> Generator {
    of_thread(|generator| generator.clone())
}

/// Sets the state of the calling thread's generator, and returns the previous one.
pub(crate) fn replace_thread_state(state: Generator) -> Generator {
    of_thread(|generator| std::mem::replace(generator, state))
}

// Draws for different purposes use different sequences of a seed, because a normal number consumes
// words that a later draw of another kind would otherwise use again.
const UNIFORM: u32 = 0;

/// Returns the sequence of normal numbers that take draws of `words` words.
const fn normal_sequence(words: usize) -> u32 {
    words as u32
}

#[track_caller]
fn uniform<T: Float>(origin: RandomSource<'_>, shape: &Shape) -> Result<Array<T>> {
    origin.array(shape, (UNIFORM, words_of::<T>()), Uniform)
}

#[track_caller]
fn normal<T: Float>(origin: RandomSource<'_>, shape: &Shape) -> Result<Array<T>> {
    let words = words_of::<T>();
    origin.array(shape, (normal_sequence(words), words), Normal)
}

/// The source of an array's random numbers.
enum RandomSource<'g> {
    Thread,
    Explicit(&'g mut Generator),
}

impl RandomSource<'_> {
    fn advance(&mut self, sequence: u32, count: usize, words: usize) -> Draws {
        match self {
            Self::Thread => of_thread(|generator| generator.advance(sequence, count, words)),
            Self::Explicit(generator) => generator.advance(sequence, count, words),
        }
    }

    /// Returns `0..n` in random order.
    fn shuffled(self, n: usize) -> Vec<i64> {
        match self {
            Self::Thread => of_thread(|generator| generator.shuffled(n)),
            Self::Explicit(generator) => generator.shuffled(n),
        }
    }

    /// Returns an array whose elements `fill` computes from draws of `words` words each.
    #[track_caller]
    fn array<T: AnyElement, F: Fill<T>>(
        mut self,
        shape: &Shape,
        (sequence, words): (u32, usize),
        fill: impl FnOnce(Draws) -> F,
    ) -> Result<Array<T>> {
        // Draws only if there is memory for the array.
        let device = Device::current();
        let mut drawn = None;
        let array = on_device!(
            &device,
            touching & (),
            generate(shape, |count| *drawn
                .insert(fill(self.advance(sequence, count, words))))
        )?;
        let Some(fill) = drawn.filter(|_| is_live()) else {
            return Ok(array);
        };
        let shape = *shape;
        let again = move || -> Result<AnyArray> {
            let array: Array<T> = on_device!(&device, touching & (), generate(&shape, |_| fill))?;
            Ok(AnyArray::of(&array))
        };
        Ok(with_source(AnyArray::of(&array), again).into_array())
    }

    #[track_caller]
    fn uniform<T: Float>(self, shape: &Shape) -> Result<Array<T>> {
        let origin = self;
        precompiled!(uniform::<T>(; origin: RandomSource<'_>, shape: &Shape))
    }

    #[track_caller]
    fn normal<T: Float>(self, shape: &Shape) -> Result<Array<T>> {
        let origin = self;
        precompiled!(normal::<T>(; origin: RandomSource<'_>, shape: &Shape))
    }

    #[track_caller]
    fn integers<T: Integer>(self, low: T, high: T, shape: &Shape) -> Result<Array<T>> {
        let Some(bound) = T::distance(low, high) else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "randint: there is no number from {low} to below {high}, expected low < high"
                ),
            ));
        };
        self.array(shape, (UNIFORM, 2), |draws| Below { draws, low, bound })
    }

    #[track_caller]
    fn truths(self, p: f64, shape: &Shape) -> Result<Array<bool>> {
        check_probability("bernoulli", p)?;
        self.array(shape, (UNIFORM, 1), |draws| Truth::new(draws, p))
    }

    #[track_caller]
    fn dropout<T: Float>(self, p: f64, shape: &Shape) -> Result<Array<T>> {
        check_probability("dropout_mask", p)?;
        self.array(shape, (UNIFORM, 1), |draws| Dropout::new(draws, p))
    }
}

#[track_caller]
fn check_probability(operation: &str, p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!("{operation}: the probability {p} is not between 0 and 1"),
    ))
}

impl<T: Float> Array<T> {
    /// Returns uniformly distributed numbers in `0.0..1.0`, from the calling thread's generator.
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
    /// [`InvalidShape`](ErrorKind::InvalidShape) if the rank is above 8 or the size overflows,
    /// [`OutOfMemory`](ErrorKind::OutOfMemory) if the device has no memory for the array; nothing
    /// is drawn then.
    #[track_caller]
    pub fn rand(shape: impl Into<Shape>) -> Result<Self> {
        RandomSource::Thread.uniform(&shape.into())
    }

    /// Like [`rand`](Self::rand), but from `generator`.
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
        RandomSource::Explicit(generator).uniform(&shape.into())
    }

    /// Returns normally distributed numbers of mean 0 and variance 1, from the calling thread's
    /// generator.
    ///
    /// The relative error of each, before it is rounded to `T`, is within 2^-21; for `f64`, within
    /// some units in the last place. The largest magnitude is 6.7; for `f64`, 8.5.
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
        RandomSource::Thread.normal(&shape.into())
    }

    /// Like [`randn`](Self::randn), but from `generator`.
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
        RandomSource::Explicit(generator).normal(&shape.into())
    }
}

impl<T: Float> Array<T> {
    /// Returns factors that drop elements at random: 0 with the probability `p`, else 1 / (1 − p),
    /// so that sums are unchanged on average (Srivastava et al., "Dropout", 2014). Draws from the
    /// calling thread's generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let activations = Array::<f32>::ones(1000)?;
    /// let dropped = (&activations * Array::dropout_mask(0.75, 1000)?).eval()?;
    /// assert!(dropped.to_vec()?.iter().all(|&value| value == 0.0 || value == 4.0));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`rand`](Self::rand), and [`InvalidArgument`](ErrorKind::InvalidArgument) if `p` is
    /// not between 0 and 1, both included.
    #[track_caller]
    pub fn dropout_mask(p: f64, shape: impl Into<Shape>) -> Result<Self> {
        RandomSource::Thread.dropout(p, &shape.into())
    }

    /// Like [`dropout_mask`](Self::dropout_mask), but from `generator`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Generator};
    ///
    /// let mask = Array::<f32>::dropout_mask_with(&mut Generator::new(7), 0.5, 3)?;
    /// assert_eq!(Array::dropout_mask_with(&mut Generator::new(7), 0.5, 3)?, mask);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`dropout_mask`](Self::dropout_mask).
    #[track_caller]
    pub fn dropout_mask_with(
        generator: &mut Generator,
        p: f64,
        shape: impl Into<Shape>,
    ) -> Result<Self> {
        RandomSource::Explicit(generator).dropout(p, &shape.into())
    }
}

impl<T: Integer> Array<T> {
    /// Returns integers from `low` to below `high` with exactly uniform probability (Lemire, "Fast
    /// random integer generation in an interval", 2019), from the calling thread's generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let dice = Array::randint(1u8, 7, 100)?;
    /// assert!(dice.to_vec()?.iter().all(|eyes| (1..=6).contains(eyes)));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`rand`](Self::rand), and [`InvalidArgument`](ErrorKind::InvalidArgument) if `low` is
    /// not below `high`.
    #[track_caller]
    pub fn randint(low: T, high: T, shape: impl Into<Shape>) -> Result<Self> {
        RandomSource::Thread.integers(low, high, &shape.into())
    }

    /// Like [`randint`](Self::randint), but from `generator`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Generator};
    ///
    /// let first = Array::randint_with(&mut Generator::new(7), -5, 5, 3)?;
    /// assert_eq!(Array::randint_with(&mut Generator::new(7), -5, 5, 3)?, first);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`randint`](Self::randint).
    #[track_caller]
    pub fn randint_with(
        generator: &mut Generator,
        low: T,
        high: T,
        shape: impl Into<Shape>,
    ) -> Result<Self> {
        RandomSource::Explicit(generator).integers(low, high, &shape.into())
    }
}

impl Array<bool> {
    /// Returns truth values, each true with the probability `p` (to within 2⁻⁶⁴), from the calling
    /// thread's generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let coins = Array::bernoulli(0.5, 100)?;
    /// assert!(coins.to_vec()?.contains(&true));
    /// assert_eq!(Array::bernoulli(0.0, 2)?.to_vec()?, [false, false]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`rand`](Array::rand), and [`InvalidArgument`](ErrorKind::InvalidArgument) if `p` is
    /// not between 0 and 1, both included.
    #[track_caller]
    pub fn bernoulli(p: f64, shape: impl Into<Shape>) -> Result<Self> {
        RandomSource::Thread.truths(p, &shape.into())
    }

    /// Like [`bernoulli`](Self::bernoulli), but from `generator`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Generator};
    ///
    /// let first = Array::bernoulli_with(&mut Generator::new(7), 0.5, 3)?;
    /// assert_eq!(Array::bernoulli_with(&mut Generator::new(7), 0.5, 3)?, first);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`bernoulli`](Self::bernoulli).
    #[track_caller]
    pub fn bernoulli_with(
        generator: &mut Generator,
        p: f64,
        shape: impl Into<Shape>,
    ) -> Result<Self> {
        RandomSource::Explicit(generator).truths(p, &shape.into())
    }
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
}
