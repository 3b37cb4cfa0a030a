//! Data-parallel training, compared with training by one rank.

use std::sync::Barrier;
use std::time::Duration;

use cachescope::collective::{DataParallel, Group, Sampler, Sharded, value_and_grad_parallel};
use cachescope::grad::optim::{Adam, AdamW, Muon, Sgd, Stateful};
use cachescope::grad::{Parameters, value_and_grad};
use cachescope::{
    Array, Device, DeviceConfig, ErrorKind, Generator, Policy, Result, cache_scope, testing,
};
use half::f16;

/// A network with parameters of two element types.
#[derive(Debug, Parameters)]
pub(crate) struct Network {
    first: Array<f64>,
    bias: Option<Array<f64>>,
    layers: Vec<Array<f64>>,
    narrow: Array<f32>,
    unused: Array<f32>,
}

const SAMPLES: usize = 48;

pub(crate) fn whole(shape: &[usize], seed: u64) -> Result<Array<f64>> {
    let drawn = Array::<i64>::randint_with(&mut Generator::new(seed), -3, 4, shape)?;
    drawn.cast::<f64>().eval()
}

impl Network {
    pub(crate) fn new(seed: u64) -> Result<Self> {
        Ok(Self {
            first: whole(&[5, 7], seed)?,
            bias: Some(whole(&[7], seed + 1)?),
            layers: vec![whole(&[7, 6], seed + 2)?, whole(&[6, 3], seed + 3)?],
            narrow: whole(&[3], seed + 4)?.cast::<f32>().eval()?,
            unused: Array::ones([2, 2])?,
        })
    }

    /// Returns the mean loss over the samples.
    pub(crate) fn loss(&self, x: &Array<f64>) -> Result<Array<f64>> {
        let mut y = (x.matmul(&self.first)? + self.bias.as_ref().unwrap())
            .relu()
            .eval()?;
        for layer in &self.layers {
            y = y.matmul(layer)?;
        }
        let narrow = self.narrow.cast::<f64>();
        (y * narrow).sum()?.eval_scaled(x.shape()[0])
    }

    pub(crate) fn values(&self) -> Result<Vec<Vec<f64>>> {
        let mut values = vec![
            self.first.to_vec()?,
            self.bias.as_ref().unwrap().to_vec()?,
            self.narrow.cast::<f64>().eval()?.to_vec()?,
            self.unused.cast::<f64>().eval()?.to_vec()?,
        ];
        for layer in &self.layers {
            values.push(layer.to_vec()?);
        }
        Ok(values)
    }
}

trait Scaled {
    fn eval_scaled(&self, count: usize) -> Result<Array<f64>>;
}

impl Scaled for Array<f64> {
    fn eval_scaled(&self, count: usize) -> Result<Array<f64>> {
        (self * (1.0 / count as f64)).eval()
    }
}

fn data() -> Result<Array<f64>> {
    whole(&[SAMPLES, 5], 99)
}

/// A layer whose training computes exactly in `f64` and `f32`. Therefore sums do not depend on
/// their order.
#[derive(Debug, Parameters)]
struct Exact {
    weights: Array<f64>,
    bias: Option<Array<f64>>,
    narrow: Vec<Array<f32>>,
    unused: Array<f32>,
}

/// The learning rate. It is a power of two, so that products are exact.
const RATE: f64 = 1.0 / 64.0;
const BATCH: usize = 16;

impl Exact {
    fn new(seed: u64) -> Result<Self> {
        let narrow = |seed| whole(&[5], seed)?.cast::<f32>().eval();
        Ok(Self {
            weights: whole(&[5, 3], seed)?,
            bias: Some(whole(&[3], seed + 1)?),
            narrow: vec![narrow(seed + 2)?, narrow(seed + 3)?],
            unused: Array::ones([2, 2])?,
        })
    }

