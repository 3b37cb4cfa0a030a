//! The traits that only floats implement.

use half::{bf16, f16};

use super::progression::FloatSteps;
use super::{AnyElement, Float, sealed};

macro_rules! float {
    ($($type:ident as $bits:ident: $digits:expr, $epsilon:expr;)+) => {
        $(
            impl sealed::Ranked for $type {
                #[inline]
                #[allow(clippy::cast_lossless, reason = "`From` does not exist for every type")]
                fn ordinal(self) -> i64 {
                    let bits = self.to_bits() as $bits;
                    // The bits of negative numbers are mapped to ordinals from 0 downwards,
                    // starting at −0.
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
                type Steps = FloatSteps;

                fn steps(start: Self, stop: Self, step: Self) -> Option<(FloatSteps, usize)> {
                    FloatSteps::before(start, stop, step)
                }

                #[inline]
                fn nth(steps: &FloatSteps, index: usize) -> Self {
                    steps.nth(index)
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
