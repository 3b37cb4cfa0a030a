//! The inverses of sine, cosine and tangent in `f32`, computed in `f64`.

use std::f64::consts::{FRAC_PI_2, PI};

use super::polynomial;
use crate::element::scalar::pass::{Pass, multiply_add};

/// Returns the arcsine of `x` for x ≤ ½. `square` is x².
#[inline(always)]
fn near<L: Pass>(x: f64, square: f64) -> f64 {
    let p = polynomial!(
        L, square;
        0.166_666_666_264_791_62, 0.075_000_049_648_360_43, 0.044_640_714_390_133_174,
        0.030_426_406_028_432_766, 0.021_866_822_146_237_343, 0.020_640_702_279_882_67,
        0.001_994_141_395_243_098_7, 0.032_895_648_011_484_69
    );
    multiply_add::<L, _>(p * square, x, x)
}

/// Returns the arcsine of |x| and `true`, or half the arccosine of |x| and `false`. `size` is |x|.
/// For |x| ≤ ½, returns the arcsine. Half the arccosine is the arcsine of √((1 − |x|) / 2).
#[inline(always)]
fn folded<L: Pass>(size: f64) -> (f64, bool) {
    let small = size <= 0.5;
    let folded = 0.5 * (1.0 - size);
    let square = if small { size * size } else { folded };
    let x = if small { size } else { folded.sqrt() };
    (near::<L>(x, square), small)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn asin_f32<L: Pass>(_pass: &mut L, x: f32) -> f32 {
    let (value, small) = folded::<L>(f64::from(x.abs()));
    let value = if small {
        value
    } else {
        FRAC_PI_2 - 2.0 * value
    };
    (value as f32).copysign(x)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn acos_f32<L: Pass>(_pass: &mut L, x: f32) -> f32 {
    let (value, small) = folded::<L>(f64::from(x.abs()));
    let below = x < 0.0;
    let signed = if below { -value } else { value };
    let far = 2.0 * value;
    let far = if below { PI - far } else { far };
    let value = if small { FRAC_PI_2 - signed } else { far };
    value as f32
}

/// Returns the arctangent of a number from 0 to 1.
#[inline(always)]
fn unit_atan<L: Pass>(x: f64) -> f64 {
    let square = x * x;
    let p = polynomial!(
        L, square;
        -0.333_333_331_110_970_63, 0.199_999_842_168_713_94, -0.142_853_207_397_212_63,
        0.111_061_416_832_765_02, -0.090_536_183_038_112_2, 0.075_104_670_391_497_43,
        -0.060_568_448_537_309_65, 0.044_177_259_456_743_66, -0.026_545_784_664_995_225,
        0.011_777_284_406_123_342, -0.003_325_958_594_421_559_2, 0.000_440_603_492_445_062_67
    );
    multiply_add::<L, _>(p * square, x, x)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn atan_f32<L: Pass>(_pass: &mut L, x: f32) -> f32 {
    let size = f64::from(x.abs());
    let small = size <= 1.0;
    let value = unit_atan::<L>(if small { size } else { 1.0 / size });
    let value = if small { value } else { FRAC_PI_2 - value };
    (value as f32).copysign(x)
}

#[inline(always)]
pub(in crate::element::scalar::math) fn atan2_f32<L: Pass>(_pass: &mut L, y: f32, x: f32) -> f32 {
    let (across, up) = (f64::from(x.abs()), f64::from(y.abs()));
    let steep = up > across;
    let quotient = if steep { across / up } else { up / across };
    // The quotient is 0 for 0 / 0 (on the axis), and 1 for ∞ / ∞ (on the diagonal). For NaN, the
    // quotient remains NaN.
    let quotient = if (up == 0.0) & (across == 0.0) {
        0.0
    } else {
        quotient
    };
    let infinite = (up == f64::INFINITY) & (across == f64::INFINITY);
    let quotient = if infinite { 1.0 } else { quotient };
    let value = unit_atan::<L>(quotient);
    let value = if steep { FRAC_PI_2 - value } else { value };
    let value = if x.is_sign_negative() {
        PI - value
    } else {
        value
    };
    (value as f32).copysign(y)
}
