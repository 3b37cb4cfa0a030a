//! The derivatives of each function of single elements.

use cachescope::grad::{hvp, value_and_grad};
use cachescope::{Array, Result, select};

use crate::grad::differences::{check, numbers};

macro_rules! functions {
    ($($name:ident at $scale:expr;)+) => {
        $(
            #[test]
            fn $name() {
                check(&numbers(&[2, 3], $scale), |x| (x.$name() * 1.7).sum());
                check(&numbers(&[5], $scale), |x| (x.$name() * x).sum());
            }
        )+
    };
}

functions! {
    abs at -1.0;
    square at 1.0;
    relu at 1.0;
    recip at 1.0;
    sqrt at 1.0;
    rsqrt at 1.0;
    cbrt at 1.0;
    exp at 1.0;
    exp2 at 1.0;
    exp_m1 at 1.0;
    ln at 1.0;
    log1p at 1.0;
    log2 at 1.0;
    log10 at 1.0;
    sin at 1.0;
    cos at 1.0;
    tan at 1.0;
    asin at 0.5;
    acos at 0.5;
    atan at 1.0;
    sinh at 1.0;
    cosh at 1.0;
    tanh at 1.0;
    asinh at 1.0;
    acosh at 10.0;
    atanh at 0.5;
    erf at 1.0;
    sigmoid at 1.0;
    gelu at -1.0;
    silu at -1.0;
    floor at 3.0;
    round at 3.0;
    sign at 1.0;
}

#[test]
fn operators() {
    let y = numbers(&[2, 3], 1.3);
    check(&numbers(&[2, 3], 1.0), |x| {
        (x + &y * x - x / &y + (&y / x) % 0.71 - 1.5 * -x).sum()
    });
}

#[test]
fn functions_of_two() -> Result<()> {
    let y = Array::from_slice(&[0.4, 0.1, 0.9, 0.3, 0.2, 1.1], [2, 3])?;
    let x = numbers(&[2, 3], 1.0);
    check(&x, |x| x.maximum(&y).sum());
    check(&x, |x| (x.minimum(&y) * &y).sum());
    check(&x, |x| y.maximum(x).sum());
    check(&x, |x| (x.powf(&y) + y.powf(x)).sum());
    check(&x, |x| (x.atan2(&y) + y.atan2(x)).sum());
    check(&x, |x| x.mul_add(&y, x).sum());
    check(&x, |x| x.powi(3).sum());
    check(&x, |x| (x.powi(0) + x.powi(1) + x.powi(-2)).sum());
    check(&x, |x| x.clamp(0.3, 0.6).sum());
    check(&x, |x| select(x.gt(&y), x * x, x * 3.0).sum());
    check(&x, |x| (x.cast::<f32>().cast::<f64>() * 0.0 + x).sum());
    Ok(())
}

#[test]
fn places_where_functions_have_edges() -> Result<()> {
    type Of3 = fn(&Array<f64>, &Array<f64>, &Array<f64>) -> Result<Array<f64>>;
    let of = |x: f64, y: f64, z: f64, f: Of3| {
        let one = |value: f64| Array::from_slice(&[value], 1);
        let (_, (a, b, c)) = value_and_grad(&(one(x)?, one(y)?, one(z)?), |(a, b, c)| f(a, b, c))?;
        Ok::<_, cachescope::Error>([a.to_vec()?[0], b.to_vec()?[0], c.to_vec()?[0]])
    };
    // If the bounds cross, the high bound takes precedence.
    assert_eq!(
        of(0.0, 5.0, 3.0, |x, low, high| x.clamp(low, high).sum())?,
        [0.0, 0.0, 1.0]
    );
    assert_eq!(
        of(4.0, 1.0, 3.0, |x, low, high| x.clamp(low, high).sum())?,
        [0.0, 0.0, 1.0]
    );
    assert_eq!(
        of(0.0, 1.0, 3.0, |x, low, high| x.clamp(low, high).sum())?,
        [0.0, 1.0, 0.0]
    );
    // Each of two equal operands gets half of the gradient.
    assert_eq!(
        of(2.0, 2.0, 0.0, |x, y, _| x.maximum(y).sum())?,
        [0.5, 0.5, 0.0]
    );
    // The bases of these powers are 0.
    assert_eq!(
        of(0.0, 2.0, 0.0, |x, n, _| x.powf(n).sum())?,
        [0.0, 0.0, 0.0]
    );
    assert_eq!(
        of(0.0, 0.0, 0.0, |x, n, _| x.powf(n).sum())?,
        [0.0, 0.0, 0.0]
    );
    // Even if the first derivative of a factor is infinite, second derivatives are correct.
    let zero = Array::from_slice(&[0.0], 1)?;
    let one = Array::from_slice(&[1.0], 1)?;
    for (exponent, expected) in [(0.0, 0.0), (1.0, 0.0), (2.0, 2.0)] {
        let (_, product) = hvp(&zero, &one, |x| x.powf(exponent).sum())?;
        assert_eq!(product.to_vec()?, [expected]);
        let (_, product) = hvp(&zero, &one, |x| x.powi(exponent as i32).sum())?;
        assert_eq!(product.to_vec()?, [expected]);
    }
    // The number is just below a multiple of the divisor, so the quotient is rounded up.
    let below = 3.0 * 0.1_f64 - f64::EPSILON / 8.0;
    let quotient = ((below - below % 0.1) / 0.1).round();
    assert_eq!(
        of(below, 0.1, 0.0, |x, y, _| (x % y).sum())?,
        [1.0, -quotient, 0.0]
    );
    Ok(())
}

