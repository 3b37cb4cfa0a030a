//! Steps of parameters within the backward pass, and tapes that are held open.

use cachescope::grad::optim::{Adam, AdamW, Muon, Sgd};
use cachescope::grad::{
    Optimizer, Parameters, Tape, checkpoint, hvp, jvp, value_and_grad, value_and_step,
};
use cachescope::{Array, Device, DeviceConfig, ErrorKind, Float, Result};

use crate::grad::differences::numbers;

#[derive(Parameters)]
struct Network {
    first: Array<f64>,
    bias: Array<f64>,
    last: Array<f64>,
    /// A parameter that nothing reads.
    unused: Option<Array<f64>>,
}

fn network() -> Network {
    Network {
        first: numbers(&[4, 4], 0.3),
        bias: numbers(&[4], 0.1),
        last: numbers(&[4, 4], 0.2),
        unused: Some(numbers(&[2], 1.0)),
    }
}

fn loss(network: &Network) -> Result<Array<f64>> {
    let x = numbers(&[3, 4], 1.0);
    let inner = (x.matmul(&network.first)? + &network.bias).tanh().eval()?;
    inner.matmul(&network.last)?.square().mean()
}

fn elements(network: &Network) -> Result<Vec<f64>> {
    let arrays = [&network.first, &network.bias, &network.last];
    let arrays = arrays.into_iter().chain(&network.unused);
    let elements: Result<Vec<_>> = arrays.map(|array| array.to_vec()).collect();
    Ok(elements?.concat())
}

/// Compares steps within the backward pass with steps after the backward pass.
#[track_caller]
fn check<O: Optimizer>(
    mut inside: O,
    mut behind: O,
    step: impl Fn(&mut O, &mut Network, &Network) -> Result<()>,
) {
    let (mut own, mut other) = (network(), network());
    for _ in 0..3 {
        let value = value_and_step(&mut own, &mut inside, loss).unwrap();
        let (expected, gradients) = value_and_grad(&other, loss).unwrap();
        step(&mut behind, &mut other, &gradients).unwrap();
        assert_eq!(value, expected);
        assert_eq!(elements(&own).unwrap(), elements(&other).unwrap());
    }
}

#[test]
fn a_step_inside_is_a_step_behind() {
    let sgd = || Sgd::new(0.1).momentum(0.9);
    check(sgd(), sgd(), |optimizer, own, gradients| {
        optimizer.step(own, gradients)
    });
    let adam = || Adam::new(0.1);
    check(adam(), adam(), |optimizer, own, gradients| {
        optimizer.step(own, gradients)
    });
    let adam_w = || AdamW::new(0.1).weight_decay(0.2);
    check(adam_w(), adam_w(), |optimizer, own, gradients| {
        optimizer.step(own, gradients)
    });
    let muon = || Muon::new(0.1).weight_decay(0.2);
    check(muon(), muon(), |optimizer, own, gradients| {
        optimizer.step(own, gradients)
    });
}

/// An optimizer that records its arguments, and updates in place.
#[derive(Default)]
struct Noting {
    order: Vec<usize>,
    addresses: Vec<(u64, u64)>,
    peak_live_bytes: u64,
    fails_at: Option<usize>,
    is_abandoned: bool,
}

impl Optimizer for Noting {
    fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    fn step_one<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        if self.fails_at == Some(number) {
            own.reshape([7, 7, 7])?;
        }
        self.order.push(number);
        let before = own.address();
        own.update(|own| own - gradient)?;
        self.addresses.push((before, own.address()));
        let live = own.device().memory_stats().live_bytes;
        self.peak_live_bytes = self.peak_live_bytes.max(live);
        Ok(())
    }
}

#[test]
fn the_last_layer_steps_first_and_in_place() -> Result<()> {
    let mut noting = Noting::default();
    value_and_step(&mut network(), &mut noting, loss)?;
    assert_eq!(noting.order.len(), 4);
    let place = |number| noting.order.iter().position(|own| *own == number);
    assert!(place(2) < place(0), "{:?}", noting.order);
    assert!(
        noting
            .addresses
            .iter()
            .all(|(before, after)| before == after)
    );
    Ok(())
}

