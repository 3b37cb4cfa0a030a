//! Trains a two-layer network on handwritten digits, each step inside a cache scope.
//!
//! ```sh
//! cargo run --release --example train_digits -- --help
//! ```

mod compare;
mod options;
mod parallel;
mod report;
mod train;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use cachescope::collective::Group;
use cachescope::{Device, Generator};
use indicatif::ProgressBar;

use options::Options;
use shared::dataset::Dataset;
use shared::digits::{CLASSES, Digits, PIXELS};
use shared::failure::Failure;
use shared::progress;

fn main() -> ExitCode {
    let options = match Options::parse() {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}; see --help");
            return ExitCode::from(2);
        }
    };
    match run(&options, &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let digits = Digits::read(&options.data)?;
    let device = options.set_up_device();
    let _current = device.enter();
    if let Some(ranks) = options.parallel {
        return parallel::run(ranks, options, &digits, out);
    }
    train_here(None, options, &digits, out)?;
    report::print_comparison(out, &compare::compare(options, &digits)?)?;
    report::print_invalidation(out, &device)?;
    Ok(())
}

/// Trains on the current device: alone, or as one rank of a group.
fn train_here(
    group: Option<&Group>,
    options: &Options,
    digits: &Digits,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut generator = Generator::new(options.seed);
    let data = Dataset::split(digits, &mut generator)?;
    let ranks = group.map_or(String::new(), |group| {
        format!(", on {} ranks", group.size())
    });
    writeln!(
        out,
        "{PIXELS}–{}–{CLASSES} network on {}{ranks}: {} images to train with, {} to test with",
        options.hidden,
        Device::current(),
        data.0.len(),
        data.1.len()
    )?;
    let start = Instant::now();
    let is_first = group.is_none_or(|group| group.rank() == 0);
    let bar = match is_first {
        true => progress::bar(options.epochs),
        false => ProgressBar::hidden(),
    };
    let accuracy = train::train(group, options, &data, &mut generator, (&bar, out))?;
    bar.finish();
    let seconds = start.elapsed().as_secs_f64();
    writeln!(out, "test accuracy {accuracy:.4} after {seconds:.1} s")?;
    Ok(())
}