#[test]
fn results_of_which_some_are_not_used() -> Result<()> {
    let x = Array::from_slice(&[0.0, 1.0], 2)?;
    let y = Array::from_slice(&[3.0], 1)?;
    let (_, (x, y)) = value_and_grad(&(x, y), |(x, y)| {
        // The first result's derivative is infinite, and its gradient is 0.
        let (_unused, twice, above) = cachescope::eval((x.ln() + y, x * 2.0, x.gt(0.5)))?;
        assert_eq!(above.sum()?.item()?, 1);
        let above = above.not().eval()?;
        assert_eq!(above.sum()?.item()?, 1);
        twice.sum()
    })?;
    assert_eq!((x.to_vec()?, y.to_vec()?), (vec![2.0, 2.0], vec![0.0]));
    Ok(())
}

#[test]
fn operands_that_broadcast() {
    let wide = numbers(&[4, 2, 3], 1.0);
    for shape in [&[3][..], &[2, 1], &[1], &[], &[4, 1, 3], &[1, 2, 1]] {
        check(&numbers(shape, 0.7), |x| {
            (&wide * x + (x * &wide).sin()).sum()
        });
    }
}

#[test]
fn one_operand_many_times() {
    check(&numbers(&[3], 1.0), |x| {
        let y = (x * x + x.sin() * x).eval()?;
        (&y * x + y.exp() * &y).sum()
    });
}

#[test]
fn views() -> Result<()> {
    let x = numbers(&[3, 4], 1.0);
    check(&x, |x| (x.transpose()? * numbers(&[4, 3], 1.0)).sum());
    check(&x, |x| {
        (x.slice(cachescope::ndarray::s![1.., ..;2])?.exp() * 2.0).sum()
    });
    check(&x, |x| (x.reshape([2, 6])? * numbers(&[2, 6], 1.0)).sum());
    check(&x, |x| {
        (x.slice(cachescope::ndarray::s![0, ..])? * x.slice(cachescope::ndarray::s![2, ..])?).sum()
    });
    check(&x, |x| (x.flip(1)? * x).sum());
    check(&x, |x| {
        (x.unsqueeze(1)?.broadcast_to([3, 2, 4])? * numbers(&[3, 2, 4], 1.0)).sum()
    });
    check(&x, |x| {
        let y = x.sin().eval()?;
        (y.transpose()?.reshape([4, 3])? * numbers(&[4, 3], 1.0)).sum()
    });
    Ok(())
}

#[test]
fn the_least_exponent() -> Result<()> {
    let x = Array::<f64>::from_slice(&[2.0, 0.999_999_999, 1.000_000_3, 1.0], 4)?;
    let (_, gradient) = value_and_grad(&x, |x| x.powi(i32::MIN).sum())?;
    let least = f64::from(i32::MIN);
    let exponents = Array::full(4, i32::MIN)?;
    let (_, other) = value_and_grad(&x, |x| x.lazy().powi(&exponents).sum())?;
    assert_eq!(gradient, other);
    for (x, own) in x.to_vec()?.into_iter().zip(gradient.to_vec()?) {
        let expected = least * x.powf(least - 1.0);
        assert!(
            (own - expected).abs() <= 1e-14 * expected.abs(),
            "{own} at {x}"
        );
    }
    Ok(())
}

/// The derivatives are in the range of `f32`, but products of their factors may not be.
#[test]
fn products_of_factors_stay_in_range() -> Result<()> {
    let near = |own: f32, expected: f64| {
        let difference = (f64::from(own) - expected).abs();
        assert!(difference <= 1e-6 * expected.abs(), "{own} and {expected}");
    };
    let of = |x: f32| Array::from_slice(&[x], 1);
    let (_, slope) = value_and_grad(&of(2e-26)?, |x| x.rsqrt().sum())?;
    near(slope.item()?, -0.5 * f64::from(2e-26_f32).powf(-1.5));
    let (_, slope) = value_and_grad(&of(2.0)?, |x| (x.log2() * 3e38).sum())?;
    near(slope.item()?, 1.5e38 * std::f64::consts::LOG2_E);
    let (_, (_, slope)) = value_and_grad(&(of(1e38)?, of(300.0)?), |(x, y)| (x / y * 6e4).sum())?;
    near(slope.item()?, -6e4 / 9e4 * f64::from(1e38_f32));
    Ok(())
}
