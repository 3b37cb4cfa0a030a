//! Each elementwise operation, compared with its result for single elements.

use cachescope::{AnyElement, Array, Element, select};
use half::{bf16, f16};
use num_traits::Float;

/// Returns values of every kind, which need several vector registers.
fn floats() -> Vec<f64> {
    let special = [
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e-310,
        1e30,
        -1e30,
    ];
    let usual = (0..300).map(|index| f64::from(index) * 0.37 - 50.0);
    special.into_iter().chain(usual).collect()
}

fn array<T: Element>(values: &[f64]) -> Array<T> {
    let values = values.iter().map(|&x| T::from_f64(x)).collect();
    Array::<T>::from_vec(values, 308).unwrap()
}

#[track_caller]
fn assert_same<T: Element>(actual: &[T], expected: &[T], what: &str) {
    assert_eq!(actual.len(), expected.len());
    for (index, (&x, &y)) in actual.iter().zip(expected).enumerate() {
        let same = x.to_f64().to_bits() == y.to_f64().to_bits();
        let nan = x.to_f64().is_nan() && y.to_f64().is_nan();
        assert!(
            same || nan,
            "{what} of {}: {x}, not {y} at {index}",
            T::NAME
        );
    }
}

/// Checks a method on arrays and on expressions against a function of one `f32` or `f64`.
macro_rules! check_unary {
    ($($name:ident |$x:ident| $value:expr;)+) => {
        $(
            #[test]
            fn $name() {
                check_unary!(@float f32 f32, $name |$x| $value);
                check_unary!(@float f64 f64, $name |$x| $value);
                check_unary!(@float f16 f32, $name |$x| $value);
                check_unary!(@float bf16 f32, $name |$x| $value);
            }
        )+
    };
    (@float $type:ident $wide:ident, $name:ident |$x:ident| $value:expr) => {
        let x = array::<$type>(&floats());
        let expected: Vec<$type> = x.to_vec().unwrap().into_iter().map(|x| {
            let $x = <$wide>::from(x);
            num_traits::cast::<$wide, $type>($value).unwrap()
        }).collect();
        let eager = x.$name().eval().unwrap().to_vec().unwrap();
        assert_same(&eager, &expected, stringify!($name));
        let fused = x.lazy().$name().eval().unwrap().to_vec().unwrap();
        assert_same(&fused, &expected, stringify!($name));
    };
}

check_unary! {
    neg |x| -x;
    abs |x| x.abs();
    square |x| x * x;
    recip |x| 1.0 / x;
    sqrt |x| x.sqrt();
    relu |x| if x < 0.0 { 0.0 } else { x };
    sign |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x + 0.0 };
    floor |x| x.floor();
    ceil |x| x.ceil();
    round |x| x.round_ties_even();
    trunc |x| x.trunc();
}

#[test]
fn absolute_values_have_no_sign() {
    let x = Array::from_slice(&[-0.0_f32, -f32::NAN, -1.5], 3).unwrap();
    let y = x.abs().eval().unwrap().to_vec().unwrap();
    assert!(y.iter().all(|y| y.is_sign_positive()) && y[1].is_nan());
    let x = Array::from_slice(&[i8::MIN, -3, 4], 3).unwrap();
    assert_eq!(x.abs().eval().unwrap().to_vec().unwrap(), [i8::MIN, 3, 4]);
    assert_eq!(x.sign().eval().unwrap().to_vec().unwrap(), [-1, -1, 1]);
    let x = Array::from_slice(&[0_u64, u64::MAX], 2).unwrap();
    assert_eq!(x.abs().eval().unwrap().to_vec().unwrap(), [0, u64::MAX]);
    assert_eq!(x.sign().eval().unwrap().to_vec().unwrap(), [0, 1]);
}

#[test]
fn clamp_keeps_between_its_bounds() {
    let x = Array::from_slice(&[-5.0_f32, 0.5, 9.0, f32::NAN, -0.0], 5).unwrap();
    let y = x.clamp(-1.0, 1.0).eval().unwrap().to_vec().unwrap();
    assert_same(&y, &[-1.0, 0.5, 1.0, f32::NAN, -0.0], "clamp");
    // The high bound takes precedence, and NaN bounds are propagated.
    let y = x.lazy().clamp(2.0, 1.0).eval().unwrap().to_vec().unwrap();
    assert_same(&y, &[1.0, 1.0, 1.0, f32::NAN, 1.0], "clamp");
    let high = Array::from_slice(&[f32::NAN, 0.25], [2, 1]).unwrap();
    let y = x.clamp(f32::NEG_INFINITY, high).eval().unwrap();
    assert_eq!(y.shape(), [2, 5]);
    let nan = f32::NAN;
    let expected = [nan, nan, nan, nan, nan, -5.0, 0.25, 0.25, nan, -0.0];
    assert_same(&y.to_vec().unwrap(), &expected, "clamp");
    let x = Array::from_slice(&[0_u8, 100, 255], 3).unwrap();
    assert_eq!(
        x.clamp(7, 200).eval().unwrap().to_vec().unwrap(),
        [7, 100, 200]
    );
}

