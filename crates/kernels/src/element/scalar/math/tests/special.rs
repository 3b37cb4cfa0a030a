//! Tests of the results for zeros, infinities, NaN and the edges of the range.

use super::{Careful, Fast, in_all_passes};
use crate::element::scalar::{Arithmetic, Signed, math};

const INF: f64 = f64::INFINITY;

/// Checks rows `name: (argument, value)…` in `f32` and `f64`. The results must equal the values
/// exactly, including the sign of zero.
macro_rules! check {
    ($($name:ident: $(($x:expr, $exact:expr))+;)+) => {
        $($(
            check!(@type f32 $name $x, $exact);
            check!(@type f64 $name $x, $exact);
        )+)+
    };
    (@type $type:ident $name:ident $x:expr, $exact:expr) => {
        let (x, exact) = ($x as $type, $exact as $type);
        let (careful, fast, _) = in_all_passes!($name, x);
        for value in careful.into_iter().chain(fast) {
            let same = value.to_bits() == exact.to_bits() || (value.is_nan() && exact.is_nan());
            assert!(same, "{}({x:e}) = {value:e} in {}", stringify!($name), stringify!($type));
        }
    };
}

#[test]
fn zeros_infinities_and_nan() {
    use std::f64::consts::{FRAC_PI_2, PI};
    let nan = f64::NAN;
    check! {
        sqrt: (0.0, 0.0) (-0.0, -0.0) (INF, INF) (-INF, nan) (-1.0, nan) (nan, nan);
        rsqrt: (0.0, INF) (-0.0, -INF) (INF, 0.0) (-1.0, nan) (nan, nan);
        recip: (0.0, INF) (-0.0, -INF) (INF, 0.0) (-INF, -0.0) (nan, nan);
        exp: (0.0, 1.0) (-0.0, 1.0) (INF, INF) (-INF, 0.0) (1e30, INF) (-1e30, 0.0) (nan, nan);
        exp2: (0.0, 1.0) (-0.0, 1.0) (1.0, 2.0) (-1.0, 0.5) (10.0, 1024.0) (INF, INF) (-INF, 0.0) (1e30, INF) (-1e30, 0.0) (nan, nan);
        cbrt: (0.0, 0.0) (-0.0, -0.0) (1.0, 1.0) (-8.0, -2.0) (27.0, 3.0) (INF, INF) (-INF, -INF) (nan, nan);
        exp_m1: (0.0, 0.0) (-0.0, -0.0) (INF, INF) (-INF, -1.0) (1e30, INF) (-1e30, -1.0) (nan, nan);
        ln: (0.0, -INF) (-0.0, -INF) (1.0, 0.0) (INF, INF) (-INF, nan) (-1e-30, nan) (nan, nan);
        log1p: (0.0, 0.0) (-0.0, -0.0) (-1.0, -INF) (INF, INF) (-2.0, nan) (-INF, nan) (nan, nan);
        log2: (0.0, -INF) (-0.0, -INF) (1.0, 0.0) (8.0, 3.0) (0.125, -3.0) (INF, INF) (-1.0, nan) (nan, nan);
        log10: (0.0, -INF) (1.0, 0.0) (10.0, 1.0) (1e10, 10.0) (INF, INF) (-1.0, nan) (nan, nan);
        sin: (0.0, 0.0) (-0.0, -0.0) (INF, nan) (-INF, nan) (nan, nan);
        cos: (0.0, 1.0) (-0.0, 1.0) (INF, nan) (-INF, nan) (nan, nan);
        tan: (0.0, 0.0) (-0.0, -0.0) (INF, nan) (-INF, nan) (nan, nan);
        asin: (0.0, 0.0) (-0.0, -0.0) (1.0, FRAC_PI_2) (-1.0, -FRAC_PI_2) (1.5, nan) (INF, nan) (nan, nan);
        acos: (1.0, 0.0) (0.0, FRAC_PI_2) (-1.0, PI) (-1.5, nan) (INF, nan) (nan, nan);
        atan: (0.0, 0.0) (-0.0, -0.0) (INF, FRAC_PI_2) (-INF, -FRAC_PI_2) (nan, nan);
        sinh: (0.0, 0.0) (-0.0, -0.0) (INF, INF) (-INF, -INF) (1e30, INF) (-1e30, -INF) (nan, nan);
        cosh: (0.0, 1.0) (INF, INF) (-INF, INF) (1e30, INF) (nan, nan);
        tanh: (0.0, 0.0) (-0.0, -0.0) (INF, 1.0) (-INF, -1.0) (1e30, 1.0) (nan, nan);
        asinh: (0.0, 0.0) (-0.0, -0.0) (INF, INF) (-INF, -INF) (nan, nan);
        acosh: (1.0, 0.0) (INF, INF) (0.5, nan) (-1e4, nan) (-INF, nan) (nan, nan);
        atanh: (0.0, 0.0) (-0.0, -0.0) (1.0, INF) (-1.0, -INF) (1.5, nan) (-INF, nan) (nan, nan);
        floor: (-0.0, -0.0) (-0.5, -1.0) (0.5, 0.0) (INF, INF) (-INF, -INF) (nan, nan);
        ceil: (-0.0, -0.0) (-0.5, -0.0) (0.5, 1.0) (INF, INF) (-INF, -INF) (nan, nan);
        round: (-0.0, -0.0) (-0.5, -0.0) (0.5, 0.0) (1.5, 2.0) (2.5, 2.0) (INF, INF) (nan, nan);
        trunc: (-0.0, -0.0) (-0.5, -0.0) (1.5, 1.0) (-1.5, -1.0) (INF, INF) (nan, nan);
        erf: (0.0, 0.0) (-0.0, -0.0) (INF, 1.0) (-INF, -1.0) (nan, nan);
        sigmoid: (0.0, 0.5) (INF, 1.0) (-INF, 0.0) (1e30, 1.0) (-1e30, 0.0) (nan, nan);
        gelu: (0.0, 0.0) (-0.0, -0.0) (INF, INF) (-INF, -0.0) (-1e30, -0.0) (1e30, 1e30) (nan, nan);
        silu: (0.0, 0.0) (-0.0, -0.0) (INF, INF) (-INF, -0.0) (-1e30, -0.0) (1e30, 1e30) (nan, nan);
    }
}

