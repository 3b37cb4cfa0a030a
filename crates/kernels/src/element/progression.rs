//! Ranges of floats: their number of values, and each value from its position.
//!
//! Rule: bounds and steps are the decimals that a program wrote. For a type of fewer digits than
//! `f64`, a number stands for the shortest decimal that rounds to it. So a step of 0.1 is a tenth
//! in every type. The count is ⌈(stop − start) / step⌉ in `f64`, without the values at the end that
//! round to `stop` or beyond it. It is at least one if `start` is before `stop`.

use std::f64::consts::LOG2_10;

use super::Float;

/// The values `start`, `start + step`, … in `f64`, all divided by one number.
#[derive(Clone, Copy, Debug)]
pub struct FloatSteps {
    start: f64,
    step: f64,
    /// The power of ten that makes whole numbers of decimals; 1/2 if the distance of the bounds
    /// overflows, else 1.
    divisor: f64,
}

impl FloatSteps {
    /// Returns the steps, and the number of values before `stop`, at most `usize::MAX`. Returns
    /// `None` if the step is 0 or NaN, or a bound is not finite.
    pub(super) fn before<T: Float>(start: T, stop: T, step: T) -> Option<(Self, usize)> {
        let [from, to, by] = [start, stop, step].map(decimal::<T>);
        if by == 0.0 || by.is_nan() || !(from.is_finite() && to.is_finite()) {
            return None;
        }
        let is_before = |value: f64, end: f64| if by > 0.0 { value < end } else { value > end };
        // In halves, so that the distance of the bounds does not overflow.
        let divisor = if (to - from).is_finite() { 1.0 } else { 0.5 };
        let [start, stop, step] = [from, to, by].map(|value| value * divisor);
        // An `as` conversion takes what is too large to MAX.
        let count = ((stop - start) / step).ceil() as usize;
        // An infinite step leads to no second value.
        let step = if step.is_finite() { step } else { 0.0 };
        let steps = Self {
            start,
            step,
            divisor,
        };
        if !is_before(from, to) {
            return Some((steps, 0));
        }
        let steps = match T::MANTISSA_DIGITS < f64::MANTISSA_DIGITS {
            true => steps.in_whole_numbers(count).unwrap_or(steps),
            false => steps,
        };
        let limit = T::from_f64(to).to_f64();
        // The values are in order. Searches the first one that does not come before the end.
        let (mut first, mut end) = (1, count.max(1));
        while first < end {
            let middle = first + (end - first) / 2;
            if is_before(steps.nth::<T>(middle).to_f64(), limit) {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        Some((steps, first))
    }

    /// Returns the steps as whole numbers over a power of ten, if `f64` represents all of `count`
    /// values: each is the exact decimal, rounded once.
    fn in_whole_numbers(self, count: usize) -> Option<Self> {
        const MOST: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
        // All powers that `f64` represents exactly.
        let mut powers = (0..=22).map(|power| 10.0_f64.powi(power));
        powers.find_map(|divisor| {
            let whole = |value: f64| {
                let whole = (value * divisor).round();
                (whole.abs() <= MOST && whole / divisor == value).then_some(whole)
            };
            let (start, step) = (whole(self.start)?, whole(self.step)?);
            let largest = start.abs() + step.abs() * count as f64;
            let steps = Self {
                start,
                step,
                divisor,
            };
            (self.divisor == 1.0 && largest <= MOST).then_some(steps)
        })
    }

    /// Returns the value at `index`, rounded once.
    #[inline]
    pub(super) fn nth<T: Float>(&self, index: usize) -> T {
        T::from_f64((self.start + index as f64 * self.step) / self.divisor)
    }
}

/// The digits by which a binary number must be shorter than its shortest decimal to be taken
/// exactly.
const CLEARLY_SHORTER: u32 = 3;

/// Returns the shortest decimal that rounds to `value`. A number of clearly fewer binary digits,
/// such as 2⁻²⁰, was not written as that decimal: it stays itself.
fn decimal<T: Float>(value: T) -> f64 {
    let exact = value.to_f64();
    let is_whole =
        exact.fract() == 0.0 && exact.abs() <= f64::from(1u32 << T::MANTISSA_DIGITS.min(31));
    if T::MANTISSA_DIGITS >= f64::MANTISSA_DIGITS || !exact.is_finite() || is_whole {
        return exact;
    }
    let Some((decimal, digits)) = (1..=17).find_map(|digits| {
        let decimal = of_digits::<T>(exact, digits)?;
        Some((decimal, digits))
    }) else {
        return exact;
    };
    // Every number of a narrower type is a normal `f64`.
    let significand = ((exact.to_bits() << 12) >> 12) | (1 << 52);
    let bits = f64::MANTISSA_DIGITS - significand.trailing_zeros();
    if f64::from(bits + CLEARLY_SHORTER) < f64::from(digits) * LOG2_10 {
        return exact;
    }
    decimal
}

/// Returns a decimal of as many significant digits that rounds to `exact`, which is a `T`.
fn of_digits<T: Float>(exact: f64, digits: u32) -> Option<f64> {
    let places = digits as usize - 1;
    let text = format!("{exact:.places$e}");
    let (mantissa, exponent) = text.split_once('e')?;
    let whole: i64 = mantissa.replace('.', "").parse().ok()?;
    let exponent: i64 = exponent.parse().ok()?;
    // Beside a power of two, the nearest decimal may round to the number below, and the next one
    // to this number.
    [0, 1, -1].into_iter().find_map(|more| {
        let text = format!("{}e{}", whole + more, exponent - places as i64);
        let decimal: f64 = text.parse().ok()?;
        (T::from_f64(decimal).to_f64() == exact).then_some(decimal)
    })
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn numbers_are_the_decimals_that_were_written() {
        fn all<T: Float>(decimals: &[f64]) {
            for &written in decimals {
                for sign in [1.0, -1.0] {
                    let value = decimal(T::from_f64(sign * written));
                    assert_eq!(value, sign * written, "{}", T::NAME);
                }
            }
        }
        let short = [
            0.1, 0.2, 0.3, 0.7, 1.3, 0.05, 0.01, 2e-3, 6e4, 0.5, 3.0, 200.0,
        ];
        all::<f32>(&short);
        all::<f64>(&short);
        all::<f16>(&short);
        all::<bf16>(&short);
        all::<f32>(&[0.123457, 12345.6, 1e11, 1e-30, 3.4e38, 1e-44]);
        all::<f16>(&[12.3, 0.123, 1e-4, 6e-8]);
        all::<bf16>(&[12.0, 0.12, 1e30]);
    }

    #[test]
    fn binary_numbers_stay_themselves() {
        for power in 1..40 {
            let value = 0.5_f32.powi(power);
            assert_eq!(decimal(value), f64::from(value), "2^-{power}");
            assert_eq!(
                decimal(3.0 * value),
                f64::from(3.0 * value),
                "3 * 2^-{power}"
            );
        }
        for power in 1..14 {
            let value = 0.5_f64.powi(power);
            assert_eq!(decimal(f16::from_f64(value)), value, "2^-{power}");
            assert_eq!(decimal(bf16::from_f64(value)), value, "2^-{power}");
        }
        assert!(decimal(f32::MAX / 2.0 + f32::MAX / 2.0).is_finite());
        assert!(decimal(f32::NAN).is_nan() && decimal(f16::INFINITY).is_infinite());
    }
}
