//! The lines in a recording of a training step are lines of the program, in forward and backward
//! passes.

use cachescope::grad::nn::{
    Attention, Conv2d, ConvTranspose2d, Embedding, Gru, LayerNorm, Linear, Lstm,
    adaptive_avg_pool2d, adaptive_max_pool2d, dropout,
};
use cachescope::grad::optim::{AdamW, Lbfgs};
use cachescope::grad::{
    CastParameters, Parameters, arithmetic, checkpoint, value_and_grad, value_and_step,
};
use cachescope::{Array, ConvOptions, Device, DeviceConfig, RecordOptions, Result, cache_scope};
use half::bf16;

#[derive(Parameters)]
struct Network {
    tokens: Embedding,
    norm: LayerNorm,
    attention: Attention,
    wide: Linear,
    narrow: Linear,
    convolution: Conv2d,
}

impl Network {
    fn new() -> Result<Self> {
        Ok(Self {
            tokens: Embedding::new(7, 8)?,
            norm: LayerNorm::new(8)?,
            attention: Attention::new(8, 2, true)?,
            wide: Linear::new(8, 16)?,
            narrow: Linear::new(16, 7)?,
            convolution: Conv2d::new((1, 2), [3, 3], ConvOptions::default())?,
        })
    }

    fn loss(&self, tokens: &Array<i64>, classes: &Array<i64>) -> Result<Array<f32>> {
        let x = self.tokens.forward(tokens)?;
        let x = (&x + self.attention.forward(&self.norm.forward(&x)?)?).eval()?;
        let x = checkpoint(&(x, self.wide.clone()), |(x, wide)| {
            wide.forward(x)?.gelu().eval()
        })?;
        let scores = self.narrow.forward(&dropout(&x, 0.1)?)?;
        let images = scores.reshape([2, 1, 6, 7])?;
        let smooth = self
            .convolution
            .forward(&images)?
            .max_pool2d([2, 2], [2, 2])?;
        let penalty = (smooth.softmax(-1)? * 0.1).square().mean()?;
        let scores = scores.reshape([12, 7])?;
        (scores.cross_entropy(classes)? + penalty).eval()
    }
}

/// Checks that every line in a recording of `steps` is a line of this file. Checks that there are
/// more than `fewest` lines.
fn check(fewest: usize, steps: impl FnOnce() -> Result<()>) -> Result<()> {
    let device = Device::current();
    let recording = device.record(RecordOptions::default())?;
    steps()?;
    let sites = recording.by_call_site();
    assert!(sites.len() > fewest, "only {} lines", sites.len());
    for site in sites {
        let line = site.call_site.expect("every line is known");
        assert!(line.file.ends_with("grad/lines.rs"), "{line:?}");
    }
    Ok(())
}

#[test]
fn every_line_is_the_programs() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    let mut network = Network::new()?;
    let tokens = Array::from_vec((0..12).map(|token| token % 7).collect(), [2, 6])?;
    let classes = tokens.flatten()?;
    let mut optimizer = AdamW::new(1e-2);
    check(10, || {
        for _ in 0..3 {
            cache_scope!("step", {
                let loss = |network: &Network| network.loss(&tokens, &classes);
                let (_, gradients) = value_and_grad(&network, loss)?;
                optimizer.step(&mut network, &gradients)?;
            });
        }
        Ok(())
    })?;
    check(10, || {
        let loss = |network: &Network| network.loss(&tokens, &classes);
        value_and_step(&mut network, &mut optimizer, loss)?;
        Ok(())
    })
}

#[test]
fn layers_of_half_precision_report_the_programs_line() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    let options = ConvOptions::default();
    let images = (
        Conv2d::<bf16>::new((1, 2), [2, 2], options)?,
        ConvTranspose2d::<bf16>::new((2, 1), [2, 2], options)?,
    );
    let steps = (Gru::<bf16>::new(3, 4)?, Lstm::<bf16>::new(4, 4)?);
    let layers = (images, steps, Linear::<bf16>::new(4, 3)?);
    let x = Array::<bf16>::ones([2, 1, 300, 3])?;
    check(6, || {
        value_and_grad(&layers, |(images, steps, linear)| {
            let x = images.0.forward(&x)?;
            let x = images.1.forward(&x)?.squeeze(1)?;
            let (x, _) = steps.0.forward(&x, None)?;
            let (x, _) = steps.1.forward(&x, None)?;
            linear.forward(&x)?.mean()
        })?;
        Ok(())
    })
}

#[test]
fn casts_of_lists_report_the_programs_line() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    let layers = vec![Linear::<f32>::new(3, 4)?, Linear::new(4, 2)?];
    let parameters = (
        layers,
        Some(Array::<f32>::ones(5)?),
        [Array::<f32>::ones(6)?],
    );
    check(0, || {
        let cast = parameters.0.cast::<f64>()?;
        assert_eq!(cast.len(), 2);
        parameters.1.cast::<f64>()?;
        parameters.2.cast::<f64>()?;
        Ok(())
    })
}

#[test]
fn adaptive_pools_report_the_programs_lines() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    let x = Array::<f32>::randn([1, 2, 7, 5])?;
    check(1, || {
        value_and_grad(&x, |x| {
            let mean = adaptive_avg_pool2d(x, [3, 2])?;
            (mean + adaptive_max_pool2d(x, [3, 2])?).square().sum()
        })?;
        Ok(())
    })
}

#[test]
fn lbfgs_and_arithmetic_report_the_programs_lines() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    let mut x = vec![Array::<f32>::ones([3, 2])?.t()?, Array::ones(4)?];
    check(2, || {
        Lbfgs::new(1.0).step(&mut x, |x| {
            let first = (&x[0] - 2.0).square().sum()?;
            (first + x[1].square().sum()?).eval()
        })?;
        let zeros = arithmetic::zeros_like(&x)?;
        arithmetic::dot(&zeros, &arithmetic::scale(2.0, &x)?)?;
        Ok(())
    })
}
