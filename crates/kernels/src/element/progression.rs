//! Ranges of floats: the number of values, and each value computed from its index.
//!
//! Rule: bounds and steps are the decimals that a program wrote. A number of a type that is
//! narrower than `f64` represents the shortest decimal that rounds to it. Therefore a step of 0.1
//! is a tenth in every type. The count is ⌈(stop − start) / step⌉ of these decimals. For `f64`, the
//! count is computed from the binary numbers themselves. Values at the end that round to `stop` or
//! beyond are not counted. If `start` is before `stop`, the count is at least one.

use super::Float;

/// The values `start`, `start + step`, … in `f64`. Each value is multiplied by a factor and divided
/// by a divisor.
#[derive(Clone, Copy, Debug)]
pub struct FloatSteps {
    start: f64,
    step: f64,
    /// The power of ten that multiplies `start` and `step`, or 1.
    factor: f64,
    /// The power of ten that divides `start` and `step`, if they are whole numbers. For other
    /// values, the divisor is 1. If the distance between the bounds overflows, the divisor is 1/2.
    divisor: f64,
}

impl FloatSteps {
    /// Returns the steps, and the number of values before `stop`, at most `usize::MAX`. If the step
    /// is 0 or NaN, or a bound is not finite, returns `None`.
    pub(super) fn before<T: Float>(start: T, stop: T, step: T) -> Option<(Self, usize)> {
        let exact = [start, stop, step].map(T::to_f64);
        let [from, to, by] = exact;
        if by == 0.0 || by.is_nan() || !(from.is_finite() && to.is_finite()) {
            return None;
        }
        let is_before = |value: f64| if by > 0.0 { value < to } else { value > to };
        let decimals = decimals::<T>(exact);
        let (mut steps, floats) =
            Self::in_floats(decimals.map_or(exact, |all| all.map(|it| it.value)));
        if !is_before(from) {
            return Some((steps, 0));
        }
        let mut count = floats;
        if let Some([start, stop, step]) = decimals {
            // `floats` comes from a rounded quotient, so the exact count may be one more.
            count = self::count([start, stop, step]).unwrap_or(floats.saturating_add(1));
            steps = Self::in_whole_numbers(start, step, count).unwrap_or(steps);
        }
        // The values are ordered. The loop searches for the first value that is not before `stop`.
        let (mut first, mut end) = (1, count.max(1));
        while first < end {
            let middle = first + (end - first) / 2;
            if is_before(steps.nth::<T>(middle).to_f64()) {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        Some((steps, first))
    }

    /// Returns the steps in `f64`, and their rounded quotient as a count.
    fn in_floats([from, to, by]: [f64; 3]) -> (Self, usize) {
        // If the distance between the bounds overflows, all values are halved.
        let divisor = if (to - from).is_finite() { 1.0 } else { 0.5 };
        let [start, stop, step] = [from, to, by].map(|value| value * divisor);
        // An `as` conversion saturates, so a number that is too large becomes `usize::MAX`.
        let count = ((stop - start) / step).ceil() as usize;
        let steps = Self {
            start,
            // If the step is infinite, the range has only one value.
            step: if step.is_finite() { step } else { 0.0 },
            factor: 1.0,
            divisor,
        };
        (steps, count)
    }

    /// Returns the steps as integer multiples of a power of ten, if `f64` represents all `count`
    /// multiples. Each value is then the exact decimal, rounded once.
    fn in_whole_numbers(start: Decimal, step: Decimal, count: usize) -> Option<Self> {
        const MOST: u128 = 1 << f64::MANTISSA_DIGITS;
        let ([start, step], exponent) = whole_numbers([start, step])?;
        let length = step.unsigned_abs().checked_mul(count as u128)?;
        // 10⁰ to 10²² are exact in `f64`. For larger exponents, the power is rounded, but no value
        // is halfway between two numbers of the element type.
        let power = |exponent: i32| 10.0_f64.powi(exponent.max(0));
        (length.checked_add(start.unsigned_abs())? <= MOST).then(|| Self {
            start: start as f64,
            step: step as f64,
            factor: power(exponent),
            divisor: power(-exponent),
        })
    }

    /// Returns the value at `index`, rounded once.
    #[inline]
    pub(super) fn nth<T: Float>(&self, index: usize) -> T {
        T::from_f64((self.start + index as f64 * self.step) * self.factor / self.divisor)
    }
}

/// Returns the number of steps from a start to a stop, rounded up. If the decimals overflow as
/// integer multiples of one power of ten, returns `None`.
fn count(decimals: [Decimal; 3]) -> Option<usize> {
    let ([start, stop, step], _) = whole_numbers(decimals)?;
    let distance = stop.checked_sub(start)?.unsigned_abs();
    let count = distance.div_ceil(step.unsigned_abs());
    Some(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Returns decimals as integer multiples of one power of ten, and the exponent of the power.
fn whole_numbers<const N: usize>(decimals: [Decimal; N]) -> Option<([i128; N], i32)> {
    // Zero is a multiple of every power of ten.
    let others = decimals.iter().filter(|decimal| decimal.digits != 0);
    let exponent = others.map(|decimal| decimal.exponent).min()?;
    let mut numbers = decimals.map(|decimal| decimal.digits);
    for (number, decimal) in numbers.iter_mut().zip(decimals) {
        if *number != 0 {
            let power = 10_i128.checked_pow((decimal.exponent - exponent) as u32)?;
            *number = number.checked_mul(power)?;
        }
    }
    Some((numbers, exponent))
}

/// A decimal, and the `f64` nearest to it.
#[derive(Clone, Copy, Debug)]
struct Decimal {
    digits: i128,
    exponent: i32,
    value: f64,
}

impl Decimal {
    /// Returns the shortest decimal that rounds to `exact`, a value of `T`. For an infinity or NaN,
    /// returns `None`.
    fn shortest<T: Float>(exact: f64) -> Option<Self> {
        (0..9).find_map(|places| Self::of_places::<T>(exact, places))
    }

    /// Returns a decimal that rounds to `exact`, with `places` digits after the first digit.
    fn of_places<T: Float>(exact: f64, places: usize) -> Option<Self> {
        let nearest = Self::parse(&format!("{exact:.places$e}"))?;
        // Near a power of two, the nearest decimal may round to the number below `exact`. An
        // adjacent decimal may then round to `exact`.
        [0, 1, -1].into_iter().find_map(|more| {
            let text = format!("{}e{}", nearest.digits + more, nearest.exponent);
            let decimal = Self::parse(&text)?;
            (T::from_f64(decimal.value).to_f64() == exact).then_some(decimal)
        })
    }

    /// Parses a decimal such as `1.25e-7`.
    fn parse(text: &str) -> Option<Self> {
        let (mantissa, exponent) = text.split_once('e')?;
        let places = mantissa
            .split_once('.')
            .map_or(0, |(_, places)| places.len());
        let exponent: i32 = exponent.parse().ok()?;
        Some(Self {
            digits: mantissa.replace('.', "").parse().ok()?,
            exponent: exponent - places as i32,
            value: text.parse().ok()?,
        })
    }
}

/// The maximum number of binary digits of a step that counts as an exact binary number.
const MOST_BITS: u32 = 3;

/// Returns the decimals that a start, a stop and a step represent. If the binary numbers themselves
/// are meant, returns `None`. The binary numbers are meant for `f64` and for infinite steps. They
/// are also meant if the step was not written as a decimal, such as 2⁻²⁰.
fn decimals<T: Float>(exact: [f64; 3]) -> Option<[Decimal; 3]> {
    if T::MANTISSA_DIGITS >= f64::MANTISSA_DIGITS {
        return None;
    }
    let [Some(start), Some(stop), Some(step)] = exact.map(Decimal::shortest::<T>) else {
        return None;
    };
    let decimals = [start, stop, step];
    let by = exact[2];
    let significand = ((by.to_bits() << 12) >> 12) | (1 << 52);
    let bits = f64::MANTISSA_DIGITS - significand.trailing_zeros();
    // A decimal may also be near a short binary number. In this case, the bounds are hardly ever
    // multiples of the binary number.
    let is_binary = bits <= MOST_BITS
        && step.digits.unsigned_abs() >= 10
        && step.value != by
        && decimals
            .iter()
            .zip(exact)
            .all(|(decimal, exact)| decimal.value == exact || exact % by == 0.0);
    (!is_binary).then_some(decimals)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    fn shortest<T: Float>(number: T) -> Option<f64> {
        Some(Decimal::shortest::<T>(number.to_f64())?.value)
    }

    #[test]
    fn numbers_are_the_decimals_that_were_written() {
        fn all<T: Float>(decimals: &[f64]) {
            for &written in decimals {
                for sign in [1.0, -1.0] {
                    let number = T::from_f64(sign * written);
                    assert_eq!(shortest(number), Some(sign * written), "{}", T::NAME);
                }
            }
        }
        let short = [
            0.1, 0.2, 0.3, 0.7, 1.3, 0.05, 0.01, 2e-3, 6e4, 0.5, 3.0, 200.0,
        ];
        all::<f32>(&short);
        all::<f16>(&short);
        all::<bf16>(&short);
        all::<f32>(&[0.123457, 12345.6, 1e11, 1e-30, 3.4e38, 1e-44]);
        all::<f16>(&[12.3, 0.123, 1e-4, 6e-8]);
        all::<bf16>(&[12.0, 0.12, 1e30]);
    }

    #[test]
    fn binary_numbers_stay_themselves() {
        fn stays<T: Float>(step: f64, stop: f64) {
            let taken = decimals::<T>([0.0, stop, step]).map_or(step, |all| all[2].value);
            assert_eq!(taken, step, "{}", T::NAME);
        }
        for power in 1..40 {
            let value = 0.5_f64.powi(power);
            for stop in [1.0, 7.0 * value] {
                stays::<f32>(value, stop);
                stays::<f64>(value, stop);
            }
            stays::<f32>(3.0 * value, 1.0);
            stays::<f32>(-3.0 * value, 33.0 * value);
        }
        for power in 1..14 {
            stays::<f16>(0.5_f64.powi(power), 1.0);
            stays::<bf16>(0.5_f64.powi(power), 1.0);
        }
        assert!(shortest(f32::MAX / 2.0 + f32::MAX / 2.0).is_some_and(f64::is_finite));
        assert_eq!((shortest(f32::NAN), shortest(f16::INFINITY)), (None, None));
    }

    /// Checks the count and the values of a range. If the type does not represent the decimals,
    /// checks nothing and returns `false`.
    fn is_counted<T: Float>(digits: [i64; 3], exponent: i32) -> bool {
        let number = |digits: i64| -> f64 { format!("{digits}e{exponent}").parse().unwrap() };
        let texts = digits.map(number);
        let numbers = texts.map(T::from_f64);
        if texts[2] == 0.0 || numbers.map(shortest) != texts.map(Some) {
            return false;
        }
        let [from, to, by] = digits;
        let is_before = |value: T| match by > 0 {
            true => value < numbers[1],
            false => value > numbers[1],
        };
        let exact = (0..)
            .map(|index| from + index * by)
            .take_while(|digits| (to - digits).signum() == by.signum());
        let exact: Vec<T> = exact.map(|digits| T::from_f64(number(digits))).collect();
        let count = exact.iter().take_while(|value| is_before(**value)).count();
        let [start, stop, step] = numbers;
        let (steps, found) = FloatSteps::before(start, stop, step).unwrap();
        let name = format!("{} {digits:?}e{exponent}", T::NAME);
        assert_eq!(found, count, "{name}");
        let values: Vec<T> = (0..found).map(|index| steps.nth(index)).collect();
        assert_eq!(values, exact[..count], "{name}");
        true
    }

    #[test]
    fn hundredths_are_counted_exactly() {
        fn all<T: Float>(least: usize) {
            let steps = (0..400).flat_map(|start| (1..60).map(move |step| (start, step)));
            let checked = steps.flat_map(|(start, step)| {
                [3, 14, 66].map(|halves| {
                    let (length, other) = (halves * step / 2, 400 - start);
                    let forwards = is_counted::<T>([start, start + length, step], -2);
                    let backwards = is_counted::<T>([other, other - length, -step], -2);
                    usize::from(forwards) + usize::from(backwards)
                })
            });
            let checked: usize = checked.sum();
            assert!(checked >= least, "{}: {checked}", T::NAME);
        }
        all::<f16>(130_000);
        all::<bf16>(40_000);
    }

    #[test]
    fn decimals_of_every_size_are_counted_exactly() {
        const RANGES: [[i64; 3]; 8] = [
            [3, 0, -1],
            [-3, 0, 1],
            [30, 0, -3],
            [-30, 0, 3],
            [0, 12, 4],
            [20, -20, -5],
            [7, 22, 5],
            [11, 99, 8],
        ];
        fn all<T: Float>(least: usize) {
            let powers = (-306..307).flat_map(|power| RANGES.map(|digits| (digits, power)));
            let checked = powers.filter(|(digits, power)| is_counted::<T>(*digits, *power));
            let checked = checked.count();
            assert!(checked >= least, "{}: {checked}", T::NAME);
        }
        all::<f32>(600);
        all::<f16>(60);
        all::<bf16>(500);
    }

    #[test]
    fn ranges_of_many_digits() {
        fn length<T: Float>(start: f64, stop: f64, step: f64) -> usize {
            let [start, stop, step] = [start, stop, step].map(T::from_f64);
            FloatSteps::before(start, stop, step).unwrap().1
        }
        for (count, expected) in [
            (length::<bf16>(1.06, 1.16, 0.01), 10),
            (length::<bf16>(1.09, 1.12, 0.01), 3),
            (length::<bf16>(1.16, 1.17, 0.01), 1),
            (length::<f16>(20.47, 20.8, 0.01), 32),
            (length::<f32>(7.86438, 7.9517, 0.02183), 4),
            (length::<f32>(3e37, 0.0, -1e37), 3),
            (length::<f32>(-3e-29, 0.0, 3e-30), 10),
            // The stop is too near zero to share a power of ten with the start.
            (length::<f32>(-0.3, 1e-40, 0.1), 4),
            (length::<f32>(-0.3, -1e-40, 0.1), 3),
            // A value that rounds to the stop is not counted.
            (length::<f64>(0.0, 1.0, 1.0 / 3.0), 3),
            (length::<f64>(0.0, 1.0, 1.0 / 48.0), 48),
            (length::<f64>(0.0, 0.1 + 0.2, 0.1), 3),
        ] {
            assert_eq!(count, expected);
        }
    }
}
