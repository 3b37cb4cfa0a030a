//! Tapes that are held open, and functions that begin a nested tape.

use std::panic::Location;

use cachescope::grad::optim::Sgd;
use cachescope::grad::{Tape, hvp, print_saved, value_and_grad, value_and_step};
use cachescope::{Array, Error, ErrorKind, Result};
use ndarray::s;

use crate::grad::differences::numbers;

/// Returns the error of `Tape::gradients` for the arrays that `pick` computes from a variable of
/// shape `[2, 2]`.
fn refused(pick: impl Fn(&Array<f64>) -> Result<Vec<Array<f64>>>) -> Error {
    let mut tape = Tape::begin().unwrap();
    let x = tape.track(&numbers(&[2, 2], 1.0)).unwrap();
    let loss = x.square().sum().unwrap();
    let picked = pick(&x).unwrap();
    let line = line!() + 1;
    let error = tape.gradients(loss, picked).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(error.location().map(Location::line), Some(line), "{error}");
    error
}

#[test]
fn rejects_a_variable_that_is_named_twice() {
    let text = refused(|x| Ok(vec![x.clone(), x.clone()])).to_string();
    assert!(text.contains("twice"), "{text}");
}

#[test]
fn rejects_views_of_a_variable() -> Result<()> {
    type View = fn(&Array<f64>) -> Result<Array<f64>>;
    let views: [View; 5] = [
        |x| x.reshape([4]),
        |x| x.transpose(),
        |x| x.slice(s![0, ..]),
        |x| x.unsqueeze(0),
        |x| x.broadcast_to([3, 2, 2]),
    ];
    for view in views {
        let text = refused(|x| Ok(vec![view(x)?])).to_string();
        assert!(text.contains("view"), "{text}");
    }
    // A view of all elements in their order counts as the variable itself.
    let mut tape = Tape::begin()?;
    let x = tape.track(&numbers(&[2, 2], 1.0))?;
    let (loss, whole) = (x.sum()?, x.slice(s![.., ..])?);
    assert_eq!(tape.gradients(loss, whole)?.1.to_vec()?, [1.0; 4]);
    Ok(())
}

#[test]
fn tied_parameters_are_variables_of_their_own() -> Result<()> {
    let x = numbers(&[3], 1.0);
    let (_, (a, b)) = value_and_grad(&(x.clone(), x.clone()), |(a, b)| (a * a * b).sum())?;
    assert_eq!(a, (2.0 * &x * &x).eval()?);
    assert_eq!(b, (&x * &x).eval()?);
    Ok(())
}

/// Checks that the error names `inner` with its line, and `outer` with the line above `inner`.
#[track_caller]
fn check_nested(error: &Error, inner: &str, outer: &str) {
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let text = error.to_string();
    assert!(text.starts_with(inner), "{text}");
    assert!(text.contains("gradients cannot be nested"), "{text}");
    let at = error.location().expect("it has a line");
    let outer_place = format!("{}:{}:", at.file(), at.line() - 1);
    let rest = text.split_once(outer).expect(&text).1;
    assert!(rest.contains(&outer_place), "{text}");
}

#[test]
fn nested_gradients_name_both_functions_and_lines() {
    let x = numbers(&[4], 1.0);
    let inside = |function: &dyn Fn(&Array<f64>) -> Result<Array<f64>>| {
        value_and_grad(&x, |x| function(x)).unwrap_err()
    };
    let error = value_and_grad(&x, |x| {
        value_and_step(&mut x.clone(), &mut Sgd::new(0.1), |x| x.sum())
    });
    check_nested(&error.unwrap_err(), "value_and_step", "value_and_grad");
    let error = hvp(&x, &x, |x| {
        print_saved(x, |x| x.square().sum())?;
        x.sum()
    });
    check_nested(&error.unwrap_err(), "print_saved", "hvp");
    let error = inside(&|x| {
        let tape = Tape::begin()?;
        drop(tape);
        x.sum()
    });
    assert!(error.to_string().starts_with("Tape::begin"), "{error}");
    // The next tape works.
    assert!(value_and_grad(&x, |x| x.sum()).is_ok());
}

#[test]
fn an_open_tape_is_named_with_its_line() -> Result<()> {
    let x = numbers(&[4], 1.0);
    let tape = Tape::begin()?;
    let error = print_saved(&x, |x| x.sum()).unwrap_err();
    check_nested(&error, "print_saved", "Tape::begin");
    drop(tape);
    assert!(value_and_grad(&x, |x| x.sum()).is_ok());
    Ok(())
}
