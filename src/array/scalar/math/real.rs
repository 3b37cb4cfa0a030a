//! Which function of its family `f32` takes, and which `f64`.

use super::super::lane::Lane;
use super::super::real::Real;
use super::{erf, exp, hyperbolic, inverse, log, power, rounding, trig};

/// Rows `name(arguments) = expression;`, `name(arguments) by family::function;` and
/// `name(arguments) by std;`
macro_rules! real {
    ($type:ident: $($name:ident($($argument:ident $(: $integer:ident)?),+) $how:tt $what:tt $(:: $function:ident)?;)+) => {
        impl Real for $type {
            $(
                #[inline(always)]
                fn $name<L: Lane>(
                    lane: &mut L,
                    $($argument: real!(@type $($integer)?)),+
                ) -> Self {
                    real!(@$how lane, $name, ($($argument),+), $what $($function)?)
                }
            )+
        }
    };
    (@type) => { Self };
    (@type $integer:ident) => { $integer };
    (@by $lane:ident, $name:ident, ($x:ident $(, $argument:ident)*), std) => {{
        let _ = $lane;
        $x.$name($($argument),*)
    }};
    (@by $lane:ident, $name:ident, ($($argument:ident),+), $family:ident $function:ident) => {
        $family::$function($lane, $($argument),+)
    };
    (@is $lane:ident, $name:ident, $arguments:tt, { $value:expr }) => {{
        let _ = $lane;
        $value
    }};
}

real! {
    f32:
    sqrt(x) by std;
    rsqrt(x) is { 1.0 / x.sqrt() };
    recip(x) by std;
    exp(x) by exp::exp_f32;
    exp_m1(x) by exp::exp_m1_f32;
    ln(x) by log::ln_f32;
    log1p(x) by log::log1p_f32;
    log2(x) by log::log2_f32;
    log10(x) by log::log10_f32;
    powi(x, exponent: i32) by power::powi_f32;
    powf(x, exponent) by power::powf_f32;
    sin(x) by trig::sin_f32;
    cos(x) by trig::cos_f32;
    tan(x) by trig::tan_f32;
    asin(x) by inverse::asin_f32;
    acos(x) by inverse::acos_f32;
    atan(x) by inverse::atan_f32;
    atan2(y, x) by inverse::atan2_f32;
    sinh(x) by hyperbolic::sinh_f32;
    cosh(x) by hyperbolic::cosh_f32;
    tanh(x) by hyperbolic::tanh_f32;
    asinh(x) by hyperbolic::asinh_f32;
    acosh(x) by hyperbolic::acosh_f32;
    atanh(x) by hyperbolic::atanh_f32;
    floor(x) by rounding::floor_f32;
    ceil(x) by rounding::ceil_f32;
    round(x) by rounding::round_f32;
    trunc(x) by rounding::trunc_f32;
    erf(x) by erf::erf_f32;
    sigmoid(x) by exp::sigmoid_f32;
    gelu(x) by erf::gelu_f32;
    silu(x) by exp::silu_f32;
    mul_add(a, b, c) by std;
}

real! {
    f64:
    sqrt(x) by std;
    rsqrt(x) is { 1.0 / x.sqrt() };
    recip(x) by std;
    exp(x) by exp::exp_f64;
    exp_m1(x) by exp::exp_m1_f64;
    ln(x) by log::ln_f64;
    log1p(x) by log::log1p_f64;
    log2(x) by std;
    log10(x) by std;
    powi(x, exponent: i32) by power::powi_f64;
    powf(x, exponent) by std;
    sin(x) by trig::sin_f64;
    cos(x) by trig::cos_f64;
    tan(x) by trig::tan_f64;
    asin(x) by std;
    acos(x) by std;
    atan(x) by std;
    atan2(y, x) by std;
    sinh(x) by hyperbolic::sinh_f64;
    cosh(x) by hyperbolic::cosh_f64;
    tanh(x) by hyperbolic::tanh_f64;
    asinh(x) by hyperbolic::asinh_f64;
    acosh(x) by hyperbolic::acosh_f64;
    atanh(x) by hyperbolic::atanh_f64;
    floor(x) by rounding::floor_f64;
    ceil(x) by rounding::ceil_f64;
    round(x) by rounding::round_f64;
    trunc(x) by rounding::trunc_f64;
    erf(x) is { libm::erf(x) };
    sigmoid(x) by exp::sigmoid_f64;
    gelu(x) by erf::gelu_f64;
    silu(x) by exp::silu_f64;
    mul_add(a, b, c) by std;
}