#[test]
fn mul_add_rounds_once_and_wraps() {
    // If the product were rounded before the sum, the last digit of the square would be lost.
    let near = 1.0 + 2f32.powi(-13);
    let x = Array::from_slice(&[near, 3.0], 2).unwrap();
    let y = x.mul_add(&x, -1.0).eval().unwrap().to_vec().unwrap();
    assert_eq!(y, [2f32.powi(-12) + 2f32.powi(-26), 8.0]);
    assert_ne!(y[0], near * near - 1.0);
    let near = 1.0 + 2f64.powi(-27);
    let x = Array::from_slice(&[near, 3.0], 2).unwrap();
    let y = x.lazy().mul_add(&x, -1.0).eval().unwrap().to_vec().unwrap();
    assert_eq!(y, [2f64.powi(-26) + 2f64.powi(-54), 8.0]);
    let x = Array::from_slice(&[f16::from_f32(1.001), f16::MAX], 2).unwrap();
    let y = x
        .mul_add(x.lazy(), f16::NEG_ONE)
        .eval()
        .unwrap()
        .to_vec()
        .unwrap();
    let exact = f64::from(f16::from_f32(1.001)).powi(2) - 1.0;
    assert_eq!(y, [f16::from_f64(exact), f16::INFINITY]);
    let x = Array::from_slice(&[100_i8, -128], 2).unwrap();
    let y = x.mul_add(3, 100).eval().unwrap().to_vec().unwrap();
    assert_eq!(
        y,
        [
            100_i8.wrapping_mul(3).wrapping_add(100),
            (-128_i8).wrapping_mul(3).wrapping_add(100)
        ]
    );
}

#[test]
fn and_or_not_work_on_truth_and_on_bits() {
    let a = Array::from_slice(&[true, true, false, false], 4).unwrap();
    let b = Array::from_slice(&[true, false, true, false], 4).unwrap();
    assert_eq!(
        a.and(&b).eval().unwrap().to_vec().unwrap(),
        [true, false, false, false]
    );
    assert_eq!(
        a.or(&b).eval().unwrap().to_vec().unwrap(),
        [true, true, true, false]
    );
    assert_eq!(
        a.not().eval().unwrap().to_vec().unwrap(),
        [false, false, true, true]
    );
    let inside = a.lazy().and(b.lazy().not()).or(false).eval().unwrap();
    assert_eq!(inside.to_vec().unwrap(), [false, true, false, false]);
    let operators = ((&a & !&b) | false).eval().unwrap();
    assert_eq!(operators, inside);
    assert_eq!(
        (true & !(&a | &b)).eval().unwrap(),
        a.or(&b).not().eval().unwrap()
    );
    macro_rules! check {
        ($($type:ident)+) => {
            $(
                let values = [$type::MIN, 0, 1, 0b0110, $type::MAX, !0];
                let x = Array::from_slice(&values, 6).unwrap();
                let of = |f: fn($type) -> $type| values.map(f);
                assert_eq!(x.and(0b1010).eval().unwrap().to_vec().unwrap(), of(|x| x & 0b1010));
                assert_eq!(x.or(0b1010).eval().unwrap().to_vec().unwrap(), of(|x| x | 0b1010));
                assert_eq!(x.not().eval().unwrap().to_vec().unwrap(), of(|x| !x));
                assert_eq!((0b1010 & &x).eval().unwrap().to_vec().unwrap(), of(|x| x & 0b1010));
                assert_eq!((&x | 0b1010).eval().unwrap().to_vec().unwrap(), of(|x| x | 0b1010));
                assert_eq!((!&x).eval().unwrap().to_vec().unwrap(), of(|x| !x));
            )+
        };
    }
    check!(i8 i16 i32 i64 u8 u16 u32 u64);
}

#[test]
fn is_nan_finds_every_nan() {
    fn check<T: Float + cachescope::Float>() {
        let values: Vec<T> = floats()
            .into_iter()
            .map(<T as AnyElement>::from_f64)
            .collect();
        let x = Array::from_slice(&values, values.len()).unwrap();
        let expected: Vec<bool> = values.iter().map(|x| Float::is_nan(*x)).collect();
        assert_eq!(expected.iter().filter(|&&nan| nan).count(), 1);
        assert_eq!(x.is_nan().eval().unwrap().to_vec().unwrap(), expected);
        assert_eq!(
            (-x).is_nan().not().eval().unwrap().to_vec().unwrap(),
            expected.iter().map(|x| !x).collect::<Vec<_>>()
        );
    }
    check::<f32>();
    check::<f64>();
    check::<f16>();
    check::<bf16>();
}

