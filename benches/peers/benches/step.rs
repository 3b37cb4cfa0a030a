//! Benchmark W5, the loop: a step that allocates and drops temporaries. The step runs without a
//! scope and under each policy, with unlimited memory and with little spare memory.
//!
//! `cargo bench --manifest-path benches/peers/Cargo.toml --bench step [-- ROUNDS]`
//!
//! Each variant runs on a separate device, and the variants alternate.

use std::cell::{Cell, RefCell};
use std::path::Path;

use cachescope::{
    Array, CacheConfig, Device, DeviceConfig, Generator, Policy, Result, cache_scope,
};
use cachescope_peers::race::{Figure, Race};

use shared::by_hand::Model;
use shared::dataset::Dataset;
use shared::digits::{self, Digits};

const BATCH_SIZE: usize = 256;
const HIDDEN_UNITS: usize = 512;

/// The policies of the variants; `None` is the pool without a scope.
const WAYS: [Option<Policy>; 5] = [
    None,
    Some(Policy::Recycle),
    Some(Policy::Release),
    Some(Policy::Bump),
    Some(Policy::Plan),
];

fn main() -> Result<()> {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let rounds: usize = numbers.next().unwrap_or(31);
    compare("sin(rand(2^20))", rounds, || Ok(Chain(1 << 20)))?;
    compare("sin(rand(2^24))", rounds.div_ceil(3), || Ok(Chain(1 << 24)))?;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/digits.csv.gz");
    let digits = Digits::read(&file).expect("the file comes with the sources");
    compare("the digits step", rounds, || Training::new(&digits))
}

/// A step that is repeated on the current device.
trait Step {
    fn run(&mut self) -> Result<()>;
}

/// The expression `sin(rand(n))` for the stored `n`. Its two temporaries have `n` elements of
/// `f32`.
struct Chain(usize);

impl Step for Chain {
    fn run(&mut self) -> Result<()> {
        Array::<f32>::rand(self.0)?.sin().eval().map(drop)
    }
}

/// A training step on the digits, with one mini-batch per step.
struct Training {
    data: Dataset,
    batches: Vec<Array<i64>>,
    model: Model,
    next: usize,
}

impl Training {
    fn new(digits: &Digits) -> Result<Self> {
        let mut generator = Generator::new(1);
        let count = digits.labels.len();
        let data = Dataset {
            images: Array::from_slice(&digits.pixels, [count, digits::PIXELS])?,
            labels: Array::from_slice(&digits.labels, count)?,
        };
        let mut batches = data.batches(BATCH_SIZE, &mut generator)?;
        batches.retain(|batch| batch.len() == BATCH_SIZE);
        Ok(Self {
            data,
            batches,
            model: Model::new(HIDDEN_UNITS, &mut generator)?,
            next: 0,
        })
    }
}

impl Step for Training {
    fn run(&mut self) -> Result<()> {
        let batch = &self.batches[self.next % self.batches.len()];
        self.next += 1;
        self.model.step(&self.data.take(batch)?).map(drop)
    }
}

struct Runner<S> {
    device: Device,
    policy: Option<Policy>,
    step: RefCell<S>,
    failed: Cell<bool>,
}

impl<S: Step> Runner<S> {
    fn new(
        policy: Option<Policy>,
        memory_limit: Option<u64>,
        make: impl FnOnce() -> Result<S>,
    ) -> Result<Self> {
        let device = Device::host_with(DeviceConfig {
            memory_limit,
            ..Default::default()
        })?;
        let step = {
            let _current = device.enter();
            RefCell::new(make()?)
        };
        Ok(Self {
            device,
            policy,
            step,
            failed: Cell::new(false),
        })
    }

    fn once(&self) -> Result<()> {
        let mut step = self.step.borrow_mut();
        match self.policy {
            None => step.run(),
            Some(policy) => cache_scope!("step", policy = policy, { step.run() }),
        }
    }

    fn times(&self, n: u64) {
        let _current = self.device.enter();
        for _ in 0..n {
            if let Err(error) = self.once()
                && !self.failed.replace(true)
            {
                eprintln!("{error}");
            }
        }
    }

    /// Returns the peak of the live bytes of a step, including its inputs.
    fn working_set(&self) -> u64 {
        self.times(2);
        self.device.reset_peaks();
        self.times(2);
        self.device.memory_stats().peak_live_bytes
    }

    /// Returns the requested bytes of a step, including its inputs.
    fn requests(&self) -> u64 {
        let config = CacheConfig {
            record: true,
            ..Default::default()
        };
        self.device.configure_cache("step", config);
        self.times(2);
        let requests = self.device.cache_record("step");
        let live_bytes = self.device.memory_stats().live_bytes;
        live_bytes + requests.iter().map(|request| request.bytes).sum::<u64>()
    }
}

fn compare<S: Step>(title: &str, rounds: usize, make: impl Fn() -> Result<S>) -> Result<()> {
    let working_set = Runner::new(None, None, &make)?.working_set();
    let requests = Runner::new(Some(Policy::Recycle), None, &make)?.requests();
    // The policy Bump reuses no memory before the end of the step.
    let limit = |policy| {
        let bytes = match policy {
            Some(Policy::Bump) => requests,
            _ => working_set,
        };
        bytes + bytes / 20
    };
    let mut runners = Vec::new();
    for limited in [false, true] {
        for policy in WAYS {
            let memory_limit = limited.then(|| limit(policy));
            runners.push(Runner::new(policy, memory_limit, &make)?);
        }
    }
    let mut race = Race::default();
    for runner in &runners {
        race.add("", |n| runner.times(n));
    }
    let figures = race.run(rounds);

    println!(
        "\n{title}: working set {working_set} bytes, limited to {}; under bump requests of {requests}, limited to {}; {rounds} rounds",
        limit(None),
        limit(Some(Policy::Bump))
    );
    println!(
        "  {:<22} {:>9} {:>7} {:>15} {:>7}",
        "", "ms", "x", "reserved", "x"
    );
    let most = |runner: &Runner<S>| runner.device.memory_stats().peak_reserved_bytes;
    for (index, (runner, Figure { nanos, ratio, .. })) in runners.iter().zip(&figures).enumerate() {
        let name = match (runner.policy, index < WAYS.len()) {
            (None, true) => "no scope".to_owned(),
            (Some(policy), true) => policy.to_string(),
            (None, false) => "no scope, limited".to_owned(),
            (Some(policy), false) => format!("{policy}, limited"),
        };
        let (ms, reserved) = (nanos / 1e6, most(runner));
        let more = reserved as f64 / most(&runners[0]) as f64;
        let end = if runner.failed.get() { "  FAILED" } else { "" };
        println!("  {name:<22} {ms:>9.3} {ratio:>7.2} {reserved:>15} {more:>7.2}{end}");
    }
    Ok(())
}
