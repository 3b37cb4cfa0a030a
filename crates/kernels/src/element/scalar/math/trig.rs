//! Sine, cosine and tangent: x = n·π/2 + r with |r| ≤ π/4, and polynomials for sine and cosine.
//!
//! π/2 is split into parts. Up to the limit of the type, the product of n and each part is exact.
//! Arguments beyond the limit are rare.

use std::f64::consts::FRAC_2_PI;

use super::polynomial;
use crate::element::scalar::pass::{Pass, multiply_add};

/// A magic number that rounds numbers below 2^51. If it is added to a number, the lowest bits of
/// the sum are the nearest integer.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// π/2 in four parts. The first three parts have 33 bits.
const PI_2: (f64, f64, f64, f64) = (
    1.570_796_326_734_125_6,
    6.077_100_506_303_966e-11,
    2.022_266_248_711_166_5e-21,
    8.478_427_660_368_9e-32,
);
/// π/2 minus the first part of [`PI_2`].
const PI_2_REST: f64 = 6.077_100_506_506_192e-11;

/// The limit of `f32` arguments. Below the limit, n has fewer than 20 bits.
const LIMIT_F32: f32 = 100_000.0;
const LIMIT_F64: f64 = 800_000.0;

/// Returns the remainder of |x| modulo π/2, and an integer whose lowest bits are the index of the
/// quadrant.
#[inline(always)]
fn reduced_f32<L: Pass>(x: f32) -> (f32, u32) {
    let wide = f64::from(x.abs());
    let rounded = multiply_add::<L, _>(wide, FRAC_2_PI, MAGIC);
    let n = rounded - MAGIC;
    let r = multiply_add::<L, _>(n, -PI_2.0, wide);
    let r = multiply_add::<L, _>(n, -PI_2_REST, r);
    (r as f32, rounded.to_bits() as u32)
}

/// Returns the sine and the cosine of |r| ≤ π/4.
#[inline(always)]
fn both_f32<L: Pass>(r: f32) -> (f32, f32) {
    let square = r * r;
    let p = polynomial!(L, square; -0.166_666_55, 0.008_332_189, -0.000_195_182_86);
    let sine = multiply_add::<L, _>(p * square, r, r);
    let p = polynomial!(L, square; 0.041_666_646, -0.001_388_731_1, 2.443_256_4e-5);
    let below = multiply_add::<L, _>(p * square, -square, 0.5 * square);
    (sine, 1.0 - below)
}

/// Returns the sine or cosine of `r`. The quadrant `n` selects the function. Both `n` and `sign`
/// determine the sign.
#[inline(always)]
fn chosen_f32<L: Pass>(r: f32, n: u32, sign: u32) -> f32 {
    let (sine, cosine) = both_f32::<L>(r);
    let value = if n & 1 == 0 { sine } else { cosine };
    f32::from_bits(value.to_bits() ^ ((sign ^ (n << 30)) & (1 << 31)))
}

#[inline(always)]
pub(in crate::element::scalar::math) fn sin_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    let rare = x.abs() >= LIMIT_F32;
    if L::CAREFUL {
        if rare {
            return x.sin();
        }
    } else {
        pass.note(rare);
    }
    let (r, n) = reduced_f32::<L>(x);
    chosen_f32::<L>(r, n, x.to_bits())
}

#[inline(always)]
pub(in crate::element::scalar::math) fn cos_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    let rare = x.abs() >= LIMIT_F32;
    if L::CAREFUL {
        if rare {
            return x.cos();
        }
    } else {
        pass.note(rare);
    }
    let (r, n) = reduced_f32::<L>(x);
    chosen_f32::<L>(r, n.wrapping_add(1), 0)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn tan_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    let rare = x.abs() >= LIMIT_F32;
    if L::CAREFUL {
        if rare {
            return x.tan();
        }
    } else {
        pass.note(rare);
    }
    let (r, n) = reduced_f32::<L>(x);
    let (sine, cosine) = both_f32::<L>(r);
    let odd = n & 1 != 0;
    let numerator = if odd { -cosine } else { sine };
    let value = numerator / if odd { sine } else { cosine };
    f32::from_bits(value.to_bits() ^ (x.to_bits() & (1 << 31)))
}

