//! Exponentials: x = n·ln 2 + r with a whole n, a polynomial for e^r, and 2^n by its bits.
//!
//! Here and in the neighbouring files, the coefficients are results of Remez's exchange algorithm
//! on the relative error. Each coefficient is rounded in turn, and the coefficients after it are
//! fitted again. Constants that are multiplied by whole numbers are split (Cody and Waite). The
//! products are then exact, with and without a fused multiply-add.

use std::f32::consts::{LN_2, LOG2_E as LOG2_E_F32};
use std::f64::consts::LOG2_E;

use super::polynomial;
use crate::element::scalar::pass::{Pass, multiply_add};

/// A magic number that rounds numbers below 2^22. If it is added to a number, the lowest bits of
/// the sum are the nearest integer.
const MAGIC_F32: f32 = 12_582_912.0;
/// A magic number like [`MAGIC_F32`], for numbers below 2^51 in `f64`.
const MAGIC_F64: f64 = 6_755_399_441_055_744.0;

/// ln 2 as a sum of two numbers. The first number has 9 bits.
const LN_2_F32: (f32, f32) = (0.693_359_4, -0.000_212_194_44);
/// ln 2 as a sum of two numbers. The first number has 33 bits.
const LN_2_F64: (f64, f64) = (0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10);

/// The limit of `f32` arguments. Results become 0 or infinite far within the limit. Beyond the
/// limit, the powers of two would overflow or underflow.
const LIMIT_F32: f32 = 150.0;
const LIMIT_F64: f64 = 1100.0;

/// The factors of e^x = `power` · `first` · `second`. The factors `first` and `second` are powers
/// of two. They do not overflow even if the product does.
struct ExpParts<A> {
    power: A,
    first: A,
    second: A,
}

#[inline(always)]
fn clamp<A: PartialOrd>(x: A, low: A, high: A) -> A {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// Returns 2^n for an integer n that was rounded by adding the magic number.
#[inline(always)]
fn two_to_f32(rounded: f32) -> f32 {
    f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0_f32.to_bits()))
}

#[inline(always)]
fn two_to_f64(rounded: f64) -> f64 {
    f64::from_bits((rounded.to_bits() << 52).wrapping_add(1.0_f64.to_bits()))
}

/// Returns 2^n as two factors that are in range, for an integer n up to [`LIMIT_F32`].
#[inline(always)]
fn powers_of_two_f32<L: Pass>(n: f32) -> (f32, f32) {
    let half = multiply_add::<L, _>(n, 0.5, MAGIC_F32);
    (
        two_to_f32(half),
        two_to_f32(n - (half - MAGIC_F32) + MAGIC_F32),
    )
}

/// Returns y and n + [`MAGIC_F32`] with e^x = y · 2^n, for |x| up to [`LIMIT_F32`].
#[inline(always)]
fn reduced_f32<L: Pass>(x: f32) -> (f32, f32) {
    let rounded = multiply_add::<L, _>(x, LOG2_E_F32, MAGIC_F32);
    let n = rounded - MAGIC_F32;
    let r = multiply_add::<L, _>(n, -LN_2_F32.0, x);
    let r = multiply_add::<L, _>(n, -LN_2_F32.1, r);
    let p = polynomial!(
        L, r; 0.499_999_94, 0.166_665_2, 0.041_668_247, 0.008_368_84, 0.001_382_267_2
    );
    (multiply_add::<L, _>(p, r * r, r) + 1.0, rounded)
}

#[inline(always)]
fn parts_f32<L: Pass>(x: f32) -> ExpParts<f32> {
    let (power, rounded) = reduced_f32::<L>(clamp(x, -LIMIT_F32, LIMIT_F32));
    let (first, second) = powers_of_two_f32::<L>(rounded - MAGIC_F32);
    ExpParts {
        power,
        first,
        second,
    }
}

