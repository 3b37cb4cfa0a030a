//! Fits a photograph with coloured Gaussians in two dimensions (Zhang et al., "GaussianImage",
//! 2024). Each pixel is the sum of all Gaussians at its position. Adam optimizes the positions,
//! shapes and colours of the Gaussians. `cargo run --release --example gaussian_splatting [FOLDER]`
//! writes the pictures and the loss curve to the folder.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Instant;

use cachescope::grad::optim::Adam;
use cachescope::grad::{Parameters, value_and_grad};
use cachescope::prelude::*;
use zune_jpeg::JpegDecoder;

use shared::captured::{self, Captured};
use shared::{charts, progress, savings};

use pictures::write_png;

const STEPS: usize = 200;
/// The number of launches of the captured gradients on CUDA.
const GRAPH_STEPS: usize = 50;
/// The number of Gaussians.
const COUNT: usize = 256;
/// The factor by which the photograph's height and width are reduced.
const COARSER: usize = 6;

/// The parameters of the Gaussians.
#[derive(Parameters)]
struct Splats {
    /// The vertical and horizontal coordinates of the centres, from 0 to 1, of shape `[2, COUNT]`.
    places: Array<f32>,
    /// The entries a, b and c of each Gaussian's matrix `[[a, 0], [b, c]]`, of shape `[3, COUNT]`.
    /// The matrix multiplies the offset from the centre.
    factors: Array<f32>,
    /// The colours, of shape `[COUNT, 3]`.
    colours: Array<f32>,
}

impl Splats {
    fn new() -> Result<Self> {
        let spread = Array::from_slice(&[18.0_f32, 0.0, 18.0], [3, 1])?;
        Ok(Self {
            places: Array::rand([2, COUNT])?,
            factors: (spread + Array::zeros([3, COUNT])?).eval()?,
            colours: (Array::rand([COUNT, 3])? * 0.3).eval()?,
        })
    }

    /// Returns the colours, of shape `[pixels, 3]`, of the pixels at the coordinates `down` and
    /// `across`. Each coordinate array has the shape `[pixels, 1]`.
    fn paint(&self, [down, across]: &[Array<f32>; 2]) -> Result<Array<f32>> {
        let row = |array: &Array<f32>, index: usize| array.slice(s![index, ..]);
        let dy = down - row(&self.places, 0)?;
        let dx = across - row(&self.places, 1)?;
        let [a, b, c] = [0, 1, 2].map(|index| row(&self.factors, index));
        let (first, second) = (&dy * a?, dy * b? + dx * c?);
        // One `eval` computes the strengths in one pass. The distances are never stored in memory,
        // and the gradients recompute them.
        let strengths = ((first.square() + second.square()) * -0.5).exp().eval()?;
        strengths.matmul(&self.colours)
    }
}

/// Returns the photograph, of shape `[height, width, 3]`, with values from 0 to 1.
fn read(path: &Path) -> Result<Array<f32>, Box<dyn Error>> {
    let mut decoder = JpegDecoder::new(BufReader::new(File::open(path)?));
    let pixels = decoder.decode()?;
    let (width, height) = decoder.dimensions().ok_or("a picture without a size")?;
    let colours = Array::from_vec(pixels, [height, width, 3])?;
    let part = colours.slice(s![..;COARSER, ..;COARSER, ..])?;
    Ok((part.cast::<f32>() / 255.0).eval()?)
}

/// Returns the vertical and horizontal coordinates of all pixels.
fn grid(height: usize, width: usize) -> Result<[Array<f32>; 2]> {
    let along = |length: usize| -> Result<Array<f32>> {
        ((Array::arange(0.0, length as f32, 1.0)? + 0.5) / length as f32).eval()
    };
    let pixels = |places: Array<f32>| {
        places
            .broadcast_to([height, width])?
            .reshape([height * width, 1])
    };
    Ok([
        pixels(along(height)?.unsqueeze(1)?)?,
        pixels(along(width)?)?,
    ])
}

/// Returns the peak signal-to-noise ratio (PSNR) of a mean squared error, in decibels. The peak is
/// 1.
fn decibels(mean_square: f32) -> f32 {
    -10.0 * mean_square.log10()
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = charts::folder("gaussian_splatting")?;
    let photograph = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/flower.jpg"))?;
    let [height, width] = [photograph.shape()[0], photograph.shape()[1]];
    let wanted = photograph.reshape([height * width, 3])?;
    let places = grid(height, width)?;
    manual_seed(1);
    let mut splats = Splats::new()?;
    // The length of Adam's steps is about the learning rate. `factors` has larger entries than
    // `places`, so it needs longer steps.
    let [mut moves, mut shapes, mut paints] = [0.004, 0.5, 0.02].map(Adam::new);
    let mut losses = Vec::with_capacity(STEPS);
    savings::HALVES
        .iter()
        .for_each(|scope| savings::watch(scope));
    let start = Instant::now();
    let bar = progress::bar(STEPS);
    for step in 1..=STEPS {
        let (scope, policy) = savings::half(step, STEPS);
        cache_scope!(scope, policy = policy, {
            let (loss, gradients) = value_and_grad(&splats, |splats| {
                (splats.paint(&places)? - &wanted).square().mean()
            })?;
            moves.step(&mut splats.places, &gradients.places)?;
            shapes.step(&mut splats.factors, &gradients.factors)?;
            paints.step(&mut splats.colours, &gradients.colours)?;
            losses.push(loss.item()?);
        });
        if step % 50 == 0 {
            let quality = decibels(losses[step - 1]);
            progress::show(&bar, format!("step {step}: {quality:.2} dB"))?;
        }
        bar.inc(1);
    }
    bar.finish();
    println!(
        "{COUNT} Gaussians for {height} × {width} pixels in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    savings::HALVES
        .iter()
        .for_each(|scope| savings::print(scope));
    if Device::current() != Device::host() {
        let graph = Captured::new(&splats, |splats| {
            (splats.paint(&places)? - &wanted).square().mean()
        })?;
        let start = Instant::now();
        for _ in 0..GRAPH_STEPS {
            let gradients = graph.launch()?;
            moves.step(&mut splats.places, &gradients.places)?;
            shapes.step(&mut splats.factors, &gradients.factors)?;
            paints.step(&mut splats.colours, &gradients.colours)?;
        }
        captured::print(GRAPH_STEPS, graph.loss()?, start.elapsed());
    }
    let painted = splats.paint(&places)?.reshape([height, width, 3])?;
    write_png(&folder.join("wanted.png"), &photograph)?;
    write_png(&folder.join("painted.png"), &painted)?;
    charts::loss_curve(&folder, &losses)?;
    println!("pictures and curve: {}", folder.display());
    let last = decibels(losses[STEPS - 1]);
    assert!(last > 18.0, "only {last:.1} dB");
    Ok(())
}
