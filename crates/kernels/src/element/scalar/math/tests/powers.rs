//! Tests of functions of two arguments in `f32`, with all pairs of special values and with
//! pseudorandom pairs.

use super::{Careful, Fast, in_all_passes, ulps};
use crate::Numeric;
use crate::element::scalar::math;

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

/// Returns all pairs of special values, and pseudorandom pairs of all magnitudes.
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

const WHOLE: [i32; 15] = [
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

/// Compares functions of two arguments with their exact form. The macro is a callback of
/// `functions!`.
macro_rules! compare {
    ($pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        $(compare! { @row $kind $name $arguments $($body)+ })+
    };
    (
        @row float $name:ident ($x:ident, $y:ident $(: $type:ident)?)
        host: $single:expr, $double:expr; cuda: $cuda:literal;
        example: $element:ident $($operand:tt),+ => $output:tt;
        exact: $exact:expr; ulps: f32 $bound:literal, $($others:tt)+
    ) => {
        #[test]
        fn $name() {
            for (x, y) in compare!(@pairs $($type)?) {
                let ($x, $y) = (f64::from(x), compare!(@wide y $($type)?));
                let exact: f64 = $exact;
                let (careful, fast, rare) = in_all_passes!($name, x, y);
                assert!(!rare);
                for (value, same) in careful.into_iter().zip(fast) {
                    let off = ulps(value, exact);
                    let what = stringify!($name);
                    assert!(off <= $bound, "{what}({x:e}, {y:e}) = {value:e}, {off} ulp off");
                    let sign = exact.is_nan() || value.is_sign_negative() == exact.is_sign_negative();
                    assert!(sign, "{what}({x:e}, {y:e}) = {value:e}, not {exact:e}");
                    assert!(value.to_bits() == same.to_bits() || (value.is_nan() && same.is_nan()));
                }
            }
        }
    };
    (@row power $($rest:tt)+) => { compare! { @row float $($rest)+ } };
    (@row $kind:ident $name:ident $($rest:tt)+) => {};
    (@pairs) => { pairs() };
    (@pairs i32) => { pairs().take(20_000).flat_map(|(x, _)| WHOLE.map(|n| (x, n))) };
    (@wide $y:ident) => { f64::from($y) };
    (@wide $y:ident i32) => { $y };
}

functions! { compare }

#[test]
fn whole_powers_of_doubles_are_those_of_the_standard_library() {
    for (x, _) in pairs().take(20_000) {
        for n in WHOLE {
            let x = f64::from(x);
            let exact = x.powf(f64::from(n));
            let (double, ..) = in_all_passes!(powi, x, n);
            assert!(double[0].to_bits() == exact.to_bits() || exact.is_nan());
        }
    }
}

/// Checks all powers of `values` against repeated multiplication.
fn check_whole<T: Numeric>(values: &[T]) {
    let (one, minus_one) = (T::one(), T::zero().minus(T::one()));
    for &x in values {
        let mut power = one;
        for n in 0..200 {
            let (careful, fast, rare) = in_all_passes!(powi, x, n);
            assert_eq!((careful, fast), ([power; 2], [power; 2]), "{x}^{n}");
            assert_eq!(rare, n >= 64, "{n}");
            power = power.times(x);
        }
        let is_minus_one = x == minus_one && minus_one < one;
        for n in [-1, -2, -3, -64, i32::MIN, i32::MIN + 1] {
            let inverse = match x {
                _ if x == one || (is_minus_one && n % 2 == 0) => one,
                _ if is_minus_one => minus_one,
                _ => T::zero(),
            };
            let (careful, _, rare) = in_all_passes!(powi, x, n);
            assert_eq!((careful, rare), ([inverse; 2], true), "{x}^{n}");
        }
    }
}

#[test]
fn whole_powers_of_integers_wrap_in_their_type() {
    macro_rules! check {
        ($($type:ident)+) => {
            $(check_whole(&[0, 1, 2, 3, 7, 100, 127, $type::MAX, $type::MIN, $type::MAX - 1, $type::MIN + 1]);)+
        };
    }
    check!(i8 i16 i32 i64 u8 u16 u32 u64);
    check_whole(&[-1_i8, -2, -3]);
    check_whole(&[-1_i32, -2, -46_341]);
    check_whole(&[-1_i64, -2, 3_037_000_500]);
}
