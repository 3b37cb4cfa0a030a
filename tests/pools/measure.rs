//! Measurements of the memory alone:
//! `cargo test --release --test suites -- pools:: --ignored --nocapture --test-threads 1`.

use std::time::{Duration, Instant};

use cachescope::{Array, Device, Result};

use crate::pools::training::{limited, peak_live_bytes, run, step, unlimited};

/// Returns the row whose first column, a ratio, is the median.
fn median(mut rows: Vec<[f64; 3]>) -> [f64; 3] {
    rows.sort_by(|one, other| one[0].total_cmp(&other[0]));
    rows[rows.len() / 2]
}

/// Measures the time of a step's allocations under a limit of 1.1 × the peak of live bytes.
#[test]
#[ignore = "a measurement"]
fn the_limit_costs_a_training_step_little_time() {
    const ROUNDS: usize = 101;
    const STEPS: u32 = 5;
    let step = step();
    let peak_bytes = peak_live_bytes(&step);
    let per_step = |device: Device| {
        let times = (0..STEPS).map(|_| run(&device, &step).unwrap());
        times.sum::<Duration>().as_secs_f64() * 1e6 / f64::from(STEPS)
    };
    let rounds = (0..ROUNDS).map(|_| {
        let free = per_step(unlimited(true));
        let limited = per_step(limited(peak_bytes / 100 * 110));
        [limited / free, free, limited]
    });
    let [ratio, free, limited] = median(rounds.collect());
    println!(
        "{free:.0} µs a step of {} events, {limited:.0} under the limit: {ratio:.3} x",
        step.len()
    );
    assert!(ratio <= 1.2, "{ratio}");
}

/// Compares the time to fill the first array of a device with and without segments that grow in
/// place.
#[test]
#[ignore = "a measurement"]
fn fresh_pages_are_filled_sooner_than_a_fresh_segment() {
    let fill = |device: &Device, len: usize| -> Result<f64> {
        let _guard = device.enter();
        let begin = Instant::now();
        let array = Array::<f32>::full([len], 1.0)?;
        let elapsed = begin.elapsed();
        drop(array);
        Ok(elapsed.as_secs_f64() * 1e6)
    };
    for len in [1 << 8, 1 << 16, 1 << 20, 1 << 24] {
        let rounds = (0..31).map(|_| {
            let whole = fill(&unlimited(false), len).unwrap();
            let growing = fill(&unlimited(true), len).unwrap();
            [growing / whole, growing, whole]
        });
        let [ratio, growing, whole] = median(rounds.collect());
        println!("{len} elements: {growing:.0} µs in place, {whole:.0} in a segment: {ratio:.2} x");
    }
}
