//! The cost of recording. A hit, an entry and a training step of the digits are timed alternately
//! with and without a recording. The benchmark also measures the time and the size of each report
//! of 100,000 events.
//!
//! `cargo bench --bench recording`

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use cachescope::record::{Format, RecordOptions};
use cachescope::{Array, Buffer, Device, Generator, Policy, cache_scope};
use shared::by_hand::Model;
use shared::dataset::Dataset;
use shared::digits::{Digits, PIXELS};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 15;
const BATCH_SIZE: usize = 256;
const HIDDEN_UNITS: usize = 512;
const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/digits.csv.gz");

fn main() -> Outcome<()> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build_global()?;
    let device = Device::host();
    println!(
        "{:<28} {:>12} {:>12} {:>8}",
        "", "plain", "recorded", "ratio"
    );
    hit(&device)?;
    entry(&device);
    for policy in [Policy::Recycle, Policy::Plan] {
        step(&device, policy)?;
    }
    reports(&device)
}

/// Prints the nanoseconds per run with and without a recording, as medians of alternating rounds. A
/// round has `times` runs.
fn compare(
    device: &Device,
    name: &str,
    times: u32,
    mut run: impl FnMut() -> Outcome<()>,
) -> Outcome<()> {
    let mut plain = Vec::new();
    let mut recorded = Vec::new();
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let mut time = || -> Outcome<f64> {
            let begun = Instant::now();
            for _ in 0..times {
                run()?;
            }
            Ok(begun.elapsed().as_nanos() as f64 / f64::from(times))
        };
        let without = time()?;
        let recording = device.record(RecordOptions {
            max_bytes: 1 << 20,
            ..RecordOptions::default()
        })?;
        let with = time()?;
        drop(recording);
        time()?; // Frees the recorded events.
        plain.push(without);
        recorded.push(with);
        ratios.push(with / without);
    }
    let [plain, recorded, ratio] = [plain, recorded, ratios].map(median);
    println!("{name:<28} {plain:>9.1} ns {recorded:>9.1} ns {ratio:>8.3}");
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Times a hit and its drop, which record two events.
fn hit(device: &Device) -> Outcome<()> {
    compare(device, "hit and drop, 1000 times", 1000, || {
        cache_scope!("hit", {
            for _ in 0..1000 {
                black_box(Buffer::new(device, 256)?);
            }
        });
        Ok(())
    })
}

/// Times an empty entry, which records two events.
fn entry(device: &Device) {
    let run = || {
        cache_scope!("empty", {});
        Ok(())
    };
    compare(device, "an empty entry", 100_000, run).expect("it allocates nothing");
}

fn step(device: &Device, policy: Policy) -> Outcome<()> {
    let digits = Digits::read(Path::new(DIGITS)).map_err(|failure| failure.to_string())?;
    let mut generator = Generator::new(1);
    let count = digits.labels.len();
    let data = Dataset {
        images: Array::from_slice(&digits.pixels, [count, PIXELS])?,
        labels: Array::from_slice(&digits.labels, count)?,
    };
    let mut batches = data.batches(BATCH_SIZE, &mut generator)?;
    batches.retain(|batch| batch.len() == BATCH_SIZE);
    let mut model = Model::new(HIDDEN_UNITS, &mut generator)?;
    let mut next = 0;
    compare(device, &format!("a digits step, {policy}"), 20, || {
        let batch = &batches[next % batches.len()];
        next += 1;
        cache_scope!("step", policy = policy, {
            model.step(&data.take(batch)?)?;
        });
        Ok(())
    })
}

/// Times all reports of a recording of 100,000 events.
fn reports(device: &Device) -> Outcome<()> {
    let recording = device.record(RecordOptions::default())?;
    let mut kept = Vec::new();
    for entry in 0..500 {
        cache_scope!("step", {
            let mut live = Vec::new();
            for request in 0..99 {
                live.push(Buffer::new(device, 1000 + 512 * (request * 7 % 40))?);
                if request % 3 == 2 {
                    live.swap_remove(live.len() / 2);
                }
            }
            if entry % 20 == 0 {
                kept.push(live.pop());
            }
        });
    }
    let profile = recording.profile();
    println!("\n{} events", profile.events.len());
    for ending in Format::ENDINGS {
        let format = Format::of(Path::new(&format!("report{ending}"))).expect("a known ending");
        let mut times = Vec::new();
        let mut text = Vec::new();
        for _ in 0..5 {
            text.clear();
            let begun = Instant::now();
            format.write(&profile, &mut text)?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let per_event = text.len() as f64 / profile.events.len() as f64;
        let (ms, size) = (median(times), text.len());
        println!("{ending:<10} {ms:>8.1} ms {size:>12} B {per_event:>8.1} B an event");
    }
    Ok(())
}