#[test]
fn magnitudes_and_signs() {
    for (x, magnitude, sign) in [
        (0.0, 0.0, 0.0),
        (-0.0, 0.0, 0.0),
        (-2.5, 2.5, -1.0),
        (INF, INF, 1.0),
        (-INF, INF, -1.0),
    ] {
        let bits = |value: f64| (value.to_bits(), (value as f32).to_bits());
        assert_eq!(bits(x.magnitude()), bits(magnitude));
        assert_eq!(bits(Signed::sign(x)), bits(sign));
        assert_eq!(
            (x as f32).magnitude().to_bits(),
            (magnitude as f32).to_bits()
        );
        assert_eq!(Signed::sign(x as f32).to_bits(), (sign as f32).to_bits());
    }
    for value in [f32::NAN, -f32::NAN] {
        assert!(value.magnitude().is_nan() && value.magnitude().is_sign_positive());
        assert!(Signed::sign(value).is_nan() && Signed::sign(f64::from(value)).is_nan());
    }
}

#[test]
fn the_edges_of_the_range() {
    // The arguments are the last ones with finite, normal and nonzero results, and their
    // neighbours.
    let pass = &mut Careful::<true>;
    for (x, exact) in [
        (88.722_83_f32, 3.402_798_5e38_f64),
        (88.722_84, f64::INFINITY),
        (-87.336_54, 1.175_499_67e-38),
        (-103.972_07, 1.401_298_5e-45),
        (-103.972_084, 0.0),
    ] {
        let value = math::exp(pass, x);
        let near = (f64::from(value) - exact).abs() <= 2e-7 * exact.abs();
        assert!(near || f64::from(value) == exact, "exp({x}) = {value:e}");
    }
    assert_eq!(
        math::exp(pass, 709.782_712_893_384_f64),
        1.797_693_134_862_273_2e308
    );
    assert_eq!(math::exp(pass, 709.782_712_893_384_1_f64), f64::INFINITY);
    assert_eq!(math::exp(pass, -745.133_219_101_941_1_f64), 5e-324);
    assert_eq!(math::exp(pass, -745.133_219_101_941_2_f64), 0.0);
    assert!(math::sinh(pass, 710.4_f64).is_finite() && math::cosh(pass, 710.4_f64).is_finite());
    // Near 0, these functions approximate the identity. They return subnormal arguments unchanged.
    for bits in [1_u32, 2, 3, 0x7f_ffff, 0x80_0000] {
        let x = f32::from_bits(bits);
        for y in [
            math::sin(pass, x),
            math::tan(pass, x),
            math::asin(pass, x),
            math::atan(pass, x),
            math::sinh(pass, x),
            math::tanh(pass, x),
            math::asinh(pass, x),
            math::atanh(pass, x),
            math::exp_m1(pass, x),
            math::log1p(pass, x),
        ] {
            assert_eq!(y.to_bits(), bits);
        }
        let x = f64::from_bits(bits.into());
        for y in [
            math::sin(pass, x),
            math::tan(pass, x),
            math::sinh(pass, x),
            math::tanh(pass, x),
            math::asinh(pass, x),
            math::atanh(pass, x),
            math::exp_m1(pass, x),
            math::log1p(pass, x),
        ] {
            assert_eq!(y.to_bits(), u64::from(bits));
        }
    }
}

#[test]
fn the_larger_and_the_smaller_pass_nan_on() {
    for (a, b) in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::NAN, f64::NAN)] {
        assert!(math::maximum(a, b).is_nan() && math::minimum(a, b).is_nan());
    }
    assert_eq!((math::maximum(1, 2), math::minimum(1, 2)), (2, 1));
    assert_eq!((math::maximum(2, 1), math::minimum(2, 1)), (2, 1));
}
