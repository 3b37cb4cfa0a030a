//! A training step by gradients as a graph.

use cachescope::grad::optim::{Adam, Sgd};
use cachescope::grad::{Parameters, value_and_grad};
use cachescope::{Array, Device, DeviceConfig, Generator, Policy, Result, cache_scope, graph};

#[derive(Parameters)]
struct Network {
    first: Array<f32>,
    bias: Array<f32>,
    last: Array<f32>,
}

struct Training {
    network: Network,
    optimizer: Sgd,
    inputs: Array<f32>,
    classes: Array<i64>,
}

impl Training {
    /// Returns the same state on every call.
    fn new() -> Result<Self> {
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
            optimizer: Sgd::new(0.1).momentum(0.9),
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

#[test]
fn a_training_step_with_gradients_is_captured() -> Result<()> {
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _current = device.enter();
    let (mut eager, mut captured) = (Training::new()?, Training::new()?);
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

/// Like the examples: an optimizer that counts its steps, and inputs that change between launches.
#[test]
fn gradients_are_captured_and_steps_are_not() -> Result<()> {
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _current = device.enter();
    let (mut eager, mut captured) = (Training::new()?, Training::new()?);
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
