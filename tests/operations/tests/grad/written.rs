//! User functions, written with `elementwise!`.

use std::f64::consts::PI;

use cachescope::grad::value_and_grad;
use cachescope::{Array, ErrorKind, Result, elementwise, select};

use crate::grad::differences::{check, numbers};

const SLOPE: f64 = 0.25;

elementwise! {
    fn mish(x: f64) -> f64 { x * x.exp().log1p().tanh() }

    fn bound(x: f64, y: f64) -> f64 {
        let z = x * y - 1.5_f64;
        let w: f64 = z.max(-y) * PI;
        (w / (1.0 + x * x)).clamp(-0.4, 0.7).mul_add(x, SLOPE) % 0.91
    }

    fn leaky(x: f64) -> f64 { if x < 0.5 { SLOPE * x } else { x - 0.375 } }

    fn nested(x: f64, y: f64) -> f64 {
        if x > 0.4 && !(y > 0.9) {
            let z = x.sin();
            if y < 0.3 { z * y } else { mish(z) + self::leaky(y).powi(3) }
        } else {
            -(x + y).exp()
        }
    }

    fn counted(x: f64, n: i32) -> f64 {
        let even = (n & 1) == 0;
        let scale = if even { n as f64 } else { 0.5 };
        (x as f32 as f64 * 0.0 + x * scale).powi(n % 3)
    }

    fn root_or_nothing(x: f64) -> f64 { if x > 0.0 { x.sqrt() } else { 0.0 } }

    fn deep_root(x: f64, y: f64) -> f64 {
        if y > 0.0 { if x > 0.0 { (x.ln() * y).sqrt() / x } else { y } } else { x }
    }

    fn root_before(x: f64) -> f64 {
        let root = x.sqrt();
        if x > 0.0 { root } else { 0.0 }
    }

    fn root_twice(x: f64, y: f64) -> f64 {
        let root = x.sqrt();
        let under = x.ln() / x;
        (if x > 0.0 { root * y } else { y }) + if x > y * 0.0 { root + under } else { -y.ln() }
    }

    fn halves(x: f32) -> f32 { x * (x + 0.5) }

    fn of_literals(x: f32, n: i32) -> f32 {
        let third = 1.0 / 3.0;
        let unit = if n > (2 - 1) * 2 { 1.0 } else { 2.0 };
        let half = half_of(1.0) as f32;
        (x * third + unit) * -2.0 * half + x.powi(1 + 1) * 2.0.powi(n)
    }

    fn half_of(x: f64) -> f64 { x * 0.5 }

    fn shifted(x: f64, n: i32) -> f64 { x * (1 << n) as f64 }

    fn one_and_a_half(_x: f64) -> f64 { 1.5 }

    fn two(_x: f64, _y: f64) -> f64 { 2.0 }

    /// Rounds, with a constant gradient, like a straight-through estimator (Bengio et al. 2013).
    #[derivative(one_and_a_half)]
    fn straight_through(x: f64) -> f64 { x.round() }

    #[derivative(_, two)]
    fn of_the_second(x: f64, y: f64) -> f64 { x * y }

    fn over_another(x: f64) -> f64 { straight_through(x * 3.0) * x }

    #[derivative(cosine)]
    fn sine(x: f64) -> f64 { x.sin() }

    fn cosine(x: f64) -> f64 { x.cos() }

    #[derivative(single)]
    fn of_another_type(x: f64) -> f64 { x }

    fn single(x: f64) -> f32 { x as f32 }
}

#[test]
fn bodies_are_derived() {
    let y = numbers(&[2, 3], 1.2);
    check(&numbers(&[2, 3], 1.0), |x| mish(x).sum());
    check(&numbers(&[2, 3], 1.0), |x| {
        (mish(x * 0.5) * x + mish(mish(x))).sum()
    });
    check(&numbers(&[2, 3], 1.0), |x| {
        (bound(x, &y) * bound(&y, x)).sum()
    });
    check(&numbers(&[3], 1.0), |x| bound(x, &y).exp().mean());
    check(&numbers(&[11], 1.0), |x| (leaky(x) * x).sum());
    check(&numbers(&[2, 3], 1.0), |x| {
        (nested(x, &y) * nested(&y, x)).sum()
    });
    check(&numbers(&[2, 3], 1.0), |x| {
        let z = nested(x, 0.7).eval()?;
        (leaky(&z) * &y).sum()
    });
    check(&numbers(&[2, 3], 1.0), |x| {
        leaky(x).sum_axis(1)?.square().sum()
    });
}

#[test]
fn arrays_beside_bodies_are_distinguished() {
    let [a, b, c] = [0.7, 1.1, 1.6].map(|scale| numbers(&[2, 3], scale));
    check(&a, |a| (mish(a) * &b * &c).sum());
    check(&a, |a| (mish(&b) * a * &c).sum());
    check(&a, |a| (mish(&b) * &c * a).exp().sum());
    check(&a, |a| (bound(&b, mish(&c)) * (a + &b) * &c * a).sum());
    check(&a, |a| (nested(&b, a) * &c).sum_axis(0)?.square().sum());
    check(&a, |a| (mish(&b) * &c * a).var_axis(1)?.sum());
}

