//! Optimizers, compared element by element with the formulas of their papers.

use std::panic::Location;

use cachescope::grad::optim::{
    Adam, AdamW, Average, Lion, Muon, OptimizerState, Sgd, Stateful, clip_norm,
};
use cachescope::grad::{Optimizer, Parameters, value_and_grad, value_and_step};
use cachescope::testing::assert_no_allocations;
use cachescope::{Array, Device, DeviceConfig, Error, ErrorKind, Policy, Result, cache_scope};

use crate::grad::differences::numbers;

const STEPS: usize = 5;

/// Returns the gradient of step number `step`.
fn gradient(step: usize) -> Array<f64> {
    numbers(&[3], [1.0, -0.5][step % 2])
}

/// Compares an optimizer with a formula for single elements.
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
fn a_step_uses_the_rate_of_that_moment() -> Result<()> {
    macro_rules! test {
        ($($optimizer:expr),*) => {$(
            let (mut x, mut optimizer) = (numbers(&[2, 2], 1.0), $optimizer);
            optimizer.rate = 0.0;
            let before = x.to_vec()?;
            optimizer.step(&mut x, &numbers(&[2, 2], 0.5))?;
            assert_eq!(x.to_vec()?, before);
            optimizer.rate = 0.1;
            optimizer.step(&mut x, &numbers(&[2, 2], 0.5))?;
            assert_ne!(x.to_vec()?, before);
        )*};
    }
    test!(
        Sgd::new(0.5),
        Adam::new(0.5),
        AdamW::new(0.5),
        Lion::new(0.5),
        Muon::new(0.5)
    );
    Ok(())
}

#[test]
fn a_rate_of_zero_changes_nothing() -> Result<()> {
    let (mut x, mut optimizer) = (numbers(&[3], 1.0), Adam::new(0.5));
    let before = x.to_vec()?;
    optimizer.rate = 0.0;
    optimizer.step(&mut x, &numbers(&[3], 0.5))?;
    assert_eq!(x.to_vec()?, before);
    Ok(())
}

