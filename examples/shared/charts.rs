//! The files that training runs write.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Creates and returns the folder for an example's files. The first command-line argument names the
/// folder. The default is a folder in `target`.
pub fn folder(example: &str) -> Result<PathBuf, Box<dyn Error>> {
    let named = std::env::args_os().nth(1).map(PathBuf::from);
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/examples-output");
    let folder = named.unwrap_or_else(|| target.join(example));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Writes `loss.svg`, a line chart of the losses of all steps.
pub fn loss_curve(folder: &Path, losses: &[f32]) -> Result<(), Box<dyn Error>> {
    const SIZE: (f32, f32) = (640.0, 320.0);
    let most = losses.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    let across = SIZE.0 / losses.len().max(2) as f32;
    let mut points = String::new();
    for (step, loss) in losses.iter().enumerate() {
        let down = SIZE.1 * (1.0 - loss / most);
        write!(points, "{:.1},{down:.1} ", step as f32 * across)?;
    }
    let (width, height) = SIZE;
    let last = losses.last().copied().unwrap_or_default();
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <polyline points=\"{points}\" fill=\"none\" stroke=\"steelblue\" stroke-width=\"1.5\"/>\n\
         <text x=\"{:.0}\" y=\"20\" text-anchor=\"end\">{} steps, from {:.4} to {last:.4}</text>\n</svg>\n",
        width - 8.0,
        losses.len(),
        losses.first().copied().unwrap_or_default()
    );
    fs::write(folder.join("loss.svg"), svg)?;
    Ok(())
}