#[test]
fn a_checkpoint_is_read_until_it_has_run_again() -> Result<()> {
    let deep = |layers: &Vec<Array<f64>>| {
        let inputs = (numbers(&[3, 4], 1.0), layers[0].clone(), layers[1].clone());
        let inner = checkpoint(&inputs, |(x, first, last)| {
            x.matmul(first)?.tanh().eval()?.matmul(last)
        })?;
        inner.matmul(&layers[0])?.square().sum()
    };
    let mut own = vec![numbers(&[4, 4], 0.3), numbers(&[4, 4], 0.2)];
    let (_, gradients) = value_and_grad(&own, deep)?;
    let mut expected = Vec::new();
    for (own, gradient) in own.iter().zip(&gradients) {
        expected.push((own - gradient).eval()?);
    }
    value_and_step(&mut own, &mut Noting::default(), deep)?;
    assert_eq!(own, expected);
    Ok(())
}

#[test]
fn gradients_are_not_all_in_memory_at_once() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    const LAYERS: usize = 16;
    let layers: Result<Vec<_>> = (0..LAYERS).map(|_| Array::<f64>::eye(128)).collect();
    let mut layers = layers?;
    let x = Array::<f64>::ones([1, 128])?;
    let layer_bytes = 128 * 128 * 8;
    let mut noting = Noting::default();
    value_and_step(&mut layers, &mut noting, |layers| {
        let y = layers
            .iter()
            .try_fold(x.clone(), |x, layer| x.matmul(layer))?;
        (y * 1e-3).sum()
    })?;
    assert_eq!(noting.order, (0..LAYERS).rev().collect::<Vec<_>>());
    let all = (LAYERS as u64 + 3) * layer_bytes;
    assert!(noting.peak_live_bytes < all, "{}", noting.peak_live_bytes);
    Ok(())
}

#[test]
fn an_error_abandons_the_step() {
    let mut noting = Noting {
        fails_at: Some(0),
        ..Noting::default()
    };
    assert!(value_and_step(&mut network(), &mut noting, loss).is_err());
    assert!(noting.is_abandoned);
    // The tape of the thread has ended.
    assert!(value_and_step(&mut network(), &mut Sgd::new(0.1), loss).is_ok());
}

#[test]
fn a_tape_of_its_own() -> Result<()> {
    let mut tape = Tape::begin()?;
    let (w, b) = tape.track(&(numbers(&[3], 1.0), numbers(&[3], 0.5)))?;
    let scale = tape.track(&Array::full([], 2.0)?)?;
    let loss = ((&w * &w + &b) * &scale).sum()?;
    let (value, ((of_w, of_b), of_scale)) = tape.gradients(loss, ((w.clone(), b), scale))?;
    assert_eq!(of_w, (&w * 4.0).eval()?);
    assert_eq!(of_b.to_vec()?, [2.0; 3]);
    assert_eq!((of_scale * 2.0).eval()?, value);
    Ok(())
}

#[test]
fn a_tape_knows_its_variables() -> Result<()> {
    let mut tape = Tape::begin()?;
    let x = tape.track(&numbers(&[3], 1.0))?;
    let y = x.exp().eval()?;
    let error = tape.gradients(y.sum()?, y).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(Tape::begin().is_ok());
    Ok(())
}

#[test]
fn products_of_structures() -> Result<()> {
    let (own, direction) = (network(), network());
    let (value, along) = jvp(&own, &direction, loss)?;
    let (expected, gradients) = value_and_grad(&own, loss)?;
    assert_eq!(value, expected);
    let products = elements(&gradients)?.into_iter().zip(elements(&direction)?);
    let sum: f64 = products.map(|(gradient, own)| gradient * own).sum();
    assert!((along.item()? - sum).abs() < 1e-12);
    let (_, product) = hvp(&own, &direction, loss)?;
    assert_eq!(product.unused.unwrap().to_vec()?, [0.0; 2]);
    assert!(product.first.abs().max()?.item()? > 0.0);
    Ok(())
}

#[test]
fn products_of_several_values_and_types() -> Result<()> {
    let x = Array::from_slice(&[1.0_f32, 2.0], 2)?;
    let along = Array::from_slice(&[1.0_f32, -1.0], 2)?;
    let (value, change) = jvp(&x, &along, |x| x.cast::<f64>().square().eval())?;
    assert_eq!(value.to_vec()?, [1.0, 4.0]);
    assert_eq!(change.to_vec()?, [2.0, -4.0]);
    // The change of a constant result is zero.
    let (_, change) = jvp(&x, &along, |_| Array::<f64>::ones(3))?;
    assert_eq!(change.to_vec()?, [0.0; 3]);
    let (_, change) = jvp(&x, &along, |x| Ok(x.clone()))?;
    assert_eq!(change, along);
    let error = jvp(&x, &Array::ones(3)?, |x| x.exp().eval()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
    Ok(())
}
