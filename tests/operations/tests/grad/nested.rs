//! Derivatives within derivatives.

use cachescope::grad::nn::{BatchNorm, GroupNorm, Linear};
use cachescope::grad::optim::Sgd;
use cachescope::grad::{
    Optimizer, Parameters, Tape, activation_budget, checkpoint, hvp, jvp, value_and_grad,
    value_and_grad_aux, value_and_step,
};
use cachescope::{Array, ErrorKind, Float, Result, manual_seed};

use crate::grad::differences::{check, numbers};

fn cube(x: &Array<f64>) -> Result<Array<f64>> {
    (x * x * x).sum()
}

#[test]
fn derivatives_of_a_power_to_the_third_order() -> Result<()> {
    let x = numbers(&[5], 1.0);
    let (value, third) = value_and_grad(&x, |x| {
        let (_, second) = value_and_grad(x, |x| {
            let (_, first) = value_and_grad(x, |x| (x * x * x * x).sum())?;
            first.sum()
        })?;
        second.sum()
    })?;
    assert!((value.item()? - (12.0 * &x * &x).sum()?.item()?).abs() < 1e-12);
    assert!((&third - 24.0 * &x).abs().max()?.item()? < 1e-12);
    Ok(())
}

#[test]
fn a_gradient_penalty_is_right_by_differences() -> Result<()> {
    let weight = numbers(&[3, 3], 0.5);
    check(&numbers(&[4, 3], 1.0), |x| {
        let (value, slope) = value_and_grad(x, |x| x.matmul(&weight)?.tanh().square().sum())?;
        (value + 0.3 * slope.square().sum()?).eval()
    });
    // The gradient of the weights passes through the gradient of the inputs.
    let x = numbers(&[4, 3], 1.0);
    check(&weight, |weight| {
        let (_, slope) = value_and_grad(&x, |x| x.matmul(weight)?.sin().sum())?;
        slope.square().sum()
    });
    Ok(())
}

#[test]
fn every_function_nests_in_every_other() {
    let x = numbers(&[4], 1.0);
    type Inner = fn(&Array<f64>) -> Result<Array<f64>>;
    let inner: [Inner; 4] = [
        |x| value_and_grad(x, cube)?.1.square().sum(),
        |x| {
            value_and_grad_aux(x, |x| Ok((cube(x)?, 1)))?
                .2
                .square()
                .sum()
        },
        |x| {
            jvp(x, &(x * 2.0).eval()?, |x| x.sin().eval())?
                .1
                .square()
                .sum()
        },
        |x| hvp(x, &(x + 1.0).eval()?, cube)?.1.square().sum(),
    ];
    for function in inner {
        // `check` compares the derivatives by `value_and_grad`, `jvp` and `hvp`.
        check(&x, function);
        check(&x, |x| value_and_grad(x, function)?.1.sum());
    }
}

/// The loss is the residual of the equation y'' = −y for the function y of a network.
#[test]
fn second_derivatives_by_two_directional_ones_train_a_network() -> Result<()> {
    manual_seed(3);
    let layers = (Linear::<f64>::new(1, 16)?, Linear::<f64>::new(16, 1)?);
    let points = numbers(&[8, 1], 1.0);
    let ones = Array::<f64>::ones([8, 1])?;
    type Network = (Linear<f64>, Linear<f64>);
    let run = |(a, b): &Network, x: &Array<f64>| b.forward(&a.forward(x)?.tanh().eval()?);
    let residual = |layers: &Network| {
        let (_, second) = jvp(&points, &ones, |x| Ok(jvp(x, &ones, |x| run(layers, x))?.1))?;
        (second + run(layers, &points)?).square().mean()
    };
    let (before, gradients) = value_and_grad(&layers, residual)?;
    // The reference value is a central difference in one weight.
    let moved = |by: f64| -> Result<f64> {
        let mut weights = layers.0.weight.to_vec()?;
        weights[3] += by;
        let mut moved = layers.clone();
        moved.0.weight = Array::from_vec(weights, layers.0.weight.shape())?;
        residual(&moved)?.item()
    };
    let difference = (moved(1e-5)? - moved(-1e-5)?) / 2e-5;
    let own = gradients.0.weight.to_vec()?[3];
    assert!(
        (own - difference).abs() < 1e-6 * difference.abs().max(1.0),
        "{own} {difference}"
    );
    let (mut layers, mut optimizer) = (layers, Sgd::new(0.02));
    for _ in 0..20 {
        value_and_step(&mut layers, &mut optimizer, residual)?;
    }
    assert!(residual(&layers)?.item()? < before.item()?);
    Ok(())
}

