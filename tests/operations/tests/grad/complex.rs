//! Gradients through complex numbers, from real variables to a real loss.

use cachescope::grad::value_and_grad;
use cachescope::{Array, Complex, Result, complex, concat, einsum, select};
use ndarray::s;

use crate::grad::differences::{check, numbers};

type Numbers = Array<Complex<f64>>;

/// Returns complex numbers whose real and imaginary parts depend on `x`.
pub(crate) fn spun(x: &Array<f64>) -> Result<Numbers> {
    complex(x.sin(), x * x - 0.7).eval()
}

/// Returns complex constants.
fn others(shape: &[usize]) -> Numbers {
    let x = numbers(shape, 0.8);
    complex(&x - 0.5, x.exp()).eval().unwrap()
}

/// Returns a weighted sum of the real and imaginary parts of all elements. All weights differ.
pub(crate) fn weighted(z: &Numbers) -> Result<Array<f64>> {
    let weights = numbers(z.shape(), 1.0);
    (z.re() * &weights + z.im() * (2.0 - &weights)).sum()
}

#[test]
fn functions() {
    let (x, y) = (numbers(&[2, 3], 1.0), others(&[2, 3]));
    check(&x, |x| spun(x)?.abs().sum());
    check(&x, |x| (spun(x)?.re() * x + spun(x)?.im()).sum());
    check(&x, |x| weighted(&(spun(x)? + &y - spun(x)? * &y).eval()?));
    check(&x, |x| weighted(&(spun(x)? / &y).eval()?));
    check(&x, |x| weighted(&(&y / spun(x)?).eval()?));
    check(&x, |x| {
        weighted(&(-spun(x)?.conj() * spun(x)?.square()).eval()?)
    });
    check(&x, |x| weighted(&spun(x)?.mul_add(&y, spun(x)?).eval()?));
    check(&x, |x| weighted(&y.mul_add(spun(x)?.conj(), &y).eval()?));
    // Real arrays also have real and imaginary parts.
    check(&x, |x| (x.re() + x.im() + x.conj() * x).sum());
}

#[test]
fn one_pass() {
    let x = numbers(&[2, 3], 1.0);
    check(&x, |x| {
        (complex(x.cos(), x.sin()) * Complex::from(2.0)).re().sum()
    });
    check(&x, |x| complex(x.exp(), 1.5).abs().sum());
}

#[test]
fn choices() {
    let (x, y) = (numbers(&[5], 1.0), others(&[5]));
    check(&x, |x| weighted(&select(x.gt(0.5), spun(x)?, &y).eval()?));
    check(&x, |x| {
        weighted(&select(x.gt(0.5), &y, spun(x)? * spun(x)?).eval()?)
    });
    // The operand that is not selected has an infinite slope.
    let x = Array::from_slice(&[0.0, 1.0, 2.0], 3).unwrap();
    check(&x, |x| {
        let z = complex(x - 1.0, x * 0.0);
        let inverse = Complex::from(1.0) / z;
        let is_far = (x - 1.0).abs().gt(0.5);
        weighted(&select(is_far, inverse, Complex::from(3.0)).eval()?)
    });
}

#[test]
fn conversions() {
    let x = numbers(&[4], 1.0);
    check(&x, |x| {
        weighted(&(x.cast::<Complex<f64>>() * others(&[4])).eval()?)
    });
    check(&x, |x| spun(x)?.cast::<f64>().sum());
    let narrow = |x: &Array<f64>| spun(x)?.cast::<Complex<f32>>().eval();
    let (_, gradient) = value_and_grad(&x, |x| narrow(x)?.cast::<f64>().sum()).unwrap();
    let (_, wide) = value_and_grad(&x, |x| spun(x)?.re().sum()).unwrap();
    assert!((gradient - wide).abs().max().unwrap().item().unwrap() < 1e-6);
}

#[test]
fn broadcasts() {
    check(&numbers(&[3], 1.0), |x| {
        weighted(&(spun(x)? * others(&[2, 3])).eval()?)
    });
    check(&numbers(&[2, 1], 1.0), |x| {
        weighted(&(others(&[2, 3]) / spun(x)?).eval()?)
    });
    check(&numbers(&[], 1.0), |x| {
        (spun(x)? * others(&[2, 3])).sum()?.abs().eval()
    });
}

#[test]
fn an_absolute_value_of_zero() -> Result<()> {
    let x = Array::from_slice(&[0.0, 3.0], 2)?;
    let (_, gradient) = value_and_grad(&x, |x| complex(x, x * 0.0).abs().sum())?;
    assert_eq!(gradient.to_vec()?, [0.0, 1.0]);
    Ok(())
}

#[test]
fn folds() {
    let x = numbers(&[3, 4], 1.0);
    check(&x, |x| spun(x)?.sum()?.abs().eval());
    check(&x, |x| weighted(&spun(x)?.sum_axis(0)?));
    check(&x, |x| weighted(&spun(x)?.mean_axis(1)?));
    check(&x, |x| {
        weighted(&(spun(x)? * others(&[3, 4])).mean_keepdims(1)?)
    });
    check(&x, |x| weighted(&spun(x)?.prod_axis(1)?));
    check(&x, |x| weighted(&spun(x)?.prod()?));
    check(&x, |x| weighted(&spun(x)?.cumsum(1)?));
    check(&x, |x| weighted(&spun(x)?.cumprod(1)?));
}

#[test]
fn products() {
    let (x, y) = (numbers(&[3, 3], 1.0), others(&[3, 3]));
    check(&x, |x| weighted(&spun(x)?.matmul(&y)?));
    check(&x, |x| weighted(&y.matmul(&spun(x)?)?));
    check(&x, |x| {
        weighted(&spun(x)?.matmul(&spun(x)?.conj().eval()?)?)
    });
    check(&numbers(&[2, 2, 3], 1.0), |x| {
        weighted(&spun(x)?.matmul(&y)?)
    });
    check(&numbers(&[3], 1.0), |x| weighted(&y.matmul(&spun(x)?)?));
    check(&numbers(&[3], 1.0), |x| {
        spun(x)?.dot(&others(&[3]))?.abs().eval()
    });
    check(&x, |x| weighted(&einsum("ij,kj->ik", (&spun(x)?, &y))?));
}

#[test]
fn movements() {
    let x = numbers(&[3, 4], 1.0);
    let places = Array::from_slice(&[2_i64, 0, 2], 3).unwrap();
    check(&x, |x| weighted(&spun(x)?.take(&places, 0)?));
    check(&x, |x| weighted(&spun(x)?.swap_axes(0, 1)?.roll(1, 0)?));
    check(&x, |x| {
        weighted(&concat(&[&spun(x)?, &others(&[1, 4])], 0)?)
    });
    check(&x, |x| weighted(&spun(x)?.repeat(2, 1)?));
    check(&x, |x| weighted(&spun(x)?.tril(0)?));
    check(&x, |x| {
        let mut z = spun(x)?;
        z.slice_mut(s![.., 1])?.assign(others(&[3]))?;
        weighted(&z)
    });
    check(&x, |x| {
        let mut sums = others(&[3, 4]);
        sums.scatter_add(&Array::zeros([3, 4])?, &spun(x)?, 0)?;
        weighted(&sums)
    });
}
