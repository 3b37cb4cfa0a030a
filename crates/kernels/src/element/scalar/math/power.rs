//! Powers in `f32`, as 2^(y·log₂x) in `f64`, and cube roots.

use super::exp::exp2_of_moderate_f64;
use super::log::log2_f64;
use super::polynomial;
use super::real::Real;
use crate::element::scalar::convert;
use crate::element::scalar::pass::{Pass, multiply_add};
use crate::{DType, Numeric};

/// Returns whether x is a whole number. Infinity counts as an even number.
#[inline(always)]
fn is_whole(x: f64) -> bool {
    /// 2^52. From 2^52 on, every number is whole. If 2^52 is added to a smaller number, the sum has
    /// no fraction.
    const WHOLE: f64 = 4_503_599_627_370_496.0;
    let size = x.abs();
    (size >= WHOLE) | ((size + WHOLE) - WHOLE == size)
}

/// Returns x to the power of y, with the special cases of C's `pow`.
#[inline(always)]
fn power<L: Pass>(pass: &mut L, x: f32, y: f64) -> f32 {
    let wide = f64::from(x);
    let size = wide.abs();
    let value = exp2_of_moderate_f64::<L>(y * log2_f64(pass, size)) as f32;
    let whole = is_whole(y);
    let odd = whole & !is_whole(0.5 * y);
    let value = if odd { value.copysign(x) } else { value };
    let undefined = (x < 0.0) & (size < f64::INFINITY) & !whole;
    let value = if undefined { f32::NAN } else { value };
    let endless = (size == 1.0) & (y.abs() == f64::INFINITY);
    let one = (x == 1.0) | (y == 0.0) | endless;
    if one { 1.0 } else { value }
}

#[inline(always)]
pub(in crate::element::scalar::math) fn powf_f32<L: Pass>(
    pass: &mut L,
    x: f32,
    exponent: f32,
) -> f32 {
    power(pass, x, f64::from(exponent))
}

#[inline(always)]
pub(in crate::element::scalar::math) fn powi_f32<L: Pass>(
    pass: &mut L,
    x: f32,
    exponent: i32,
) -> f32 {
    power(pass, x, f64::from(exponent))
}

/// Computes the power with the exponent as an `f64`. The conversion of a 32-bit integer to `f64` is
/// exact.
#[inline(always)]
pub(in crate::element::scalar::math) fn powi_f64(x: f64, exponent: i32) -> f64 {
    x.powf(f64::from(exponent))
}

/// The type in which powers with integer exponents are computed. A [`Real`] number is computed in
/// its own type, and an integer in the type of its sums.
pub trait Powers: Copy {
    /// Returns `x` to the power of `exponent`. For integers, returns the integer part of the power,
    /// modulo the range of the type.
    fn powi<L: Pass>(pass: &mut L, x: Self, exponent: i32) -> Self;
}

macro_rules! powers {
    ($($type:ident: $powi:expr;)+) => {
        $(
            impl Powers for $type {
                #[inline(always)]
                fn powi<L: Pass>(pass: &mut L, x: Self, exponent: i32) -> Self {
                    $powi(pass, x, exponent)
                }
            }
        )+
    };
}

powers! {
    f32: Real::powi;
    f64: Real::powi;
    i64: whole_power;
    u64: whole_power;
}

/// Raises `x` to the power of an integer. Integers are multiplied in their own type, because a
/// vector holds more narrow integers than 64-bit integers. The result is correct, because the
/// lowest digits of a product depend only on the lowest digits of its factors.
#[inline(always)]
pub fn powi<L: Pass, T: Numeric>(pass: &mut L, x: T, exponent: i32) -> T {
    if const { T::DTYPE as u8 > DType::Bf16 as u8 } {
        return whole_power(pass, x, exponent);
    }
    convert(<T::Accumulator as Powers>::powi(pass, convert(x), exponent))
}

/// The maximum number of binary digits of exponents that need no loop. For larger exponents, the
/// powers of all bases except 0, 1 and −1 wrap in every type.
const DIGITS: u32 = 6;

/// Computes the power by squaring (Knuth, "The Art of Computer Programming", volume 2, section
/// 4.6.3). Exponents that are negative or have more than `DIGITS` binary digits are rare.
#[inline(always)]
fn whole_power<L: Pass, T: Numeric>(pass: &mut L, x: T, exponent: i32) -> T {
    if L::CAREFUL {
        return any_whole_power(x, exponent);
    }
    pass.note(exponent as u32 >> DIGITS != 0);
    let next = |(square, product): (T, T), digit: u32| {
        let is_factor = exponent >> digit & 1 != 0;
        let factor = if is_factor { square } else { T::one() };
        (square.times(square), product.times(factor))
    };
    // If all elements have one exponent, the compiler unswitches the loop. It then compiles one
    // version of the loop for each early return.
    let two = (0..2).fold((x, T::one()), next);
    if exponent as u32 >> 2 == 0 {
        return two.1;
    }
    let four = (2..4).fold(two, next);
    if exponent as u32 >> 4 == 0 {
        return four.1;
    }
    (4..DIGITS).fold(four, next).1
}

