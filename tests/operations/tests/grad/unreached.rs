//! Losses that do not depend on any parameter.

use cachescope::grad::optim::AdamW;
use cachescope::grad::{
    Tape, checkpoint, hvp, jvp, print_saved, stop_gradient, value_and_grad, value_and_grad_aux,
    value_and_step,
};
use cachescope::{Array, Error, ErrorKind, Result};

use crate::grad::differences::numbers;

type Loss<'a> = &'a dyn Fn(&Array<f64>) -> Result<Array<f64>>;

#[track_caller]
fn check_refused(error: Error, function: &str) {
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let text = error.to_string();
    assert!(text.starts_with(function), "{text}");
    assert!(text.contains("depends on no parameter"), "{text}");
    assert!(text.contains("argument of the closure"), "{text}");
    let place = error.location().expect("it has a line");
    assert!(place.file().ends_with("unreached.rs"), "{text}");
}

/// Checks that every function that trains refuses the loss, and that no parameter moves.
fn check_all(x: &Array<f64>, loss: Loss<'_>) {
    let line = line!() + 1;
    let error = value_and_grad(x, |x| loss(x)).unwrap_err();
    assert_eq!(error.location().unwrap().line(), line, "{error}");
    check_refused(error, "value_and_grad");
    let error = value_and_grad_aux(x, |x| Ok((loss(x)?, ()))).unwrap_err();
    check_refused(error, "value_and_grad_aux");
    let mut own = x.clone();
    let mut optimizer = AdamW::new(0.1).weight_decay(0.5);
    let error = value_and_step(&mut own, &mut optimizer, |x| loss(x)).unwrap_err();
    check_refused(error, "value_and_step");
    assert_eq!(own, *x);
    check_refused(hvp(x, x, |x| loss(x)).unwrap_err(), "hvp");
    check_refused(print_saved(x, |x| loss(x)).unwrap_err(), "print_saved");
    let mut tape = Tape::begin().unwrap();
    let followed = tape.track(x).unwrap();
    let value = loss(&followed).unwrap();
    let error = tape.gradients(value, followed).unwrap_err();
    check_refused(error, "gradients");
}

#[test]
fn rejects_a_loss_of_captured_arrays() {
    let x = numbers(&[4], 1.0);
    check_all(&x, &|_| x.square().sum());
    // An intended constant in the loss does not hide the error.
    check_all(&x, &|_| (stop_gradient(&x) * &x).sum());
}

#[test]
fn rejects_a_loss_of_numbers_that_were_read() {
    let x = numbers(&[4], 1.0);
    check_all(&x, &|x| {
        let y = x.square().eval()?;
        Array::from_vec(y.to_vec()?, y.shape())?.sum()
    });
    check_all(&x, &|x| Array::full([], x.sum()?.item()?));
}

#[test]
fn rejects_a_loss_of_indices() {
    let x = numbers(&[4], 1.0);
    check_all(&x, &|x| {
        let best = x.reshape([2, 2])?.argmax_axis(1)?;
        best.eq(&Array::full(2, 1_i64)?)
            .cast::<f64>()
            .eval()?
            .mean()
    });
    check_all(&x, &|x| x.gt(0.4).cast::<f64>().eval()?.mean());
}

#[test]
fn rejects_a_loss_of_truth_values_in_one_expression() {
    let x = numbers(&[4], 1.0);
    let error = value_and_grad(&x, |x| x.gt(0.4).cast::<f64>().mean()).unwrap_err();
    check_refused(error, "value_and_grad");
}

#[test]
fn rejects_a_checkpoint_that_reads_no_input() {
    let x = numbers(&[4], 1.0);
    let captured = x.clone();
    let loss = move |x: &Array<f64>| {
        let captured = captured.clone();
        checkpoint(x, move |_| captured.square().eval())?.sum()
    };
    check_refused(value_and_grad(&x, &loss).unwrap_err(), "value_and_grad");
    let mut optimizer = AdamW::new(0.1);
    let error = value_and_step(&mut x.clone(), &mut optimizer, &loss).unwrap_err();
    check_refused(error, "value_and_step");
}