#[test]
fn powers_take_arrays_of_exponents() {
    let x = Array::from_slice(&[2.0_f32, -2.0, 0.0, 10.0], 4).unwrap();
    let n = Array::from_slice(&[10, 3, 0, -2], 4).unwrap();
    assert_eq!(
        x.powi(&n).eval().unwrap().to_vec().unwrap(),
        [1024.0, -8.0, 1.0, 0.01]
    );
    let n = n.unsqueeze(1).unwrap();
    assert_eq!(x.lazy().powi(n.lazy() * 2).eval().unwrap().shape(), [4, 4]);
    let x = Array::from_slice(&[f16::from_f32(3.0), f16::from_f32(-300.0)], 2).unwrap();
    assert_eq!(
        x.powi(2).eval().unwrap().to_vec().unwrap(),
        [f16::from_f32(9.0), f16::INFINITY]
    );
    let x = Array::from_slice(&[3.0_f64, 1.1, -8.0], 3).unwrap();
    let y = x.powf(3.0).eval().unwrap().to_vec().unwrap();
    assert_eq!(y, [27.0, 1.1_f64.powf(3.0), -512.0]);
    let missing = x.powi(Array::<i32>::ones(2).unwrap()).eval().unwrap_err();
    assert_eq!(missing.kind(), cachescope::ErrorKind::ShapeMismatch);
    assert!(missing.to_string().contains("powi"), "{missing}");
}

#[test]
fn maximum_and_minimum_pass_nan_on() {
    let a = Array::from_slice(&[f32::NAN, 1.0, f32::NAN, 2.0, -1.0], 5).unwrap();
    let b = Array::from_slice(&[1.0, f32::NAN, f32::NAN, 1.0, 1.0], 5).unwrap();
    let largest = a.maximum(&b).eval().unwrap().to_vec().unwrap();
    let smallest = a.minimum(&b).eval().unwrap().to_vec().unwrap();
    assert!(
        largest[..3]
            .iter()
            .chain(&smallest[..3])
            .all(|x| x.is_nan())
    );
    assert_eq!(
        (&largest[3..], &smallest[3..]),
        (&[2.0, 1.0][..], &[1.0, -1.0][..])
    );
    let i = Array::from_slice(&[i8::MIN, 3, i8::MAX], 3).unwrap();
    assert_eq!(
        i.maximum(0).eval().unwrap().to_vec().unwrap(),
        [0, 3, i8::MAX]
    );
    assert_eq!(
        i.minimum(0).eval().unwrap().to_vec().unwrap(),
        [i8::MIN, 0, 0]
    );
    assert_eq!(i.relu().eval().unwrap().to_vec().unwrap(), [0, 3, i8::MAX]);
    let mask = Array::from_slice(&[true, false], 2).unwrap();
    assert_eq!(
        mask.maximum(true).eval().unwrap().to_vec().unwrap(),
        [true, true]
    );
    assert_eq!(
        mask.minimum(true).eval().unwrap().to_vec().unwrap(),
        [true, false]
    );
}

#[test]
fn comparisons_are_rusts() {
    let values = [f32::NAN, -0.0, 0.0, 1.0, f32::INFINITY];
    let left: Vec<f32> = values.iter().flat_map(|&x| [x; 5]).collect();
    let right = values.repeat(5);
    let (a, b) = (
        Array::from_slice(&left, 25).unwrap(),
        Array::from_slice(&right, 25).unwrap(),
    );
    macro_rules! check {
        ($($name:ident $operator:tt;)+) => {
            $(
                let expected: Vec<bool> =
                    left.iter().zip(&right).map(|(x, y)| x $operator y).collect();
                assert_eq!(a.$name(&b).eval().unwrap().to_vec().unwrap(), expected);
                assert_eq!(a.lazy().$name(&b).eval().unwrap().to_vec().unwrap(), expected);
            )+
        };
    }
    check! { eq ==; ne !=; lt <; le <=; gt >; ge >=; }
    let mask = Array::from_slice(&[true, false], 2).unwrap();
    assert_eq!(
        mask.eq(true).eval().unwrap().to_vec().unwrap(),
        [true, false]
    );
    assert_eq!(
        mask.lt(true).eval().unwrap().to_vec().unwrap(),
        [false, true]
    );
}

