//! Gradients of `f16` and `bf16`, which are computed in `f32` and rounded once.

use std::fmt::Debug;

use cachescope::grad::value_and_grad;
use cachescope::{Array, Float, Result};
use half::{bf16, f16};

/// Compares the gradients of `$loss` at `$values` in `f16` and `bf16` with the gradient in `f64`.
macro_rules! agrees {
    ($values:expr, |$x:ident: $T:ident| $loss:expr) => {{
        macro_rules! gradient {
            ($type:ty) => {{
                type $T = $type;
                let x = Array::from_slice(&$values, $values.len()).unwrap();
                let x = x.cast::<$T>().eval().unwrap();
                let (_, gradient) = value_and_grad(&x, |$x: &Array<$T>| $loss).unwrap();
                let gradient = gradient.cast::<f64>().eval().unwrap();
                gradient.to_vec().unwrap()
            }};
        }
        let expected = gradient!(f64);
        assert_near(&gradient!(f16), &expected, f16::epsilon());
        assert_near(&gradient!(bf16), &expected, bf16::epsilon());
    }};
}

pub(super) fn number<T: Float>(value: f64) -> T {
    let value = Array::from_slice(&[value], []).unwrap();
    value.cast::<T>().eval().unwrap().item().unwrap()
}

/// Checks that values differ by at most two roundings: the rounding of the gradient, and the
/// rounding of a result that the gradient is computed from.
#[track_caller]
fn assert_near<T: Into<f64> + Debug>(own: &[f64], expected: &[f64], epsilon: T) {
    let epsilon = epsilon.into();
    for (own, expected) in own.iter().zip(expected) {
        assert!(
            (own - expected).abs() <= 2.0 * epsilon * expected.abs(),
            "{own} is not {expected}, to {epsilon}"
        );
    }
}

/// An element count above the largest `f16`. Its reciprocal is 0 in `f16`.
const MANY: usize = 1 << 25;
/// An element count. If its reciprocal is rounded to `f16`, the reciprocal changes by 7 %.
const SOME: usize = 3_000_000;

#[test]
fn a_mean_of_many_elements() {
    agrees!([1.0], |x: T| x.broadcast_to([MANY])?.mean());
    for count in [2049, 70_000, SOME] {
        agrees!([1.0], |x: T| x.broadcast_to([count])?.mean());
        agrees!([1.0, 3.0], |x: T| x
            .unsqueeze(1)?
            .broadcast_to([2, count / 2])?
            .mean_axis(1)?
            .sum());
    }
    agrees!([3.0], |x: T| (x * Array::<T>::ones(SOME)?).mean());
    // If the loss is scaled, the gradient of each element is in the range of `f16`.
    agrees!([1.0; SOME], |x: T| Ok(x.mean()? * number::<T>(1024.0)));
}

#[test]
fn equal_extremes_of_many() {
    for count in [2049, 70_000, SOME] {
        agrees!([2.0], |x: T| x.broadcast_to([count])?.max());
        agrees!([2.0], |x: T| x.broadcast_to([count])?.min());
        agrees!([2.0, 1.0], |x: T| x
            .unsqueeze(1)?
            .broadcast_to([2, count])?
            .max_axis(1)?
            .sum());
    }
    agrees!([2.0; 70_000], |x: T| Ok(x.max()? * number::<T>(1024.0)));
}

#[test]
fn moments_and_norms_of_many() {
    for count in [70_000, SOME / 2] {
        agrees!([1.0, 3.0], |x: T| x.broadcast_to([count, 2])?.var());
        agrees!([1.0, 3.0], |x: T| x.broadcast_to([count, 2])?.std());
    }
    let count = 70_000;
    agrees!([1.0, 3.0], |x: T| x
        .unsqueeze(1)?
        .unsqueeze(0)?
        .broadcast_to([count, 2, 1])?
        .var_axis([0, 1])?
        .sum());
    agrees!([1.0, 2.0], |x: T| x.broadcast_to([count, 2])?.norm());
}