#[test]
fn arguments_of_several_types() {
    let n = Array::from_slice(&[0, 1, 2, 3, 4, 5], [2, 3]).unwrap();
    check(&numbers(&[2, 3], 1.0), |x| counted(x, &n).sum());
    let x = Array::from_slice(&[3.0_f32, 5.0], 2).unwrap();
    let n = Array::from_slice(&[1, 3], 2).unwrap();
    let (_, gradient) = value_and_grad(&x, |x| of_literals(x, &n).sum()).unwrap();
    let expected = [12.0 - 1.0 / 3.0, 80.0 - 1.0 / 3.0];
    for (own, expected) in gradient.to_vec().unwrap().iter().zip(expected) {
        assert!((own - expected).abs() < 1e-5, "{own} and {expected}");
    }
    let x = Array::from_slice(&[0.5_f32, 2.0], 2).unwrap();
    let (_, gradient) = value_and_grad(&x, |x| halves(x).sum()).unwrap();
    assert_eq!(gradient.to_vec().unwrap(), [1.5, 4.5]);
}

#[test]
fn the_branch_that_was_not_taken_counts_for_nothing() -> Result<()> {
    let x = Array::from_slice(&[4.0, 0.0, -4.0], 3)?;
    let (_, gradient) = value_and_grad(&x, |x| root_or_nothing(x).sum())?;
    assert_eq!(gradient.to_vec()?, [0.25, 0.0, 0.0]);
    let y = Array::from_slice(&[1.0, 1.0, 1.0], 3)?;
    let (_, (of_x, of_y)) = value_and_grad(&(x.clone(), y), |(x, y)| deep_root(x, y).sum())?;
    assert!(of_x.to_vec()?[0].is_finite());
    assert_eq!(of_x.to_vec()?[1..], [0.0, 0.0]);
    assert_eq!(of_y.to_vec()?[1..], [1.0, 1.0]);
    let y = Array::from_slice(&[-1.0, 0.0, -2.0], 3)?;
    let (_, (of_x, of_y)) = value_and_grad(&(x, y), |(x, y)| deep_root(x, y).sum())?;
    assert_eq!(
        (of_x.to_vec()?, of_y.to_vec()?),
        (vec![1.0; 3], vec![0.0; 3])
    );
    Ok(())
}

#[test]
fn an_infinite_slope_beside_the_branch_taken_does_no_harm() -> Result<()> {
    let x = (numbers(&[11], 1.0) - 0.45).eval()?;
    check(&x, |x| root_or_nothing(x).sum());
    check(&x, |x| root_before(x).sum());
    check(&x, |x| {
        (root_before(x) * root_or_nothing(x * 2.0)).exp().sum()
    });
    let y = numbers(&[11], 0.9);
    check(&x, |x| root_twice(x, &y).sum());
    check(&y, |y| root_twice(&x, y).sum());
    check(&x, |x| deep_root(x * 50.0, &y).sum());
    // The functions are also written with operators.
    check(&x, |x| select(x.gt(0.0), x.sqrt() * &y, 0.0).sum());
    check(&x, |x| {
        select(x.gt(0.0), select(x.gt(0.2), (x - 0.2).sqrt(), x.ln()), x).sum()
    });
    let (_, gradient) = value_and_grad(&Array::from_slice(&[4.0, 0.0], 2)?, |x| {
        select(x.gt(0.0), x.sqrt(), 0.0).sum()
    })?;
    assert_eq!(gradient.to_vec()?, [0.25, 0.0]);
    Ok(())
}

#[test]
fn derivatives_by_hand_are_taken() -> Result<()> {
    let x = Array::from_slice(&[0.3, 1.7], 2)?;
    let (_, gradient) = value_and_grad(&x, |x| straight_through(x).sum())?;
    assert_eq!(gradient.to_vec()?, [1.5, 1.5]);
    let (_, (of_x, of_y)) =
        value_and_grad(&(x.clone(), x.clone()), |(x, y)| of_the_second(x, y).sum())?;
    assert_eq!(
        (of_x.to_vec()?, of_y.to_vec()?),
        (vec![0.0; 2], vec![2.0; 2])
    );
    // A function that calls another function uses the derivative of the other function, too.
    let (_, gradient) = value_and_grad(&x, |x| over_another(x).sum())?;
    let expected = [0.9_f64.round() + 4.5 * 0.3, 5.1_f64.round() + 4.5 * 1.7];
    for (own, expected) in gradient.to_vec()?.iter().zip(expected) {
        assert!((own - expected).abs() < 1e-12, "{own} and {expected}");
    }
    check(&numbers(&[5], 1.0), |x| (sine(x) * x).sum());
    Ok(())
}

#[test]
fn what_is_not_derived_is_refused_by_name() {
    let x = numbers(&[2], 1.0);
    let n = Array::from_slice(&[1, 2], 2).unwrap();
    let error = value_and_grad(&x, |x| shifted(x, &n).sum()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("shifted"), "{error}");
    let error = value_and_grad(&x, |x| of_another_type(x).sum()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("of_another_type"), "{error}");
}