/// Returns the power by squaring. The exponent is not limited.
#[inline]
fn any_whole_power<T: Numeric>(x: T, exponent: i32) -> T {
    let (one, zero) = (T::one(), T::zero());
    let (mut rest, mut square, mut product) = (exponent.unsigned_abs(), x, one);
    // The loop has branches. If all elements have one exponent, the processor predicts the
    // branches, and none of them depends on the product.
    while rest != 0 {
        while rest & 1 == 0 {
            square = square.times(square);
            rest >>= 1;
        }
        product = product.times(square);
        rest -= 1;
    }
    // The inverses of 1 and −1 are the numbers themselves. No other number has an integer inverse.
    // Unsigned types have no −1.
    let is_unit = x == one || (x < zero && x == zero.minus(one));
    if exponent >= 0 || is_unit {
        product
    } else {
        zero
    }
}

/// Returns the cube root of a positive normal number to 5 bits. The function divides the exponent
/// by three, together with the digits after it. Then it adds a constant for the bias (W. Kahan).
/// The constant and [`cbrt_f64`] come from FreeBSD's msun, by B. D. Evans.
#[inline(always)]
fn nearly_cbrt(size: f64) -> f64 {
    /// (1023 − 1023 / 3 − 0.033 067 06) · 2^20, the constant for the bias.
    const BIAS: u64 = 715_094_163;
    // The upper half of the bits is divided by 3 through a multiplication, because vectors have no
    // integer division.
    let third = ((size.to_bits() >> 32) * 0xaaaa_aaab) >> 33;
    f64::from_bits((third + BIAS) << 32)
}

/// Returns whether `x` is zero, infinite or NaN, and therefore its own cube root.
#[inline(always)]
fn is_its_cbrt<A: num_traits::Float>(x: A) -> bool {
    (x == A::zero()) | !x.is_finite()
}

/// Applies two iterations of Halley's method in `f64`. The iterations raise the accuracy from 5
/// bits to 47 bits.
#[inline(always)]
pub(in crate::element::scalar::math) fn cbrt_f32<L: Pass>(_pass: &mut L, x: f32) -> f32 {
    let size = f64::from(x).abs();
    let root = nearly_cbrt(size);
    let root = halley::<L>(size, root);
    let root = halley::<L>(size, root);
    let root = (root as f32).copysign(x);
    if is_its_cbrt(x) { x } else { root }
}

/// Returns t · (2x + t³) / (x + 2t³), a better estimate of ∛x than t.
#[inline(always)]
fn halley<L: Pass>(x: f64, t: f64) -> f64 {
    let cube = t * t * t;
    t * (multiply_add::<L, _>(2.0, x, cube) / multiply_add::<L, _>(2.0, cube, x))
}

/// Refines an estimate to 23 bits by a polynomial, and rounds it so that its square is exact. One
/// iteration of Newton's method then reduces the error below 0.67 units in the last place.
#[inline(always)]
pub(in crate::element::scalar::math) fn cbrt_f64<L: Pass>(_pass: &mut L, x: f64) -> f64 {
    /// 2^54, whose cube root is 2^18.
    const SCALE: f64 = 18_014_398_509_481_984.0;
    const SCALE_ROOT: f64 = 262_144.0;
    let size = x.abs();
    let tiny = size < f64::MIN_POSITIVE;
    let size = if tiny { size * SCALE } else { size };
    let t = nearly_cbrt(size);
    // `p` approximates ∛x / t by a polynomial in t³ / x, for |t³ / x − 1| ≤ 1 / 10.
    let r = t * t * (t / size);
    let p = polynomial!(
        L, r;
        1.875_951_824_271_77, -1.884_979_795_433_771_7, 1.621_429_720_105_354_5,
        -0.758_397_934_778_766, 0.145_996_192_886_612_45
    );
    let t = t * p;
    let t = f64::from_bits(t.to_bits().wrapping_add(0x8000_0000) & 0xffff_ffff_c000_0000);
    let quotient = size / (t * t);
    let step = (quotient - t) / (t + t + quotient);
    let root = multiply_add::<L, _>(t, step, t);
    let root = if tiny { root / SCALE_ROOT } else { root };
    let root = root.copysign(x);
    if is_its_cbrt(x) { x } else { root }
}
