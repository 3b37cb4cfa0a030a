//! Conversions between all element types, compared with Rust's `as`.

use cachescope::Array;
use half::{bf16, f16};

/// Rust's `as`, extended to half-precision types. Conversions from halves use `f32`, and
/// conversions to halves use `f64`. Both types represent every half exactly.
trait Primitive: Copy {
    type Wide: Copy;
    fn wide(self) -> Self::Wide;
    fn samples() -> Vec<Self>;
}

macro_rules! primitive {
    ($($type:ident as $wide:ident: |$x:ident| $value:expr, $samples:expr;)+) => {
        $(
            impl Primitive for $type {
                type Wide = $wide;
                fn wide(self) -> $wide {
                    let $x = self;
                    $value
                }
                fn samples() -> Vec<Self> {
                    $samples.to_vec()
                }
            }
        )+
    };
}

const FLOATS: [f64; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    127.9,
    255.5,
    -129.0,
    70000.0,
    3e9,
    -1e19,
    1e300,
    f64::INFINITY,
];

primitive! {
    f32 as f32: |x| x, FLOATS.map(|x| x as f32).into_iter().chain([f32::NAN]).collect::<Vec<_>>();
    f64 as f64: |x| x, FLOATS.into_iter().chain([f64::NAN]).collect::<Vec<_>>();
    f16 as f32: |x| x.to_f32(), FLOATS.map(f16::from_f64).into_iter().chain([f16::NAN]).collect::<Vec<_>>();
    bf16 as f32: |x| x.to_f32(), FLOATS.map(bf16::from_f64).into_iter().chain([bf16::NAN]).collect::<Vec<_>>();
    i8 as i8: |x| x, [0, 1, -1, i8::MAX, i8::MIN];
    i16 as i16: |x| x, [0, 1, -1, 300, i16::MAX, i16::MIN];
    i32 as i32: |x| x, [0, 1, -1, 16_777_217, i32::MAX, i32::MIN];
    i64 as i64: |x| x, [0, 1, -1, 9_007_199_254_740_993, i64::MAX, i64::MIN];
    u8 as u8: |x| x, [0, 1, 128, u8::MAX];
    u16 as u16: |x| x, [0, 1, 0x8080, u16::MAX];
    u32 as u32: |x| x, [0, 1, 16_777_217, u32::MAX];
    u64 as u64: |x| x, [0, 1, 9_007_199_254_740_993, u64::MAX];
    bool as u8: |x| u8::from(x), [false, true];
}

/// Returns the bits of an element, so that NaN equals itself and −0 differs from 0.
macro_rules! bits {
    (f16 $x:expr) => {
        u64::from($x.to_bits())
    };
    (bf16 $x:expr) => {
        u64::from($x.to_bits())
    };
    (f32 $x:expr) => {
        u64::from($x.to_bits())
    };
    (f64 $x:expr) => {
        $x.to_bits()
    };
    ($other:ident $x:expr) => {
        $x as u64
    };
}

macro_rules! oracle {
    (f16 $x:expr) => {
        f16::from_f64($x as f64)
    };
    (bf16 $x:expr) => {
        bf16::from_f64($x as f64)
    };
    (bool $x:expr) => {
        $x as f64 != 0.0
    };
    ($other:ident $x:expr) => {
        $x as $other
    };
}

macro_rules! check_targets {
    ($source:ident: $($target:ident)+) => {
        $(
            let samples = $source::samples();
            let array = Array::from_slice(&samples, samples.len()).unwrap();
            let converted = array.cast::<$target>().eval().unwrap().to_vec().unwrap();
            let chained = (array.lazy().cast::<$target>()).eval().unwrap().to_vec().unwrap();
            for ((&x, &y), &z) in samples.iter().zip(&converted).zip(&chained) {
                let expected: $target = oracle!($target x.wide());
                let (nan, bits) = (y != y, bits!($target y));
                assert!(
                    bits == bits!($target expected) || (nan && expected != expected),
                    "{x} of {} as {}: {y}, not {expected}",
                    stringify!($source), stringify!($target),
                );
                assert_eq!(bits, bits!($target z));
            }
        )+
    };
}

#[test]
#[allow(
    clippy::eq_op,
    clippy::cast_lossless,
    reason = "one macro converts between all types; only NaN differs from itself"
)]
fn every_conversion_is_rusts() {
    macro_rules! check_sources {
        ($($source:ident)+) => {
            $(check_targets!($source: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool);)+
        };
    }
    check_sources!(f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool);
}

#[test]
fn halves_are_rounded_once() {
    // Each number is next to the midpoint of two neighbours. Two roundings would give the midpoint,
    // and then the even neighbour.
    let x = Array::from_slice(
        &[(0x101_i64 << 40) + 1, -(0x101 << 40) - 1, (0x103 << 40) - 1],
        3,
    )
    .unwrap();
    let y = x.cast::<bf16>().eval().unwrap().to_vec().unwrap();
    let exact = |digits: i64| bf16::from_f64((digits << 40) as f64);
    assert_eq!(y, [exact(0x102), exact(-0x102), exact(0x102)]);
    let tie = 1.0 + 2f64.powi(-11);
    let x = Array::from_slice(&[tie, tie.next_up(), -tie.next_up()], 3).unwrap();
    let y = x.cast::<f16>().eval().unwrap().to_vec().unwrap();
    let above = f16::from_bits(f16::ONE.to_bits() + 1);
    assert_eq!(y, [f16::ONE, above, -above]);
}
