//! Reading the digits from a file.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::failure::Failure;

/// The number of pixels of an image.
pub const PIXELS: usize = 64;
/// The number of digits that an image may show.
pub const CLASSES: usize = 10;
/// The value of a pixel that is all ink.
const INK: u8 = 16;

/// Labelled images, in the order of the file.
#[derive(Debug, Default)]
pub struct Digits {
    /// The pixels of all images, image after image, from 0 to 1.
    pub pixels: Vec<f32>,
    /// The digit of each image.
    pub labels: Vec<i64>,
}

impl Digits {
    /// Reads lines of 64 pixels from 0 to 16 and a label from 0 to 9. If the name of the file ends
    /// in ".gz", the file is compressed.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let unreadable = |error: io::Error| Failure::Input(format!("{name}: {error}"));

        let mut digits = Self::default();
        let lines = open(path).map_err(unreadable)?.split(b'\n');
        for (number, line) in (1..).zip(lines) {
            let line = line.map_err(unreadable)?;
            digits
                .push(&String::from_utf8_lossy(&line))
                .map_err(|reason| Failure::Input(format!("{name}:{number}: {reason}")))?;
        }
        if digits.labels.len() < 2 {
            let text = format!("{name}: fewer than two images, one to train with and one to test");
            return Err(Failure::Input(text));
        }
        Ok(digits)
    }

    /// Appends the image of a line, unless the line is blank. The error describes what is wrong
    /// with the line.
    fn push(&mut self, line: &str) -> Result<(), String> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let columns: Vec<&str> = line.split(',').map(str::trim).collect();
        if columns.len() != PIXELS + 1 {
            let count = columns.len();
            return Err(format!(
                "{count} columns, where {PIXELS} pixels and a label are expected"
            ));
        }
        for column in 0..PIXELS {
            let pixel = number(&columns, column, "pixel", INK)?;
            self.pixels.push(f32::from(pixel) / f32::from(INK));
        }
        let label = number(&columns, PIXELS, "label", CLASSES as u8 - 1)?;
        self.labels.push(label.into());
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let file = BufReader::new(File::open(path)?);
    let compressed = path.extension().is_some_and(|extension| extension == "gz");
    Ok(if compressed {
        Box::new(BufReader::new(MultiGzDecoder::new(file)))
    } else {
        Box::new(file)
    })
}

/// Returns the number in a column (counted from 0). If the text is not a number from 0 to `max`,
/// the error names the `kind` of number.
fn number(columns: &[&str], column: usize, kind: &str, max: u8) -> Result<u8, String> {
    let text = columns[column];
    let number = text.parse().ok().filter(|&number| number <= max);
    number.ok_or_else(|| {
        let column = column + 1;
        format!("column {column}: \"{text}\" is no {kind}, which is a whole number from 0 to {max}")
    })
}
