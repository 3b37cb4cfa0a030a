//! Measures the peak memory, the time and the memory growth of a training run.

use std::fs;
use std::time::{Duration, Instant};

use crate::cases::{Case, Network};
use crate::heap_bytes;
use crate::values::Values;

pub type Error = Box<dyn std::error::Error>;

/// A network with its optimizer and its inputs, in one framework.
pub trait Training {
    /// Runs a step on all inputs. Returns the loss before the update. Memory of the step alone,
    /// including gradients, is freed before the function returns.
    fn step(&mut self) -> Result<f32, Error>;

    /// Returns the live bytes and the peak of the live bytes in device memory. Heap counters do not
    /// include device memory.
    fn device_bytes(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// A compared framework: its name, and the function that creates its [`Training`]. The initial
/// values and the inputs are from [`Values`].
pub type Framework = (
    &'static str,
    fn(Network, &mut Values) -> Result<Box<dyn Training>, Error>,
);

/// The number of warm-up steps.
const WARM_UP: usize = 2;
/// The step after which the live bytes are first measured.
const SETTLED: usize = 3;
/// The number of printed losses.
const TOLD: usize = 3;
/// The step time above which only three steps are timed.
const LONG: Duration = Duration::from_secs(5);
const LONG_STEPS: usize = WARM_UP + 3;

/// The live bytes of the process at one time.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    /// The exact number of live bytes on the heap.
    heap: i64,
    /// The bytes of resident pages, including the program itself.
    resident: i64,
}

impl Bytes {
    fn live() -> Result<Self, Error> {
        Ok(Self {
            heap: i64::try_from(heap_bytes().0)?,
            resident: status_bytes("VmRSS:")?,
        })
    }

    fn peak() -> Result<Self, Error> {
        Ok(Self {
            heap: i64::try_from(heap_bytes().1)?,
            resident: status_bytes("VmHWM:")?,
        })
    }

    fn above(self, other: Self) -> Self {
        Self {
            heap: self.heap - other.heap,
            resident: self.resident - other.resident,
        }
    }
}

/// Returns the value of a row of `/proc/self/status` in bytes. The file contains KiB.
fn status_bytes(name: &str) -> Result<i64, Error> {
    let status = fs::read_to_string("/proc/self/status")?;
    let row = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = row.and_then(|row| row.trim().strip_suffix(" kB"));
    let kib: i64 = kib
        .ok_or_else(|| format!("no {name} in the status"))?
        .parse()?;
    Ok(kib << 10)
}

#[derive(Debug)]
pub struct Measured {
    peak: Bytes,
    /// The peak of the arrays in device memory; 0 if the arrays are on the heap.
    peak_of_arrays: i64,
    step_ms: f64,
    growth: Bytes,
}

impl Measured {
    /// Returns the rows of a table: live heap bytes, resident pages, and arrays alone. The row of
    /// the arrays is comparable with PyTorch's memory events.
    pub fn rows(&self, framework: &str, case: Case) -> String {
        let Self {
            peak,
            peak_of_arrays,
            step_ms,
            growth,
        } = self;
        let heap = format!(
            "{framework},{case},{},{step_ms:.2},{}",
            peak.heap, growth.heap
        );
        let (peak, growth) = (peak.resident, growth.resident);
        let mut rows = format!("{heap}\n{framework}_resident,{case},{peak},{step_ms:.2},{growth}");
        if *peak_of_arrays > 0 {
            rows += &format!("\n{framework}_arrays,{case},{peak_of_arrays},{step_ms:.2},0");
        }
        rows
    }
}

/// Trains a case in this process. The process must not have trained a case before, because the
/// peaks cover its whole lifetime.
pub fn measure(framework: Framework, case: Case) -> Result<Measured, Error> {
    let (name, start) = framework;
    let before = Bytes::live()?;
    let mut training = start(case.network, &mut Values::default())?;
    let mut times = Vec::with_capacity(case.steps);
    let mut settled = None;
    let processor = cpu_time()?;
    while times.len() < steps_of(case, &times) {
        let began = Instant::now();
        let loss = training.step()?;
        times.push(began.elapsed());
        if times.len() <= TOLD {
            eprintln!("{name} {case}: loss {} is {loss:.6}", times.len());
        }
        if times.len() == SETTLED {
            settled = Some(live(&*training)?);
        }
    }
    let growth = live(&*training)?.above(settled.ok_or("too few steps")?);
    let busy =
        (cpu_time()? - processor).as_secs_f64() / times.iter().sum::<Duration>().as_secs_f64();
    eprintln!(
        "{name} {case}: {} steps, processor time {busy:.2} of the time",
        times.len()
    );
    let mut peak = Bytes::peak()?.above(before);
    let peak_of_arrays = i64::try_from(training.device_bytes().1)?;
    peak.heap += peak_of_arrays;
    let step_ms = median(&mut times[WARM_UP..]).as_secs_f64() * 1e3;
    Ok(Measured {
        peak,
        peak_of_arrays,
        step_ms,
        growth,
    })
}

/// Returns the live bytes, including the device's memory.
fn live(training: &dyn Training) -> Result<Bytes, Error> {
    let mut live = Bytes::live()?;
    live.heap += i64::try_from(training.device_bytes().0)?;
    Ok(live)
}

/// Returns the number of steps to run. Long steps are run less often.
fn steps_of(case: Case, times: &[Duration]) -> usize {
    match times.last() {
        Some(&time) if time > LONG => LONG_STEPS,
        _ => case.steps,
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Returns the CPU time of all threads of this process. The time shows that only one thread
/// computes at a time. The times are fields 14 and 15 of `/proc/self/stat`, in hundredths of a
/// second.
fn cpu_time() -> Result<Duration, Error> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(") ").ok_or("no name in the stat")?;
    let ticks: Result<Vec<u64>, _> = fields.split(' ').skip(11).take(2).map(str::parse).collect();
    Ok(Duration::from_millis(ticks?.iter().sum::<u64>() * 10))
}
