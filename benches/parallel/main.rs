//! Data-parallel training on ranks that are threads. From a recording of the first rank, the
//! benchmark measures the fraction of the exchange time that overlaps the backward pass. It also
//! measures the memory of a rank with and without sharded optimizer states.
//!
//! `cargo bench --bench parallel`

use std::time::{Duration, Instant};

use cachescope::collective::{DataParallel, Group, Sharded};
use cachescope::grad::optim::Adam;
use cachescope::record::{EventKind, RecordOptions, RecordedEvent};
use cachescope::{Array, Device, DeviceConfig, Result, cache_scope};

/// The number of warm-up steps.
const WARM: usize = 3;
const STEPS: usize = 15;
const LAYERS: usize = 6;
const WIDTH: usize = 768;
const BATCH: usize = 256;
const MIB: usize = 1 << 20;

fn main() -> Result<()> {
    // A rank computes on its own thread, so two ranks use two cores.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1);
    pool.build_global().expect("it is the first");
    println!(
        "{LAYERS} layers of {WIDTH} x {WIDTH}, {BATCH} samples a rank; medians of {STEPS} steps\n"
    );
    println!(
        "{:>5} {:>16} {:>12} {:>12} {:>12} {:>8}",
        "ranks", "buckets", "step", "exchanges", "hidden", "share"
    );
    for ranks in [2, 4] {
        for (name, first, others) in [
            ("of 1 MiB", MIB, MIB),
            ("1, 4 MiB", MIB, 4 * MIB),
            ("1, 25 MiB", MIB, 25 * MIB),
            ("one", usize::MAX, usize::MAX),
        ] {
            let steps = overlap(ranks, first, others)?;
            let step = median(steps.iter().map(|own| own.step));
            let exchanges = median(steps.iter().map(|own| own.exchanges));
            let hidden = median(steps.iter().map(|own| own.hidden));
            println!(
                "{ranks:>5} {name:>16} {step:>12.2?} {exchanges:>12.2?} {hidden:>12.2?} {:>7.0}%",
                100.0 * hidden.as_secs_f64() / exchanges.as_secs_f64()
            );
        }
    }
    println!("\nThe memory of a rank with Adam, MiB\n");
    println!(
        "{:>5} {:>14} {:>14} {:>14} {:>14}",
        "ranks", "live, whole", "live, divided", "peak, whole", "peak, divided"
    );
    for ranks in [1, 2, 4, 8] {
        let [whole, divided] = [memory(ranks, false)?, memory(ranks, true)?];
        let mib = |bytes: u64| bytes as f64 / MIB as f64;
        println!(
            "{ranks:>5} {:>14.1} {:>14.1} {:>14.1} {:>14.1}",
            mib(whole.0),
            mib(divided.0),
            mib(whole.1),
            mib(divided.1)
        );
    }
    Ok(())
}

/// The times of a step on the first rank.
struct Step {
    step: Duration,
    exchanges: Duration,
    /// The part of `exchanges` before the end of the backward pass.
    hidden: Duration,
}

fn weights() -> Result<Vec<Array<f32>>> {
    let scale = (1.0 / WIDTH as f32).sqrt();
    let layer = |_| (Array::<f32>::randn([WIDTH, WIDTH])? * scale).eval();
    (0..LAYERS).map(layer).collect()
}

fn loss(weights: &[Array<f32>], x: &Array<f32>) -> Result<Array<f32>> {
    let mut y = x.clone();
    for weights in weights {
        y = y.matmul(weights)?.tanh().eval()?;
    }
    y.square().mean()
}

fn overlap(ranks: usize, first: usize, others: usize) -> Result<Vec<Step>> {
    let all = Group::threads(ranks, |group| {
        let group = group.checks(false);
        let device = Device::host_with(DeviceConfig::default())?;
        let _current = device.enter();
        let (mut weights, x) = (weights()?, Array::<f32>::randn([BATCH, WIDTH])?);
        let mut parallel = DataParallel::new(&group).bucket_bytes(first, others);
        parallel.broadcast(&mut weights)?;
        let mut steps = Vec::new();
        for iteration in 0..WARM + STEPS {
            group.barrier()?;
            let began = Instant::now();
            let recording = device.record(RecordOptions::default())?;
            let passed = cache_scope!("step", {
                let (_, gradients) =
                    parallel.value_and_grad(&weights, |weights| loss(weights, &x))?;
                let passed = began.elapsed();
                for (own, gradient) in weights.iter_mut().zip(&gradients) {
                    own.update(|own| own - 1e-3 * gradient)?;
                }
                passed
            });
            let step = began.elapsed();
            if iteration >= WARM {
                let (exchanges, hidden) = exchanges(&recording.events(), passed);
                steps.push(Step {
                    step,
                    exchanges,
                    hidden,
                });
            }
        }
        Ok(steps)
    })?;
    Ok(all.into_iter().next().unwrap_or_default())
}

/// Returns the duration of all exchanges, and the part of this duration before `passed`. Exchanges
/// are the operations of streams other than 0.
fn exchanges(events: &[RecordedEvent], passed: Duration) -> (Duration, Duration) {
    let (mut whole, mut hidden) = (Duration::ZERO, Duration::ZERO);
    let mut begun: Option<(Duration, u32)> = None;
    for event in events {
        match (event.kind, begun) {
            (EventKind::OperationBegin, _) if event.stream != 0 => {
                begun = Some((event.time, event.thread));
            }
            (EventKind::OperationEnd, Some((began, thread))) if thread == event.thread => {
                whole += event.time - began;
                hidden += event.time.min(passed).saturating_sub(began);
                begun = None;
            }
            _ => {}
        }
    }
    (whole, hidden)
}

/// Returns the live bytes between steps, and the peak of the live bytes during a step.
fn memory(ranks: usize, divides: bool) -> Result<(u64, u64)> {
    let all = Group::threads(ranks, |group| {
        let group = group.checks(false);
        let device = Device::host_with(DeviceConfig::default())?;
        let _current = device.enter();
        let (mut weights, x) = (weights()?, Array::<f32>::randn([16, WIDTH])?);
        let mut parallel = DataParallel::new(&group).bucket_bytes(MIB, 4 * MIB);
        let mut whole = Adam::new(1e-3);
        let mut divided = Sharded::new(&group, Adam::new(1e-3))?;
        for _ in 0..WARM {
            device.reset_peaks();
            if divides {
                let of = |weights: &Vec<Array<f32>>| loss(weights, &x);
                parallel.value_and_step(&mut weights, &mut divided, of)?;
            } else {
                let (_, gradients) =
                    parallel.value_and_grad(&weights, |weights| loss(weights, &x))?;
                whole.step(&mut weights, &gradients)?;
            }
            device.synchronize()?;
        }
        let stats = device.memory_stats();
        Ok((stats.live_bytes, stats.peak_live_bytes))
    })?;
    Ok(all[0])
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times[times.len() / 2]
}
