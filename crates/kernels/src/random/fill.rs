//! Fills of arrays with random numbers. An element depends only on the random words at its
//! position.
//!
//! Each type of this module computes a part of an array on the host. The CUDA source next to this
//! file computes the part on a GPU. A part does not depend on earlier parts.

use super::Fill;
use super::philox::{Draws, number};
use super::{normal, single};
use crate::blocks::RUN;
use crate::element::plain::bits_of;
use crate::element::scalar::convert;
use crate::{Float, Integer};

const DRAWS: &str = include_str!("draws.cuh");
const TRUTH: &str = include_str!("truth.cuh");

/// Returns the number of random words that one element of `T` needs.
pub const fn words_of<T: Float>() -> usize {
    if T::MANTISSA_DIGITS > 32 { 2 } else { 1 }
}

/// Uniform numbers in `0.0..1.0`.
#[derive(Clone, Copy, Debug)]
pub struct Uniform(pub Draws);

impl<T: Float> Fill<T> for Uniform {
    const NAME: &'static str = "rand";
    const CUDA: &'static [&'static str] = &[DRAWS, include_str!("uniform.cuh")];

    fn operands(&self, visit: &mut dyn FnMut(u64)) {
        self.0.operands(visit);
    }

    #[inline(always)]
    fn fill(&self, start: usize, part: &mut [T]) {
        let mut words = [0; 2 * RUN];
        let size = words_of::<T>();
        let draws = self.0.after(start * size);
        draws.write(&mut words[..part.len() * size]);
        if size == 1 {
            for (value, &word) in part.iter_mut().zip(&words) {
                *value = uniform(word);
            }
        } else {
            for (value, &pair) in part.iter_mut().zip(words.as_chunks().0) {
                *value = uniform_wide(pair);
            }
        }
    }
}

/// Converts a random word to a multiple of the spacing of numbers just below one. Therefore no
/// result rounds up to one.
#[inline(always)]
fn uniform<T: Float>(word: u32) -> T {
    // An `f32` and an `i32` represent up to 24 digits exactly. The reciprocal of `steps` is exact,
    // too.
    let steps = (1u32 << T::MANTISSA_DIGITS.min(24)) as f32;
    let step = (word >> (u32::BITS - T::MANTISSA_DIGITS.min(24))) as i32;
    convert(step as f32 * (1.0 / steps))
}

#[inline(always)]
fn uniform_wide<T: Float>([low, high]: [u32; 2]) -> T {
    let digits = T::MANTISSA_DIGITS;
    let step = digits_of(low >> (u64::BITS - digits), high, digits);
    convert(step * (1.0 / (1u64 << digits) as f64))
}

/// Concatenates the binary digits of `high` and `low` to an integer of `digits` digits. The result
/// is exact for up to 53 digits.
#[inline(always)]
fn digits_of(low: u32, high: u32, digits: u32) -> f64 {
    double(high) * f64::from(1u32 << (digits - u32::BITS)) + f64::from(low as i32)
}

/// Converts a random word to an `f64` through a signed integer. Vector instructions convert only
/// signed integers.
#[inline(always)]
fn double(word: u32) -> f64 {
    f64::from((word ^ 0x8000_0000) as i32) + f64::from(1u32 << 31)
}

/// Standard normal numbers. Draws 2k and 2k + 1 of the sequence determine elements 2k and 2k + 1.
#[derive(Clone, Copy, Debug)]
pub struct Normal(pub Draws);

impl<T: Float> Fill<T> for Normal {
    const NAME: &'static str = "randn";
    const CUDA: &'static [&'static str] = if words_of::<T>() == 1 {
        &[DRAWS, include_str!("single.cuh")]
    } else {
        &[DRAWS, include_str!("normal.cuh")]
    };

    fn operands(&self, visit: &mut dyn FnMut(u64)) {
        self.0.operands(visit);
    }

    #[inline(always)]
    fn fill(&self, start: usize, part: &mut [T]) {
        if words_of::<T>() == 1 {
            self.pairs(start, part, single::normals);
        } else {
            self.pairs(start, part, |[low, high, next_low, next_high]| {
                let first = open_uniform_wide([low, high]);
                normal::normals(first, open_uniform_wide([next_low, next_high]))
            });
        }
    }
}

impl Normal {
    /// Fills a part. `pair` computes two elements from their random words.
    #[inline(always)]
    fn pairs<T: Float, V: Float, const WORDS: usize>(
        self,
        start: usize,
        part: &mut [T],
        pair: impl Fn([u32; WORDS]) -> [V; 2],
    ) {
        // The arrays have space for one more pair, because a part may begin and end inside a pair.
        let mut words = [0; 2 * RUN + 8];
        let mut values = [[V::zero(); 2]; RUN / 2 + 1];
        let size = WORDS / 2;
        let (pairs, begun) = self.0.after(start * size).align(WORDS);
        let skipped = begun / size;
        let count = (skipped + part.len()).div_ceil(2);
        pairs.write(&mut words[..WORDS * count]);
        let values = &mut values[..count];
        for (values, drawn) in values.iter_mut().zip(words.as_chunks::<WORDS>().0) {
            *values = pair(*drawn);
        }
        let values = values.as_flattened()[skipped..].iter();
        for (slot, &value) in part.iter_mut().zip(values) {
            *slot = convert(value);
        }
    }
}