#[test]
fn exponentials_of_many() {
    for count in [2049, 70_000, SOME] {
        agrees!([1.0, 1.5], |x: T| x.broadcast_to([count, 2])?.logsumexp());
    }
    let weights = Array::from_slice(&[1.0, -1.0], 2).unwrap();
    agrees!([0.5, 0.25], |x: T| {
        let y = x.unsqueeze(1)?.broadcast_to([2, 70_000])?.softmax(0)?;
        (y * weights.unsqueeze(1)?.cast::<T>()).mean()
    });
}

#[test]
fn functions_whose_factors_have_no_room() {
    // The first two functions compute a difference of nearly equal numbers. The next two have
    // intermediate results beyond the range of `f16`.
    agrees!([0.996_093_75, 0.5], |x: T| x.asin().sum());
    agrees!([-0.996_093_75, 0.5], |x: T| x.atanh().sum());
    agrees!([59_904.0, 2.0], |x: T| (x.square()
        * number::<T>(1.0 / 256.0))
    .sum());
    agrees!([59_904.0, 100.0], |x: T| {
        let [a, b] = [0, 1].map(|at| x.slice(ndarray::s![at]));
        (a? / b? * number::<T>(200.0)).eval()
    });
    agrees!([1.25, 0.125], |x: T| x.gelu().sum());
}

#[test]
fn an_element_that_is_taken_often() {
    let places = Array::<i64>::zeros(5000).unwrap();
    agrees!([1.0, 2.0], |x: T| Ok(
        x.take(&places, 0)?.sum()? * number::<T>(0.5)
    ));
    agrees!([1.0, 2.0], |x: T| Ok(
        x.gather(&places, 0)?.sum()? * number::<T>(0.5)
    ));
}

#[test]
fn windows_that_overlap() {
    agrees!([1.0; 400], |x: T| {
        let (x, weight) = (x.reshape([1, 20, 20])?, number::<T>(0.1));
        let mean = x.avg_pool2d([9, 9], [1, 1])?;
        let largest = x.max_pool2d([9, 9], [1, 1])?;
        Ok(mean.sum()? + largest.sum()? * weight)
    });
    agrees!([1.0; 10_000], |x: T| x
        .reshape([1, 100, 100])?
        .avg_pool2d([50, 50], [1, 1])?
        .sum());
}

#[test]
fn a_probability_near_one() {
    let classes = Array::from_slice(&[0_i64, 1], 2).unwrap();
    agrees!([8.0, 0.0, 7.0, 0.5], |x: T| x
        .reshape([2, 2])?
        .cross_entropy(&classes));
    let classes = Array::<i64>::zeros(70_000).unwrap();
    agrees!([0.5, 0.25], |x: T| x
        .broadcast_to([70_000, 2])?
        .cross_entropy(&classes));
}

#[test]
fn sums_and_means_of_many_have_room() -> Result<()> {
    let one = Array::<f16>::ones(1)?;
    let all = one.broadcast_to([MANY])?;
    assert_eq!(all.mean()?.item()?, f16::ONE);
    let some = one.broadcast_to([SOME])?;
    assert_eq!(some.var()?.item()?, f16::ZERO);
    assert_eq!(some.norm()?.item()?, f16::from_f64((SOME as f64).sqrt()));
    let rows = one.broadcast_to([2, SOME / 2])?;
    assert_eq!(rows.mean_axis(1)?.to_vec()?, [f16::ONE; 2]);
    let all = Array::<bf16>::ones(1)?.broadcast_to([MANY])?;
    assert_eq!(all.mean()?.item()?, bf16::ONE);
    assert_eq!(all.sum()?.item()?, bf16::from_f64(MANY as f64));
    let pooled = one
        .broadcast_to([1, 300, 300])?
        .avg_pool2d([300, 300], [1, 1])?;
    assert_eq!(pooled.item()?, f16::ONE);
    Ok(())
}
