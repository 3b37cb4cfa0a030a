//! Writing pictures.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use cachescope::Array;

/// Writes colours from 0 to 1, of shape `[height, width, 3]`, as a PNG.
pub fn write_png(path: &Path, colours: &Array<f32>) -> Result<(), Box<dyn Error>> {
    let bytes = (colours.clamp(0.0, 1.0) * 255.0)
        .round()
        .cast::<u8>()
        .eval()?;
    let (height, width) = (colours.shape()[0] as u32, colours.shape()[1] as u32);
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header()?.write_image_data(&bytes.to_vec()?)?;
    Ok(())
}
