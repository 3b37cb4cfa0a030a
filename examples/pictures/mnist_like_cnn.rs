//! A convolutional network that reads handwritten digits of 8 × 8 pixels.
//! `cargo run --release --example mnist_like_cnn [FOLDER]` writes the curve of the loss and a
//! picture of the first layer's kernels to the folder.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use cachescope::grad::data::{Prefetch, Sampler};
use cachescope::grad::nn::{Conv2d, Linear, dropout};
use cachescope::grad::optim::AdamW;
use cachescope::grad::{Parameters, value_and_grad};
use cachescope::prelude::*;
use cachescope::{ConvOptions, Generator};

use shared::captured::{self, Captured};
use shared::dataset::Dataset;
use shared::digits::{CLASSES, Digits};
use shared::{charts, progress, savings};

use pictures::write_png;

const EPOCHS: usize = 12;
const BATCH: usize = 64;
const SIDE: usize = 8;

#[derive(Parameters)]
struct Network {
    first: Conv2d,
    second: Conv2d,
    out: Linear,
}

impl Network {
    fn new() -> Result<Self> {
        let options = ConvOptions {
            padding: [1, 1],
            ..ConvOptions::default()
        };
        Ok(Self {
            first: Conv2d::new((1, 16), [3, 3], options)?,
            second: Conv2d::new((16, 32), [3, 3], options)?,
            out: Linear::new(32 * 4, CLASSES)?,
        })
    }

    fn forward(&self, images: &Array<f32>, dropped: f64) -> Result<Array<f32>> {
        let images = images.reshape([images.shape()[0], 1, SIDE, SIDE])?;
        let x = self.first.forward(&images)?.relu().eval()?;
        let x = x.max_pool2d([2, 2], [2, 2])?;
        let x = self.second.forward(&x)?.relu().eval()?;
        let x = x.max_pool2d([2, 2], [2, 2])?;
        let features = x.reshape([x.shape()[0], 32 * 4])?;
        self.out.forward(&dropout(&features, dropped)?)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = charts::folder("mnist_like_cnn")?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/digits.csv.gz");
    let mut generator = Generator::new(1);
    let digits = Digits::read(&path).map_err(|_| "the digits cannot be read")?;
    let (train, test) = Dataset::split(&digits, &mut generator)?;
    let sampler = Sampler::new(train.len(), BATCH).shuffle(1);
    let train = Arc::new(train);
    manual_seed(1);
    let mut network = Network::new()?;
    let mut optimizer = AdamW::new(4e-3);
    let mut losses = Vec::new();
    savings::HALVES
        .iter()
        .for_each(|scope| savings::watch(scope));
    let start = Instant::now();
    let bar = progress::bar(EPOCHS);
    for epoch in 1..=EPOCHS {
        let (scope, policy) = savings::half(epoch, EPOCHS);
        let (indices, images) = (sampler.epoch(epoch)?, train.clone());
        // Another thread copies the images of the next two batches while a step runs.
        let batches = indices.into_iter().map(move |own| images.take(&own));
        for batch in Prefetch::new(2, batches)? {
            let batch = batch?;
            cache_scope!(scope, policy = policy, {
                let (loss, gradients) = value_and_grad(&network, |network| {
                    network
                        .forward(&batch.images, 0.2)?
                        .cross_entropy(&batch.labels)
                })?;
                optimizer.step(&mut network, &gradients)?;
                losses.push(loss.item()?);
            });
        }
        if epoch % 3 == 0 {
            let right = accuracy(&network, &test)?;
            progress::show(
                &bar,
                format!("epoch {epoch}: {right:.3} of the test images"),
            )?;
        }
        bar.inc(1);
    }
    bar.finish();
    println!(
        "{} steps in {:.1} s",
        losses.len(),
        start.elapsed().as_secs_f64()
    );
    savings::HALVES
        .iter()
        .for_each(|scope| savings::print(scope));
    if Device::current() != Device::host() {
        let batches = sampler.epoch(0)?;
        let mut batch = train.take(&batches[0])?;
        // The graph has no dropout, because every launch would drop the elements that the capture
        // dropped.
        let graph = Captured::new(&network, |network| {
            network
                .forward(&batch.images, 0.0)?
                .cross_entropy(&batch.labels)
        })?;
        let start = Instant::now();
        for indices in &batches[..batches.len() - 1] {
            let next = train.take(indices)?;
            batch.images.assign(&next.images)?;
            batch.labels.assign(&next.labels)?;
            optimizer.step(&mut network, graph.launch()?)?;
        }
        captured::print(batches.len() - 1, graph.loss()?, start.elapsed());
    }
    write_png(
        &folder.join("kernels.png"),
        &kernels(&network.first.weight)?,
    )?;
    charts::loss_curve(&folder, &losses)?;
    println!("kernels and curve: {}", folder.display());
    let right = accuracy(&network, &test)?;
    assert!(right > 0.94, "only {right:.3} of the test images are right");
    Ok(())
}

/// Returns the fraction of the images whose label has the highest score.
fn accuracy(network: &Network, data: &Dataset) -> Result<f64> {
    let guesses = network.forward(&data.images, 0.0)?.argmax_axis(1)?;
    guesses.eq(&data.labels).mean()?.item()
}

/// Returns a grey picture of all kernels in a row. `weight` has the shape `[16, 1, 3, 3]`.
fn kernels(weight: &Array<f32>) -> Result<Array<f32>> {
    let scaled = (weight / (weight.abs().max()? * 2.0) + 0.5).eval()?;
    let padded = scaled.pad(&[(0, 0), (0, 0), (0, 1), (0, 1)], 1.0)?;
    let row = padded
        .squeeze(1)?
        .permute(&[1, 0, 2])?
        .reshape([4, 16 * 4])?;
    let large = row.repeat(12, 0)?.repeat(12, 1)?;
    large
        .unsqueeze(2)?
        .broadcast_to([4 * 12, 16 * 4 * 12, 3])?
        .lazy()
        .eval()
}
