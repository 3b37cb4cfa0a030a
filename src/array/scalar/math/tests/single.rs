//! `f32`: every function over all arguments, against the function in `f64`.

use super::super::super::math;
use super::{Careful, Fast, STRIDE, in_all_lanes, ulps};

macro_rules! sweeps {
    ($($name:ident $(rare from $limit:literal)? within $bound:literal: |$x:ident| $exact:expr;)+) => {
        $(
            mod $name {
                use super::*;

                fn sweep(stride: usize) {
                    for bits in (0..=u32::MAX).step_by(stride) {
                        let argument = f32::from_bits(bits);
                        let $x = f64::from(argument);
                        let exact: f64 = $exact;
                        let (careful, fast, rare) = in_all_lanes!($name, argument);
                        let what = stringify!($name);
                        for (value, same) in careful.into_iter().zip(fast) {
                            let off = ulps(value, exact);
                            assert!(off <= $bound, "{what}({argument:e}) = {value:e}, {off} ulp off");
                            let zero = exact == 0.0 && value == 0.0;
                            assert!(!zero || value.is_sign_negative() == exact.is_sign_negative(),
                                "{what}({argument:e}) = {value:e}");
                            let nan = value.is_nan() && same.is_nan();
                            assert!(nan || value.to_bits() == same.to_bits(),
                                "{what}({argument:e}) is {value:e} and {same:e}");
                        }
                        #[allow(unused_mut, unused_assignments, reason = "few functions have a limit")]
                        let mut may_be_rare = false;
                        $(may_be_rare = argument.abs() >= $limit;)?
                        assert_eq!(rare, may_be_rare, "{what}({argument:e})");
                    }
                }

                #[test]
                fn strided() {
                    sweep(STRIDE);
                }

                #[test]
                #[ignore = "takes minutes"]
                fn everywhere() {
                    sweep(1);
                }
            }
        )+
    };
}

sweeps! {
    sqrt within 0.5: |x| x.sqrt();
    rsqrt within 1.5: |x| 1.0 / x.sqrt();
    recip within 0.5: |x| 1.0 / x;
    exp within 1.1: |x| x.exp();
    exp_m1 within 0.51: |x| x.exp_m1();
    ln within 1.0: |x| x.ln();
    log1p within 0.51: |x| x.ln_1p();
    log2 within 0.51: |x| x.log2();
    log10 within 0.51: |x| x.log10();
    sin rare from 1e5 within 1.6: |x| x.sin();
    cos rare from 1e5 within 1.6: |x| x.cos();
    tan rare from 1e5 within 3.9: |x| x.tan();
    asin within 0.51: |x| x.asin();
    acos within 0.51: |x| x.acos();
    atan within 0.51: |x| x.atan();
    sinh within 0.51: |x| x.sinh();
    cosh within 0.51: |x| x.cosh();
    tanh within 1.5: |x| x.tanh();
    asinh within 0.51: |x| x.asinh();
    acosh within 0.51: |x| x.acosh();
    atanh within 0.51: |x| if x.abs() < 1e-5 { x + x * x * x / 3.0 } else { x.atanh() };
    floor within 0.0: |x| x.floor();
    ceil within 0.0: |x| x.ceil();
    round within 0.0: |x| x.round_ties_even();
    trunc within 0.0: |x| x.trunc();
    erf within 0.52: |x| libm::erf(x);
    sigmoid within 2.7: |x| 1.0 / (1.0 + (-x).exp());
    gelu within 0.52: |x| if x < -40.0 { -0.0 } else {
        0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
    };
    silu within 3.3: |x| if x < -500.0 { -0.0 } else { x / (1.0 + (-x).exp()) };
}
