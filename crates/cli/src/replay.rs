//! `cachescope replay`: replays a recorded program through pools and models.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use cachescope_memory::{PoolKind, parse_bytes};
use cachescope_tools::models::ModelReplay;
use cachescope_tools::simulation::DriverCosts;
use cachescope_tools::trace::{
    DeviceTrace, Placements, Replay, ReplayOptions, ReplayOutcome, Simulator, Snapshot, Trace,
    TraceEvent,
};
use serde::Serialize;

use crate::failure::ExitFailure;
use crate::modelled::{self, ModelRow, Models};
use crate::output::{print, print_json};
use crate::progress::{Progress, ProgressReader};
use crate::simulated::{self, DeviceRow, DeviceRuns};
use crate::snapshot;

/// The size of the trace's read buffer.
const INPUT_BYTES: usize = 1 << 16;

/// Replays a recorded program through the pools, and prints the memory that they need. Each pool
/// has one growable address range.
///
/// Prints one row per pool: events, nanoseconds per event, peak live bytes, highest block end,
/// their ratio, failed allocations. Frees of failed allocations are skipped. A snapshot of PyTorch
/// is replayed device by device. If it has the bytes that PyTorch reserved, they are printed too.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArguments {
    /// A log of RMM (Thread,Time,Action,Pointer,Size,Stream), lifetimes in MiniMalloc's format
    /// (id,lower,upper,size) or a memory snapshot of PyTorch
    trace: PathBuf,

    /// The device of a snapshot [default: each]
    #[arg(long, value_name = "NUMBER")]
    device: Option<usize>,

    /// The pool: best-fit, binned, direct, or all
    #[arg(long, value_name = "NAME", default_value = "best-fit", value_parser = parse_pools)]
    pool: Pools,

    /// Another allocator to simulate, printed as a row below the pools: pytorch,
    /// pytorch-expandable, cuda-pool, or all
    #[arg(long, value_name = "NAME", value_parser = modelled::parse)]
    model: Option<Models>,

    /// Also replay on a simulated GPU, with the costs of driver calls from a table: h100. No GPU is
    /// required
    #[arg(long, value_name = "NAME", value_parser = simulated::parse)]
    costs: Option<DriverCosts>,

    /// The size of the address range, such as 64MiB or 500MB; larger requests fail [default: none]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory_limit: Option<u64>,

    /// The alignment of blocks
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = parse_bytes)]
    unit: u64,

    /// Write the placement of each allocation to this file: lifetimes with a column offset; for one
    /// pool
    #[arg(long, value_name = "OUT.csv")]
    output: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

type Pools = &'static [PoolKind];

fn parse_pools(name: &str) -> Result<Pools, String> {
    const ALL: Pools = &Simulator::POOLS;
    if name == "all" {
        return Ok(ALL);
    }
    let known = ALL.iter().position(|pool| pool.to_string() == name);
    known.map(|index| &ALL[index..=index]).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(PoolKind::to_string).collect();
        let expected = format!("one of {}, all", names.join(", "));
        match name.parse() {
            Ok(PoolKind::StreamOrdered) => {
                format!("the driver's own pool cannot be simulated, expected {expected}")
            }
            _ => format!("unknown pool, expected {expected}"),
        }
    })
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    trace: String,
    unit_bytes: u64,
    memory_limit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pools: Option<Vec<ReplayRow>>,
    /// The results of the models; `None` without `--model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<Vec<ModelRow>>,
    /// The driver calls; `None` without `--costs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated: Option<Simulated>,
    /// The results per device; `None` if the input is not a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<DeviceReport>>,
}

#[derive(Debug, Serialize)]
struct DeviceReport {
    device: usize,
    pytorch: RecordedFigures,
    pools: Vec<ReplayRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<Vec<ModelRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated: Option<Simulated>,
}

#[derive(Debug, Serialize)]
struct Simulated {
    costs: &'static str,
    rows: Vec<DeviceRow>,
}

/// The memory that PyTorch's own allocator needed.
#[derive(Debug, Serialize)]
struct RecordedFigures {
    peak_live_bytes: u64,
    /// The peak of the reserved bytes; `None` if the snapshot has no segments.
    peak_reserved_bytes: Option<u64>,
    ratio: Option<f64>,
    out_of_memory: u64,
}

#[derive(Debug, Serialize)]
struct ReplayRow {
    name: String,
    events: u64,
    ns_per_event: f64,
    peak_live_bytes: u64,
    peak_reserved_bytes: u64,
    ratio: f64,
    failures: u64,
}