/// Computes 2^x = 2^n · 2^r, where r = x − n is exact.
#[inline(always)]
pub(in crate::element::scalar::math) fn exp2_f32<L: Pass>(_pass: &mut L, x: f32) -> f32 {
    let x = clamp(x, -LIMIT_F32, LIMIT_F32);
    let n = (x + MAGIC_F32) - MAGIC_F32;
    let r = x - n;
    let p = polynomial!(
        L, r; 0.240_226_48, 0.055_503_614, 0.009_618_483_5, 0.001_339_059_3, 0.000_153_374_47
    );
    let power = multiply_add::<L, _>(r, LN_2, p * (r * r)) + 1.0;
    let (first, second) = powers_of_two_f32::<L>(n);
    power * first * second
}

#[inline(always)]
pub(in crate::element::scalar::math) fn exp_f32<L: Pass>(_pass: &mut L, x: f32) -> f32 {
    let parts = parts_f32::<L>(x);
    parts.power * parts.first * parts.second
}

/// Returns e^x for 0 ≤ x < 80, with fewer operations than [`exp_f32`].
#[inline(always)]
pub(in crate::element::scalar::math) fn exp_of_moderate_f32<L: Pass>(x: f32) -> f32 {
    let (power, rounded) = reduced_f32::<L>(x);
    power * two_to_f32(rounded)
}

/// Computes e / (1 + e) for x < 0, and 1 / (1 + e) for other x. Here e = exp(−|x|), which does not
/// overflow.
#[inline(always)]
pub(in crate::element::scalar::math) fn sigmoid_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    let small = exp_f32(pass, -x.abs());
    let numerator = if x < 0.0 { small } else { 1.0 };
    numerator / (1.0 + small)
}

/// Computes x · sigmoid(x). The last power of two is the last factor. Far below 0, the product of
/// the exponential and x is a normal number, but the exponential alone is subnormal.
#[inline(always)]
pub(in crate::element::scalar::math) fn silu_f32<L: Pass>(_pass: &mut L, x: f32) -> f32 {
    let x = if x < -LIMIT_F32 { -LIMIT_F32 } else { x };
    let parts = parts_f32::<L>(-x.abs());
    let nearly = parts.power * parts.first;
    let below = x < 0.0;
    let numerator = if below { x * nearly } else { x };
    let last = if below { parts.second } else { 1.0 };
    numerator / (1.0 + nearly * parts.second) * last
}

/// The terms of e^x − 1 = `rest` · 2^n + (2^n − 1), for |x| up to [`LIMIT_F64`]. 2^n is `first` ·
/// `second`.
struct WideParts {
    rest: f64,
    first: f64,
    second: f64,
    /// 1 / `second`.
    inverse: f64,
}

#[inline(always)]
fn parts_f64<L: Pass>(x: f64) -> WideParts {
    let x = clamp(x, -LIMIT_F64, LIMIT_F64);
    let n = multiply_add::<L, _>(x, LOG2_E, MAGIC_F64) - MAGIC_F64;
    let r = multiply_add::<L, _>(n, -LN_2_F64.0, x);
    let low = n * LN_2_F64.1;
    let high = r;
    let r = high - low;
    // `lost` is the rounding error of `r`.
    let lost = (high - r) - low;
    let p = expanded::<L>(r);
    let half = multiply_add::<L, _>(n, 0.5, MAGIC_F64);
    let second = n - (half - MAGIC_F64);
    WideParts {
        rest: r + multiply_add::<L, _>(p, r * r, lost),
        first: two_to_f64(half),
        second: two_to_f64(second + MAGIC_F64),
        inverse: two_to_f64(MAGIC_F64 - second),
    }
}

/// Returns (e^r − 1 − r) / r² for |r| ≤ ln 2 / 2.
#[inline(always)]
fn expanded<L: Pass>(r: f64) -> f64 {
    polynomial!(
        L, r;
        0.5, 0.166_666_666_666_666_8, 0.041_666_666_666_666_41, 0.008_333_333_333_319_266,
        0.001_388_888_888_903_634, 0.000_198_412_698_918_476_34, 2.480_158_701_775_590_2e-5,
        2.755_723_871_923_625e-6, 2.755_753_374_108_618e-7, 2.511_086_329_486_782_7e-8,
        2.083_596_301_759_725e-9
    )
}

