//! The error function, and functions of neural networks that use it.

use std::f64::consts::FRAC_1_SQRT_2;

use super::exp::exp_f64;
use super::polynomial;
use crate::element::scalar::pass::{Pass, multiply_add};

/// Returns erf(x) for |x| ≤ 1.
#[inline(always)]
fn near<L: Pass>(x: f64) -> f64 {
    let square = x * x;
    x * polynomial!(
        L, square;
        1.128_379_167_058_023_7, -0.376_126_384_345_913_17, 0.112_837_819_729_495_89,
        -0.026_865_399_968_560_87, 0.005_220_945_217_247_868, -0.000_848_282_564_551_762_6,
        0.000_112_569_244_988_617_97, -9.641_449_006_122_513e-6
    )
}

/// Returns 1 − erf(x) for 0.5 ≤ x ≤ 10.5, with an accuracy of 30 bits. Computes exp(−x²) / (1 + 2x)
/// times a polynomial in (x − 3) / (x + 3) (Shepherd and Laframboise, 1981).
#[inline(always)]
fn far<L: Pass>(pass: &mut L, x: f64) -> f64 {
    let t = (x - 3.0) / (x + 3.0);
    let p = polynomial!(
        L, t;
        1.253_008_058_869_828_2, -0.135_621_102_626_628_9, -0.047_562_386_271_550_86,
        0.129_644_966_478_783_35, -0.119_271_435_038_795_07, 0.068_311_393_135_832_77,
        -0.023_789_381_351_943_5, 0.002_503_384_222_147_756, 0.001_953_843_371_278_13,
        -0.000_688_008_082_729_075_9, -0.000_182_729_704_197_018
    );
    exp_f64(pass, -x * x) * p / (1.0 + 2.0 * x)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn erf_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    let size = f64::from(x.abs());
    // For |x| ≥ 4, the result is ±1.
    let limited = if size > 4.0 { 4.0 } else { size };
    let value = if size < 1.0 {
        near::<L>(limited)
    } else {
        1.0 - far(pass, limited)
    };
    (value as f32).copysign(x)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn gelu_f32<L: Pass>(pass: &mut L, x: f32) -> f32 {
    let wide = f64::from(x);
    // Below −14.8, the magnitude of the result is less than the least subnormal number.
    let wide = if wide < -14.8 { -14.8 } else { wide };
    let scaled = wide * FRAC_1_SQRT_2;
    let size = scaled.abs();
    let limited = if size > 10.5 { 10.5 } else { size };
    let above = far(pass, limited);
    // `side` is 1 + erf of the scaled argument.
    let side = if scaled < 0.0 { above } else { 2.0 - above };
    let side = if size < 0.5 {
        1.0 + near::<L>(scaled)
    } else {
        side
    };
    (0.5 * wide * side) as f32
}

/// Computes x · erfc(a) / 2 with a = −x / √2, where erfc is Sun's. If `a` is large, the relative
/// slope of erfc is about −2a. The rounding error of `a` then contributes up to a² units in the
/// last place to the result. Therefore this error is corrected.
#[inline(always)]
pub(in crate::element::scalar::math) fn gelu_f64<L: Pass>(_pass: &mut L, x: f64) -> f64 {
    /// 1 / √2 minus the nearest `f64`.
    const REST: f64 = -4.833646656726457e-17;
    // Below −40, the magnitude of the result is less than the least subnormal number.
    let x = if x < -40.0 { -40.0 } else { x };
    let a = -x * FRAC_1_SQRT_2;
    let lost = (-x).mul_add(FRAC_1_SQRT_2, -a) - x * REST;
    let made_good = if a > 1.0 { 1.0 - 2.0 * a * lost } else { 1.0 };
    0.5 * x * libm::erfc(a) * made_good
}
