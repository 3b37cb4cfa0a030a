//! The gradient of a function by central differences.

use cachescope::grad::value_and_grad;
use cachescope::{Array, Result};

/// Optimal for central differences in `f64`: the error of rounding is that of curvature.
const STEP: f64 = 6e-6;

/// Holds the gradient of `function` at `x` to its differences.
#[track_caller]
pub(crate) fn check(x: &Array<f64>, function: impl Fn(&Array<f64>) -> Result<Array<f64>>) {
    let (_, gradient) = value_and_grad(x, |x| function(x)).unwrap();
    assert_eq!(gradient.shape(), x.shape());
    let (values, gradient) = (x.to_vec().unwrap(), gradient.to_vec().unwrap());
    let at = |index: usize, by: f64| {
        let mut moved = values.clone();
        moved[index] += by;
        let moved = Array::from_slice(&moved, x.shape()).unwrap();
        function(&moved).unwrap().item().unwrap()
    };
    for (index, own) in gradient.iter().enumerate() {
        let step = STEP * values[index].abs().max(1.0);
        let difference = (at(index, step) - at(index, -step)) / (2.0 * step);
        let error = (own - difference).abs() / difference.abs().max(1.0);
        assert!(
            error < 1e-7,
            "of element {index}: {own}, and {difference} by differences"
        );
    }
}

/// Numbers that are far from each other's and from whole ones, from 0.13 on.
pub(crate) fn numbers(shape: &[usize], scale: f64) -> Array<f64> {
    let count: usize = shape.iter().product();
    let number =
        |index: usize| 0.13 + ((index * 7 + 3) % 11) as f64 * 0.073 + index as f64 * 0.0031;
    let numbers: Vec<f64> = (0..count).map(|index| number(index) * scale).collect();
    Array::from_slice(&numbers, shape).unwrap()
}
