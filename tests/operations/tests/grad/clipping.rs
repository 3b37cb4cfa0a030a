//! Clipped steps, groups of parameters, accumulated gradients, and arithmetic of structures.

use cachescope::grad::arithmetic::{axpy, count, dot, map, norm, scale, zeros_like};
use cachescope::grad::optim::clip_norm;
use cachescope::grad::optim::{Accumulated, Adam, AdamW, Clipped, Groups, Lion, Sgd, Stateful};
use cachescope::grad::{Optimizer, Parameters, value_and_grad, value_and_step};
use cachescope::{Array, Device, DeviceConfig, ErrorKind, Result, cache_scope};
use ndarray::s;

use crate::grad::differences::numbers;

#[derive(Debug, Parameters)]
struct Line {
    weight: Array<f64>,
    bias: Array<f32>,
}

fn line() -> Result<Line> {
    Ok(Line {
        weight: numbers(&[3, 2], 2.0),
        bias: Array::from_slice(&[0.5, -1.0], 2)?,
    })
}

fn loss(line: &Line) -> Result<Array<f64>> {
    let y = (&line.weight + line.bias.cast::<f64>()).square().eval()?;
    (y * numbers(&[3, 2], 3.0)).sum()
}

fn elements(line: &Line) -> Result<Vec<f64>> {
    let bias = line.bias.cast::<f64>().eval()?;
    Ok([line.weight.to_vec()?, bias.to_vec()?].concat())
}

#[test]
fn a_clipped_step_is_a_step_of_clipped_gradients() -> Result<()> {
    for most in [0.1, 1e6] {
        let (mut own, mut other) = (line()?, line()?);
        let mut inside = Clipped::new(AdamW::new(0.1)).norm(most);
        let mut behind = AdamW::new(0.1);
        for _ in 0..3 {
            value_and_step(&mut own, &mut inside, loss)?;
            let (_, gradients) = value_and_grad(&other, loss)?;
            let (gradients, norm) = clip_norm(gradients, most)?;
            behind.step(&mut other, &gradients)?;
            assert!((inside.last_norm()?.unwrap() - norm).abs() < 1e-12 * norm);
            for (own, other) in elements(&own)?.iter().zip(elements(&other)?) {
                assert!((own - other).abs() < 1e-6, "{own} and {other}");
            }
        }
        assert_eq!(inside.steps(), 3);
    }
    Ok(())
}

#[test]
fn values_are_clipped_after_the_norm() -> Result<()> {
    let (mut x, gradient) = (numbers(&[3], 0.0), Array::from_slice(&[3.0, -4.0, 0.0], 3)?);
    let start = x.to_vec()?;
    let mut optimizer = Clipped::new(Sgd::new(1.0)).norm(10.0).value(3.5);
    optimizer.step(&mut x, &gradient)?;
    let moved: Vec<f64> = x.to_vec()?.iter().zip(&start).map(|(x, y)| y - x).collect();
    for (own, expected) in moved.iter().zip([3.0, -3.5, 0.0]) {
        assert!((own - expected).abs() < 1e-12);
    }
    Ok(())
}

#[test]
fn gradients_of_zero_stay_zero() -> Result<()> {
    let mut x = numbers(&[3], 1.0);
    let before = x.to_vec()?;
    Clipped::new(Sgd::new(1.0))
        .norm(1.0)
        .step(&mut x, &Array::zeros(3)?)?;
    assert_eq!(x.to_vec()?, before);
    Ok(())
}

#[test]
fn refused_gradients_move_nothing() -> Result<()> {
    let mut optimizer = Clipped::new(Adam::new(0.1)).norm(1.0);
    let mut own = vec![numbers(&[3], 1.0), numbers(&[2], 1.0)];
    let before = own[0].to_vec()?;
    let gradients = vec![numbers(&[3], 1.0), numbers(&[1], 1.0)];
    let error = optimizer.step(&mut own, &gradients).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("`1`"), "{error}");
    assert_eq!((own[0].to_vec()?, optimizer.steps()), (before, 0));
    Ok(())
}

#[test]
fn lion_by_its_formula() -> Result<()> {
    let (mut x, mut optimizer) = (numbers(&[3], 2.0), Lion::new(0.01).weight_decay(0.3));
    let (mut expected, mut momentum) = (x.to_vec()?, [0.0; 3]);
    for step in 0..4 {
        let gradient = numbers(&[3], [1.0, -0.5][step % 2]);
        optimizer.step(&mut x, &gradient)?;
        for (at, g) in gradient.to_vec()?.into_iter().enumerate() {
            let direction: f64 = 0.9 * momentum[at] + 0.1 * g;
            expected[at] = expected[at] * (1.0 - 0.01 * 0.3) - 0.01 * direction.signum();
            momentum[at] = 0.99 * momentum[at] + 0.01 * g;
        }
    }
    for (own, expected) in x.to_vec()?.iter().zip(expected) {
        assert!((own - expected).abs() < 1e-12, "{own} and {expected}");
    }
    Ok(())
}

