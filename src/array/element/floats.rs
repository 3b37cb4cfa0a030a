//! The traits of floats alone.

use half::{bf16, f16};

use super::{AnyElement, Float, sealed};

macro_rules! float {
    ($($type:ident as $bits:ident: $digits:expr, $epsilon:expr;)+) => {
        $(
            impl sealed::Ranked for $type {
                #[inline]
                #[allow(clippy::cast_lossless, reason = "`From` does not exist for every type")]
                fn ordinal(self) -> i64 {
                    let bits = self.to_bits() as $bits;
                    // Magnitudes count downwards from the negative zero.
                    (if bits < 0 { $bits::MIN.wrapping_sub(bits) } else { bits }) as i64
                }
            }

            impl Float for $type {
                type Computed = <Self as AnyElement>::Accumulator;

                const MANTISSA_DIGITS: u32 = $digits;

                #[inline]
                fn epsilon() -> Self {
                    $epsilon
                }
            }

            impl sealed::Progression for $type {
                fn count(start: Self, stop: Self, step: Self) -> Option<usize> {
                    let steps = (stop.to_f64() - start.to_f64()) / step.to_f64();
                    // An `as` conversion takes what is below 0 to 0 and what is too large to MAX.
                    (step.to_f64() != 0.0 && !steps.is_nan()).then_some(steps.ceil() as usize)
                }

                #[inline]
                fn nth(start: Self, step: Self, index: usize) -> Self {
                    Self::from_f64(start.to_f64() + index as f64 * step.to_f64())
                }
            }
        )+
    };
}

float! {
    f32 as i32: f32::MANTISSA_DIGITS, f32::EPSILON;
    f64 as i64: f64::MANTISSA_DIGITS, f64::EPSILON;
    f16 as i16: f16::MANTISSA_DIGITS, f16::EPSILON;
    bf16 as i16: bf16::MANTISSA_DIGITS, bf16::EPSILON;
}
