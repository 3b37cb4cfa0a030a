//! Tests of the conversions of halves, against the `half` crate and against exact arithmetic.

use half::{bf16, f16};

use super::narrow::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::{Arithmetic, Signed, convert};

#[test]
fn every_half_widens_as_in_the_half_crate() {
    for bits in 0..=u16::MAX {
        let (x, y) = (f16::from_bits(bits), bf16::from_bits(bits));
        assert_eq!(
            f16_to_f32(x).to_bits(),
            x.to_f32_const().to_bits(),
            "{bits:#x}"
        );
        assert_eq!(
            bf16_to_f32(y).to_bits(),
            y.to_f32_const().to_bits(),
            "{bits:#x}"
        );
        assert_eq!(
            f32_to_f16(f16_to_f32(x)).to_bits(),
            f16::from_f32_const(x.to_f32_const()).to_bits()
        );
    }
}

fn narrow_all(stride: usize) {
    for bits in (0..=u32::MAX).step_by(stride) {
        let x = f32::from_bits(bits);
        assert_eq!(
            f32_to_f16(x).to_bits(),
            f16::from_f32_const(x).to_bits(),
            "{bits:#x}"
        );
        assert_eq!(
            f32_to_bf16(x).to_bits(),
            bf16::from_f32(x).to_bits(),
            "{bits:#x}"
        );
    }
}

#[test]
fn halves_narrow_as_in_the_half_crate() {
    narrow_all(499);
    // The low bits of these numbers are near a tie.
    for high in (0..=u16::MAX).step_by(61) {
        for low in [
            0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff,
        ] {
            let x = f32::from_bits((u32::from(high) << 16) | low);
            assert_eq!(
                f32_to_f16(x).to_bits(),
                f16::from_f32_const(x).to_bits(),
                "{x:e}"
            );
            assert_eq!(
                f32_to_bf16(x).to_bits(),
                bf16::from_f32(x).to_bits(),
                "{x:e}"
            );
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn every_float_narrows_as_in_the_half_crate() {
    narrow_all(1);
}

/// Checks the midpoints of neighbouring halves, and the numbers next to the midpoints. Two
/// roundings of such a neighbour would return the wrong half.
macro_rules! ties {
    ($half:ident, $wide:ident) => {
        for bits in 1..$half::MAX.to_bits() {
            let (low, high) = ($half::from_bits(bits), $half::from_bits(bits + 1));
            let tie = (f64::from($wide(low)) + f64::from($wide(high))) / 2.0;
            let even = if bits & 1 == 0 { low } else { high };
            for (x, nearest) in [(tie, even), (tie.next_down(), low), (tie.next_up(), high)] {
                assert_eq!(
                    convert::<$half, f64>(x).to_bits(),
                    nearest.to_bits(),
                    "{x:e}"
                );
                assert_eq!(
                    convert::<$half, f64>(-x).to_bits(),
                    (-nearest).to_bits(),
                    "{x:e}"
                );
            }
        }
    };
}

#[test]
fn doubles_are_rounded_to_halves_once() {
    ties!(f16, f16_to_f32);
    ties!(bf16, bf16_to_f32);
    assert_eq!(convert::<f16, f64>(1e300), f16::INFINITY);
    assert_eq!(convert::<bf16, f64>(-1e300), bf16::NEG_INFINITY);
    assert!(convert::<f16, f64>(f64::NAN).is_nan() && convert::<bf16, f64>(-f64::NAN).is_nan());
    assert_eq!(convert::<bf16, f64>(-1e-300).to_bits(), 0x8000);
}

#[test]
fn integers_are_rounded_to_halves_once() {
    for shift in 1..55 {
        // The numbers are a midpoint between two numbers of eight digits, and its neighbours.
        for digits in [0x101_u64, 0x103, 0x155, 0x1ff] {
            let (tie, low, high) = (
                digits << shift,
                (digits - 1) << shift,
                (digits + 1) << shift,
            );
            let even = if digits & 2 == 0 { low } else { high };
            for (x, nearest) in [(tie, even), (tie - 1, low), (tie + 1, high)] {
                let exact = |y: bf16| f64::from(bf16_to_f32(y)) as u64;
                assert_eq!(exact(convert::<bf16, u64>(x)), nearest, "{x}");
                let signed = convert::<bf16, i64>(-(x as i64));
                assert_eq!(exact(-signed), nearest, "−{x}");
            }
        }
    }
    assert_eq!(
        convert::<bf16, i64>(i64::MIN),
        bf16::from_f32(-9.223_372e18)
    );
    assert_eq!(
        convert::<bf16, u64>(u64::MAX),
        bf16::from_f32(1.844_674_4e19)
    );
    assert_eq!(convert::<f16, i64>(65_519), f16::MAX);
    assert_eq!(convert::<f16, i64>(65_520), f16::INFINITY);
    assert_eq!(convert::<f16, u64>(u64::MAX), f16::INFINITY);
}

#[test]
fn halves_compute_as_the_half_crate_does() {
    let bits: Vec<u16> = (0..=u16::MAX).step_by(211).collect();
    macro_rules! check {
        ($($half:ident)+) => {
            $(
                for (&a, &b) in bits.iter().flat_map(|a| bits.iter().map(move |b| (a, b))) {
                    let (a, b) = ($half::from_bits(a), $half::from_bits(b));
                    for (own, other) in [
                        (a.plus(b), a + b),
                        (a.minus(b), a - b),
                        (a.times(b), a * b),
                        (a.over(b), a / b),
                        (a.modulo(b), a % b),
                    ] {
                        let nan = own.is_nan() && other.is_nan();
                        assert!(nan || own.to_bits() == other.to_bits(), "{a} and {b}: {own}, {other}");
                    }
                }
            )+
        };
    }
    check!(f16 bf16);
}

#[test]
fn no_sign_is_left_on_a_magnitude() {
    macro_rules! check {
        ($($float:ident)+) => {
            $(
                assert!($float::NAN.magnitude().is_sign_positive());
                assert!((-$float::NAN).magnitude().is_nan());
                assert!((-$float::NAN).magnitude().is_sign_positive());
                let zero: $float = convert(-0.0_f64);
                assert!(zero.is_sign_negative() && zero.magnitude().is_sign_positive());
                assert!(zero.sign().is_sign_positive() && zero.sign() == zero);
                assert!($float::NAN.sign().is_nan());
            )+
        };
    }
    check!(f32 f64 f16 bf16);
    assert_eq!(
        (i8::MIN.magnitude(), (-3_i32).magnitude(), 7_u8.magnitude()),
        (i8::MIN, 3, 7)
    );
    assert_eq!(
        (i8::MIN.sign(), 0_i64.sign(), 9_u16.sign(), 0_u16.sign()),
        (-1, 0, 1, 0)
    );
}
