//! Powers in `f32`, as 2^(y·log₂x) in `f64`.

use super::super::lane::Lane;
use super::exp::exp2_f64;
use super::log::log2_f64;

/// Whether x is a whole number; infinity is one, and even.
#[inline(always)]
fn is_whole(x: f64) -> bool {
    /// From 2^52 on every number is whole, and adding it drops the fraction of what is below.
    const WHOLE: f64 = 4_503_599_627_370_496.0;
    let size = x.abs();
    (size >= WHOLE) | ((size + WHOLE) - WHOLE == size)
}

/// x to the power of y, as C's `pow` in every special case.
#[inline(always)]
fn power<L: Lane>(lane: &mut L, x: f32, y: f64) -> f32 {
    let wide = f64::from(x);
    let size = wide.abs();
    let value = exp2_f64::<L>(y * log2_f64(lane, size)) as f32;
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
pub(super) fn powf_f32<L: Lane>(lane: &mut L, x: f32, exponent: f32) -> f32 {
    power(lane, x, f64::from(exponent))
}

#[inline(always)]
pub(super) fn powi_f32<L: Lane>(lane: &mut L, x: f32, exponent: i32) -> f32 {
    power(lane, x, f64::from(exponent))
}

/// An exponent of 32 bits is exact as an `f64`.
#[inline(always)]
pub(super) fn powi_f64(x: f64, exponent: i32) -> f64 {
    x.powf(f64::from(exponent))
}
