//! Reductions, softmax and matrix products.

use cachescope::grad::value_and_grad;
use cachescope::{Array, Result};

use crate::grad::differences::{check, numbers};

macro_rules! reductions {
    ($($name:ident $axis:ident $keepdims:ident;)+) => {
        $(
            #[test]
            fn $name() {
                let x = numbers(&[3, 4, 2], 1.0);
                check(&x, |x| (x * 1.3).$name());
                check(&x, |x| x.exp().$name());
                check(&x, |x| (x.sin().$axis(1)? * numbers(&[3, 2], 1.0)).sum());
                check(&x, |x| (x.$axis([0, 2])? * numbers(&[4], 1.0)).sum());
                check(&x, |x| (x.$keepdims(-1)? * x).sum());
            }
        )+
    };
}

reductions! {
    sum sum_axis sum_keepdims;
    mean mean_axis mean_keepdims;
    max max_axis max_keepdims;
    min min_axis min_keepdims;
    logsumexp logsumexp_axis logsumexp_keepdims;
    norm norm_axis norm_keepdims;
    var var_axis var_keepdims;
    std std_axis std_keepdims;
}

#[test]
fn edges_of_reductions() -> Result<()> {
    let gradient = |x: &[f64], f: fn(&Array<f64>) -> Result<Array<f64>>| {
        let x = Array::from_slice(x, x.len())?;
        value_and_grad(&x, f)?.1.to_vec()
    };
    // If the loss is NaN, the gradient is not zero.
    for reduce in [Array::max, Array::norm, Array::std] {
        let of_nan = gradient(&[1.0, f64::NAN], reduce)?;
        assert!(of_nan.iter().any(|own| own.is_nan()), "{of_nan:?}");
    }
    assert_eq!(gradient(&[0.0, 0.0], Array::norm)?, [0.0, 0.0]);
    assert_eq!(gradient(&[2.0, 2.0], Array::std)?, [0.0, 0.0]);
    assert_eq!(gradient(&[2.0, 5.0, 5.0], Array::max)?, [0.0, 0.5, 0.5]);
    let lowest = f64::NEG_INFINITY;
    assert_eq!(gradient(&[lowest, lowest], Array::logsumexp)?, [0.0, 0.0]);
    // The sum is outside the range of half precision.
    let large: Vec<half::f16> = (0..1000)
        .map(|index| half::f16::from_f32(100.0 + (index % 2) as f32))
        .collect();
    let (_, gradient) = value_and_grad(&Array::from_slice(&large, 1000)?, |x| x.std())?;
    let gradient = gradient.to_vec()?;
    assert!(
        (gradient[1].to_f32() - 1e-3).abs() < 1e-4,
        "{}",
        gradient[1]
    );
    Ok(())
}

#[test]
fn softmax_and_its_logarithm() {
    let (x, weights) = (numbers(&[3, 4], 2.0), numbers(&[3, 4], 1.0));
    for axis in [0, 1] {
        check(&x, |x| (x.softmax(axis)? * &weights).sum());
        check(&x, |x| (x.log_softmax(axis)? * &weights).sum());
        check(&x, |x| ((x * x).softmax(axis)? * x).sum());
    }
}

#[test]
fn products_of_all_ranks() -> Result<()> {
    let shapes: [(&[usize], &[usize]); 9] = [
        (&[2, 3], &[3, 4]),
        (&[3], &[3, 4]),
        (&[2, 3], &[3]),
        (&[3], &[3]),
        (&[5, 2, 3], &[3, 4]),
        (&[2, 3], &[5, 3, 4]),
        (&[5, 1, 2, 3], &[2, 3, 4]),
        (&[5, 2, 3], &[3]),
        (&[3], &[5, 3, 2]),
    ];
    for (left, right) in shapes {
        let (a, b) = (numbers(left, 1.0), numbers(right, 0.8));
        let weights = numbers(a.matmul(&b)?.shape(), 0.5);
        check(&a, |a| (a.matmul(&b)? * &weights).sum());
        check(&b, |b| (a.matmul(b)? * &weights).sum());
        let square = |x: &Array<f64>| -> Result<Array<f64>> {
            let y = (x * 2.0).eval()?;
            (y.matmul(&b)? * &weights).square().sum()
        };
        check(&a, square);
    }
    check(&numbers(&[3, 3], 1.0), |x| {
        x.matmul(x)?.matmul(&x.transpose()?)?.sum()
    });
    Ok(())
}
