//! What elements are made of the words at their positions.
//!
//! Each type here computes a part of an array; all it needs of what comes before is the part's position.

use super::normal::normals;
use super::philox::{Draws, number};
use crate::array::scalar::convert;
use crate::array::{Float, Integer};
use crate::ops::host::{Fill, RUN};

/// How many words a draw for one element of `T` has.
pub(super) const fn words_of<T: Float>() -> usize {
    if T::MANTISSA_DIGITS > 32 { 2 } else { 1 }
}

/// The words of `part` elements of `words` words each, from element `start` on.
#[inline(always)]
fn drawn<const ROOM: usize>(draws: Draws, first: usize, count: usize, room: &mut [u32; ROOM]) {
    draws.after(first).write(&mut room[..count]);
}

/// Numbers in `0.0..1.0`.
#[derive(Clone, Copy)]
pub(super) struct Uniform(pub(super) Draws);

impl<T: Float> Fill<T> for Uniform {
    #[inline(always)]
    fn fill(&self, start: usize, part: &mut [T]) {
        let mut words = [0; 2 * RUN];
        let size = words_of::<T>();
        drawn(self.0, start * size, part.len() * size, &mut words);
        if size == 1 {
            for (value, &word) in part.iter_mut().zip(&words) {
                *value = uniform(word);
            }
        } else {
            for (value, pair) in part.iter_mut().zip(words.as_chunks::<2>().0) {
                *value = uniform_wide(number(pair[0], pair[1]));
            }
        }
    }
}

/// A multiple of the spacing just below one, so that none rounds up to it.
#[inline(always)]
fn uniform<T: Float>(word: u32) -> T {
    // At most 24 digits, which an `f32` and an `i32` hold, and its reciprocal exactly.
    let steps = (1u32 << T::MANTISSA_DIGITS.min(24)) as f32;
    let step = (word >> (u32::BITS - T::MANTISSA_DIGITS.min(24))) as i32;
    convert(step as f32 * (1.0 / steps))
}

#[inline(always)]
fn uniform_wide<T: Float>(draw: u64) -> T {
    let steps = (1u64 << T::MANTISSA_DIGITS) as f64;
    let step = (draw >> (u64::BITS - T::MANTISSA_DIGITS)) as i64;
    convert(step as f64 * (1.0 / steps))
}

/// Standard normal numbers: draws 2k and 2k + 1 make elements 2k and 2k + 1 of the sequence.
#[derive(Clone, Copy)]
pub(super) struct Normal(pub(super) Draws);

impl<T: Float> Fill<T> for Normal {
    #[inline(always)]
    fn fill(&self, start: usize, part: &mut [T]) {
        // One more pair, because a part may begin and end inside one.
        let mut words = [0; 2 * RUN + 8];
        let mut values = [[0.0; 2]; RUN / 2 + 1];
        let size = words_of::<T>();
        let (pairs, begun) = self.0.after(start * size).align(2 * size);
        let skipped = begun / size;
        let count = (skipped + part.len()).div_ceil(2);
        drawn(pairs, 0, 2 * size * count, &mut words);
        let values = &mut values[..count];
        if size == 1 {
            for (pair, drawn) in values.iter_mut().zip(words.as_chunks::<2>().0) {
                *pair = normals(open_uniform(drawn[0]), open_uniform(drawn[1]));
            }
        } else {
            for (pair, drawn) in values.iter_mut().zip(words.as_chunks::<4>().0) {
                let first = open_uniform_wide(number(drawn[0], drawn[1]));
                let second = open_uniform_wide(number(drawn[2], drawn[3]));
                *pair = normals(first, second);
            }
        }
        let values = values.as_flattened()[skipped..].iter();
        for (slot, &value) in part.iter_mut().zip(values) {
            *slot = convert(value);
        }
    }
}

/// A number between 0 and 1, neither of them included, so that its logarithm is finite.
#[inline(always)]
fn open_uniform(word: u32) -> f64 {
    // By way of a signed number, of which vectors make doubles.
    let centred = f64::from((word ^ 0x8000_0000) as i32);
    (centred + (f64::from(1u32 << 31) + 0.5)) * (1.0 / (1u64 << 32) as f64)
}

#[inline(always)]
fn open_uniform_wide(draw: u64) -> f64 {
    // One binary digit of an `f64` is for the half.
    let digits = f64::MANTISSA_DIGITS - 1;
    let step = (draw >> (u64::BITS - digits)) as i64;
    (step as f64 + 0.5) * (1.0 / (1u64 << digits) as f64)
}

/// Integers from `low` to `bound` above it, each as likely as the others (Lemire, "Fast random integer
/// generation in an interval", 2019). A draw that would favour some is refused, and the words at the same
/// place are drawn anew.
#[derive(Clone, Copy)]
pub(super) struct Below<T> {
    draws: Draws,
    low: T,
    bound: u64,
    /// Draws whose product's lower half is below this are refused.
    refused: u64,
}

impl<T: Integer> Below<T> {
    /// `bound` must not be 0.
    pub(super) fn new(draws: Draws, low: T, bound: u64) -> Self {
        Self {
            draws,
            low,
            bound,
            refused: bound.wrapping_neg() % bound,
        }
    }

    #[inline(always)]
    fn product(&self, draw: u64) -> (u64, bool) {
        let product = u128::from(draw) * u128::from(self.bound);
        ((product >> 64) as u64, (product as u64) < self.refused)
    }

