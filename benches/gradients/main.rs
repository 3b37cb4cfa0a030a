//! Times a training step on the digits data set, with automatic gradients. The step alternates with
//! a step whose gradients are written by hand.
//!
//! `cargo bench --bench gradients`

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use cachescope::{Array, Device, Generator, Policy, Result, cache_scope};
use shared::dataset::Dataset;
use shared::digits::{Digits, PIXELS};
use shared::{by_hand, model};

const ROUNDS: usize = 41;
/// The number of steps of one variant before the other variant runs.
const TURN: usize = 10;
const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/digits.csv.gz");

fn main() -> std::result::Result<(), Box<dyn Error>> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build_global()?;
    let digits = Digits::read(Path::new(DIGITS)).map_err(|failure| failure.to_string())?;
    println!(
        "{:<24} {:>12} {:>12} {:>8} {:>12} {:>12}",
        "", "by hand", "gradients", "ratio", "peak", "peak"
    );
    for policy in [Policy::Recycle, Policy::Plan] {
        for (units, batch) in [(32, 64), (512, 256)] {
            compare(&digits, policy, units, batch)?;
        }
    }
    Ok(())
}

/// Prints the time of each variant, and the peak of its live bytes. A time is the median over the
/// rounds of the mean step time. The variants run on separate devices.
fn compare(digits: &Digits, policy: Policy, units: usize, batch: usize) -> Result<()> {
    let [first, second] = [
        Device::host_with(Default::default())?,
        Device::host_with(Default::default())?,
    ];
    let mut by_hand = {
        let _device = first.enter();
        let data = batch_of(digits, batch)?;
        let mut model = by_hand::Model::new(units, &mut Generator::new(1))?;
        let device = first.clone();
        move || {
            let _device = device.enter();
            cache_scope!("step", policy = policy, { model.step(&data).map(drop) })
        }
    };
    let mut by_gradients = {
        let _device = second.enter();
        let data = batch_of(digits, batch)?;
        let mut model = model::Model::new(units, &mut Generator::new(1))?;
        let device = second.clone();
        move || {
            let _device = device.enter();
            cache_scope!("step", policy = policy, { model.step(&data).map(drop) })
        }
    };
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(turn(&mut by_hand)?);
        times[1].push(turn(&mut by_gradients)?);
    }
    let [hand, gradients] = times.map(median);
    let [peak, own] = [first, second].map(|device| device.memory_stats().peak_live_bytes >> 10);
    println!(
        "{:<24} {hand:>9.1} µs {gradients:>9.1} µs {:>8.3} {peak:>8} KiB {own:>8} KiB",
        format!("{units} units, {batch}, {policy}"),
        gradients / hand
    );
    Ok(())
}

/// Returns the mean time of [`TURN`] steps, in microseconds.
fn turn(step: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..TURN {
        step()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / TURN as f64)
}

fn batch_of(digits: &Digits, count: usize) -> Result<Dataset> {
    Ok(Dataset {
        images: Array::from_slice(&digits.pixels[..count * PIXELS], [count, PIXELS])?,
        labels: Array::from_slice(&digits.labels[..count], count)?,
    })
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