/// Returns a number between 0 and 1, excluding 0 and 1, so that its logarithm is finite.
#[inline(always)]
fn open_uniform_wide([low, high]: [u32; 2]) -> f64 {
    // One binary digit of an `f64` is reserved for the added 0.5.
    let digits = f64::MANTISSA_DIGITS - 1;
    let step = digits_of(low >> (u64::BITS - digits), high, digits);
    (step + 0.5) * (1.0 / (1u64 << digits) as f64)
}

/// Returns an integer below `bound` with uniform probability, from two random words. `place`
/// returns the position of the words. If the words would bias the result, they are refused, and new
/// words are drawn at this position. Source: Lemire, "Fast random integer generation in an
/// interval", 2019.
#[inline(always)]
pub fn below(words: [u32; 2], bound: u64, place: impl FnOnce() -> Draws) -> u64 {
    let (steps, low) = product(number(words[0], words[1]), bound);
    if low < bound {
        return of_many(steps, low, bound, place());
    }
    steps
}

/// Returns the upper and the lower half of the product. The upper half is an integer below `bound`.
/// The lower half shows whether the draw may be biased.
#[inline(always)]
fn product(draw: u64, bound: u64) -> (u64, u64) {
    let product = u128::from(draw) * u128::from(bound);
    ((product >> 64) as u64, product as u64)
}

/// Returns the integer of the first draw that is not refused.
#[cold]
#[inline(never)]
fn of_many(mut steps: u64, mut low: u64, bound: u64, place: Draws) -> u64 {
    // Every integer must result from an equal number of draws, so the surplus draws are refused.
    let refused = bound.wrapping_neg() % bound;
    let mut refusals = 0;
    while low < refused {
        refusals += 1;
        (steps, low) = product(place.pair(refusals), bound);
    }
    steps
}

/// Integers from `low` to `low + bound`, exclusive, with uniform probability.
#[derive(Clone, Copy, Debug)]
pub struct Below<T> {
    pub draws: Draws,
    pub low: T,
    /// The number of possible integers, which is not 0.
    pub bound: u64,
}

impl<T: Integer> Fill<T> for Below<T> {
    const NAME: &'static str = "randint";
    const CUDA: &'static [&'static str] = &[DRAWS, include_str!("below.cuh")];

    fn operands(&self, visit: &mut dyn FnMut(u64)) {
        self.draws.operands(visit);
        visit(self.bound);
        visit(bits_of(self.low).low());
    }

    #[inline(always)]
    fn fill(&self, start: usize, part: &mut [T]) {
        let mut words = [0; 2 * RUN];
        let draws = self.draws.after(2 * start);
        draws.write(&mut words[..2 * part.len()]);
        for (at, (value, pair)) in part.iter_mut().zip(words.as_chunks().0).enumerate() {
            let steps = below(*pair, self.bound, || draws.after(2 * at));
            *value = self.low.higher(steps);
        }
    }
}

/// Booleans that are `true` with a given probability. An element is `true` if its random words,
/// read as a binary fraction, are below the probability.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    draws: Draws,
    /// The first 32 binary digits of the probability.
    first: u32,
    /// The next 32 binary digits of the probability. Only one element in about 2^32 needs them.
    second: u32,
    /// `true` if the probability is 1.
    is_certain: bool,
}

impl Truth {
    /// Makes the fill. `p` must be between 0 and 1.
    pub fn new(draws: Draws, p: f64) -> Self {
        let digits = (p * 2f64.powi(64)) as u128;
        Self {
            draws,
            first: (digits >> 32) as u32,
            second: digits as u32,
            is_certain: p >= 1.0,
        }
    }

    #[inline(always)]
    fn of(&self, words: &[u32], start: usize, truths: &mut [bool]) {
        let mut is_near = false;
        for (truth, &word) in truths.iter_mut().zip(words) {
            *truth = (word < self.first) | self.is_certain;
            is_near |= word == self.first;
        }
        if is_near && !self.is_certain {
            self.decide(words, start, truths);
        }
    }

    /// Computes the elements whose first 32 digits equal the probability's, from the next 32
    /// digits.
    #[cold]
    #[inline(never)]
    fn decide(&self, words: &[u32], start: usize, truths: &mut [bool]) {
        for (at, (truth, &word)) in truths.iter_mut().zip(words).enumerate() {
            if word == self.first {
                *truth = self.draws.after(start + at).word(1) < self.second;
            }
        }
    }
}