#[test]
fn constants_on_purpose_give_zeros() -> Result<()> {
    let x = numbers(&[4], 1.0);
    let losses: [Loss<'_>; 5] = [
        &|x| (stop_gradient(x) * 2.0).sum(),
        &|x| (x.floor() * 2.0).sum(),
        &|x| (x * 3.0).eval()?.round().eval()?.sum(),
        &|x| stop_gradient(&x.exp().eval()?).sum(),
        &|x| checkpoint(x, |x| x.sign().eval())?.sum(),
    ];
    for loss in losses {
        let (_, gradient) = value_and_grad(&x, loss)?;
        assert_eq!(gradient.to_vec()?, [0.0; 4]);
        let mut own = x.clone();
        value_and_step(&mut own, &mut AdamW::new(0.1).weight_decay(0.0), loss)?;
        assert_eq!(own, x);
    }
    Ok(())
}

#[test]
fn structures_without_parameters_have_no_gradients() -> Result<()> {
    let (value, ()) = value_and_grad(&(), |()| Array::<f64>::ones([]))?;
    assert_eq!(value.item()?, 1.0);
    let none: Vec<Array<f64>> = Vec::new();
    assert!(
        value_and_grad(&none, |_| Array::<f64>::ones([]))?
            .1
            .is_empty()
    );
    Ok(())
}

#[test]
fn parameters_that_are_not_reached_have_zeros() -> Result<()> {
    let (x, y) = (numbers(&[3], 1.0), numbers(&[2], 1.0));
    let (_, (gx, gy)) = value_and_grad(&(x.clone(), y.clone()), |(x, _)| (x * y.sum()?).sum())?;
    assert_eq!(gx.to_vec()?, [y.sum()?.item()?; 3]);
    assert_eq!(gy.to_vec()?, [0.0; 2]);
    Ok(())
}

#[test]
fn an_array_captured_beside_its_variable_is_a_constant() -> Result<()> {
    let x = numbers(&[3], 1.0);
    let (_, gradient) = value_and_grad(&x, |own| (own * &x).sum())?;
    assert_eq!(gradient, x);
    Ok(())
}

#[test]
fn a_value_that_does_not_change_has_no_change() -> Result<()> {
    let x = numbers(&[3], 1.0);
    let (_, change) = jvp(&x, &x, |_| Array::<f64>::ones(2))?;
    assert_eq!(change.to_vec()?, [0.0; 2]);
    Ok(())
}

/// The environment variable that is set in the process that computes the gradients.
const CHILD: &str = "CACHESCOPE_TEST_UNREAD";

#[test]
fn warns_of_parameters_that_the_loss_does_not_read() -> Result<()> {
    let (x, y) = (numbers(&[3], 1.0), numbers(&[2], 1.0));
    if std::env::var_os(CHILD).is_some() {
        for _ in 0..2 {
            let (_, (of_x, of_y)) = value_and_grad(&(x.clone(), y.clone()), |(x, _)| x.sum())?;
            assert_eq!(
                (of_x.to_vec()?, of_y.to_vec()?),
                (vec![1.0; 3], vec![0.0; 2])
            );
        }
        // The loss reads both parameters, or excludes one of them on purpose.
        value_and_grad(&(x.clone(), y.clone()), |(x, y)| {
            (x.sum()? + y.sum()?).eval()
        })?;
        value_and_grad(&(x, y), |(x, y)| {
            (x.sum()? + stop_gradient(y).sum()?).eval()
        })?;
        return Ok(());
    }
    let (_, module) = module_path!().split_once("::").unwrap_or_default();
    let name = format!("{module}::warns_of_parameters_that_the_loss_does_not_read");
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command
        .args(["--exact", &name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let warnings: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("warning"))
        .collect();
    let expected = usize::from(cfg!(debug_assertions));
    assert_eq!(warnings.len(), expected, "{text}");
    for warning in warnings {
        assert!(warning.contains("unreached.rs"), "{warning}");
        assert!(warning.contains("reads 1 of 2 parameters"), "{warning}");
    }
    Ok(())
}