pub(crate) fn run(options: &ReplayArguments) -> Result<(), ExitFailure> {
    if options.output.is_some() && options.pool.len() > 1 {
        let text = "--output needs a single --pool";
        return Err(ExitFailure::Usage(text.into()));
    }
    let path = &options.trace;
    let file = File::open(path).map_err(ExitFailure::of_file(path))?;
    let mut input = BufReader::with_capacity(INPUT_BYTES, ProgressReader::new(file));
    let start = input.fill_buf().map_err(ExitFailure::of_file(path))?;
    if Snapshot::begins_like(start) {
        return run_devices(options, snapshot::devices(path, input, options.device)?);
    }
    if options.device.is_some() {
        let text = "--device is for snapshots of PyTorch: this trace has no devices";
        return Err(ExitFailure::Usage(text.into()));
    }
    let outcomes = replay(options, &mut Trace::new(path.display(), input)?)?;
    if !options.json {
        return print(&outcomes.text(options, None));
    }
    print_json(&Report {
        pools: Some(outcomes.rows()),
        models: outcomes.models,
        simulated: outcomes.simulated,
        ..Report::new(options)
    })
}

fn run_devices(options: &ReplayArguments, devices: Vec<DeviceTrace>) -> Result<(), ExitFailure> {
    if options.output.is_some() && devices.len() > 1 {
        let text = "--output needs a single --device of this snapshot";
        return Err(ExitFailure::Usage(text.into()));
    }
    let mut reports = Vec::new();
    let mut texts = Vec::new();
    for device in devices {
        let recorded = RecordedFigures::of(&device);
        let mut trace = Trace::<io::Empty>::of(device.lifetimes);
        let outcomes = replay(options, &mut trace)?;
        let ordinal = device.ordinal;
        texts.push(format!(
            "cuda:{ordinal}\n{}",
            outcomes.text(options, Some(&recorded))
        ));
        reports.push(DeviceReport {
            device: ordinal,
            pytorch: recorded,
            pools: outcomes.rows(),
            models: outcomes.models,
            simulated: outcomes.simulated,
        });
    }
    if !options.json {
        return print(&texts.join("\n\n"));
    }
    print_json(&Report {
        devices: Some(reports),
        ..Report::new(options)
    })
}

fn replay<R: BufRead>(
    options: &ReplayArguments,
    trace: &mut Trace<R>,
) -> Result<Outcomes, ExitFailure> {
    let mut runs = options.runs()?;
    let mut models = options.models();
    let mut devices = options.devices()?;
    let output = options.output.as_deref();
    let mut output = output
        .map(|path| OutputFile::create(path, options, trace))
        .transpose()?;
    run_all(trace, &mut runs, &mut models, &mut devices, output.as_mut())?;
    if let Some(output) = output {
        output.finish(trace)?;
    }
    let simulated = options.costs.as_ref().map(|costs| Simulated {
        costs: costs.name(),
        rows: devices.rows(&models),
    });
    let row = |model: &ModelReplay| ModelRow::from(&model.outcome());
    Ok(Outcomes {
        pools: runs.iter().map(Replay::outcome).collect(),
        models: options.model.map(|_| models.iter().map(row).collect()),
        simulated,
    })
}

fn run_all<R: BufRead>(
    trace: &mut Trace<R>,
    runs: &mut [Replay],
    models: &mut [ModelReplay],
    devices: &mut DeviceRuns,
    mut output: Option<&mut OutputFile<'_>>,
) -> Result<(), ExitFailure> {
    // A log is read during the replay, so its file reader displays the progress.
    let events = trace.lifetimes().map(|lifetimes| 2 * lifetimes.len());
    let mut progress = events.map(|events| Progress::of_events(events as u64));
    let mut batch = Vec::new();
    let mut is_first = true;
    loop {
        let is_last = trace.read(&mut batch)?;
        for run in &mut *runs {
            let offsets = run.apply(&batch);
            if let Some(output) = &mut output {
                output.add(&batch, offsets)?;
            }
            if is_first && is_last {
                run.time_again(&batch)?;
            }
        }
        for model in &mut *models {
            model.apply(&batch);
        }
        devices.apply(&batch);
        if is_last {
            return Ok(());
        }
        if let Some(progress) = &mut progress {
            progress.advance(batch.len() as u64);
        }
        is_first = false;
    }
}

impl ReplayArguments {
    fn runs(&self) -> Result<Vec<Replay>, ExitFailure> {
        let settings = self.pool.iter().map(|&pool| ReplayOptions {
            pool,
            unit_bytes: self.unit,
            limit_bytes: self.memory_limit,
        });
        let runs: cachescope_tools::Result<_> = settings.map(Replay::new).collect();
        Ok(runs?)
    }

    fn models(&self) -> Vec<ModelReplay> {
        let kinds = self.model.unwrap_or_default();
        let limit_bytes = self.device_bytes();
        let models = kinds.iter();
        models
            .map(|&kind| ModelReplay::new(kind, limit_bytes, self.costs.as_ref()))
            .collect()
    }

    fn devices(&self) -> Result<DeviceRuns, ExitFailure> {
        DeviceRuns::new(self.pool, self.costs.as_ref(), self.memory_limit)
    }

    /// Returns the minimum of the limit and the memory of the simulated device.
    fn device_bytes(&self) -> Option<u64> {
        let memory_bytes = self.costs.as_ref().map(DriverCosts::memory_bytes);
        match (self.memory_limit, memory_bytes) {
            (Some(limit), Some(memory)) => Some(limit.min(memory)),
            (limit, memory) => limit.or(memory),
        }
    }
}

