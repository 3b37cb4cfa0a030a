//! The derivatives of a function by central differences.

use cachescope::grad::{hvp, jvp, value_and_grad};
use cachescope::{Array, ErrorKind, Result};

/// The optimal distance of central differences in `f64`, at which the errors of rounding and of
/// curvature are equal.
const STEP: f64 = 6e-6;

/// Compares the gradient of `function` at `x` with finite differences. Compares the gradient's
/// derivatives along a direction with differences of the gradient.
#[track_caller]
pub(crate) fn check(x: &Array<f64>, function: impl Fn(&Array<f64>) -> Result<Array<f64>>) {
    check_gradient(x, &function);
    check_products(x, &function);
}

/// Returns a direction without zeros.
fn direction(x: &Array<f64>) -> Array<f64> {
    (numbers(x.shape(), -0.9) + 0.8).eval().unwrap()
}

#[track_caller]
fn check_products(x: &Array<f64>, function: impl Fn(&Array<f64>) -> Result<Array<f64>>) {
    let along = direction(x);
    let gradient_at = |by: f64| {
        let moved = (x + &along * by).eval().unwrap();
        let (_, gradient) = value_and_grad(&moved, |x| function(x)).unwrap();
        gradient
    };
    let (value, product) = jvp(x, &along, &function).unwrap();
    assert_eq!(value, function(x).unwrap());
    let product = product.item().unwrap();
    let expected = (gradient_at(0.0) * &along).sum().unwrap().item().unwrap();
    let error = (product - expected).abs() / expected.abs().max(1.0);
    assert!(
        error < 1e-12,
        "along the direction: {product}, and {expected} of the gradient"
    );
    let (_, product) = hvp(x, &along, &function).unwrap();
    assert_eq!(product.shape(), x.shape());
    check_nested(&product, x, &along, &function);
    let differences = (gradient_at(STEP) - gradient_at(-STEP)) / (2.0 * STEP);
    let differences = differences.eval().unwrap().to_vec().unwrap();
    for (index, (own, difference)) in product
        .to_vec()
        .unwrap()
        .iter()
        .zip(differences)
        .enumerate()
    {
        let error = (own - difference).abs() / difference.abs().max(1.0);
        assert!(
            error < 1e-6,
            "of element {index} of the second: {own}, and {difference} by differences"
        );
    }
}

/// Compares the Hessian-vector product with the gradient of a directional derivative, which is a
/// gradient inside of a gradient.
#[track_caller]
fn check_nested(
    product: &Array<f64>,
    x: &Array<f64>,
    along: &Array<f64>,
    function: impl Fn(&Array<f64>) -> Result<Array<f64>>,
) {
    let directional = |x: &Array<f64>| {
        let (_, gradient) = value_and_grad(x, &function)?;
        (gradient * along).sum()
    };
    // If the gradient does not depend on `x`, the directional derivative is a constant.
    let nested = match value_and_grad(x, directional) {
        Ok((_, nested)) => nested,
        Err(error) if error.kind() == ErrorKind::InvalidArgument => {
            Array::zeros(x.shape()).unwrap()
        }
        Err(error) => panic!("{error}"),
    };
    let largest = product.abs().max().unwrap().item().unwrap();
    let error = (nested - product).abs().max().unwrap().item().unwrap();
    assert!(error <= 1e-12 * largest.max(1.0), "nested, by {error}");
}

#[track_caller]
fn check_gradient(x: &Array<f64>, function: impl Fn(&Array<f64>) -> Result<Array<f64>>) {
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

/// Returns numbers above `0.13 * scale` that are not near each other or near whole numbers.
pub(crate) fn numbers(shape: &[usize], scale: f64) -> Array<f64> {
    let count: usize = shape.iter().product();
    let number =
        |index: usize| 0.13 + ((index * 7 + 3) % 11) as f64 * 0.073 + index as f64 * 0.0031;
    let numbers: Vec<f64> = (0..count).map(|index| number(index) * scale).collect();
    Array::from_slice(&numbers, shape).unwrap()
}
