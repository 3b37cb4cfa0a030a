//! Functions of two arguments in `f32`: every pair of special values, and many others.

use super::super::super::math;
use super::{Careful, Fast, in_all_lanes, ulps};

const SPECIAL: [f32; 30] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    1.5,
    -1.5,
    1e-45,
    -1e-45,
    f32::MIN_POSITIVE,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    0.999_999_94,
    1.000_000_1,
    16_777_216.0,
    16_777_215.0,
    8_388_609.0,
    -8_388_607.0,
    88.0,
    -104.0,
    1e-30,
    1e30,
];

/// The special values in pairs, and numbers of all sizes.
fn pairs() -> impl Iterator<Item = (f32, f32)> {
    let special = SPECIAL.into_iter().flat_map(|x| SPECIAL.map(|y| (x, y)));
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let others = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let unit = |bits: u64| (bits & 0xff_ffff) as f32 / 16_777_216.0;
        match state % 3 {
            0 => (
                f32::from_bits(state as u32),
                f32::from_bits((state >> 32) as u32),
            ),
            1 => (30.0 * unit(state), 40.0 * unit(state >> 32) - 20.0),
            _ => (1.0 + 1e-4 * unit(state), 2e6 * unit(state >> 32) - 1e6),
        }
    });
    special.chain(others.take(200_000))
}

macro_rules! compare {
    ($name:ident, |$x:ident, $y:ident| $exact:expr) => {
        for (x, y) in pairs() {
            let ($x, $y) = (f64::from(x), f64::from(y));
            let exact: f64 = $exact;
            let (careful, fast, rare) = in_all_lanes!($name, x, y);
            assert!(!rare);
            for (value, same) in careful.into_iter().zip(fast) {
                let off = ulps(value, exact);
                let what = stringify!($name);
                assert!(
                    off <= 0.52,
                    "{what}({x:e}, {y:e}) = {value:e}, {off} ulp off"
                );
                let sign = exact.is_nan() || value.is_sign_negative() == exact.is_sign_negative();
                assert!(sign, "{what}({x:e}, {y:e}) = {value:e}, not {exact:e}");
                assert!(value.to_bits() == same.to_bits() || (value.is_nan() && same.is_nan()));
            }
        }
    };
}

#[test]
fn powf() {
    compare!(powf, |x, y| x.powf(y));
}

#[test]
fn atan2() {
    compare!(atan2, |y, x| y.atan2(x));
}

#[test]
fn powi() {
    let exponents = [
        0,
        1,
        -1,
        2,
        -2,
        3,
        7,
        -9,
        24,
        127,
        -149,
        1001,
        i32::MAX,
        i32::MIN,
        i32::MIN + 1,
    ];
    for (x, _) in pairs().take(20_000) {
        for n in exponents {
            let exact = f64::from(x).powf(f64::from(n));
            let (careful, fast, _) = in_all_lanes!(powi, x, n);
            for (value, same) in careful.into_iter().zip(fast) {
                let off = ulps(value, exact);
                assert!(off <= 0.52, "powi({x:e}, {n}) = {value:e}, {off} ulp off");
                assert!(exact.is_nan() || value.is_sign_negative() == exact.is_sign_negative());
                assert!(value.to_bits() == same.to_bits() || (value.is_nan() && same.is_nan()));
            }
            let (double, ..) = in_all_lanes!(powi, f64::from(x), n);
            assert!(double[0].to_bits() == exact.to_bits() || exact.is_nan());
        }
    }
}