#[test]
fn each_group_has_its_settings() -> Result<()> {
    let mut own = line()?;
    let decayed = || AdamW::new(0.1).weight_decay(0.5);
    let mut groups = Groups::new(&own, decayed())?
        .with(AdamW::new(0.01).weight_decay(0.0), |name| name == "bias")?;
    let (mut weight, mut bias) = (own.weight.clone(), own.bias.clone());
    let (mut of_weight, mut of_bias) = (decayed(), AdamW::new(0.01).weight_decay(0.0));
    for _ in 0..3 {
        let (_, gradients) = value_and_grad(&own, loss)?;
        of_weight.step(&mut weight, &gradients.weight)?;
        of_bias.step(&mut bias, &gradients.bias)?;
        value_and_step(&mut own, &mut groups, loss)?;
        assert_eq!((&own.weight, &own.bias), (&weight, &bias));
    }
    let state = groups.state(&own)?;
    let mut restored = Groups::new(&own, decayed())?;
    restored.set_state(&own, &state)?;
    assert_eq!((restored.steps(), state.arrays.len()), (3, 2));
    let error = Groups::new(&own, decayed())?.with(decayed(), |name| name == "scale");
    assert!(error.unwrap_err().to_string().contains("weight, bias"));
    let error = Groups::new(&own, Sgd::new(0.1))?.with(Sgd::new(0.1).momentum(0.5), |_| true);
    assert!(error.unwrap_err().to_string().contains("states"));
    let mut more = vec![numbers(&[2], 1.0), numbers(&[2], 1.0), numbers(&[2], 1.0)];
    let gradients = zeros_like(&more)?;
    let error = groups.step(&mut more, &gradients).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    Ok(())
}

#[test]
fn parts_add_up_to_the_whole() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _guard = device.enter();
    let x = numbers(&[4, 3], 1.0);
    let w = numbers(&[3], 2.0);
    let loss = |w: &Array<f64>, x: &Array<f64>| (x * w).tanh().square().mean();
    let (whole, expected) = value_and_grad(&w, |w| loss(w, &x))?;
    let mut gradients = Accumulated::new();
    for _ in 0..2 {
        let mut value = 0.0;
        for part in 0..4 {
            // `gradients` outlives the scopes in which the parts are computed.
            cache_scope!("part of a batch", {
                let part = x.slice(s![part..part + 1, ..])?;
                value += gradients.add(&w, |w| loss(w, &part))?.item()? / 4.0;
            });
        }
        assert!((value - whole.item()?).abs() < 1e-12);
        let difference = (&gradients.take_mean()? - &expected).abs().max()?.item()?;
        assert!(difference < 1e-12, "{difference}");
    }
    gradients.add(&w, |w| loss(w, &x))?;
    let error = gradients
        .add(&numbers(&[1], 2.0), |w| loss(w, &x))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(gradients.take_sum()?, expected);
    Ok(())
}

#[test]
fn structures_are_vectors() -> Result<()> {
    let (x, mut y) = (line()?, scale(2.0, &line()?)?);
    assert_eq!(count(&x), 8);
    let sum: f64 = elements(&x)?.iter().map(|x| 2.0 * x * x).sum();
    assert!((dot(&x, &y)? - sum).abs() < 1e-12);
    assert!((norm(&x)? - (sum / 2.0).sqrt()).abs() < 1e-12);
    axpy(-2.0, &x, &mut y)?;
    assert_eq!(elements(&y)?, [0.0; 8]);
    assert_eq!(elements(&zeros_like(&x)?)?, [0.0; 8]);
    let error = map(&x, |_, array: &Array<f64>| Ok(array.clone())).unwrap_err();
    assert!(
        error.to_string().contains("`bias` has the type f32"),
        "{error}"
    );
    let other = Line {
        bias: Array::zeros([1, 2])?,
        ..line()?
    };
    for error in [dot(&x, &other).err(), axpy(1.0, &other, &mut y).err()] {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("`bias`"), "{error}");
    }
    Ok(())
}

#[test]
fn norms_beyond_the_range_of_squares() -> Result<()> {
    let near = |own: f64, expected: f64| {
        let difference = (own - expected).abs();
        assert!(difference <= 1e-14 * expected, "{own} and {expected}");
    };
    for size in [1e200, 1e-160, 1e-200, 1e-300] {
        let numbers = |numbers: &[f64]| {
            let scaled: Vec<f64> = numbers.iter().map(|own| own * size).collect();
            Array::from_slice(&scaled, numbers.len())
        };
        for gradients in [
            vec![numbers(&[3.0])?, numbers(&[4.0])?],
            vec![numbers(&[])?, numbers(&[3.0, 4.0])?],
            vec![numbers(&[4.0, 0.0])?, numbers(&[0.0])?, numbers(&[3.0])?],
        ] {
            near(norm(&gradients)?, 5.0 * size);
            let (clipped, found) = clip_norm(gradients.clone(), 2.5 * size)?;
            near(found, 5.0 * size);
            let mut x = zeros_like(&gradients)?;
            let mut optimizer = Clipped::new(Sgd::new(1.0)).norm(2.5 * size);
            optimizer.step(&mut x, &gradients)?;
            near(optimizer.last_norm()?.unwrap(), 5.0 * size);
            for ((own, clipped), moved) in gradients.iter().zip(&clipped).zip(&x) {
                let steps = clipped.to_vec()?.into_iter().zip(moved.to_vec()?);
                for (own, (clipped, moved)) in own.to_vec()?.into_iter().zip(steps) {
                    near(clipped, own / 2.0);
                    near(-moved, own / 2.0);
                }
            }
        }
    }
    let (clipped, found) = clip_norm(Array::from_slice(&[3e200, 4e200], 2)?, 1.0)?;
    near(found, 5e200);
    near(clipped.to_vec()?[0], 0.6);
    for other in [f64::NAN, f64::INFINITY, 1.0] {
        let arrays = vec![Array::full(1, f64::INFINITY)?, Array::full(1, other)?];
        assert!(!norm(&arrays)?.is_finite());
    }
    assert!(norm(&vec![Array::full(1, 1.0)?, Array::full(1, f64::NAN)?])?.is_nan());
    Ok(())
}