/// The loss contains a step of gradient descent. The start of this step is learned (Finn and others
/// 2017).
#[test]
fn a_step_of_learning_is_differentiated() {
    let (x, y) = (numbers(&[6, 2], 1.0), numbers(&[6], 2.0));
    let loss = |w: &Array<f64>| (x.matmul(w)?.tanh() - &y).square().mean();
    check(&numbers(&[2], 1.0), |w| {
        let (_, slope) = value_and_grad(w, loss)?;
        loss(&(w - 0.5 * slope).eval()?)
    });
}

#[test]
fn through_checkpoints_and_inside_of_them() {
    let x = numbers(&[3, 2], 1.0);
    check(&x, |x| {
        checkpoint(x, |x| (x * 2.0).sin().eval()?.exp().eval())?.sum()
    });
    check(&x, |x| {
        let (_, slope) = value_and_grad(x, |x| {
            let y = checkpoint(x, |x| x.sin().eval()?.square().eval())?;
            checkpoint(&y, |y| (y * y).eval()?.exp().eval())?.sum()
        })?;
        slope.square().sum()
    });
    check(&x, |x| {
        checkpoint(x, |x| Ok(value_and_grad(x, cube)?.1))?
            .square()
            .sum()
    });
}

#[test]
fn budgets_count_and_change_nothing() -> Result<()> {
    let x = numbers(&[64, 8], 1.0);
    let penalty = |x: &Array<f64>| {
        let loss = |x: &Array<f64>| x.sin().eval()?.exp().eval()?.softmax(1)?.square().sum();
        value_and_grad(x, loss)?.1.square().sum()
    };
    let expected = value_and_grad(&x, penalty)?;
    let _budget = activation_budget(32 << 10);
    assert_eq!(value_and_grad(&x, penalty)?, expected);
    Ok(())
}

#[test]
fn arrays_with_gaps_and_parts_of_outer_variables_are_variables() {
    let x = numbers(&[4, 3], 1.0);
    check(&x, |x| {
        let columns = (x.transpose()?, x.slice(cachescope::ndarray::s![.., 1])?);
        let (_, (a, b)) =
            value_and_grad(&columns, |(a, b)| (a.square().sum_axis(0)? * b.exp()).sum())?;
        (a.square().sum()? + b.sum()?).eval()
    });
}

#[test]
fn variables_of_the_inner_function_alone_have_no_outer_gradient() -> Result<()> {
    let (x, y) = (numbers(&[3], 1.0), numbers(&[3], 2.0));
    let (_, outer) = value_and_grad(&x, |x| {
        let (value, inner) = value_and_grad(&y, |y| (x * y * y).sum())?;
        (value + inner.sum()?).eval()
    })?;
    // The gradient of the value is y², and the gradient of the inner gradient is 2 y.
    assert!((&outer - (&y * &y + 2.0 * &y)).abs().max()?.item()? < 1e-12);
    Ok(())
}

#[test]
fn an_open_tape_tracks_the_gradients_of_functions() -> Result<()> {
    let mut tape = Tape::begin()?;
    let x = tape.track(&numbers(&[3], 1.0))?;
    let (_, slope) = value_and_grad(&x, cube)?;
    let (_, gradient) = tape.gradients(slope.sum()?, x)?;
    assert!((gradient - 6.0 * numbers(&[3], 1.0)).abs().max()?.item()? < 1e-12);
    Ok(())
}

