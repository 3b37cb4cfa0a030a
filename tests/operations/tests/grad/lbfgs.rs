//! L-BFGS, compared with the numbers of PyTorch 2.15's `LBFGS(line_search_fn="strong_wolfe")`.

use cachescope::grad::nn::Linear;
use cachescope::grad::optim::Lbfgs;
use cachescope::{Array, ErrorKind, Result, manual_seed};

use crate::grad::differences::numbers;

#[track_caller]
fn assert_near(own: &[f64], expected: &[f64]) {
    for (own, expected) in own.iter().zip(expected) {
        let error = (own - expected).abs();
        assert!(
            error < 1e-9 * expected.abs().max(1.0),
            "{own} and {expected}"
        );
    }
}

#[test]
fn steps_on_rosenbrocks_function() -> Result<()> {
    let mut x = Array::from_slice(&[-1.2, 1.0], 2)?;
    let mut optimizer = Lbfgs::new(1.0).iterations(7).history(3);
    let expected = [
        (
            24.199999999999996,
            [-0.9964640242497175, 0.9744134422710372],
        ),
        (4.020193978220823, [-0.357461407885078, 0.0967352233340206]),
        (1.939070958273065, [0.2691937957594721, 0.06520286051796886]),
    ];
    for (loss, end) in expected {
        let own = optimizer.step(&mut x, |x| {
            let parts = x.split(2, 0)?;
            ((1.0_f64 - &parts[0]).square() + 100.0 * (&parts[1] - parts[0].square()).square())
                .sum()
        })?;
        assert_near(&[own], &[loss]);
        assert_near(&x.to_vec()?, &end);
    }
    Ok(())
}

#[test]
fn steps_on_a_sum_of_cosh() -> Result<()> {
    let mut y = Array::<f64>::linspace(-2.0, 2.0, 5)?;
    let w = Array::<f64>::linspace(1.0, 5.0, 5)?;
    let mut optimizer = Lbfgs::new(0.5).iterations(4);
    let expected = [
        (
            31.277317964282204,
            [
                -0.8830114336618584,
                -0.16992746345193593,
                0.22841318414600037,
                0.423596713262656,
                0.6776727722471914,
            ],
        ),
        (
            16.409916448863104,
            [
                -0.0822754291975511,
                0.177194560105706,
                0.22739623529685393,
                0.25440244400490114,
                0.27771293242484324,
            ],
        ),
    ];
    for (loss, end) in expected {
        let own = optimizer.step(&mut y, |y| {
            let sum = ((y - 0.3).cosh() * &w).sum()?;
            Ok(sum + y.sum()?.square().square() * 0.1)
        })?;
        assert_near(&[own], &[loss]);
        assert_near(&y.to_vec()?, &end);
    }
    Ok(())
}

#[test]
fn a_layer_of_single_precision_is_fitted() -> Result<()> {
    manual_seed(2);
    let (truth, mut layer) = (Linear::<f32>::new(4, 3)?, Linear::<f32>::new(4, 3)?);
    let x = Array::randn([20, 4])?;
    let y = truth.forward(&x)?;
    let mut optimizer = Lbfgs::new(1.0);
    let loss = |layer: &Linear| (layer.forward(&x)? - &y).square().mean();
    optimizer.step(&mut layer, loss)?;
    assert!(loss(&layer)?.item()? < 1e-10);
    Ok(())
}

#[test]
fn a_loss_that_is_no_number_is_too_far() -> Result<()> {
    // The first trial computes the logarithm of a negative number.
    let mut x = Array::full([], 0.1_f64)?;
    let mut optimizer = Lbfgs::new(1.0).iterations(20);
    for _ in 0..4 {
        optimizer.step(&mut x, |x| (0.5 * x - 0.05 * x.ln()).eval())?;
    }
    assert!((x.item()? - 0.1).abs() < 1e-6);
    let mut x = Array::full([], 3.0_f64)?;
    optimizer = Lbfgs::new(1.0);
    optimizer.step(&mut x, |x| (10.0 * x - x.ln()).eval())?;
    assert!((x.item()? - 0.1).abs() < 1e-4, "{}", x.item()?);
    Ok(())
}

#[test]
fn other_parameters_are_refused() -> Result<()> {
    let mut optimizer = Lbfgs::new(1.0).iterations(1);
    optimizer.step(&mut numbers(&[3], 1.0), |x| x.exp().sum())?;
    let refused = optimizer.step(&mut numbers(&[4], 1.0), |x| x.exp().sum());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ShapeMismatch);
    assert_eq!(optimizer.step(&mut (), |()| Array::<f32>::ones([]))?, 1.0);
    Ok(())
}