/// Returns a − b, and the rounding error of the difference.
#[inline(always)]
fn difference(a: f64, b: f64) -> (f64, f64) {
    let difference = a - b;
    let part = difference - a;
    (difference, (a - (difference - part)) - (b + part))
}

/// Returns the remainder of |x| modulo π/2 as a sum of two numbers. Also returns an integer whose
/// lowest bits are the index of the quadrant.
#[inline(always)]
fn reduced_f64<L: Pass>(x: f64) -> (f64, f64, u64) {
    let x = x.abs();
    let rounded = multiply_add::<L, _>(x, FRAC_2_PI, MAGIC);
    let n = rounded - MAGIC;
    let r = multiply_add::<L, _>(n, -PI_2.0, x);
    let (r, lost) = difference(r, n * PI_2.1);
    let (r, lost_too) = difference(r, n * PI_2.2);
    let rest = multiply_add::<L, _>(n, -PI_2.3, lost + lost_too);
    let sum = r + rest;
    (sum, (r - sum) + rest, rounded.to_bits())
}

/// Returns the sine and the cosine of r + `rest` for |r| ≤ π/4. The terms are arranged as in Sun's
/// fdlibm.
#[inline(always)]
fn both_f64<L: Pass>(r: f64, rest: f64) -> (f64, f64) {
    let square = r * r;
    let p = polynomial!(
        L, square;
        0.008_333_333_333_321_917, -0.000_198_412_698_294_575_94, 2.755_731_358_226_847_5e-6,
        -2.505_074_237_629_393_8e-8, 1.589_594_997_844_115_6e-10
    );
    let cube = square * r;
    let low = multiply_add::<L, _>(square, multiply_add::<L, _>(-cube, p, 0.5 * rest), -rest);
    let sine = r - multiply_add::<L, _>(cube, 0.166_666_666_666_666_3, low);
    let p = polynomial!(
        L, square;
        0.041_666_666_666_666_595, -0.001_388_888_888_887_334_6, 2.480_158_728_900_611e-5,
        -2.755_731_421_839_884e-7, 2.087_570_559_440_595e-9, -1.135_875_984_392_744_6e-11
    );
    let half = 0.5 * square;
    let near = 1.0 - half;
    let low = multiply_add::<L, _>(square * square, p, -(r * rest));
    (sine, near + (((1.0 - near) - half) + low))
}

#[inline(always)]
fn chosen_f64<L: Pass>(r: f64, rest: f64, n: u64, sign: u64) -> f64 {
    let (sine, cosine) = both_f64::<L>(r, rest);
    let value = if n & 1 == 0 { sine } else { cosine };
    f64::from_bits(value.to_bits() ^ ((sign ^ (n << 62)) & (1 << 63)))
}

#[inline(always)]
pub(in crate::element::scalar::math) fn sin_f64<L: Pass>(pass: &mut L, x: f64) -> f64 {
    let rare = x.abs() >= LIMIT_F64;
    if L::CAREFUL {
        if rare {
            return x.sin();
        }
    } else {
        pass.note(rare);
    }
    let (r, rest, n) = reduced_f64::<L>(x);
    chosen_f64::<L>(r, rest, n, x.to_bits())
}

#[inline(always)]
pub(in crate::element::scalar::math) fn cos_f64<L: Pass>(pass: &mut L, x: f64) -> f64 {
    let rare = x.abs() >= LIMIT_F64;
    if L::CAREFUL {
        if rare {
            return x.cos();
        }
    } else {
        pass.note(rare);
    }
    let (r, rest, n) = reduced_f64::<L>(x);
    chosen_f64::<L>(r, rest, n.wrapping_add(1), 0)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn tan_f64<L: Pass>(pass: &mut L, x: f64) -> f64 {
    let rare = x.abs() >= LIMIT_F64;
    if L::CAREFUL {
        if rare {
            return x.tan();
        }
    } else {
        pass.note(rare);
    }
    let (r, rest, n) = reduced_f64::<L>(x);
    let (sine, cosine) = both_f64::<L>(r, rest);
    let odd = n & 1 != 0;
    let numerator = if odd { -cosine } else { sine };
    let value = numerator / if odd { sine } else { cosine };
    f64::from_bits(value.to_bits() ^ (x.to_bits() & (1 << 63)))
}
