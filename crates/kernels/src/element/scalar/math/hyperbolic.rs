//! Hyperbolic functions and their inverses, by the exponential and the logarithm.

use std::f64::consts::LN_2;

use super::exp::{exp_of_moderate_f32, half_exp_f64, less_one_scaled};
use super::log::log1p_f64;
use super::polynomial;
use crate::element::scalar::pass::{Pass, multiply_add};

/// Computes an odd polynomial near 0, and 1 − 2 / (exp(2|x|) + 1) for larger |x|.
#[inline(always)]
pub(in crate::element::scalar::math) fn tanh_f32<L: Pass>(_pass: &mut L, x: f32) -> f32 {
    // From this |x| on, the result is ±1.
    const LIMIT: f32 = 9.1;
    let size = x.abs();
    let limited = if size > LIMIT { LIMIT } else { size };
    let far = 1.0 - 2.0 / (exp_of_moderate_f32::<L>(limited + limited) + 1.0);
    let square = limited * limited;
    let p = polynomial!(
        L, square; -0.333_333, 0.133_319_36, -0.053_784_717, 0.020_798_625, -0.005_897_966_7
    );
    let near = multiply_add::<L, _>(p * square, limited, limited);
    let value = if size < 0.6 { near } else { far };
    value.copysign(x)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn tanh_f64<L: Pass>(_pass: &mut L, x: f64) -> f64 {
    // From this |x| on, the result is ±1.
    const LIMIT: f64 = 20.0;
    let size = x.abs();
    let limited = if size > LIMIT { LIMIT } else { size };
    let far = 1.0 - 1.0 / (half_exp_f64::<L>(limited + limited) + 0.5);
    let square = limited * limited;
    let p = polynomial!(
        L, square;
        -0.333_333_333_333_333_3, 0.133_333_333_333_329_33, -0.053_968_253_967_951_44,
        0.021_869_488_524_644_813, -0.008_863_235_272_590_614, 0.003_592_124_363_478_666,
        -0.001_455_799_286_615_454, 0.000_589_797_280_134_904_8, -0.000_238_085_826_513_938_96,
        9.367_626_038_170_462e-5, -3.258_774_815_840_267_4e-5, 7.234_236_092_486_611e-6
    );
    let near = multiply_add::<L, _>(p * square, limited, limited);
    let value = if size < 0.55 { near } else { far };
    value.copysign(x)
}

/// Computes h + h / (2h + 1) with h = (exp|x| − 1) / 2. This form loses no digits near 0.
#[inline(always)]
pub(in crate::element::scalar::math) fn sinh_f64<L: Pass>(_pass: &mut L, x: f64) -> f64 {
    let half = less_one_scaled::<L>(x.abs(), 0.5);
    // If h is huge, the quotient is negligible, but might be ∞ / ∞.
    let quotient = if half > 1e300 {
        0.0
    } else {
        half / (2.0 * half + 1.0)
    };
    let value = (half + quotient).copysign(x);
    // Half of a subnormal number would lose its last bit. Therefore a small x is returned
    // unchanged.
    if x.abs() < 1e-9 { x } else { value }
}

#[inline(always)]
pub(in crate::element::scalar::math) fn sinh_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    sinh_f64(pass, f64::from(x)) as f32
}

/// Computes h + 1 / 4h with h = exp|x| / 2.
#[inline(always)]
pub(in crate::element::scalar::math) fn cosh_f64<L: Pass>(_pass: &mut L, x: f64) -> f64 {
    let half = half_exp_f64::<L>(x.abs());
    half + 0.25 / half
}

#[inline(always)]
pub(in crate::element::scalar::math) fn cosh_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    cosh_f64(pass, f64::from(x)) as f32
}

/// The limit above which squares might overflow. Adding 1 to a number above the limit has no
/// effect.
const HUGE: f64 = 1e100;

/// Computes ln(x + √(x² + 1)) as ln(1 + `excess`). For huge numbers, computes ln x + ln 2.
#[inline(always)]
pub(in crate::element::scalar::math) fn asinh_f64<L: Pass>(pass: &mut L, x: f64) -> f64 {
    let size = x.abs();
    let square = size * size;
    let excess = size + square / (1.0 + (square + 1.0).sqrt());
    let huge = size > HUGE;
    let excess = if huge { size } else { excess };
    let rest = if huge { LN_2 } else { 0.0 };
    (log1p_f64(pass, excess) + rest).copysign(x)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn asinh_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    asinh_f64(pass, f64::from(x)) as f32
}

/// Computes ln(x + √(x² − 1)), like [`asinh_f64`].
#[inline(always)]
pub(in crate::element::scalar::math) fn acosh_f64<L: Pass>(pass: &mut L, x: f64) -> f64 {
    let above = x - 1.0;
    let excess = above + (above * (above + 2.0)).sqrt();
    let huge = x > HUGE;
    let excess = if huge { x } else { excess };
    let rest = if huge { LN_2 } else { 0.0 };
    let value = log1p_f64(pass, excess) + rest;
    if x < 1.0 { f64::NAN } else { value }
}

#[inline(always)]
pub(in crate::element::scalar::math) fn acosh_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    acosh_f64(pass, f64::from(x)) as f32
}

/// Computes ln((1 + x) / (1 − x)) / 2, where the quotient is 1 + 2x / (1 − x).
#[inline(always)]
pub(in crate::element::scalar::math) fn atanh_f64<L: Pass>(pass: &mut L, x: f64) -> f64 {
    let size = x.abs();
    let value = 0.5 * log1p_f64(pass, 2.0 * size / (1.0 - size));
    let value = if size > 1.0 { f64::NAN } else { value };
    value.copysign(x)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn atanh_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    atanh_f64(pass, f64::from(x)) as f32
}
