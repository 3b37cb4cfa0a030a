//! Random arrays from a counter-based generator: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw,
//! "Parallel random numbers: as easy as 1, 2, 3", 2011).
//!
//! For each seed, the generator is a fixed sequence of 32-bit words. An element is a function only
//! of the words at its position. So the numbers are equal for any number of threads, and on any
//! device.

mod drawn;
#[cfg(test)]
mod fill_texts;
mod generator;
mod rows;
mod sampling;

use drawn::{DrawnFill, FillOf, normal_fill, uniform_fill};
pub use generator::{Generator, manual_seed};
use generator::{UNIFORM, of_thread};
pub(crate) use generator::{
    keeping_generator, replace_thread_state, split_thread_generator, thread_state,
};

use crate::array::{AnyArray, AnyElement, Array, Float, Integer, Shape};
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::derivatives::{is_live, with_source};
use crate::ops::host::{self, Draw, TakeFill, TypedFill};
use cachescope_kernels::random::Fill;
use cachescope_kernels::random::fill::{Below, Dropout, Truth};
use cachescope_kernels::random::philox::Draws;

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

    fn shuffled(self, n: usize) -> Vec<i64> {
        match self {
            Self::Thread => of_thread(|generator| generator.shuffled(n)),
            Self::Explicit(generator) => generator.shuffled(n),
        }
    }

    /// Returns an array of `shape`. `make` constructs the fill that computes the elements from
    /// draws.
    #[track_caller]
    fn array<T: AnyElement, F: Fill<T>>(
        self,
        shape: &Shape,
        draws: (u32, usize),
        make: impl Fn(Draws) -> F,
    ) -> Result<Array<T>> {
        let fill = const { &FillOf::new::<T, F>() };
        let make = |draws, give: TakeFill<'_>| {
            give(&TypedFill::<T, F>::new(make(draws)));
        };
        let array = self.filled(shape, draws, fill, &make)?;
        Ok(Array::from_erased(array))
    }

    #[track_caller]
    fn drawn<T: Float>(self, shape: &Shape, fill: &'static DrawnFill) -> Result<Array<T>> {
        let array = self.filled(shape, fill.draws, &fill.fill, &fill.make)?;
        Ok(Array::from_erased(array))
    }

    #[track_caller]
    fn filled(
        mut self,
        shape: &Shape,
        (sequence, words): (u32, usize),
        of: &'static FillOf,
        make: &dyn Fn(Draws, TakeFill<'_>),
    ) -> Result<AnyArray> {
        // Numbers are drawn only after the memory of the array is allocated.
        let device = Device::current();
        let mut drawn = None;
        let array = generate(&device, of, shape, &mut |count, give| {
            make(self.advance(sequence, count, words), &mut |fill| {
                drawn = is_live().then(|| fill.boxed());
                give(fill);
            });
        })?;
        let Some(fill) = drawn else {
            return Ok(array);
        };
        let shape = *shape;
        let again = move || generate(&device, of, &shape, &mut |_, give| give(&*fill));
        Ok(with_source(array, again))
    }

    #[track_caller]
    fn uniform<T: Float>(self, shape: &Shape) -> Result<Array<T>> {
        self.drawn(shape, uniform_fill::<T>())
    }

    #[track_caller]
    fn normal<T: Float>(self, shape: &Shape) -> Result<Array<T>> {
        self.drawn(shape, normal_fill::<T>())
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
        let kept = T::from_f64(1.0 / (1.0 - p)).to_f64();
        if p < 1.0 && !kept.is_finite() {
            let text = format!(
                "dropout_mask: the probability is {p}, expected a probability whose factor 1 / (1 - p) \
                 is finite in {}",
                T::NAME
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        self.array(shape, (UNIFORM, 1), |draws| Dropout::new(draws, p))
    }
}

/// Returns a new array of `shape`. After its memory is allocated, calls `draw` with the number of
/// elements. `draw` passes the fill of the elements to its second argument.
#[track_caller]
fn generate(
    device: &Device,
    of: &'static FillOf,
    shape: &Shape,
    draw: Draw<'_>,
) -> Result<AnyArray> {
    on_device!(
        device,
        touching & (),
        order => host::generate(order, of.dtype, shape, draw),
        {
            let mut operands = |count: usize| {
                let mut operands = Vec::new();
                draw(count, &mut |fill| fill.operands(&mut |bits| operands.push(bits)));
                operands
            };
            cuda::generate(order, &of.kernels, shape, &mut operands)
        }
    )
}

#[track_caller]
fn check_probability(operation: &str, p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!("{operation}: the probability is {p}, expected 0 to 1"),
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
    /// [`InvalidShape`](ErrorKind::InvalidShape) if the rank is above 8 or the size overflows.
    /// [`OutOfMemory`](ErrorKind::OutOfMemory) if the device has no memory for the array. If there
    /// is an error, nothing is drawn.
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
    /// Before the rounding to `T`, the relative error of each number is at most 2^-21. For `f64`,
    /// the error is a few units in the last place. The largest magnitude is 6.7, or 8.5 for `f64`.
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
    /// Returns factors that drop elements at random: 0 with the probability `p`, else 1 / (1 − p).
    /// The factors do not change sums on average (Srivastava et al., "Dropout", 2014). Draws from
    /// the calling thread's generator.
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
    /// As for [`rand`](Self::rand). [`InvalidArgument`](ErrorKind::InvalidArgument) if `p` is below
    /// 0, above 1, or so near to 1 that 1 / (1 − p) overflows `T`.
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
    /// Returns integers from `low` to below `high`, from the calling thread's generator. All
    /// integers have exactly equal probabilities (Lemire, "Fast random integer generation in an
    /// interval", 2019).
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
    /// below 0 or above 1.
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