    fn loss(&self, x: &Array<f64>) -> Result<Array<f64>> {
        let y = (x.matmul(&self.weights)? + self.bias.as_ref().unwrap()).eval()?;
        let mut loss = y.square().sum()?;
        for narrow in &self.narrow {
            let linear = (x.cast::<f32>() * narrow).sum()?;
            loss = (loss + linear.cast::<f64>()).eval()?;
        }
        (loss * (1.0 / x.shape()[0] as f64)).eval()
    }

    fn values(&self) -> Result<Vec<f64>> {
        let mut values = self.weights.to_vec()?;
        values.extend(self.bias.as_ref().unwrap().to_vec()?);
        for narrow in self.narrow.iter().chain([&self.unused]) {
            values.extend(narrow.cast::<f64>().eval()?.to_vec()?);
        }
        Ok(values)
    }
}

fn alone() -> Result<Vec<f64>> {
    let (mut network, data) = (Exact::new(7)?, data()?);
    let mut optimizer = Sgd::new(RATE);
    for batch in Sampler::new(SAMPLES, BATCH).shuffle(3).epoch(5)? {
        let x = data.take(&batch, 0)?;
        let (_, gradients) = value_and_grad(&network, |network| network.loss(&x))?;
        optimizer.step(&mut network, &gradients)?;
    }
    network.values()
}

/// Trains on the ranks of `group`, with buckets of `bytes` bytes. If `divides`, shards the states.
fn together(group: &Group, bytes: usize, divides: bool) -> Result<Vec<f64>> {
    let data = data()?;
    // Each rank begins with different parameters. `broadcast` copies rank 0's parameters to all
    // ranks.
    let mut network = Exact::new(7 + group.rank() as u64)?;
    let mut parallel = DataParallel::new(group).bucket_bytes(bytes, bytes);
    parallel.broadcast(&mut network)?;
    let mut whole = Sgd::new(RATE);
    let mut divided = Sharded::new(group, Sgd::new(RATE))?;
    let sampler = Sampler::new(SAMPLES, BATCH).shuffle(3).group(group);
    for batch in sampler.epoch(5)? {
        let x = data.take(&batch, 0)?;
        if divides {
            parallel.value_and_step(&mut network, &mut divided, |network| network.loss(&x))?;
            continue;
        }
        let (_, gradients) = parallel.value_and_grad(&network, |network| network.loss(&x))?;
        whole.step(&mut network, &gradients)?;
    }
    network.values()
}

/// Returns whether all values agree within the precision of the narrowest type.
pub(crate) fn are_close(found: &[Vec<f64>], expected: &[Vec<f64>]) -> bool {
    let mut pairs = found.iter().flatten().zip(expected.iter().flatten());
    pairs.all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0))
}