#[test]
fn integers_wrap_and_divide_without_panic() {
    macro_rules! check {
        ($($type:ident)+) => {
            $(
                let values = [$type::MIN, $type::MIN + 1, 0, 1, 2, 7, $type::MAX - 1, $type::MAX, !0];
                let left: Vec<$type> = values.iter().flat_map(|&x| [x; 9]).collect();
                let right = values.repeat(9);
                let a = Array::from_slice(&left, 81).unwrap();
                let b = Array::from_slice(&right, 81).unwrap();
                let oracle = |f: fn($type, $type) -> $type| -> Vec<$type> {
                    left.iter().zip(&right).map(|(&x, &y)| f(x, y)).collect()
                };
                assert_eq!((&a + &b).eval().unwrap().to_vec().unwrap(), oracle($type::wrapping_add));
                assert_eq!((&a - &b).eval().unwrap().to_vec().unwrap(), oracle($type::wrapping_sub));
                assert_eq!((&a * &b).eval().unwrap().to_vec().unwrap(), oracle($type::wrapping_mul));
                assert_eq!(
                    (&a / &b).eval().unwrap().to_vec().unwrap(),
                    oracle(|x, y| if y == 0 { 0 } else { x.wrapping_div(y) })
                );
                assert_eq!(
                    (&a % &b).eval().unwrap().to_vec().unwrap(),
                    oracle(|x, y| if y == 0 { 0 } else { x.wrapping_rem(y) })
                );
                let negated: Vec<$type> = left.iter().map(|x| x.wrapping_neg()).collect();
                assert_eq!((-&a).eval().unwrap().to_vec().unwrap(), negated);
            )+
        };
    }
    check!(i8 i16 i32 i64 u8 u16 u32 u64);
}

#[test]
fn float_arithmetic_is_the_types_own() {
    macro_rules! check {
        ($($type:ident)+) => {
            $(
                let values: Vec<$type> = floats().into_iter().map($type::from_f64).collect();
                let other: Vec<$type> = values.iter().rev().copied().collect();
                let a = Array::from_slice(&values, values.len()).unwrap();
                let b = Array::from_slice(&other, other.len()).unwrap();
                let oracle = |f: fn($type, $type) -> $type| -> Vec<$type> {
                    values.iter().zip(&other).map(|(&x, &y)| f(x, y)).collect()
                };
                assert_same(&(&a + &b).eval().unwrap().to_vec().unwrap(), &oracle(|x, y| x + y), "+");
                assert_same(&(&a - &b).eval().unwrap().to_vec().unwrap(), &oracle(|x, y| x - y), "-");
                assert_same(&(&a * &b).eval().unwrap().to_vec().unwrap(), &oracle(|x, y| x * y), "*");
                assert_same(&(&a / &b).eval().unwrap().to_vec().unwrap(), &oracle(|x, y| x / y), "/");
                assert_same(&(&a % &b).eval().unwrap().to_vec().unwrap(), &oracle(|x, y| x % y), "%");
            )+
        };
    }
    check!(f32 f64 f16 bf16);
}

#[test]
fn select_takes_from_both_sides() {
    let x = array::<f32>(&floats());
    let y = select(x.ge(0.0), &x * 2.0, 7.0)
        .eval()
        .unwrap()
        .to_vec()
        .unwrap();
    let expected: Vec<f32> = x
        .to_vec()
        .unwrap()
        .into_iter()
        .map(|x| if x >= 0.0 { x * 2.0 } else { 7.0 })
        .collect();
    assert_same(&y, &expected, "select");
    let mask = Array::from_slice(&[true, false], [2, 1]).unwrap();
    let y = select(&mask, Array::from_slice(&[1, 2, 3], 3).unwrap(), 0)
        .eval()
        .unwrap();
    assert_eq!(
        (y.shape(), y.to_vec().unwrap()),
        (&[2, 3][..], vec![1, 2, 3, 0, 0, 0])
    );
    let y = select(mask, true, false).eval().unwrap();
    assert_eq!(y.to_vec().unwrap(), [true, false]);
}

#[test]
fn halves_keep_the_functions_of_floats() {
    // The result is rounded once at the end, not after each operation.
    let x = array::<f16>(&floats());
    let y = x.sigmoid().eval().unwrap().to_vec().unwrap();
    for (x, y) in x.to_vec().unwrap().into_iter().zip(y) {
        let expected = f16::from_f64(1.0 / (1.0 + (-x.to_f64()).exp()));
        let apart = (i32::from(y.to_bits()) - i32::from(expected.to_bits())).abs();
        assert!(
            apart <= 1 || Float::is_nan(x),
            "sigmoid({x}) = {y}, not {expected}"
        );
    }
    assert_eq!(bf16::NAME, "bf16");
}
