//! Real functions over whole arrays, compared with functions of one `f64`. The tests cover every
//! float type, arrays and expressions, and every position in memory.
//!
//! On CUDA, the functions are CUDA's, so each row has a bound for the host and a bound for CUDA.

use cachescope::{Array, Float};
use half::{bf16, f16};
use under_test::cuda_ordinal;

/// Returns the bound for the device of the test.
fn bound(host: f64, cuda: f64) -> f64 {
    if cuda_ordinal().is_some() { cuda } else { host }
}

/// Returns numbers of all magnitudes, including NaN and infinities. The numbers fill several blocks
/// of a kernel, and a part of another block.
fn singles() -> Vec<f32> {
    let step = u32::MAX / 20_021;
    (0..20_021)
        .map(|index| f32::from_bits(index * step))
        .collect()
}

fn doubles() -> Vec<f64> {
    let wider = |(index, x)| f64::from(x) * (1.0 + f64::from(index) * 1e-11);
    (0_u32..).zip(singles()).map(wider).collect()
}

/// Returns the distance from `exact` to `actual` in units in the last place of the type.
fn ulps<T: Float>(actual: T, exact: f64) -> f64 {
    let nearest = T::from_f64(exact).to_f64();
    let value = actual.to_f64();
    if value.to_bits() == nearest.to_bits() || (value.is_nan() && nearest.is_nan()) {
        return 0.0;
    }
    if value == 0.0 && nearest == 0.0 {
        return f64::INFINITY; // The signs of the zeros differ.
    }
    let (least, greatest) = match T::NAME {
        "f64" => (-1022, 1023),
        "f16" => (-14, 15),
        _ => (-126, 127),
    };
    let exponent = (exact.abs().to_bits() >> 52) as i32 - 1023;
    let place = exponent.clamp(least, greatest) + 1 - T::MANTISSA_DIGITS as i32;
    // The unit, 2 to the power of `place`, may be subnormal.
    let unit = if place < -1022 {
        f64::from_bits(1 << (place + 1074))
    } else {
        2f64.powi(place)
    };
    // Infinity counts as the next number after the largest number.
    let beyond = 2f64.powi(greatest) * 2.0;
    let value = if value.is_infinite() {
        beyond.copysign(value)
    } else {
        value
    };
    (value - exact).abs() / unit
}

fn wide<T: Float>(x: T) -> f64 {
    x.to_f64()
}

#[track_caller]
fn assert_close<T: Float>(name: &str, x: &[T], y: &[T], exact: impl Fn(usize) -> f64, bound: f64) {
    assert_eq!(x.len(), y.len());
    let off = (0..x.len()).map(|index| (ulps(y[index], exact(index)), index));
    let (off, index) = off
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .expect("there are elements");
    let (x, y) = (x[index].to_f64(), y[index].to_f64());
    let told = format!("{name}({x:e}) = {y:e} in {}: {off} ulp off", T::NAME);
    println!("at most: {told}");
    assert!(off <= bound, "{told}");
}

/// The callback of `functions!`: compares each function of one or two arguments in `f32`, through
/// arrays and through expressions.
macro_rules! singles {
    ($lane:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        #[test]
        fn every_function() {
            let values = singles();
            let x = Array::from_slice(&values, values.len()).unwrap();
            let backwards: Vec<f32> = values.iter().rev().copied().collect();
            let y = Array::from_slice(&backwards, values.len()).unwrap();
            $(singles! { @row $kind $name $arguments (values x backwards y) $($body)+ })+
        }
    };
    (
        @row float $name:ident ($x:ident $(, $y:ident $(: $type:ident)?)?) ($values:ident $array:ident $others:ident $other:ident)
        host: $single:expr, $double:expr; $(rare: $from:literal;)? cuda: $cuda:literal;
        example: $element:ident $($operand:tt),+ => $output:tt;
        exact: $exact:expr; ulps: f32 $bound:literal, $(f64 $wide:literal up to $limit:literal,)? cuda $on_cuda:literal;
    ) => {{
        let eager = $array.$name($(singles!(@array $y $other $($type)?))?).eval().unwrap();
        let fused = $array.lazy().$name($(singles!(@array $y $other $($type)?))?).eval().unwrap();
        let (eager, fused) = (eager.to_vec().unwrap(), fused.to_vec().unwrap());
        let exact = |index: usize| -> f64 {
            let $x = f64::from($values[index]);
            $(let $y = singles!(@value ($others[index]) $($type)?);)?
            $exact
        };
        assert_close(stringify!($name), &$values, &eager, exact, bound($bound, $on_cuda));
        let same = eager.iter().zip(&fused).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "fused {} differs", stringify!($name));
    }};
    (@array $y:ident $other:ident) => { &$other };
    (@array $y:ident $other:ident i32) => { -3 };
    (@value ($other:expr)) => { f64::from($other) };
    (@value ($other:expr) i32) => { -3_i32 };
    (@row power $($row:tt)+) => { singles! { @row float $($row)+ } };
    (@row $kind:ident $($row:tt)+) => {};
}