#[test]
fn several_ranks_learn_what_one_does_to_the_last_bit() -> Result<()> {
    let expected = alone()?;
    for size in [1, 2, 4] {
        for bytes in [1, 100, 1 << 20] {
            for divides in [false, true] {
                for found in Group::threads(size, |group| together(&group, bytes, divides))? {
                    assert_eq!(found, expected, "{size} ranks, buckets of {bytes} bytes");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn the_value_is_the_mean_over_the_ranks() -> Result<()> {
    let network = Network::new(1)?;
    let (value, gradients) = value_and_grad(&network, |network| network.loss(&data()?))?;
    let all = Group::threads(4, |group| {
        let network = Network::new(1)?;
        let batch = Sampler::new(SAMPLES, SAMPLES).group(&group).epoch(0)?;
        let x = data()?.take(&batch[0], 0)?;
        let (value, gradients) =
            value_and_grad_parallel(&group, &network, |network| network.loss(&x))?;
        Ok((value.item()?, gradients.values()?))
    })?;
    for (found, found_gradients) in all {
        assert!((found - value.item()?).abs() < 1e-6);
        assert!(are_close(&found_gradients, &gradients.values()?));
    }
    Ok(())
}

#[test]
fn a_batch_in_parts_gives_the_gradients_of_the_whole() -> Result<()> {
    let network = Network::new(5)?;
    let x = data()?;
    let (_, expected) = value_and_grad(&network, |network| network.loss(&x))?;
    let expected = expected.values()?;
    let all = Group::threads(2, |group| {
        let network = Network::new(5)?;
        let mut parallel = DataParallel::new(&group).bucket_bytes(300, 300);
        let batches = Sampler::new(SAMPLES, SAMPLES / 3).group(&group).epoch(0)?;
        let loss = |network: &Network, part: usize| {
            let x = data()?.take(&batches[part], 0)?;
            network.loss(&x)?.eval_scaled(3)
        };
        parallel.accumulate(&network, |network| loss(network, 0))?;
        parallel.accumulate(&network, |network| loss(network, 1))?;
        let (_, gradients) = parallel.value_and_grad(&network, |network| loss(network, 2))?;
        // `value_and_grad` consumes the accumulated gradients.
        let (_, alone) = parallel.value_and_grad(&network, |network| loss(network, 2))?;
        assert_ne!(alone.values()?, gradients.values()?);
        gradients.values()
    })?;
    for found in all {
        assert!(are_close(&found, &expected));
    }
    Ok(())
}

/// Each rank compares every elementwise optimizer, sharded, with its unsharded form.
#[test]
fn divided_states_step_like_whole_ones() -> Result<()> {
    fn steps<O: Stateful + Send>(optimizer: fn() -> O, size: usize) -> Result<()> {
        let run = |group: Group| {
            let mut whole = Network::new(4)?;
            let mut divided = Network::new(4)?;
            let mut parallel = DataParallel::new(&group).bucket_bytes(200, 400);
            let mut of_whole = optimizer();
            let mut of_divided = Sharded::new(&group, optimizer())?;
            let x = whole_batch(&group)?;
            for _ in 0..4 {
                let (value, gradients) =
                    parallel.value_and_grad(&whole, |network| network.loss(&x))?;
                of_whole.begin();
                step(&mut of_whole, &mut whole, &gradients)?;
                let other = parallel
                    .value_and_step(&mut divided, &mut of_divided, |network| network.loss(&x))?;
                assert_eq!(value.item()?, other.item()?);
            }
            assert_eq!(whole.values()?, divided.values()?);
            let (own, other) = (of_whole.state(&whole)?, of_divided.state(&divided)?);
            assert_eq!(own.steps.item()?, other.steps.item()?);
            for (own, other) in own.arrays.iter().zip(&other.arrays) {
                assert_eq!(own.values()?, other.values()?);
            }
            Ok(())
        };
        Group::threads(size, run).map(drop)
    }
    for size in [1, 2, 3] {
        steps(|| Sgd::new(0.01).momentum(0.9), size)?;
        steps(|| Sgd::new(0.01), size)?;
        steps(|| Adam::new(0.01), size)?;
        steps(|| AdamW::new(0.01), size)?;
    }
    Ok(())
}

fn whole_batch(group: &Group) -> Result<Array<f64>> {
    let samples = SAMPLES / group.size() * group.size();
    let batch = Sampler::new(samples, samples).group(group).epoch(0)?;
    data()?.take(&batch[0], 0)
}

/// Makes a step with `step_one` alone.
fn step<O: Stateful>(optimizer: &mut O, network: &mut Network, gradients: &Network) -> Result<()> {
    let mut number = 0;
    let mut next = || {
        number += 1;
        number - 1
    };
    optimizer.step_one(next(), &mut network.first, &gradients.first)?;
    let (bias, of_bias) = (network.bias.as_mut(), gradients.bias.as_ref());
    optimizer.step_one(next(), bias.unwrap(), of_bias.unwrap())?;
    for (own, gradient) in network.layers.iter_mut().zip(&gradients.layers) {
        optimizer.step_one(next(), own, gradient)?;
    }
    optimizer.step_one(next(), &mut network.narrow, &gradients.narrow)?;
    optimizer.step_one(next(), &mut network.unused, &gradients.unused)
}

#[test]
fn divided_states_take_their_part_of_the_memory() -> Result<()> {
    let live = |divides: bool| {
        let bytes = Group::threads(4, move |group| {
            let device = Device::host_with(DeviceConfig::default())?;
            let _current = device.enter();
            let mut x = Array::<f32>::ones(1 << 16)?;
            let mut parallel = DataParallel::new(&group);
            let mut whole = Adam::new(0.1);
            let mut divided = Sharded::new(&group, Adam::new(0.1))?;
            for _ in 0..2 {
                if divides {
                    parallel.value_and_step(&mut x, &mut divided, |x| x.square().sum())?;
                } else {
                    let (_, gradient) = parallel.value_and_grad(&x, |x| x.square().sum())?;
                    whole.step(&mut x, &gradient)?;
                }
            }
            device.synchronize()?;
            Ok(device.memory_stats().live_bytes)
        })?;
        Ok(bytes[0])
    };
    let parameters = 4 << 16;
    assert_eq!(live(false)?, 3 * parameters);
    assert_eq!(live(true)?, parameters + 2 * parameters / 4);
    Ok(())
}

/// A warm step in a scope reserves nothing. A gradient has an equal offset on all ranks.
#[test]
fn a_warm_step_allocates_nothing() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Plan] {
        let places = Group::threads(2, |group| {
            let device = Device::host_with(DeviceConfig::default())?;
            let _current = device.enter();
            let mut network = Network::new(2)?;
            let mut optimizer = Sgd::new(1e-4);
            let mut parallel = DataParallel::new(&group).bucket_bytes(400, 400);
            let x = whole(&[8, 5], 1)?;
            let (mut place, mut reserves) = (0, 0);
            for iteration in 0..8 {
                cache_scope!("step", policy = policy, {
                    let (value, gradients) =
                        parallel.value_and_grad(&network, |network| network.loss(&x))?;
                    optimizer.step(&mut network, &gradients)?;
                    assert!(value.item()?.is_finite());
                    place = gradients.layers[0]
                        .address()
                        .wrapping_sub(gradients.narrow.address());
                });
                if iteration == 3 {
                    reserves = device.memory_stats().reserves;
                }
            }
            assert_eq!(device.memory_stats().reserves, reserves);
            let stats = device.cache_stats("step").unwrap();
            assert_eq!(stats.escaped_blocks, 0);
            Ok(place)
        })?;
        assert!(policy != Policy::Plan || places[0] == places[1]);
    }
    Ok(())
}

/// A gradient that is a matrix product is computed in its bucket. It needs no second buffer.
#[test]
fn products_are_written_into_their_buckets() -> Result<()> {
    let bytes = 4 << 18;
    Group::threads(2, |group| {
        let device = Device::host_with(DeviceConfig::default())?;
        let _current = device.enter();
        let x = Array::<f32>::rand([64, 512])?;
        let weights = vec![Array::<f32>::rand([512, 512])?, Array::rand([512, 512])?];
        let loss = |weights: &Vec<Array<f32>>| {
            let y = x.matmul(&weights[0])?.matmul(&weights[1])?;
            (y * (1.0 / 4096.0)).sum()
        };
        let (_, whole) = value_and_grad(&weights, loss)?;
        let mut parallel = DataParallel::new(&group);
        parallel.value_and_grad(&weights, loss)?;
        let ((_, gradients), peak) =
            testing::peak_of(&device, || parallel.value_and_grad(&weights, loss))?;
        let activations = 4 * 64 * 512 * 4;
        assert!(peak < 2 * bytes + activations, "{peak} bytes at once");
        for (own, whole) in gradients.iter().zip(&whole) {
            let mut mean = whole.clone();
            group.all_reduce_in_place(&mut mean, cachescope::collective::Reduce::Mean)?;
            assert_eq!(own.to_vec()?, mean.to_vec()?);
        }
        Ok(())
    })?;
    Ok(())
}

#[test]
fn narrow_gradients_are_averaged_in_f32() -> Result<()> {
    let all = Group::threads(4, |group| {
        let x = Array::full(3, f16::from_f32(1.0))?;
        let factor = f16::from_f32(if group.rank() == 0 { 2048.0 } else { 1.0 });
        let (_, gradient) = value_and_grad_parallel(&group, &x, |x| (x * factor).sum())?;
        gradient.to_vec()
    })?;
    assert_eq!(all[3], [f16::from_f32(512.75); 3]);
    Ok(())
}

#[test]
fn impossible_arguments_are_errors() -> Result<()> {
    Group::threads(2, |group| {
        let kind = Sharded::new(&group, Muon::new(0.1)).map(drop).unwrap_err();
        assert_eq!(kind.kind(), ErrorKind::Unsupported);
        let odd = Sampler::new(10, 3).group(&group).epoch(0).unwrap_err();
        assert!(odd.to_string().contains("3 samples"), "{odd}");
        assert!(Sampler::new(10, 0).epoch(0).is_err());
        // The shape of the parameters changes between calls.
        let mut parallel = DataParallel::new(&group);
        let loss = |x: &Array<f32>| x.square().sum();
        parallel.value_and_grad(&Array::ones(3)?, loss)?;
        let error = parallel.value_and_grad(&Array::ones(4)?, loss).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        parallel.accumulate(&Array::ones(3)?, loss)?;
        let error = parallel.value_and_grad(&Array::ones(1)?, loss).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        // The only parameter of type `f16` has no elements.
        let mut both = (Array::<f32>::ones(3)?, Array::<f16>::ones(0)?);
        let mut optimizer = Sharded::new(&group, Sgd::new(0.5))?;
        let of_both = |both: &(Array<f32>, Array<f16>)| both.0.sum();
        DataParallel::new(&group).value_and_step(&mut both, &mut optimizer, of_both)?;
        assert_eq!(both.0.to_vec()?, [0.5; 3]);
        Ok(())
    })?;
    // If the loss fails on one rank, `Group::threads` returns the error.
    let failed = Group::threads(3, |group| {
        let x = Array::<f32>::ones(3)?;
        value_and_grad_parallel(&group, &x, |x| match group.rank() {
            1 => x.reshape([2, 2])?.sum(),
            _ => x.sum(),
        })
        .map(drop)
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::InvalidShape);
    Ok(())
}

#[test]
fn a_group_has_a_timeout_and_a_sampler_checks_its_batch() -> Result<()> {
    let has_timed_out = Barrier::new(2);
    Group::threads(2, |group| {
        let error = Sampler::new(10, 3).group(&group).epoch(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let group = group.checks(true).timeout(Duration::from_millis(50));
        if group.rank() == 0 {
            let error = group.barrier().unwrap_err();
            assert!(error.to_string().contains("within 50ms"), "{error}");
        }
        has_timed_out.wait();
        Ok(())
    })?;
    Ok(())
}

#[test]
fn rejects_a_loss_that_no_parameter_reaches() -> Result<()> {
    Group::threads(2, |group| {
        let x = Array::<f32>::ones(3)?;
        let mut parallel = DataParallel::new(&group);
        let mut optimizer = Sharded::new(&group, Sgd::new(0.5))?;
        let loss = |_: &Array<f32>| x.square().sum();
        let errors = [
            value_and_grad_parallel(&group, &x, loss).map(drop),
            parallel.value_and_grad(&x, loss).map(drop),
            parallel.accumulate(&x, loss).map(drop),
            parallel
                .value_and_step(&mut x.clone(), &mut optimizer, loss)
                .map(drop),
        ];
        for error in errors {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            let text = error.to_string();
            assert!(text.contains("depends on no parameter"), "{text}");
            assert!(text.contains("training.rs"), "{text}");
        }
        Ok(())
    })?;
    Ok(())
}
