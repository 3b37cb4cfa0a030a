//! Writes the HTML page of an invented training run: `cargo run -p cachescope-reports --example
//! demo -- demo.html`.
//!
//! A second argument sets the number of training steps. The default is 50.

use std::env;
use std::fs::File;
use std::io::{BufWriter, Result, Write};

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "demo.html".into());
    let entries = arguments.next().and_then(|text| text.parse().ok());
    let profile = programs::training(entries.unwrap_or(50), true);
    let mut out = BufWriter::new(File::create(&path)?);
    cachescope_reports::page::write(&profile, &mut out)?;
    out.flush()?;
    println!("{path}: {} events", profile.events.len());
    Ok(())
}
