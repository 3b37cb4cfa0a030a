//! Gradients of selections among equal elements, and of NaN.

use cachescope::grad::value_and_grad;
use cachescope::{Array, Result};

use crate::grad::differences::numbers;

type Loss = fn(&Array<f64>) -> Result<Array<f64>>;

fn gradient(x: &[f64], loss: Loss) -> Vec<f64> {
    let x = Array::from_slice(x, x.len()).unwrap();
    value_and_grad(&x, loss).unwrap().1.to_vec().unwrap()
}

/// Returns a weighted sum of the results. All weights differ.
fn weighted(results: &Array<f64>) -> Result<Array<f64>> {
    (results * numbers(results.shape(), 1.0)).sum()
}

/// Compares the gradients of `max_pool2d` with gradients of `max` over each window.
#[track_caller]
fn assert_as_max(x: &Array<f64>, size: [usize; 2], stride: [usize; 2]) {
    let pooled = |x: &Array<f64>| weighted(&x.max_pool2d(size, stride)?);
    let windows = |x: &Array<f64>| -> Result<Array<f64>> {
        let step = |step: usize| ndarray::SliceInfoElem::Slice {
            start: 0,
            end: None,
            step: step as isize,
        };
        let windows = x.windows(&size)?;
        let mut parts = vec![ndarray::SliceInfoElem::from(..); windows.ndim()];
        let rows = x.ndim() - 2;
        (parts[rows], parts[rows + 1]) = (step(stride[0]), step(stride[1]));
        weighted(&windows.slice(&parts)?.max_axis([-2, -1])?)
    };
    let (_, own) = value_and_grad(x, pooled).unwrap();
    let (_, expected) = value_and_grad(x, windows).unwrap();
    let (own, expected) = (own.to_vec().unwrap(), expected.to_vec().unwrap());
    for (own, expected) in own.iter().zip(&expected) {
        let is_same = own.is_nan() && expected.is_nan() || (own - expected).abs() < 1e-12;
        assert!(is_same, "{size:?} by {stride:?}: {own} is not {expected}");
    }
}

#[test]
fn equal_elements_of_a_window_share_evenly() -> Result<()> {
    let x = Array::<f64>::ones([1, 2, 2])?;
    let (_, gradient) = value_and_grad(&x, |x| x.max_pool2d([2, 2], [1, 1])?.sum())?;
    assert_eq!(gradient.to_vec()?, [0.25; 4]);
    let x = Array::<f64>::ones([1, 5, 5])?;
    let (_, gradient) = value_and_grad(&x, |x| x.max_pool2d([5, 5], [1, 1])?.sum())?;
    assert_eq!(gradient.to_vec()?, [0.04; 25]);
    Ok(())
}

#[test]
fn windows_share_as_max_does() -> Result<()> {
    let few: Vec<f64> = (0..2 * 8 * 9)
        .map(|at| f64::from((at * 7 + at / 5) % 3))
        .collect();
    let mut with_nan = few.clone();
    with_nan[40] = f64::NAN;
    for values in [few, with_nan] {
        let x = Array::from_vec(values, [2, 1, 8, 9])?;
        for size in [[2, 2], [2, 4], [3, 3], [1, 3], [5, 5], [7, 3], [8, 9]] {
            for stride in [[1, 1], [2, 3], [3, 2], [8, 9]] {
                assert_as_max(&x, size, stride);
            }
        }
    }
    Ok(())
}

#[test]
fn of_two_equal_values_each_gets_half() {
    let pair: Loss = |x| {
        let [a, b] = [0, 1].map(|at| x.slice(ndarray::s![at]));
        let (a, b) = (a?, b?);
        (a.maximum(&b) + a.minimum(&b) * 3.0).eval()
    };
    assert_eq!(gradient(&[2.0, 2.0], pair), [2.0, 2.0]);
    assert_eq!(gradient(&[2.0, 1.0], pair), [1.0, 3.0]);
}

#[test]
fn a_bound_that_is_met_passes_to_the_clamped() {
    assert_eq!(
        gradient(&[1.0, 2.0], |x| x.clamp(1.0, 2.0).sum()),
        [1.0, 1.0]
    );
    let bounds: Loss = |x| {
        let [value, low, high] = [0, 1, 2].map(|at| x.slice(ndarray::s![at]));
        value?.clamp(&low?, &high?).eval()
    };
    assert_eq!(gradient(&[1.0, 1.0, 2.0], bounds), [1.0, 0.0, 0.0]);
    assert_eq!(gradient(&[0.0, 1.0, 2.0], bounds), [0.0, 1.0, 0.0]);
}

#[test]
fn order_takes_the_first_of_equal_elements() {
    let ties = [2.0, 5.0, 5.0, 1.0];
    assert_eq!(
        gradient(&ties, |x| x.topk(1, 0)?.0.sum()),
        [0.0, 1.0, 0.0, 0.0]
    );
    assert_eq!(
        gradient(&ties, |x| weighted(&x.sort(0)?)),
        gradient(&[2.0, 5.0, 5.5, 1.0], |x| weighted(&x.sort(0)?))
    );
    // Equal elements are ordered by their indices.
    assert_eq!(
        gradient(&[5.0, 5.0, 1.0, 9.0], |x| x.median(0)),
        [0.5, 0.5, 0.0, 0.0]
    );
    assert_eq!(gradient(&[5.0, 5.0, 5.0], |x| x.median(0)), [0.0, 1.0, 0.0]);
}