#[inline(always)]
pub(in crate::element::scalar::math) fn exp_f64<L: Pass>(_pass: &mut L, x: f64) -> f64 {
    let parts = parts_f64::<L>(x);
    (1.0 + parts.rest) * parts.first * parts.second
}

/// Computes 2^x = 2^n · e^(r·ln 2), where r = x − n is exact. `LN_2_LOW` is the rounding error of
/// the constant `LN_2`.
#[inline(always)]
pub(in crate::element::scalar::math) fn exp2_f64<L: Pass>(_pass: &mut L, x: f64) -> f64 {
    const LN_2_LOW: f64 = 2.319_046_813_846_299_6e-17;
    let x = clamp(x, -LIMIT_F64, LIMIT_F64);
    let n = (x + MAGIC_F64) - MAGIC_F64;
    let r = x - n;
    let t = r * std::f64::consts::LN_2;
    let p = expanded::<L>(t);
    let rest = t + multiply_add::<L, _>(p, t * t, r * LN_2_LOW);
    let half = multiply_add::<L, _>(n, 0.5, MAGIC_F64);
    let second = n - (half - MAGIC_F64);
    (1.0 + rest) * two_to_f64(half) * two_to_f64(second + MAGIC_F64)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn exp_m1_f64<L: Pass>(_pass: &mut L, x: f64) -> f64 {
    let less = less_one_scaled::<L>(x, 1.0);
    // If x is zero, the function returns x with its sign.
    if x == 0.0 { x } else { less }
}

/// Returns `scale` · (e^x − 1). If e^x is out of range, the result may still be in range.
#[inline(always)]
pub(in crate::element::scalar::math) fn less_one_scaled<L: Pass>(x: f64, scale: f64) -> f64 {
    let parts = parts_f64::<L>(x);
    let whole = parts.first - parts.inverse;
    multiply_add::<L, _>(parts.rest, parts.first, whole) * (parts.second * scale)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn exp_m1_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    exp_m1_f64(pass, f64::from(x)) as f32
}

/// Returns e^x / 2. If e^x is out of range, the result may still be in range.
#[inline(always)]
pub(in crate::element::scalar::math) fn half_exp_f64<L: Pass>(x: f64) -> f64 {
    let parts = parts_f64::<L>(x);
    (1.0 + parts.rest) * parts.first * (parts.second * 0.5)
}

/// Returns 2^x for −1000 < x < 1000, with an accuracy of 45 bits. An x beyond a limit is replaced
/// by the limit.
#[inline(always)]
pub(in crate::element::scalar::math) fn exp2_of_moderate_f64<L: Pass>(x: f64) -> f64 {
    let x = clamp(x, -1000.0, 1000.0);
    let rounded = x + MAGIC_F64;
    let r = (x - (rounded - MAGIC_F64)) * std::f64::consts::LN_2;
    let p = expanded::<L>(r);
    (1.0 + multiply_add::<L, _>(p, r * r, r)) * two_to_f64(rounded)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn sigmoid_f64<L: Pass>(pass: &mut L, x: f64) -> f64 {
    let small = exp_f64(pass, -x.abs());
    let numerator = if x < 0.0 { small } else { 1.0 };
    numerator / (1.0 + small)
}

/// Computes the product like [`silu_f32`].
#[inline(always)]
pub(in crate::element::scalar::math) fn silu_f64<L: Pass>(_pass: &mut L, x: f64) -> f64 {
    let x = if x < -LIMIT_F64 { -LIMIT_F64 } else { x };
    let parts = parts_f64::<L>(-x.abs());
    let nearly = (1.0 + parts.rest) * parts.first;
    let below = x < 0.0;
    let numerator = if below { x * nearly } else { x };
    let last = if below { parts.second } else { 1.0 };
    numerator / (1.0 + nearly * parts.second) * last
}
