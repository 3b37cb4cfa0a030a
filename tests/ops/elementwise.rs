//! Each elementwise operation, against what one element gives.

use cachescope::{Array, Element, select};
use half::{bf16, f16};
use num_traits::Float;

/// Values of every kind, more of them than a vector holds.
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
    abs |x| if x < 0.0 { -x } else { x };
    square |x| x * x;
    recip |x| 1.0 / x;
    sqrt |x| x.sqrt();
    exp |x| x.exp();
    ln |x| x.ln();
    sin |x| x.sin();
    cos |x| x.cos();
    tanh |x| x.tanh();
    relu |x| if x < 0.0 { 0.0 } else { x };
}

#[test]
fn sigmoid_is_accurate_on_both_sides() {
    let x = array::<f64>(&floats());
    let y = x.sigmoid().eval().unwrap().to_vec().unwrap();
    for (x, y) in x.to_vec().unwrap().into_iter().zip(y) {
        let expected = if x < 0.0 {
            x.exp() / (1.0 + x.exp())
        } else {
            1.0 / (1.0 + (-x).exp())
        };
        let close = (y - expected).abs() <= 4.0 * f64::EPSILON * expected.abs();
        assert!(close || (x.is_nan() && y.is_nan()), "sigmoid({x}) = {y}");
    }
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
    // With one rounding at the end, not one a step.
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
