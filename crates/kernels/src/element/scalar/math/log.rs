//! Logarithms: x = m·2^k with m from √½ to √2, and a series for ln m.

use std::f64::consts::{LOG2_E, LOG10_2, LOG10_E};

use super::polynomial;
use crate::element::scalar::pass::{Pass, multiply_add};

/// ln 2 as a sum of two numbers. The first number has 9 bits.
const LN_2_F32: (f32, f32) = (0.693_359_4, -0.000_212_194_44);
/// ln 2 as a sum of two numbers. The first number has 33 bits.
const LN_2_F64: (f64, f64) = (0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10);

/// Sets the special values of logarithms to every base: −∞ for 0, ∞ for ∞, and NaN for negative
/// numbers and NaN.
#[inline(always)]
fn special<A: num_traits::Float>(x: A, y: A) -> A {
    let y = if x > A::zero() { y } else { A::nan() };
    let y = if x == A::zero() { A::neg_infinity() } else { y };
    if x == A::infinity() { x } else { y }
}

#[inline(always)]
pub(in crate::element::scalar::math) fn ln_f32<L: Pass>(_pass: &mut L, x: f32) -> f32 {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits();
    let k = (bits.wrapping_sub(SQRT_HALF) as i32) >> 23;
    let f = f32::from_bits(bits.wrapping_sub((k as u32) << 23)) - 1.0;
    let k = k as f32 - if tiny { 23.0 } else { 0.0 };
    let square = f * f;
    let p = polynomial!(
        L, f;
        0.333_333_13, -0.250_000_12, 0.200_020_75, -0.166_678_55, 0.142_201_9, -0.124_081_75,
        0.118_865_5, -0.116_609_275, 0.067_325_145
    );
    let low = multiply_add::<L, _>(p, f * square, k * LN_2_F32.1);
    let y = f + multiply_add::<L, _>(square, -0.5, low);
    special(x, multiply_add::<L, _>(k, LN_2_F32.0, y))
}

/// Returns m and k with x = m·2^k, for x > 0.
#[inline(always)]
fn split(x: f64) -> (f64, f64) {
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    const FRACTION: u64 = 0x000f_ffff_ffff_ffff;
    /// 2^52. From 2^52 on, the lowest bits of a number hold an integer.
    const WHOLE: f64 = 4_503_599_627_370_496.0;
    let tiny = x < f64::MIN_POSITIVE;
    let scaled = if tiny {
        x * 18_014_398_509_481_984.0
    } else {
        x
    };
    let shifted = scaled.to_bits().wrapping_add(ONE - SQRT_HALF);
    let m = f64::from_bits((shifted & FRACTION).wrapping_add(SQRT_HALF));
    let biased = f64::from_bits((shifted >> 52) | WHOLE.to_bits());
    let k = biased - (WHOLE + 1023.0) - if tiny { 54.0 } else { 0.0 };
    (m, k)
}

/// Returns h and t with ln(1 + f) = f − (h − t), where h is f² / 2. The series is 2 · artanh(s)
/// with s = f / (2 + f). Its terms are arranged as in Sun's fdlibm, so that the leading terms are
/// exact.
#[inline(always)]
fn series<L: Pass>(f: f64) -> (f64, f64) {
    let s = f / (2.0 + f);
    let z = s * s;
    let p = polynomial!(
        L, z;
        0.666_666_666_666_673_4, 0.399_999_999_994_170_63, 0.285_714_287_418_884_55,
        0.222_221_986_219_841_85, 0.181_835_618_931_064_76, 0.153_141_105_406_346_43,
        0.147_953_693_603_279_73
    );
    let half_square = 0.5 * f * f;
    (half_square, s * multiply_add::<L, _>(z, p, half_square))
}

/// Returns ln x + `lost` for 0 < x < ∞. `lost` is a small correction.
#[inline(always)]
fn ln_corrected<L: Pass>(x: f64, lost: f64) -> f64 {
    let (m, k) = split(x);
    let f = m - 1.0;
    let (half_square, rest) = series::<L>(f);
    let low = rest + multiply_add::<L, _>(k, LN_2_F64.1, lost);
    multiply_add::<L, _>(k, LN_2_F64.0, f - (half_square - low))
}

#[inline(always)]
pub(in crate::element::scalar::math) fn ln_f64<L: Pass>(_pass: &mut L, x: f64) -> f64 {
    special(x, ln_corrected::<L>(x, 0.0))
}

#[inline(always)]
pub(in crate::element::scalar::math) fn log1p_f64<L: Pass>(_pass: &mut L, x: f64) -> f64 {
    let sum = 1.0 + x;
    // `lost` is the rounding error of the sum (Knuth's two-sum). Either summand may be the larger
    // one.
    let part = sum - 1.0;
    let lost = (1.0 - (sum - part)) + (x - part);
    let y = special(sum, ln_corrected::<L>(sum, lost / sum));
    // If x is zero, the function returns x with its sign.
    if x == 0.0 { x } else { y }
}

#[inline(always)]
pub(in crate::element::scalar::math) fn log1p_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    log1p_f64(pass, f64::from(x)) as f32
}

/// Returns the logarithm to base 2 of x ≥ 0.
#[inline(always)]
pub(in crate::element::scalar::math) fn log2_f64<L: Pass>(_pass: &mut L, x: f64) -> f64 {
    let (m, k) = split(x);
    let f = m - 1.0;
    let (half_square, rest) = series::<L>(f);
    let ln = f - (half_square - rest);
    special(x, multiply_add::<L, _>(ln, LOG2_E, k))
}

#[inline(always)]
pub(in crate::element::scalar::math) fn log2_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    log2_f64(pass, f64::from(x)) as f32
}

#[inline(always)]
pub(in crate::element::scalar::math) fn log10_f32<L: Pass>(_pass: &mut L, x: f32) -> f32 {
    let x = f64::from(x);
    let (m, k) = split(x);
    let f = m - 1.0;
    let (half_square, rest) = series::<L>(f);
    let ln = f - (half_square - rest);
    special(x, multiply_add::<L, _>(ln, LOG10_E, k * LOG10_2)) as f32
}
