//! `cachescope plan`: packs buffers into a slab.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cachescope_memory::parse_bytes;
use cachescope_tools::plan::{
    BufferInterval, ConstrainedBuffer, Options as Goal, Packing, pack_constrained,
    validate_constrained,
};
use cachescope_tools::trace::{Lifetime, LifetimeWriter, Snapshot};
use serde::Serialize;

use crate::failure::ExitFailure;
use crate::output::{print, print_json};
use crate::snapshot;

/// Packs buffers with known lifetimes into the smallest possible slab.
///
/// Prints the number of buffers, the maximum load, the slab, their ratio, and the seconds taken.
/// The maximum load is the peak of the live bytes, and a lower bound on the slab. Exits with 1 if
/// no plan fits the capacity, or if the search found none in time.
#[derive(Debug, clap::Args)]
pub(crate) struct PlanArguments {
    /// Lifetimes in MiniMalloc's format (id,lower,upper,size, and alignment and gaps if present) or
    /// a memory snapshot of PyTorch
    input: PathBuf,

    /// The device of a snapshot [default: the only one]
    #[arg(long, value_name = "NUMBER")]
    device: Option<usize>,

    /// Stop at the first plan within this many bytes, such as 1048576 or 1MiB [default: none,
    /// minimize the slab]
    #[arg(long, value_name = "BYTES", value_parser = parse_capacity)]
    capacity: Option<u64>,

    /// The time to search for a better plan; fractions are allowed
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    time_limit: Duration,

    /// Write the plan to this file: the input with a column offset
    #[arg(long, value_name = "OUT.csv")]
    output: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Parses a size. A size of 0 is valid, although no buffer fits.
fn parse_capacity(text: &str) -> cachescope_tools::Result<u64> {
    text.parse().or_else(|_| parse_bytes(text))
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "expected a number of seconds, such as 0.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[derive(Debug, Serialize)]
struct PlanReport {
    buffers: usize,
    max_load_bytes: u64,
    slab_bytes: u64,
    ratio: f64,
    seconds: f64,
}

pub(crate) fn run(options: &PlanArguments) -> Result<ExitCode, ExitFailure> {
    let (lifetimes, buffers) = lifetimes(options)?;
    let goal = Goal {
        capacity_bytes: options.capacity,
        time_limit: options.time_limit,
    };
    let begin = Instant::now();
    let plan = pack_constrained(&buffers, &goal);
    let seconds = begin.elapsed().as_secs_f64();
    validate_constrained(&buffers, &plan.offsets, plan.slab_bytes)
        .expect("the planner returns valid plans");

    let capacity = options.capacity.unwrap_or(u64::MAX);
    if plan.slab_bytes > capacity {
        // If standard error is closed, the exit code reports the failure.
        let _ = writeln!(
            io::stderr(),
            "{}",
            failure_message(&plan, capacity, seconds)
        );
        return Ok(ExitCode::from(1));
    }
    if let Some(path) = &options.output {
        write(path, (&lifetimes, &buffers), &plan).map_err(ExitFailure::of_file(path))?;
    }
    let report = PlanReport::new(&plan, seconds);
    if options.json {
        print_json(&report)?;
    } else {
        print(&report.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn lifetimes(
    options: &PlanArguments,
) -> Result<(Vec<Lifetime>, Vec<ConstrainedBuffer>), ExitFailure> {
    let path = &options.input;
    let failure = ExitFailure::of_file(path);
    let mut input = BufReader::new(File::open(path).map_err(failure)?);
    if Snapshot::begins_like(input.fill_buf().map_err(failure)?) {
        let lifetimes = snapshot::device(path, input, options.device)?.lifetimes;
        let buffers = lifetimes.iter().map(buffer).collect();
        return Ok((lifetimes, buffers));
    }
    if options.device.is_some() {
        let text = "--device is for snapshots of PyTorch: this file has no devices";
        return Err(ExitFailure::Usage(text.into()));
    }
    Ok(Lifetime::read_constrained(path.display(), input)?)
}

fn buffer(lifetime: &Lifetime) -> ConstrainedBuffer {
    ConstrainedBuffer {
        interval: BufferInterval {
            lower: lifetime.lower,
            upper: lifetime.upper,
            size_bytes: lifetime.size_bytes,
        },
        alignment: 1,
        gaps: Vec::new(),
    }
}

/// Returns the message that explains why no plan was found.
fn failure_message(plan: &Packing, capacity: u64, seconds: f64) -> String {
    let Packing {
        slab_bytes,
        max_load_bytes,
        lower_bound_bytes,
        ..
    } = plan;
    if *max_load_bytes > capacity {
        return format!(
            "no plan exists: {max_load_bytes} bytes are alive at one moment, and the capacity is \
             {capacity}"
        );
    }
    if *lower_bound_bytes > capacity {
        return format!("no plan exists within {capacity} bytes: the search excluded every plan");
    }
    format!(
        "no plan within {capacity} bytes was found in {seconds:.3} s; the best one takes {slab_bytes}"
    )
}

fn write(
    path: &Path,
    (lifetimes, buffers): (&[Lifetime], &[ConstrainedBuffer]),
    plan: &Packing,
) -> io::Result<()> {
    let file = BufWriter::new(File::create(path)?);
    let mut constrained = buffers.iter();
    let is_plain = constrained.all(|buffer| buffer.alignment == 1 && buffer.gaps.is_empty());
    let mut writer = match is_plain {
        true => LifetimeWriter::new(file)?,
        false => LifetimeWriter::constrained(file)?,
    };
    for ((lifetime, buffer), &offset) in lifetimes.iter().zip(buffers).zip(&plan.offsets) {
        writer.write_constrained(lifetime, buffer, Some(offset))?;
    }
    writer.finish()
}

impl PlanReport {
    fn new(plan: &Packing, seconds: f64) -> Self {
        Self {
            buffers: plan.offsets.len(),
            max_load_bytes: plan.max_load_bytes,
            slab_bytes: plan.slab_bytes,
            // An empty slab without a load has the ratio 1.
            ratio: plan.slab_bytes.max(1) as f64 / plan.max_load_bytes.max(1) as f64,
            seconds,
        }
    }

    fn text(&self) -> String {
        format!(
            "buffers      {}\nmax load     {}\nslab         {}\nslab / load  {:.6}\nseconds      {:.6}",
            self.buffers, self.max_load_bytes, self.slab_bytes, self.ratio, self.seconds
        )
    }
}