#[test]
fn rejects_a_state_that_the_optimizer_lacks() {
    let x = numbers(&[3], 1.0);
    let error = refused(Adam::new(0.1).state_of(2, 1, &x).map(drop), &[]);
    let text = error.to_string();
    assert!(text.contains(
        "Adam::state_of: state 2 of parameter 1 does not exist, the optimizer has 2 states"
    ));
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

#[derive(Debug, Parameters)]
struct Layer {
    weight: Array<f64>,
    bias: Option<Array<f64>>,
}

#[derive(Debug, Parameters)]
struct Network {
    layers: Vec<Layer>,
    scale: Array<f64>,
}

fn network(weight: &[usize], bias: &[usize]) -> Network {
    let layer = || Layer {
        weight: numbers(weight, 1.0),
        bias: Some(numbers(bias, 0.5)),
    };
    Network {
        layers: vec![layer(), layer()],
        scale: numbers(&[], 2.0),
    }
}

fn loss(network: &Network) -> Result<Array<f64>> {
    let mut sum = network.scale.square().sum()?;
    for layer in &network.layers {
        let bias = layer.bias.as_ref().unwrap();
        sum = (sum + layer.weight.square().sum()? + bias.square().sum()?).eval()?;
    }
    Ok(sum)
}

/// Checks that an error contains these texts, and that its line is in this file.
#[track_caller]
fn refused<T>(outcome: Result<T>, texts: &[&str]) -> Error {
    let error = outcome.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let text = error.to_string();
    for expected in texts {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
    let location = error.location().expect("it has a line");
    assert!(location.file().ends_with("grad/optimizers.rs"), "{text}");
    error
}

/// Checks that an error contains these texts, and that its line is the line of this call.
#[track_caller]
fn refused_here<T>(outcome: Result<T>, texts: &[&str]) {
    let line = Location::caller().line();
    let error = refused(outcome, texts);
    assert_eq!(error.location().unwrap().line(), line, "{error}");
}

#[test]
#[rustfmt::skip]
fn errors_have_the_line_of_the_call() -> Result<()> {
    let (mut x, g) = (numbers(&[3, 4], 1.0), numbers(&[1], 1.0));
    refused_here(Sgd::new(0.1).step(&mut x, &g), &["Sgd::step: gradient of `array` has shape [1], the parameter has shape [3, 4]"]);
    refused_here(Adam::new(0.1).step(&mut x, &g), &["Adam::step: gradient of `array`"]);
    refused_here(AdamW::new(0.1).step(&mut x, &g), &["AdamW::step: gradient of `array`"]);
    refused_here(Muon::new(0.1).step(&mut x, &g), &["Muon::step: gradient of `array`"]);
    refused_here(Sgd::new(0.1).step_one(0, &mut x, &g), &["Sgd::step_one: gradient of parameter 0"]);
    refused_here(Adam::new(0.1).step_one(1, &mut x, &g), &["Adam::step_one: gradient of parameter 1"]);
    refused_here(AdamW::new(0.1).step_one(2, &mut x, &g), &["AdamW::step_one: gradient of parameter 2"]);
    refused_here(Muon::new(0.1).step_one(3, &mut x, &g), &["Muon::step_one: gradient of parameter 3"]);
    let mut own = Adam::new(0.1);
    own.step(&mut numbers(&[2], 1.0), &numbers(&[2], 1.0))?;
    refused_here(own.state_of(1, 0, &x).map(drop), &["Adam::state_of: state of parameter 0 has shape [2], the parameter has shape [3, 4]"]);
    refused_here(own.state(&x), &["Adam::state: `array`", "[2]", "[3, 4]"]);
    refused_here(value_and_step(&mut x, &mut own, |x| x.square().sum()), &["value_and_step: `array`", "Adam", "[2]", "[3, 4]"]);
    let state = Adam::new(0.1).state(&x)?;
    refused_here(own.set_state(&x, &state), &["Adam::set_state: `array`", "[2]", "[3, 4]"]);
    let mut average = Average::new(&x, 0.5)?;
    refused_here(average.update(&g), &["Average::update: parameter `array` has shape [1], its average has shape [3, 4]"]);
    Ok(())
}

/// A method `step` of an optimizer.
type Step<O> = fn(&mut O, &mut Network, &Network) -> Result<()>;

/// Runs the test for each optimizer of the library, by its name.
macro_rules! for_each_optimizer {
    ($test:ident) => {
        $test("Sgd", || Sgd::new(0.1), |own, x, g| own.step(x, g))?;
        let heavy = || Sgd::new(0.1).momentum(0.9);
        $test("Sgd", heavy, |own, x, g| own.step(x, g))?;
        $test("Adam", || Adam::new(0.1), |own, x, g| own.step(x, g))?;
        $test("AdamW", || AdamW::new(0.1), |own, x, g| own.step(x, g))?;
        $test("Muon", || Muon::new(0.1), |own, x, g| own.step(x, g))?;
    };
}

#[test]
fn gradients_that_broadcast_are_refused_by_name_and_line() -> Result<()> {
    fn test<O: Stateful>(name: &str, make: fn() -> O, step: Step<O>) -> Result<()> {
        let mut own = network(&[3, 4], &[4]);
        let before = own.layers[0].weight.to_vec()?;
        let mut optimizer = make();
        let gradients = network(&[3, 4], &[1]);
        let stepped = step(&mut optimizer, &mut own, &gradients);
        let text = format!(
            "{name}::step: gradient of `layers.0.bias` has shape [1], the parameter has shape [4]"
        );
        refused(stepped, &[&text]);
        let gradients = network(&[1], &[4]);
        let stepped = step(&mut optimizer, &mut own, &gradients);
        refused(stepped, &["`layers.0.weight`", "[1]", "[3, 4]"]);
        assert_eq!(own.layers[0].weight.to_vec()?, before, "nothing has moved");
        assert_eq!(optimizer.steps(), 0);

        let (x, g) = (&mut own.layers[0].weight, &gradients.layers[0].weight);
        let stepped = optimizer.step_one(3, x, g);
        let texts = [name, "step_one", "parameter 3", "[1]", "[3, 4]"];
        refused(stepped, &texts);
        Ok(())
    }
    for_each_optimizer!(test);
    let mut pair = (numbers(&[2], 1.0), vec![numbers(&[2, 2], 1.0)]);
    let gradients = (numbers(&[2], 1.0), vec![numbers(&[2], 1.0)]);
    refused(AdamW::new(0.1).step(&mut pair, &gradients), &["`1.0`"]);
    Ok(())
}

#[test]
fn states_of_other_parameters_are_refused_by_name_and_line() -> Result<()> {
    fn test<O: Stateful>(name: &str, make: fn() -> O, step: Step<O>) -> Result<()> {
        let mut optimizer = make();
        if optimizer.states() == 0 {
            return Ok(());
        }
        let mut own = network(&[3, 4], &[4]);
        step(&mut optimizer, &mut own, &network(&[3, 4], &[4]))?;
        let mut other = network(&[3, 4], &[5]);
        let stepped = step(&mut optimizer, &mut other, &network(&[3, 4], &[5]));
        let texts = ["state of `layers.0.bias` has shape [4]", "[5]"];
        refused(stepped, &[name, texts[0], texts[1]]);
        let stepped = value_and_step(&mut other, &mut optimizer, loss);
        refused(stepped, &[name, "value_and_step", "bias`", "[4]", "[5]"]);
        let state = optimizer.state(&other);
        refused(state, &[name, "`layers.0.bias`", "[4]", "[5]"]);
        let state = make().state(&other)?;
        let set = optimizer.set_state(&other, &state);
        refused(set, &[name, "`layers.0.bias`", "[4]", "[5]"]);

        // The network has fewer parameters than the state, or more.
        own.layers.pop();
        let mut gradients = network(&[3, 4], &[4]);
        gradients.layers.pop();
        gradients.scale = numbers(&[3, 4], 1.0);
        own.scale = numbers(&[3, 4], 1.0);
        let stepped = step(&mut optimizer, &mut own, &gradients);
        refused(stepped, &[name, "3 parameters", "5"]);
        Ok(())
    }
    for_each_optimizer!(test);
    // The parameter's type differs from the state's type.
    let mut optimizer = Adam::new(0.1);
    optimizer.step(&mut numbers(&[3], 1.0), &numbers(&[3], 1.0))?;
    let mut narrow = Array::<f32>::ones(3)?;
    let gradient = narrow.clone();
    let stepped = optimizer.step(&mut narrow, &gradient);
    refused(stepped, &["Adam::step", "`array`", "f64", "f32"]);
    Ok(())
}

#[test]
fn states_that_broadcast_are_refused() -> Result<()> {
    fn test<O: Stateful>(name: &str, make: fn() -> O, step: Step<O>) -> Result<()> {
        let (mut own, mut optimizer) = (network(&[3, 4], &[4]), make());
        step(&mut optimizer, &mut own, &network(&[3, 4], &[4]))?;
        let mut state = optimizer.state(&own)?;
        let whole = optimizer.state(&own)?;
        if let Some(last) = state.arrays.last_mut() {
            last.layers[1].bias = Some(numbers(&[1], 1.0));
            let set = optimizer.set_state(&own, &state);
            let texts = ["set_state", "`layers.1.bias`", "[1]", "[4]"];
            refused(set, &[&[name], &texts[..]].concat());
        }
        // A refused state changes nothing.
        let after = optimizer.state(&own)?;
        for (after, before) in after.arrays.iter().zip(&whole.arrays) {
            assert_eq!(loss(after)?.item()?, loss(before)?.item()?);
        }
        for steps in [-1.0, 0.5, f64::NAN, f64::INFINITY, 1e300] {
            let state = OptimizerState {
                steps: Array::full([], steps)?,
                arrays: optimizer.state(&own)?.arrays,
            };
            let set = optimizer.set_state(&own, &state);
            refused(set, &[name, "set_state", "steps"]);
        }
        let state = OptimizerState {
            steps: Array::zeros([])?,
            arrays: vec![],
        };
        if optimizer.states() > 0 {
            refused(optimizer.set_state(&own, &state), &[name, "0"]);
        }
        Ok(())
    }
    for_each_optimizer!(test);
    Ok(())
}

#[test]
fn averages_take_the_same_parameters() -> Result<()> {
    let mut average = Average::new(&network(&[3, 4], &[4]), 0.5)?;
    let before = loss(average.parameters())?.item()?;
    let updated = average.update(&network(&[3, 4], &[1]));
    refused(
        updated,
        &["Average::update", "`layers.0.bias`", "[1]", "[4]"],
    );
    let mut fewer = network(&[3, 4], &[4]);
    fewer.layers.pop();
    refused(average.update(&fewer), &["Average::update"]);
    assert_eq!(loss(average.parameters())?.item()?, before);
    Ok(())
}

/// The number of steps exceeds the range of an `i32`.
#[test]
fn steps_are_counted_beyond_two_to_the_31() -> Result<()> {
    fn test<O: Stateful>(_: &str, make: fn() -> O, step: Step<O>) -> Result<()> {
        let (mut own, mut optimizer) = (network(&[3, 4], &[4]), make());
        step(&mut optimizer, &mut own, &network(&[3, 4], &[4]))?;
        let mut state = optimizer.state(&own)?;
        state.steps = Array::full([], 3e9)?;
        let mut next = make();
        next.set_state(&own, &state)?;
        assert_eq!(next.steps(), 3_000_000_000);
        step(&mut next, &mut own, &network(&[3, 4], &[4]))?;
        assert!(loss(&own)?.item()?.is_finite());
        assert_eq!(next.state(&own)?.steps.item()?, 3_000_000_001.0);
        next.set_steps(u64::MAX);
        step(&mut next, &mut own, &network(&[3, 4], &[4]))?;
        assert!(loss(&own)?.item()?.is_finite());
        Ok(())
    }
    for_each_optimizer!(test);
    // The bias correction is still below 1 after 2³¹ steps.
    let beta = 1.0 - 1e-9;
    let (mut x, mut optimizer) = (numbers(&[1], 1.0), Adam::new(1.0).betas(0.0, beta));
    optimizer.set_steps(2_999_999_999);
    let before = x.to_vec()?[0];
    optimizer.step(&mut x, &Array::full(1, 1.0)?)?;
    let expected = (1.0 / ((1.0 - beta) / (1.0 - beta.powf(3e9))).sqrt()).abs();
    let moved = before - x.to_vec()?[0];
    assert!((moved / expected - 1.0).abs() < 1e-3, "{moved}, {expected}");
    Ok(())
}

const POLICIES: [Policy; 4] = [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan];

#[test]
fn states_outlive_the_scope_of_their_first_step() -> Result<()> {
    const LENGTH: usize = 1 << 14;
    fn test<O: Stateful>(
        name: &str,
        make: fn() -> O,
        step: fn(&mut O, &mut Array<f32>, &Array<f32>) -> Result<()>,
    ) -> Result<()> {
        for policy in POLICIES {
            let device = Device::host_with(DeviceConfig::default())?;
            let _current = device.enter();
            let mut x = Array::<f32>::ones([LENGTH / 64, 64])?;
            let mut optimizer = make();
            let mut average = None;
            let mut snapshot = None;
            for iteration in 0..8 {
                cache_scope!("step", policy = policy, {
                    if iteration % 2 == 0 {
                        let (_, gradient) = value_and_grad(&x, |x| x.square().sum())?;
                        step(&mut optimizer, &mut x, &gradient)?;
                    } else {
                        value_and_step(&mut x, &mut optimizer, |x| x.square().sum())?;
                    }
                    let average = match &mut average {
                        None => average.insert(Average::new(&x, 0.9)?),
                        Some(average) => average,
                    };
                    average.update(&x)?;
                    if iteration == 2 {
                        // The next step writes to memory that these handles share.
                        snapshot = Some((optimizer.state(&x)?, average.parameters().clone()));
                    }
                    if iteration == 5 {
                        let state = optimizer.state(&x)?;
                        optimizer = make();
                        optimizer.set_state(&x, &state)?;
                    }
                });
                let stats = device.cache_stats("step").unwrap();
                assert_eq!(
                    stats.escaped_blocks, 0,
                    "{name}, {policy:?}, iteration {iteration}"
                );
            }
            let reserved = device.memory_stats().reserved_bytes;
            assert!(reserved <= 32 << 20, "{name}, {policy:?}: {reserved}");
            drop(snapshot);
        }
        Ok(())
    }
    for_each_optimizer!(test);
    Ok(())
}