impl Fill<bool> for Truth {
    const NAME: &'static str = "bernoulli";
    const CUDA: &'static [&'static str] = &[DRAWS, TRUTH, include_str!("bernoulli.cuh")];

    fn operands(&self, visit: &mut dyn FnMut(u64)) {
        self.draws.operands(visit);
        visit(u64::from(self.first));
        visit(u64::from(self.second));
        visit(u64::from(self.is_certain));
    }

    #[inline(always)]
    fn fill(&self, start: usize, part: &mut [bool]) {
        let mut words = [0; RUN];
        let words = &mut words[..part.len()];
        self.draws.after(start).write(words);
        self.of(words, start, part);
    }
}

/// Elements that are 0 with a given probability, and otherwise a constant.
#[derive(Clone, Copy, Debug)]
pub struct Dropout<T> {
    is_dropped: Truth,
    kept: T,
}

impl<T: Float> Dropout<T> {
    /// Makes the fill. `p` must be between 0 and 1.
    pub fn new(draws: Draws, p: f64) -> Self {
        Self {
            is_dropped: Truth::new(draws, p),
            kept: T::from_f64(1.0 / (1.0 - p)),
        }
    }
}

impl<T: Float> Fill<T> for Dropout<T> {
    const NAME: &'static str = "dropout_mask";
    const CUDA: &'static [&'static str] = &[DRAWS, TRUTH, include_str!("dropout.cuh")];

    fn operands(&self, visit: &mut dyn FnMut(u64)) {
        self.is_dropped.operands(visit);
        visit(bits_of(self.kept).low());
    }

    #[inline(always)]
    fn fill(&self, start: usize, part: &mut [T]) {
        let mut dropped = [false; RUN];
        let dropped = &mut dropped[..part.len()];
        self.is_dropped.fill(start, dropped);
        for (value, &is_dropped) in part.iter_mut().zip(&*dropped) {
            *value = if is_dropped { T::zero() } else { self.kept };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    fn draws() -> Draws {
        Draws {
            seed: 7,
            sequence: 0,
            start: 0,
        }
    }

    #[test]
    fn the_extreme_words_stay_inside_their_intervals() {
        assert_eq!(uniform::<f32>(0), 0.0);
        assert_eq!(uniform_wide::<f64>([0; 2]), 0.0);
        assert_eq!(uniform_wide::<f64>([u32::MAX; 2]), 1.0f64.next_down());
        assert_eq!(uniform::<f32>(u32::MAX), 1.0f32.next_down());
        assert!(uniform::<f16>(u32::MAX) < f16::ONE);
        assert!(uniform::<bf16>(u32::MAX) < bf16::ONE);
        for number in [[0; 2], [u32::MAX; 2]].map(open_uniform_wide) {
            assert!(0.0 < number && number < 1.0, "{number}");
        }
        let draw = 0xe169_c58d_6627_e8d5u64;
        let steps = (draw >> 11) as f64;
        let words = [draw as u32, (draw >> 32) as u32];
        assert_eq!(uniform_wide::<f64>(words), steps / 2f64.powi(53));
    }

    #[test]
    fn a_refused_draw_is_repeated_at_its_position() {
        // With this bound, almost half of all draws are refused.
        let bound = (1 << 63) + 1;
        let filled = Below {
            draws: draws(),
            low: 0u64,
            bound,
        };
        let mut whole = [0; RUN];
        filled.fill(0, &mut whole);
        let mut refused = 0;
        for (at, &value) in whole.iter().enumerate() {
            let place = draws().after(2 * at);
            let accepted = (0..).map(|refusals| product(place.pair(refusals), bound));
            let (index, (steps, _)) = accepted
                .enumerate()
                .find(|(_, (_, low))| *low >= bound.wrapping_neg() % bound)
                .unwrap();
            assert_eq!(steps, value);
            assert!(value < bound);
            refused += usize::from(index > 0);
        }
        assert!((RUN / 4..3 * RUN / 4).contains(&refused), "{refused}");
        let mut part = [0; 9];
        filled.fill(100, &mut part);
        assert_eq!(part, whole[100..109]);
    }

    #[test]
    fn probabilities_are_exact_to_64_digits() {
        let truth = |p: f64, at: usize, word: u32| {
            let mut truths = [false];
            Truth::new(draws(), p).of(&[word], at, &mut truths);
            truths[0]
        };
        assert!(truth(1.0, 0, u32::MAX) && truth(1.0, 0, 0));
        assert!(!truth(0.0, 0, 0));
        assert!(truth(0.5, 0, (1 << 31) - 1) && !truth(0.5, 0, 1 << 31));
        // If the first 32 digits are equal, the next 32 digits decide.
        let next = f64::from(draws().after(5).word(1)) / 2f64.powi(64);
        assert!(!truth(next, 5, 0));
        assert!(truth(next + 2f64.powi(-64), 5, 0));
    }
}