#[test]
fn a_loss_that_the_inner_variables_do_not_reach_is_an_error() {
    let x = numbers(&[3], 1.0);
    let error = value_and_grad(&x, |x| {
        let (_, inner) = value_and_grad(&numbers(&[2], 1.0), |_| x.sum())?;
        inner.sum()
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[derive(Parameters)]
struct Unused {
    used: Array<f64>,
    unused: Array<f64>,
}

#[test]
fn unused_parameters_have_zeros_inside_too() -> Result<()> {
    let own = Unused {
        used: numbers(&[2], 1.0),
        unused: numbers(&[3], 1.0),
    };
    let (_, gradients) = value_and_grad(&own, |own| {
        let (_, inner) = value_and_grad(own, |own| cube(&own.used))?;
        (inner.used.sum()? + inner.unused.sum()?).eval()
    })?;
    assert_eq!(gradients.unused.to_vec()?, [0.0; 3]);
    assert!((gradients.used - 6.0 * own.used).abs().max()?.item()? < 1e-12);
    Ok(())
}

/// A checkpoint captures a parameter. The parameter moves only after the checkpoint's second run
/// has read it.
#[test]
fn a_parameter_moves_after_a_checkpoint_with_gradients_inside() -> Result<()> {
    let start = || (numbers(&[3], 1.0), numbers(&[3], 0.7));
    let loss = |(w, x): &(Array<f64>, Array<f64>)| {
        let w = w.clone();
        let slope = move |x: &Array<f64>| {
            let (_, slope) = value_and_grad(x, |x| (x.sin().eval()? * &w).sum())?;
            Ok(slope)
        };
        let y = checkpoint(x, slope)?.square().eval()?.exp().eval()?;
        y.sum()
    };
    let (_, gradients) = value_and_grad(&start(), loss)?;
    let mut moved = start();
    value_and_step(&mut moved, &mut Sgd::new(0.1), loss)?;
    let expected = (start().0 - 0.1 * gradients.0).eval()?;
    assert!((moved.0 - expected).abs().max()?.item()? < 1e-12);
    assert!(gradients.1.abs().min()?.item()? > 0.0);
    Ok(())
}

/// An optimizer whose steps compute a derivative.
struct Curious(Option<ErrorKind>);

impl Optimizer for Curious {
    fn step_one<T: Float>(
        &mut self,
        _: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        let change = jvp(own, gradient, |own| own.square().eval());
        self.0 = change.err().map(|error| error.kind());
        Ok(())
    }
}

#[test]
fn a_step_inside_of_the_backward_pass_has_no_derivatives() -> Result<()> {
    let mut optimizer = Curious(None);
    value_and_step(&mut numbers(&[3], 1.0), &mut optimizer, cube)?;
    assert_eq!(optimizer.0, Some(ErrorKind::Unsupported));
    Ok(())
}

#[test]
fn gradients_of_a_group_norm_are_right_by_differences() -> Result<()> {
    // The shapes have further axes or none. The last shape has one channel for each group.
    for (shape, groups) in [(&[2, 4, 3, 2][..], 2), (&[3, 4], 2), (&[2, 3, 5], 3)] {
        let layer = GroupNorm {
            weight: numbers(&shape[1..2], 1.0),
            bias: numbers(&shape[1..2], -0.5),
            ..GroupNorm::<f64>::new(groups, shape[1])?
        };
        let x = numbers(shape, 1.0).sin().eval()?;
        let weights = numbers(shape, 2.0).cos().eval()?;
        let loss = |layer: &GroupNorm<f64>, x: &Array<f64>| (layer.forward(x)? * &weights).sum();
        check(&x, |x| loss(&layer, x));
        check(&layer.weight, |weight| {
            let layer = GroupNorm {
                weight: weight.clone(),
                ..layer.clone()
            };
            loss(&layer, &x)
        });
        // This function contains a gradient.
        check(&x, |x| {
            value_and_grad(x, |x| loss(&layer, x))?.1.square().sum()
        });
        // `turned` is not contiguous.
        let turned = x.swap_axes(0, 1)?.lazy().eval()?.swap_axes(0, 1)?;
        let apart = (layer.forward(&x)? - layer.forward(&turned)?).abs().max()?;
        assert_eq!(apart.item()?, 0.0);
    }
    Ok(())
}

#[test]
fn statistics_are_updated_once_in_a_checkpoint_with_gradients_inside() -> Result<()> {
    let layer = BatchNorm::<f64>::new(1)?;
    let x = numbers(&[4, 1], 1.0);
    let own = layer.clone();
    let slope = move |x: &Array<f64>| {
        let (_, slope) = value_and_grad(x, |x| own.forward(x)?.exp().sum())?;
        Ok(slope)
    };
    value_and_grad(&x, |x| checkpoint(x, slope)?.square().sum())?;
    let mean = layer.statistics.arrays().0.item()?;
    assert!((mean - 0.1 * x.mean()?.item()?).abs() < 1e-12, "{mean}");
    Ok(())
}

#[test]
fn parameters_of_inner_functions_are_free_under_a_budget() -> Result<()> {
    let weights = numbers(&[64, 64], 0.01);
    let x = numbers(&[2, 64], 1.0);
    // The budget is smaller than the weights, but suffices for the computed values.
    let _budget = activation_budget(24 << 10);
    value_and_grad(&weights, |weights| {
        let loss = |weights: &Array<f64>| x.matmul(weights)?.tanh().eval()?.square().sum();
        let (value, _) = value_and_grad(weights, loss)?;
        Ok(value)
    })?;
    Ok(())
}

#[test]
fn a_hessian_of_a_loss_that_does_not_depend_on_it_is_an_error() {
    let (x, y) = (numbers(&[3], 1.0), numbers(&[2], 1.0));
    let error = value_and_grad(&x, |x| {
        let (_, product) = hvp(&y, &y, |_| x.sum())?;
        product.sum()
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument);
}
