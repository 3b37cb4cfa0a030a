//! Tests of captured training steps with gradients.

use cachescope::grad::optim::{Adam, AdamW, Sgd, Stateful};
use cachescope::grad::{Optimizer, Parameters, value_and_grad};
use cachescope::{Array, Device, DeviceConfig, Generator, Policy, Result, cache_scope, graph};

#[derive(Parameters)]
struct Network {
    first: Array<f32>,
    bias: Array<f32>,
    last: Array<f32>,
}

struct Training<O> {
    network: Network,
    optimizer: O,
    inputs: Array<f32>,
    classes: Array<i64>,
}

/// An optimizer that updates a network with gradients.
trait Move {
    fn step(&mut self, network: &mut Network, gradients: &Network) -> Result<()>;
}

macro_rules! moves {
    ($($optimizer:ident)+) => {
        $(impl Move for $optimizer {
            fn step(&mut self, network: &mut Network, gradients: &Network) -> Result<()> {
                $optimizer::step(self, network, gradients)
            }
        })+
    };
}

moves! { Sgd Adam AdamW }

impl<O: Move> Training<O> {
    /// Creates the initial state, which is equal on each call.
    fn new(optimizer: O) -> Result<Self> {
        let mut generator = Generator::new(5);
        let mut random = |shape: [usize; 2]| Array::<f32>::randn_with(&mut generator, shape);
        Ok(Self {
            network: Network {
                first: random([6, 5])?,
                bias: Array::zeros(5)?,
                last: random([5, 3])?,
            },
            inputs: random([8, 6])?,
            classes: Array::from_vec((0..8).map(|row| row % 3).collect(), 8)?,
            optimizer,
        })
    }

    fn loss(&self, network: &Network) -> Result<Array<f32>> {
        let inner = (self.inputs.matmul(&network.first)? + &network.bias).tanh();
        let mut scores = inner.eval()?.matmul(&network.last)?;
        scores.add_assign(0.5)?;
        scores.cross_entropy(&self.classes)
    }

    fn step(&mut self) -> Result<()> {
        cache_scope!("training", policy = Policy::Plan, {
            let (_, gradients) = value_and_grad(&self.network, |network| self.loss(network))?;
            self.optimizer.step(&mut self.network, &gradients)
        })
    }

    fn parameters(&self) -> Result<Vec<f32>> {
        let Network { first, bias, last } = &self.network;
        Ok([first.to_vec()?, bias.to_vec()?, last.to_vec()?].concat())
    }
}

fn sgd() -> Sgd {
    Sgd::new(0.1).momentum(0.9)
}

#[track_caller]
fn assert_close(some: &[f32], others: &[f32]) {
    for (one, other) in some.iter().zip(others) {
        assert!(
            (one - other).abs() <= 1e-5 * other.abs().max(1e-2),
            "{one} and {other}"
        );
    }
}

/// The step count and the learning rate are on the device. So each launch is a separate step with
/// its own rate.
#[test]
fn a_whole_step_with_adam_is_captured() -> Result<()> {
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _current = device.enter();
    let mut eager = Training::new(AdamW::new(0.05))?;
    let mut captured = Training::new(AdamW::new(0.05).capturable())?;
    for _ in 0..2 {
        captured.step()?;
    }
    let graph = graph::capture(&device, || captured.step())?;
    for _ in 0..4 {
        graph.launch()?;
    }
    captured.optimizer.rate = 0.01;
    captured.optimizer.write_rate()?;
    for _ in 0..3 {
        graph.launch()?;
    }
    for step in 0..9 {
        eager.optimizer.rate = if step < 6 { 0.05 } else { 0.01 };
        eager.step()?;
    }
    assert_close(&captured.parameters()?, &eager.parameters()?);
    assert_eq!(captured.optimizer.read_steps()?, 9);
    // A step without a launch continues the count.
    captured.step()?;
    eager.step()?;
    assert_close(&captured.parameters()?, &eager.parameters()?);
    let state = captured.optimizer.state(&captured.network)?;
    assert_eq!(state.steps.item()?, 10.0);
    Ok(())
}

/// If a write of the rate or the count were captured, each launch would repeat it.
#[test]
fn a_capture_with_a_rate_that_was_not_written_is_an_error() -> Result<()> {
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _current = device.enter();
    let mut training = Training::new(Adam::new(0.05).capturable())?;
    for _ in 0..2 {
        training.step()?;
    }
    training.optimizer.rate = 0.01;
    let error = graph::capture(&device, || training.step()).unwrap_err();
    assert_eq!(error.code(), "CS0603", "{error}");
    training.optimizer.write_rate()?;
    let steps = training.optimizer.read_steps()?;
    let graph = graph::capture(&device, || training.step())?;
    graph.launch()?;
    assert_eq!(training.optimizer.read_steps()?, steps + 1);
    Ok(())
}

#[test]
fn a_step_that_was_abandoned_is_not_counted() -> Result<()> {
    let _current = Device::host().enter();
    let (mut optimizer, mut x) = (Adam::new(0.1).capturable(), Array::<f32>::zeros(2)?);
    let gradient = Array::ones(2)?;
    optimizer.step(&mut x, &gradient)?;
    optimizer.begin();
    optimizer.step_one(0, &mut x, &gradient)?;
    optimizer.abandon();
    optimizer.begin();
    optimizer.abandon();
    assert_eq!(optimizer.read_steps()?, 1);
    optimizer.step(&mut x, &gradient)?;
    assert_eq!(optimizer.read_steps()?, 2);
    optimizer.set_steps(40);
    optimizer.step(&mut x, &gradient)?;
    assert_eq!((optimizer.read_steps()?, optimizer.steps()), (41, 41));
    Ok(())
}

#[test]
fn a_training_step_with_gradients_is_captured() -> Result<()> {
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _current = device.enter();
    let (mut eager, mut captured) = (Training::new(sgd())?, Training::new(sgd())?);
    for _ in 0..2 {
        captured.step()?;
    }
    let graph = graph::capture(&device, || captured.step())?;
    for _ in 0..3 {
        graph.launch()?;
    }
    for _ in 0..5 {
        eager.step()?;
    }
    assert_eq!(captured.parameters()?, eager.parameters()?);
    Ok(())
}

/// As in the examples, the optimizer counts its steps outside of the graph, and the inputs change
/// between launches.
#[test]
fn gradients_are_captured_and_steps_are_not() -> Result<()> {
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _current = device.enter();
    let (mut eager, mut captured) = (Training::new(sgd())?, Training::new(sgd())?);
    let mut optimizers = [Adam::new(0.05), Adam::new(0.05)];
    let graph =
        shared::captured::Captured::new(&captured.network, |network| captured.loss(network))?;
    for round in 0..5 {
        let inputs = (&eager.inputs * 0.5 + round as f32).eval()?;
        eager.inputs.assign(&inputs)?;
        captured.inputs.assign(&inputs)?;
        let (loss, gradients) = value_and_grad(&eager.network, |network| eager.loss(network))?;
        optimizers[0].step(&mut eager.network, &gradients)?;
        optimizers[1].step(&mut captured.network, graph.launch()?)?;
        assert_eq!(graph.loss()?, loss.item()?);
        assert_eq!(captured.parameters()?, eager.parameters()?);
    }
    Ok(())
}
