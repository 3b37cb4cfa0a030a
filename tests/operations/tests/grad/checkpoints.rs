//! Nested checkpoints whose closures capture parameters, or name parameters among their inputs.

use std::rc::Rc;

use cachescope::grad::optim::Sgd;
use cachescope::grad::{checkpoint, value_and_grad, value_and_step};
use cachescope::{Array, ErrorKind, Result};
use proptest::prelude::*;

use crate::grad::differences::numbers;

const PARAMETERS: usize = 4;

/// An operation of a program over one running value.
#[derive(Clone, Debug)]
enum Step {
    /// Multiplies by a parameter, through the handle that the closure captured, or through the
    /// handle among the inputs.
    Multiply {
        parameter: usize,
        is_captured: bool,
    },
    /// Adds a view of a parameter.
    AddView {
        parameter: usize,
        is_captured: bool,
    },
    Sine,
    /// Runs the steps in a checkpoint that names these parameters among its inputs. If `plain`,
    /// runs the steps without a checkpoint.
    Nest([bool; PARAMETERS], Rc<Vec<Step>>),
}

fn step() -> impl Strategy<Value = Step> {
    let leaf = prop_oneof![
        3 => (0..PARAMETERS, any::<bool>())
            .prop_map(|(parameter, is_captured)| Step::Multiply { parameter, is_captured }),
        1 => (0..PARAMETERS, any::<bool>())
            .prop_map(|(parameter, is_captured)| Step::AddView { parameter, is_captured }),
        1 => Just(Step::Sine),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        (
            any::<[bool; PARAMETERS]>(),
            prop::collection::vec(inner, 1..4),
        )
            .prop_map(|(names, steps)| Step::Nest(names, Rc::new(steps)))
    })
}

/// Two handles of each parameter. `captured` is the handle that the outermost closure captured.
/// `named` is an input of the innermost checkpoint that names the parameter.
#[derive(Clone)]
struct Handles {
    captured: Vec<Array<f64>>,
    named: Vec<Array<f64>>,
}

impl Handles {
    fn of(&self, parameter: usize, is_captured: bool) -> &Array<f64> {
        let handles = if is_captured {
            &self.captured
        } else {
            &self.named
        };
        &handles[parameter]
    }
}

fn run(steps: &[Step], x: &Array<f64>, handles: &Handles, plain: bool) -> Result<Array<f64>> {
    let mut x = x.clone();
    for step in steps {
        x = match step {
            Step::Multiply {
                parameter,
                is_captured,
            } => (&x * handles.of(*parameter, *is_captured)).eval()?,
            Step::AddView {
                parameter,
                is_captured,
            } => (&x + handles.of(*parameter, *is_captured).flip(0)?).eval()?,
            Step::Sine => x.sin().eval()?,
            Step::Nest(_, steps) if plain => run(steps, &x, handles, plain)?,
            Step::Nest(names, steps) => {
                let (names, steps, outer) = (*names, Rc::clone(steps), handles.clone());
                let named = (0..PARAMETERS).filter(|parameter| names[*parameter]);
                let named: Vec<Array<f64>> = named
                    .map(|parameter| handles.named[parameter].clone())
                    .collect();
                checkpoint(&(x, named), move |(x, named)| {
                    // If a parameter is not among the inputs, the handle of the enclosing
                    // checkpoint is used.
                    let (mut handles, mut named) = (outer.clone(), named.iter());
                    for (handle, _) in handles.named.iter_mut().zip(names).filter(|it| it.1) {
                        *handle = named.next().expect("it is among the inputs").clone();
                    }
                    run(&steps, x, &handles, plain)
                })?
            }
        };
    }
    Ok(x)
}

fn loss(steps: &[Step], own: &[Array<f64>], plain: bool) -> Result<Array<f64>> {
    let handles = Handles {
        captured: own.to_vec(),
        named: own.to_vec(),
    };
    // The first parameter is the input, so that the loss depends on at least one parameter.
    let y = run(steps, &own[0], &handles, plain)?;
    (y * numbers(&[3], 0.7)).sum()
}

fn parameters() -> Vec<Array<f64>> {
    (0..PARAMETERS)
        .map(|number| numbers(&[3], 0.5 + number as f64 * 0.3))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn steps_inside_of_the_backward_pass_are_those_behind_it(
        steps in prop::collection::vec(step(), 1..5)
    ) {
        let sgd = || Sgd::new(0.1).momentum(0.9);
        let (mut inside, mut own) = (sgd(), parameters());
        let (mut behind, mut expected) = (sgd(), parameters());
        for _ in 0..2 {
            let (_, plain) = value_and_grad(&expected, |own| loss(&steps, own, true)).unwrap();
            let (value, gradients) =
                value_and_grad(&expected, |own| loss(&steps, own, false)).unwrap();
            for (gradient, plain) in gradients.iter().zip(&plain) {
                let difference = (gradient - plain).abs().max().unwrap().item().unwrap();
                prop_assert!(difference < 1e-12, "{gradient:?} and {plain:?}");
            }
            behind.step(&mut expected, &gradients).unwrap();
            let stepped = value_and_step(&mut own, &mut inside, |own| loss(&steps, own, false));
            prop_assert_eq!(stepped.unwrap(), value);
            prop_assert_eq!(&own, &expected);
        }
    }
}

/// Returns the parameters after a step within the backward pass, and after a separate step.
fn both(loss: impl Fn(&Vec<Array<f64>>) -> Result<Array<f64>>) -> Result<[Vec<Array<f64>>; 2]> {
    let (mut own, mut expected) = (parameters(), parameters());
    let (_, gradients) = value_and_grad(&expected, &loss)?;
    Sgd::new(0.1).step(&mut expected, &gradients)?;
    value_and_step(&mut own, &mut Sgd::new(0.1), &loss)?;
    Ok([own, expected])
}

#[test]
fn a_captured_parameter_steps_after_the_second_run() -> Result<()> {
    let [own, expected] = both(|own| {
        let captured = own[1].clone();
        let y = checkpoint(&own[0], move |x| (x * &captured).sin().eval())?;
        (y * &own[1]).sum()
    })?;
    assert_eq!(own, expected);
    // Only the checkpoint reads the parameter.
    let [own, expected] = both(|own| {
        let captured = own[1].clone();
        checkpoint(&own[0], move |x| (x * &captured).sin().eval())?.sum()
    })?;
    assert_eq!(own, expected);
    assert_ne!(own[1], parameters()[1]);
    Ok(())
}

#[test]
fn a_parameter_that_only_an_inner_checkpoint_names_steps_after_the_second_run() -> Result<()> {
    let [own, expected] = both(|own| {
        let captured = own[1].clone();
        let y = checkpoint(&own[0], move |x| {
            checkpoint(&(x.clone(), captured.clone()), |(x, w)| {
                (x * w).sin().eval()
            })
        })?;
        (y * &own[1]).sum()
    })?;
    assert_eq!(own, expected);
    assert_ne!(own[1], parameters()[1]);
    Ok(())
}

#[test]
fn rejects_a_parameter_that_only_the_second_run_reads() {
    let mut own = parameters();
    let error = value_and_step(&mut own, &mut Sgd::new(0.1), |own| {
        let (captured, is_second) = (own[1].clone(), std::cell::Cell::new(false));
        let y = checkpoint(&own[0], move |x| match is_second.replace(true) {
            false => x.exp().eval(),
            true => (x * &captured).eval(),
        })?;
        y.sum()
    });
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("second run"), "{error}");
}
