//! Functions of real numbers; their accuracy is that of [`math`].

use crate::array::scalar::math;
use crate::ops::declare::{binary, unary};

unary! {
    /// The square root of each element; NaN below 0.
    sqrt Sqrt float |lane, x| math::sqrt(lane, x), "sqrt(a)", f32 [4.0, 2.25] => [2.0, 1.5];

    /// One divided by the square root of each element; NaN below 0.
    rsqrt Rsqrt float |lane, x| math::rsqrt(lane, x), "rsqrt(a)", f32 [4.0, 0.25] => [0.5, 2.0];

    /// *e* to the power of each element.
    exp Exp float |lane, x| math::exp(lane, x), "exp(a)", f32 [0.0, f32::NEG_INFINITY] => [1.0, 0.0];

    /// *e* to the power of each element, less 1; accurate near 0 too.
    exp_m1 ExpM1 float |lane, x| math::exp_m1(lane, x), "expm1(a)",
        f32 [1e-10, f32::NEG_INFINITY] => [1e-10, -1.0];

    /// The natural logarithm of each element; NaN below 0.
    ln Ln float |lane, x| math::ln(lane, x), "log(a)", f32 [1.0, 0.0] => [0.0, f32::NEG_INFINITY];

    /// The natural logarithm of 1 plus each element; accurate near 0 too, NaN below −1.
    log1p Log1p float |lane, x| math::log1p(lane, x), "log1p(a)",
        f32 [1e-10, -1.0] => [1e-10, f32::NEG_INFINITY];

    /// The logarithm of each element to base 2; NaN below 0.
    log2 Log2 float |lane, x| math::log2(lane, x), "log2(a)", f32 [8.0, 0.5] => [3.0, -1.0];

    /// The logarithm of each element to base 10; NaN below 0.
    log10 Log10 float |lane, x| math::log10(lane, x), "log10(a)", f32 [1000.0, 0.1] => [3.0, -1.0];
}

unary! {
    /// The sine of each element, in radians.
    sin Sin float rare |lane, x| math::sin(lane, x), "sin(a)",
        f32 [0.0, std::f32::consts::FRAC_PI_2] => [0.0, 1.0];

    /// The cosine of each element, in radians.
    cos Cos float rare |lane, x| math::cos(lane, x), "cos(a)",
        f32 [0.0, std::f32::consts::PI] => [1.0, -1.0];

    /// The tangent of each element, in radians.
    tan Tan float rare |lane, x| math::tan(lane, x), "tan(a)",
        f32 [0.0, -1.0] => [0.0, -1.5574077];

    /// The angle in radians whose sine is each element, from −π/2 to π/2; NaN beyond ±1.
    asin Asin float |lane, x| math::asin(lane, x), "asin(a)",
        f32 [0.0, 1.0] => [0.0, std::f32::consts::FRAC_PI_2];

    /// The angle in radians whose cosine is each element, from 0 to π; NaN beyond ±1.
    acos Acos float |lane, x| math::acos(lane, x), "acos(a)",
        f32 [1.0, -1.0] => [0.0, std::f32::consts::PI];

    /// The angle in radians whose tangent is each element, from −π/2 to π/2.
    atan Atan float |lane, x| math::atan(lane, x), "atan(a)",
        f32 [0.0, f32::INFINITY] => [0.0, std::f32::consts::FRAC_PI_2];
}

binary! {
    /// The angle in radians of the point (second, first), seen from the origin, from −π to π.
    atan2 Atan2 float |lane, a, b| math::atan2(lane, a, b), "atan2(a, b)",
        f32 [0.0, 1.0], [-1.0, 0.0] => [std::f32::consts::PI, std::f32::consts::FRAC_PI_2];
}

unary! {
    /// The hyperbolic sine of each element.
    sinh Sinh float |lane, x| math::sinh(lane, x), "sinh(a)",
        f32 [0.0, f32::NEG_INFINITY] => [0.0, f32::NEG_INFINITY];

    /// The hyperbolic cosine of each element.
    cosh Cosh float |lane, x| math::cosh(lane, x), "cosh(a)",
        f32 [0.0, f32::NEG_INFINITY] => [1.0, f32::INFINITY];

    /// The hyperbolic tangent of each element.
    tanh Tanh float |lane, x| math::tanh(lane, x), "tanh(a)", f32 [0.0, f32::INFINITY] => [0.0, 1.0];

    /// The number whose hyperbolic sine is each element.
    asinh Asinh float |lane, x| math::asinh(lane, x), "asinh(a)",
        f32 [0.0, f32::INFINITY] => [0.0, f32::INFINITY];

    /// The number from 0 on whose hyperbolic cosine is each element; NaN below 1.
    acosh Acosh float |lane, x| math::acosh(lane, x), "acosh(a)",
        f32 [1.0, f32::INFINITY] => [0.0, f32::INFINITY];

    /// The number whose hyperbolic tangent is each element; NaN beyond ±1.
    atanh Atanh float |lane, x| math::atanh(lane, x), "atanh(a)",
        f32 [0.0, -1.0] => [0.0, f32::NEG_INFINITY];
}

unary! {
    /// The error function of each element.
    erf Erf float |lane, x| math::erf(lane, x), "erf(a)", f32 [0.0, f32::INFINITY] => [0.0, 1.0];

    /// The logistic function 1 / (1 + exp(−x)) of each element, without overflow on either side.
    sigmoid Sigmoid float |lane, x| math::sigmoid(lane, x), "cs_sigmoid(a)",
        f32 [0.0, f32::NEG_INFINITY] => [0.5, 0.0];

    /// Each element where it is above 0, and 0 elsewhere; NaN stays.
    relu Relu number |_, x| if x < T::zero() { T::zero() } else { x }, "a < 0 ? 0 : a",
        f32 [-1.5, 2.0] => [0.0, 2.0];

    /// Each element times the share of the normal distribution below it, x · (1 + erf(x / √2)) / 2:
    /// the exact form of Hendrycks and Gimpel (2016), not its approximation by tanh. Far below 0 it
    /// keeps its relative accuracy and ends in −0.
    gelu Gelu float |lane, x| math::gelu(lane, x), "cs_gelu(a)", f32 [0.0, 20.0] => [0.0, 20.0];

    /// Each element times its [`sigmoid`](Self::sigmoid); at −∞ the limit, −0.
    silu Silu float |lane, x| math::silu(lane, x), "cs_silu(a)",
        f32 [0.0, f32::INFINITY] => [0.0, f32::INFINITY];
}