struct OutputFile<'a> {
    path: &'a Path,
    placements: Placements<BufWriter<File>>,
}

impl<'a> OutputFile<'a> {
    /// Creates the file. The beginning of the trace must have been read.
    fn create<R: BufRead>(
        path: &'a Path,
        options: &ReplayArguments,
        trace: &Trace<R>,
    ) -> Result<Self, ExitFailure> {
        let failure = ExitFailure::of_file(path);
        if is_same_file(path, &options.trace) {
            return Err(failure(io::Error::other(
                "the output file is the trace itself",
            )));
        }
        let file = File::create(path).map_err(failure)?;
        let placements = Placements::new(BufWriter::new(file), trace).map_err(failure)?;
        Ok(Self { path, placements })
    }

    fn add(&mut self, batch: &[TraceEvent], offsets: &[Option<u64>]) -> Result<(), ExitFailure> {
        let added = self.placements.add(batch, offsets);
        added.map_err(ExitFailure::of_file(self.path))
    }

    fn finish<R: BufRead>(self, trace: &Trace<R>) -> Result<(), ExitFailure> {
        let finished = self.placements.finish(trace);
        finished.map_err(ExitFailure::of_file(self.path))
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path| fs::canonicalize(path).ok();
    real(one).is_some_and(|path| Some(path) == real(other))
}

impl Report {
    fn new(options: &ReplayArguments) -> Self {
        Self {
            trace: options.trace.display().to_string(),
            unit_bytes: options.unit,
            memory_limit_bytes: options.memory_limit,
            pools: None,
            models: None,
            simulated: None,
            devices: None,
        }
    }
}

impl RecordedFigures {
    fn of(device: &DeviceTrace) -> Self {
        let (live, reserved) = (device.peak_live_bytes, device.peak_reserved_bytes);
        // A recording of host memory has no segments. If memory was live, segments must have been
        // reserved.
        let is_recorded = reserved > 0 || live == 0;
        let ratio = if live == 0 {
            1.0
        } else {
            reserved as f64 / live as f64
        };
        Self {
            peak_live_bytes: live,
            peak_reserved_bytes: is_recorded.then_some(reserved),
            ratio: is_recorded.then_some(ratio),
            out_of_memory: device.out_of_memory,
        }
    }

    fn row(&self) -> String {
        let reserved = self.peak_reserved_bytes;
        let ratio = self.ratio.map(|ratio| format!("{ratio:.4}"));
        format!(
            "{:<10} {:>12} {:>10} {:>20} {:>20} {:>8} {:>10}",
            "PyTorch",
            "",
            "",
            self.peak_live_bytes,
            reserved.map_or("not recorded".into(), |bytes| bytes.to_string()),
            ratio.unwrap_or_default(),
            self.out_of_memory
        )
    }
}

/// The results of all pools and models for a trace.
struct Outcomes {
    pools: Vec<ReplayOutcome>,
    /// The results of the models; `None` without `--model`.
    models: Option<Vec<ModelRow>>,
    simulated: Option<Simulated>,
}

impl Outcomes {
    fn rows(&self) -> Vec<ReplayRow> {
        self.pools.iter().map(ReplayRow::from).collect()
    }

    /// Returns a table of the pools, of PyTorch's recorded figures, and of the models.
    fn text(&self, options: &ReplayArguments, recorded: Option<&RecordedFigures>) -> String {
        let mut lines = vec![table(&self.pools)];
        lines.extend(recorded.map(RecordedFigures::row));
        lines.extend(self.models.iter().flatten().map(ModelRow::text));
        let mut text = lines.join("\n");
        if let (Some(costs), Some(simulated)) = (&options.costs, &self.simulated) {
            text += &simulated::table(costs, &simulated.rows);
        }
        text
    }
}

impl From<&ReplayOutcome> for ReplayRow {
    fn from(outcome: &ReplayOutcome) -> Self {
        Self {
            name: outcome.pool.to_string(),
            events: outcome.events,
            ns_per_event: outcome.ns_per_event,
            peak_live_bytes: outcome.peak_live_bytes,
            peak_reserved_bytes: outcome.peak_reserved_bytes,
            ratio: outcome.ratio(),
            failures: outcome.failures,
        }
    }
}

/// Returns a table with one row per pool, in bytes.
fn table(outcomes: &[ReplayOutcome]) -> String {
    let mut text = format!(
        "{:<10} {:>12} {:>10} {:>20} {:>20} {:>8} {:>10}",
        "pool", "events", "ns/event", "peak live", "peak reserved", "ratio", "failures"
    );
    for outcome in outcomes {
        text += &format!(
            "\n{:<10} {:>12} {:>10.1} {:>20} {:>20} {:>8.4} {:>10}",
            outcome.pool,
            outcome.events,
            outcome.ns_per_event,
            outcome.peak_live_bytes,
            outcome.peak_reserved_bytes,
            outcome.ratio(),
            outcome.failures
        );
    }
    text
}