    /// The number at a position.
    #[cold]
    #[inline(never)]
    pub(super) fn one(&self, position: usize) -> T {
        let draws = self.draws.after(2 * position);
        let products = (0..).map(|refusals| self.product(draws.pair(refusals)));
        let mut accepted = products.filter(|(_, is_refused)| !is_refused);
        // Half of all draws at most are refused.
        let (steps, _) = accepted.next().unwrap_or_default();
        self.low.higher(steps)
    }
}

impl<T: Integer> Fill<T> for Below<T> {
    #[inline(always)]
    fn fill(&self, start: usize, part: &mut [T]) {
        let mut words = [0; 2 * RUN];
        drawn(self.draws, 2 * start, 2 * part.len(), &mut words);
        let pairs = words.as_chunks::<2>().0.iter();
        for (at, (value, pair)) in part.iter_mut().zip(pairs).enumerate() {
            let (steps, is_refused) = self.product(number(pair[0], pair[1]));
            *value = if is_refused {
                self.one(start + at)
            } else {
                self.low.higher(steps)
            };
        }
    }
}

/// True with some probability: where the words at a place, read as a fraction, are below it.
#[derive(Clone, Copy)]
pub(super) struct Truth {
    draws: Draws,
    /// The first 32 binary digits of the probability; one above all words where it is 1.
    first: u64,
    /// The next 32, which one word in four thousand million needs.
    second: u32,
}

impl Truth {
    /// `p` must be between 0 and 1.
    pub(super) fn new(draws: Draws, p: f64) -> Self {
        let digits = (p * 2f64.powi(64)) as u128;
        Self {
            draws,
            first: (digits >> 32) as u64,
            second: digits as u32,
        }
    }

    #[inline(always)]
    fn one(&self, position: usize, word: u32) -> bool {
        let word = u64::from(word);
        word < self.first || (word == self.first && self.between(position))
    }

    #[cold]
    #[inline(never)]
    fn between(&self, position: usize) -> bool {
        self.draws.after(position).word(1) < self.second
    }
}

impl Fill<bool> for Truth {
    #[inline(always)]
    fn fill(&self, start: usize, part: &mut [bool]) {
        let mut words = [0; RUN];
        drawn(self.draws, start, part.len(), &mut words);
        for (at, (value, &word)) in part.iter_mut().zip(&words).enumerate() {
            *value = self.one(start + at, word);
        }
    }
}

/// 0 with some probability, and a constant otherwise.
#[derive(Clone, Copy)]
pub(super) struct Dropout<T> {
    is_dropped: Truth,
    kept: T,
}

impl<T: Float> Dropout<T> {
    /// `p` must be between 0 and 1.
    pub(super) fn new(draws: Draws, p: f64) -> Self {
        Self {
            is_dropped: Truth::new(draws, p),
            kept: T::from_f64(1.0 / (1.0 - p)),
        }
    }
}

impl<T: Float> Fill<T> for Dropout<T> {
    #[inline(always)]
    fn fill(&self, start: usize, part: &mut [T]) {
        let mut words = [0; RUN];
        drawn(self.is_dropped.draws, start, part.len(), &mut words);
        for (at, (value, &word)) in part.iter_mut().zip(&words).enumerate() {
            let is_dropped = self.is_dropped.one(start + at, word);
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
        assert_eq!(uniform_wide::<f64>(0), 0.0);
        assert_eq!(uniform_wide::<f64>(u64::MAX), 1.0f64.next_down());
        assert_eq!(uniform::<f32>(u32::MAX), 1.0f32.next_down());
        assert!(uniform::<f16>(u32::MAX) < f16::ONE);
        assert!(uniform::<bf16>(u32::MAX) < bf16::ONE);
        for number in [0, u32::MAX].map(open_uniform) {
            assert!(0.0 < number && number < 1.0, "{number}");
        }
        for number in [0, u64::MAX].map(open_uniform_wide) {
            assert!(0.0 < number && number < 1.0, "{number}");
        }
        assert_eq!(open_uniform(1 << 31), 0.5 + 0.5f64.powi(33));
    }

    #[test]
    fn a_refused_draw_is_drawn_anew_where_it_stands() {
        // Almost half of all draws are refused.
        let below = Below::new(draws(), 0u64, (1 << 63) + 1);
        let mut whole = [0; RUN];
        below.fill(0, &mut whole);
        let first = |at: usize| draws().after(2 * at).pair(0);
        let refused = (0..RUN).filter(|&at| below.product(first(at)).1).count();
        assert!((RUN / 4..3 * RUN / 4).contains(&refused), "{refused}");
        for (at, &value) in whole.iter().enumerate() {
            assert_eq!(below.one(at), value);
            assert!(value <= 1 << 63);
        }
        let mut part = [0; 9];
        below.fill(100, &mut part);
        assert_eq!(part, whole[100..109]);
    }

    #[test]
    fn probabilities_are_exact_to_64_digits() {
        let truth = |p| Truth::new(draws(), p);
        assert!(truth(1.0).one(0, u32::MAX));
        assert!(!truth(0.0).one(0, 0));
        let half = truth(0.5);
        assert!(half.one(0, (1 << 31) - 1) && !half.one(0, 1 << 31));
        // Where the first 32 digits are equal, the next ones tell.
        let next = f64::from(draws().after(5).word(1)) / 2f64.powi(64);
        assert!(!truth(next).one(5, 0));
        assert!(truth(next + 2f64.powi(-64)).one(5, 0));
    }
}