cachescope::functions! { singles }

/// Defines a test. Each row has a function, two bounds, and the function in `f64`. The bounds are
/// in units in the last place, for the host and for CUDA.
macro_rules! check {
    (
        $test:ident of $values:expr;
        $($name:ident within $host:literal, $cuda:literal: |$x:ident| $exact:expr;)+
    ) => {
        #[test]
        fn $test() {
            let values = $values;
            let x = Array::from_slice(&values, values.len()).unwrap();
            $(
                let eager = x.$name().eval().unwrap().to_vec().unwrap();
                let exact = |index: usize| -> f64 {
                    let $x = wide(values[index]);
                    $exact
                };
                assert_close(stringify!($name), &values, &eager, exact, bound($host, $cuda));
                let fused = x.lazy().$name().eval().unwrap().to_vec().unwrap();
                let same = eager.iter().zip(&fused).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "fused {} differs", stringify!($name));
            )+
        }
    };
}

// All types share the rows of `functions!`, so a few functions suffice here. Other tests check the
// functions in `f64`.
check! {
    doubles_are_computed_in_their_own_type of doubles();
    exp within 2.0, 1.5: |x| x.exp();
    sin within 2.0, 2.5: |x| x.sin();
    gelu within 4.0, 13.0: |x| gelu(x);
}

// The rounding to 16 bits hides the errors of `f32`, so the bounds are near half a unit.
check! {
    every_f16_is_computed_in_f32 of (0..=u16::MAX).map(f16::from_bits).collect::<Vec<_>>();
    exp within 0.51, 0.51: |x| x.exp();
    sin within 0.51, 0.51: |x| x.sin();
    gelu within 0.51, 0.51: |x| gelu(x);
}

check! {
    every_bf16_is_computed_in_f32 of (0..=u16::MAX).map(bf16::from_bits).collect::<Vec<_>>();
    exp within 0.51, 0.51: |x| x.exp();
    sin within 0.51, 0.51: |x| x.sin();
    gelu within 0.51, 0.51: |x| gelu(x);
}

/// Returns x · (1 + erf(x / √2)) / 2. `slope` corrects the rounding error of `quotient`.
fn gelu(x: f64) -> f64 {
    use std::f64::consts::FRAC_1_SQRT_2;
    if x.abs() > 40.0 {
        return if x < 0.0 { -0.0 } else { x };
    }
    let quotient = -x * FRAC_1_SQRT_2;
    let lost = (-x).mul_add(FRAC_1_SQRT_2, -quotient) + x * 4.833_646_656_726_457e-17;
    let slope = if quotient > 1.0 { -2.0 * quotient } else { 0.0 };
    0.5 * x * libm::erfc(quotient) * (1.0 + slope * lost)
}

#[test]
fn an_element_has_one_result_at_any_position() {
    // A rare element changes the computation of its block. The ends of arrays are computed
    // separately.
    let usual: Vec<f32> = (0_u16..5000)
        .map(|index| f32::from(index) * 0.37 - 900.0)
        .collect();
    let mut mixed = usual.clone();
    for index in [0, 17, 1023, 1024, 3000, 4999] {
        mixed[index] = 1e30;
    }
    let chain = |x: &Array<f32>| -> Vec<f32> {
        ((x.sin() * 2.0 + x.cos()).tanh() - x.tan())
            .eval()
            .unwrap()
            .to_vec()
            .unwrap()
    };
    let x = Array::from_slice(&usual, 5000).unwrap();
    let expected = chain(&x);
    let others = chain(&Array::from_slice(&mixed, 5000).unwrap());
    for (index, &x) in mixed.iter().enumerate() {
        let value = if x == 1e30 {
            let x = f64::from(x);
            let (sine, cosine) = (x.sin(), x.cos());
            assert!(ulps(others[index], (sine * 2.0 + cosine).tanh() - sine / cosine) < 8.0);
            continue;
        } else {
            expected[index]
        };
        assert_eq!(others[index].to_bits(), value.to_bits(), "at {index}");
    }
    for (start, count) in [(0, 1), (1, 7), (13, 1023), (1000, 1030), (4990, 10)] {
        let part = x
            .slice(cachescope::ndarray::s![start..start + count])
            .unwrap();
        assert_eq!(chain(&part), expected[start..start + count]);
    }
    // The functions are also applied in place.
    let mut array = Array::from_slice(&mixed, 5000).unwrap();
    array
        .update(|x| (x.sin() * 2.0 + x.cos()).tanh() - x.tan())
        .unwrap();
    assert_eq!(array.to_vec().unwrap(), others);
}
