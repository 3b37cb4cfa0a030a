//! The lines in a recording of a training step are the program's, in forward and backward passes.

use cachescope::grad::nn::{Attention, Conv2d, Embedding, LayerNorm, Linear, dropout};
use cachescope::grad::optim::AdamW;
use cachescope::grad::{Parameters, checkpoint, value_and_grad, value_and_step};
use cachescope::{Array, ConvOptions, Device, DeviceConfig, RecordOptions, Result, cache_scope};

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

/// Checks that every line in a recording of `steps` is a line of this file.
fn check(steps: impl FnOnce() -> Result<()>) -> Result<()> {
    let device = Device::current();
    let recording = device.record(RecordOptions::default())?;
    steps()?;
    let sites = recording.by_call_site();
    assert!(sites.len() > 10, "only {} lines", sites.len());
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
    check(|| {
        for _ in 0..3 {
            cache_scope!("step", {
                let loss = |network: &Network| network.loss(&tokens, &classes);
                let (_, gradients) = value_and_grad(&network, loss)?;
                optimizer.step(&mut network, &gradients)?;
            });
        }
        Ok(())
    })?;
    check(|| {
        let loss = |network: &Network| network.loss(&tokens, &classes);
        value_and_step(&mut network, &mut optimizer, loss)?;
        Ok(())
    })
}
