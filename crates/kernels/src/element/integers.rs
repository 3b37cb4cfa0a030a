//! The traits that only integers implement.

use super::{Bitwise, Integer, sealed};

macro_rules! integer {
    ($($type:ident)+) => {
        $(
            impl Integer for $type {}

            impl Bitwise for $type {}

            #[allow(clippy::cast_lossless, reason = "`From` does not exist for every type")]
            impl sealed::Whole for $type {
                #[inline]
                fn distance(low: Self, high: Self) -> Option<u64> {
                    let steps = u64::try_from(i128::from(high) - i128::from(low));
                    steps.ok().filter(|&steps| steps > 0)
                }

                #[inline(always)]
                fn higher(self, steps: u64) -> Self {
                    self.wrapping_add(steps as $type)
                }

                #[inline(always)]
                #[allow(clippy::cast_lossless, reason = "lossy for some of the types")]
                fn shifted_left(self, count: Self) -> Self {
                    self.wrapping_shl(count as u32)
                }

                #[inline(always)]
                #[allow(clippy::cast_lossless, reason = "lossy for some of the types")]
                fn shifted_right(self, count: Self) -> Self {
                    self.wrapping_shr(count as u32)
                }

                #[inline(always)]
                #[allow(clippy::cast_lossless, reason = "lossy for some of the types")]
                fn left_shift(self, places: Self) -> Self {
                    // The conversion to `u64` makes a negative `places` large.
                    if (places as u64) < $type::BITS as u64 {
                        self.wrapping_shl(places as u32)
                    } else {
                        0
                    }
                }

                #[inline(always)]
                #[allow(clippy::cast_lossless, reason = "lossy for some of the types")]
                fn right_shift(self, places: Self) -> Self {
                    let most = $type::BITS as u64 - 1;
                    let shifted = self.wrapping_shr((places as u64).min(most) as u32);
                    // If `places` is at least the number of bits, the result is 0 for an unsigned
                    // number. For a signed number, the result is 0 or −1, according to the sign.
                    if $type::MIN == 0 && places as u64 > most { 0 } else { shifted }
                }

                #[inline(always)]
                #[allow(unused_comparisons, reason = "half of the types have no sign")]
                #[allow(clippy::cast_lossless, reason = "`From` does not exist for every type")]
                fn power(self, exponent: Self) -> Self {
                    if exponent < 0 {
                        let is_unit = self == 1 || self.wrapping_add(1) == 0;
                        return if !is_unit {
                            0
                        } else if exponent & 1 == 0 {
                            1
                        } else {
                            self
                        };
                    }
                    let (mut rest, mut square, mut product) = (exponent, self, 1 as $type);
                    while rest != 0 {
                        product = product.wrapping_mul(if rest & 1 == 0 { 1 } else { square });
                        square = square.wrapping_mul(square);
                        rest >>= 1;
                    }
                    product
                }
            }

            impl sealed::Progression for $type {
                type Steps = (Self, Self);

                fn steps(start: Self, stop: Self, step: Self) -> Option<((Self, Self), usize)> {
                    let steps = (start, step);
                    // `i128` is wide enough for the distance between any two 64-bit integers.
                    let (span, step) = (i128::from(stop) - i128::from(start), i128::from(step));
                    if step == 0 {
                        return None;
                    }
                    if span.signum() != step.signum() {
                        return Some((steps, 0));
                    }
                    let count = span.unsigned_abs().div_ceil(step.unsigned_abs());
                    Some((steps, usize::try_from(count).unwrap_or(usize::MAX)))
                }

                #[inline]
                fn nth(&(start, step): &(Self, Self), index: usize) -> Self {
                    // Every intermediate value is exact modulo the type's range, and the result is
                    // within the range.
                    start.wrapping_add((index as $type).wrapping_mul(step))
                }
            }
        )+
    };
}

integer!(i8 i16 i32 i64 u8 u16 u32 u64);
