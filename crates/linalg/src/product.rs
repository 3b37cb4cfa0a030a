//! The product of pivots without intermediate overflow.

/// Returns the product of `factors`, negated if `swaps` is odd. If the result neither overflows nor
/// underflows, no intermediate value does. Factors after a zero are ignored, because the
/// factorization divided them by this zero.
pub fn product(swaps: usize, factors: impl Iterator<Item = f64>) -> f64 {
    let (mut product, mut exponent) = (if swaps.is_multiple_of(2) { 1.0 } else { -1.0 }, 0_i64);
    for factor in factors {
        let (fraction, power) = split(factor);
        let (fraction, carry) = split(product * fraction);
        (product, exponent) = (fraction, exponent + power + carry);
        if factor == 0.0 {
            break;
        }
    }
    scaled(product, exponent)
}

const TWO_TO_54: f64 = 18_014_398_509_481_984.0;

/// Returns a fraction in `1/2..1` and an exponent e, where `value` is the fraction times 2^e. For
/// zero, infinities and NaN, the fraction is the value itself.
fn split(value: f64) -> (f64, i64) {
    if value == 0.0 || !value.is_finite() {
        return (value, 0);
    }
    let (value, lifted) = match value.is_normal() {
        true => (value, 0),
        false => (value * TWO_TO_54, 54),
    };
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7FF) as i64 - 1022;
    let fraction = f64::from_bits(bits & !(0x7FF << 52) | 1022 << 52);
    (fraction, exponent - lifted)
}

/// Returns `fraction * 2^exponent`. If the result does not overflow, no intermediate product
/// overflows.
fn scaled(fraction: f64, exponent: i64) -> f64 {
    // Beyond these bounds, the result is infinite or zero.
    let exponent = exponent.clamp(-2200, 2200) as i32;
    let half = exponent / 2;
    let quarter = half / 2;
    let power = |exponent| 2.0_f64.powi(exponent);
    let rest = exponent - half;
    fraction * power(quarter) * power(half - quarter) * power(rest / 2) * power(rest - rest / 2)
}
