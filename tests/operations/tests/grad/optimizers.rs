//! Optimizers, held to their papers' formulas element by element.

use cachescope::grad::optim::{Adam, AdamW, Sgd, clip_norm};
use cachescope::testing::assert_no_allocations;
use cachescope::{Array, Device, DeviceConfig, ErrorKind, Result};

use crate::differences::numbers;

const STEPS: usize = 5;

/// The gradient of the step of that number.
fn gradient(step: usize) -> Array<f64> {
    numbers(&[3], [1.0, -0.5][step % 2])
}

/// Runs an optimizer, and the same over single elements.
#[track_caller]
fn check(
    mut step: impl FnMut(&mut Array<f64>, &Array<f64>) -> Result<()>,
    mut one: impl FnMut(usize, f64, f64, &mut [f64; 2]) -> f64,
) {
    let mut own = numbers(&[3], 2.0);
    let mut expected = own.to_vec().unwrap();
    let mut states = [[0.0; 2]; 3];
    for number in 0..STEPS {
        let gradient = gradient(number);
        step(&mut own, &gradient).unwrap();
        let gradient = gradient.to_vec().unwrap();
        for element in 0..3 {
            let state = &mut states[element];
            expected[element] = one(number + 1, expected[element], gradient[element], state);
        }
    }
    for (own, expected) in own.to_vec().unwrap().iter().zip(&expected) {
        assert!((own - expected).abs() < 1e-12, "{own} and {expected}");
    }
}

#[test]
fn sgd() {
    let mut plain = Sgd::new(0.1);
    check(|x, g| plain.step(x, g), |_, x, g, _| x - 0.1 * g);
    let mut heavy = Sgd::new(0.1).momentum(0.9);
    check(
        |x, g| heavy.step(x, g),
        |_, x, g, state| {
            state[0] = 0.9 * state[0] + g;
            x - 0.1 * state[0]
        },
    );
}

#[test]
fn adam_with_and_without_decay() {
    let one = |decay: f64| {
        move |step: usize, x: f64, g: f64, state: &mut [f64; 2]| {
            state[0] = 0.9 * state[0] + 0.1 * g;
            state[1] = 0.999 * state[1] + 0.001 * g * g;
            let mean = state[0] / (1.0 - 0.9_f64.powi(step as i32));
            let square = state[1] / (1.0 - 0.999_f64.powi(step as i32));
            x * (1.0 - 0.01 * decay) - 0.01 * mean / (square.sqrt() + 1e-8)
        }
    };
    let mut adam = Adam::new(0.01);
    check(|x, g| adam.step(x, g), one(0.0));
    let mut adamw = AdamW::new(0.01).weight_decay(0.3);
    check(|x, g| adamw.step(x, g), one(0.3));
}

#[test]
fn a_step_is_in_place() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _guard = device.enter();
    let mut parameters = (numbers(&[3], 1.0), vec![numbers(&[2, 2], 1.0)]);
    let gradients = (numbers(&[3], 1.0), vec![numbers(&[2, 2], 1.0)]);
    let mut optimizer = AdamW::new(0.1);
    optimizer.step(&mut parameters, &gradients)?;
    assert_no_allocations!(&device, {
        optimizer.step(&mut parameters, &gradients)?;
    });
    Ok(())
}

#[test]
fn other_parameters_are_refused() -> Result<()> {
    let mut optimizer = Adam::new(0.1);
    optimizer.step(&mut numbers(&[3], 1.0), &numbers(&[3], 1.0))?;
    let refused = optimizer.step(&mut numbers(&[4], 1.0), &numbers(&[4], 1.0));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let mut some = vec![numbers(&[3], 1.0)];
    let refused = Sgd::new(0.1).step(&mut some, &vec![]);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    Ok(())
}

#[test]
fn gradients_are_clipped_by_the_norm_of_all() -> Result<()> {
    let gradients = (
        Array::from_slice(&[3.0_f64], 1)?,
        Array::from_slice(&[4.0_f32], 1)?,
    );
    let (clipped, norm) = clip_norm(gradients, 1.0)?;
    assert_eq!(norm, 5.0);
    assert!((clipped.0.to_vec()?[0] - 0.6).abs() < 1e-12);
    assert!((clipped.1.to_vec()?[0] - 0.8).abs() < 1e-6);
    assert_eq!(clip_norm(clipped, 2.0)?.0.0.to_vec()?, [0.6000000000000001]);
    Ok(())
}
