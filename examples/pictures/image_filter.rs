//! A filter in two dimensions: blurs a photograph with a Gaussian, and finds its edges with Sobel's
//! operator. `cargo run --release --example image_filter [OUT.pgm]` writes the edges to a file.

use std::error::Error;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use cachescope::prelude::*;
use shared::savings;
use zune_jpeg::JpegDecoder;

/// The number of simulated camera frames.
const FRAMES: usize = 25;
/// Pascal's triangle, which approximates a Gaussian of standard deviation 1.
const BLUR: [f32; 5] = [0.0625, 0.25, 0.375, 0.25, 0.0625];
const SMOOTH: [f32; 3] = [0.25, 0.5, 0.25];
const SLOPE: [f32; 3] = [-0.5, 0.0, 0.5];

/// Returns the photograph in shades of grey from 0 to 1, of shape `[height, width]`.
fn read(path: &Path) -> Result<Array<f32>, Box<dyn Error>> {
    let mut decoder = JpegDecoder::new(BufReader::new(File::open(path)?));
    let pixels = decoder.decode()?;
    let (width, height) = decoder.dimensions().ok_or("a picture without a size")?;
    let colours = Array::from_vec(pixels, [height, width, 3])?.cast::<f32>();
    let weights = Array::from_slice(&[0.299_f32, 0.587, 0.114], 3)?; // luminance of the colours
    Ok((colours * weights / 255.0).sum_axis(2)?)
}

/// Returns the sum of shifted copies of `image` along `axis`, each multiplied by its weight. The
/// result is `weights.len() - 1` elements shorter along `axis`.
fn convolve(image: &Array<f32>, weights: &[f32], axis: usize) -> Result<Array<f32>> {
    let length = image.shape()[axis] + 1 - weights.len();
    let shifted = |shift: usize| match axis {
        0 => image.slice(s![shift..shift + length, ..]),
        _ => image.slice(s![.., shift..shift + length]),
    };
    let mut sum = (shifted(0)? * weights[0]).eval()?;
    for (shift, &weight) in weights.iter().enumerate().skip(1) {
        sum.assign(&sum + shifted(shift)? * weight)?; // in place
    }
    Ok(sum)
}

/// Returns the slope of the blurred image's brightness at each point.
fn edges(image: &Array<f32>) -> Result<Array<f32>> {
    let blurred = convolve(&convolve(image, &BLUR, 0)?, &BLUR, 1)?;
    let across = convolve(&convolve(&blurred, &SMOOTH, 0)?, &SLOPE, 1)?;
    let down = convolve(&convolve(&blurred, &SLOPE, 0)?, &SMOOTH, 1)?;
    (across.square() + down.square()).sqrt().eval()
}

fn main() -> Result<(), Box<dyn Error>> {
    let image = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/flower.jpg"))?;
    savings::watch("frame");
    for frame in 1..=FRAMES {
        cache_scope!("frame", {
            let edges = edges(&(&image * (frame as f32 / FRAMES as f32)).eval()?)?;
            let (mean, most) = (edges.mean()?.item()?, edges.max()?.item()?);
            if frame % 5 == 0 {
                println!("frame {frame}: slopes of {mean:.4} in the mean, {most:.4} at the most");
            }
        });
    }
    savings::print("frame");

    let found = edges(&image)?;
    // A ramp has a known slope: it rises by 1 everywhere, with or without a blur.
    let ramp = edges(&(Array::<f32>::arange(0.0, 40.0, 1.0)? + Array::zeros([30, 1])?).eval()?)?;
    assert!(
        (&ramp - 1.0).abs().max()?.item()? < 1e-5,
        "the filter is out of scale"
    );
    if let Some(path) = std::env::args_os().nth(1) {
        let top = found.max()?.item()?;
        let mut file = format!("P5\n{} {}\n255\n", found.shape()[1], found.shape()[0]).into_bytes();
        file.extend((found / top * 255.0).cast::<u8>().eval()?.to_vec()?);
        fs::write(path, file)?;
    }
    Ok(())
}
