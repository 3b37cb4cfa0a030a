//! The loop: a step that allocates and drops temporaries (W5). The step runs without a cache, on a
//! pool alone, under each policy, and as a graph. Memory is unlimited, or limited to little more
//! than the step needs.

use std::fmt;
use std::time::{Duration, Instant};

use cachescope::graph::{self, Graph};
use cachescope::{Array, CacheConfig, Device, Generator, Policy, PoolKind, Result, cache_scope};
use serde_json::{Value, json};

use crate::settings::Settings;
use crate::{Outcome, Work};
use shared::by_hand::Model;
use shared::dataset::Dataset;
use shared::digits::{Digits, PIXELS};

const BATCH_SIZE: usize = 256;
/// The number of hidden units of the network. The peers' programs use it too.
pub(crate) const HIDDEN_UNITS: usize = 512;
/// A number of hidden units for which a memory limit can be enforced. A twentieth of the step's
/// memory must exceed a page of a GPU (2 MiB). With `HIDDEN_UNITS`, the whole step needs 2 MiB.
pub(crate) const MANY_HIDDEN_UNITS: usize = 8192;
/// The number of steps after which the losses are compared.
const CHECKED_STEPS: usize = 10;

/// The source of a step's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// A separate reservation for each array.
    Direct,
    /// The driver's pool, without a scope.
    Driver,
    /// This library's pool, without a scope.
    Pool,
    /// A scope with this policy.
    Scope(Policy),
}

const WAYS: [Way; 7] = [
    Way::Direct,
    Way::Driver,
    Way::Pool,
    Way::Scope(Policy::Recycle),
    Way::Scope(Policy::Release),
    Way::Scope(Policy::Bump),
    Way::Scope(Policy::Plan),
];

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Driver => f.write_str("driver"),
            Self::Pool => f.write_str("pool"),
            Self::Scope(policy) => policy.fmt(f),
        }
    }
}

impl Way {
    fn device(self, settings: &Settings, memory_limit: Option<u64>) -> Outcome<Device> {
        let pool = match self {
            Self::Direct => PoolKind::Direct,
            Self::Driver => PoolKind::StreamOrdered,
            Self::Pool | Self::Scope(_) => PoolKind::BestFit,
        };
        settings.fresh_device(pool, memory_limit)
    }
}

/// A variant of the step, with or without a limit of 1.05 times the needed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    way: Way,
    limited: bool,
}

/// Returns the variants without a limit. Without a driver, the driver's pool is omitted.
pub(crate) fn unlimited(has_driver: bool) -> impl Iterator<Item = Course> {
    let possible = move |way: &Way| has_driver || *way != Way::Driver;
    let course = |way| Course {
        way,
        limited: false,
    };
    WAYS.into_iter().filter(possible).map(course)
}

/// Returns the variants with a limit. Separate reservations and the driver's pool do not support a
/// limit.
pub(crate) fn limited() -> impl Iterator<Item = Course> {
    let own = |way: &Way| !matches!(way, Way::Direct | Way::Driver);
    let course = |way| Course { way, limited: true };
    WAYS.into_iter().filter(own).map(course)
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.limited { "-limited" } else { "" };
        write!(f, "{}{end}", self.way)
    }
}

/// A step that is repeated on the current device.
pub(crate) trait Step {
    fn run(&mut self) -> Result<()>;

    /// Returns the results of a new step, for comparison with other programs.
    fn check(&mut self) -> Outcome<Value>;
}

pub(crate) struct Runner<S> {
    // The step is dropped before its device.
    step: S,
    way: Way,
    memory_limit: Option<u64>,
    device: Device,
}

impl<S: Step> Runner<S> {
    fn new(
        settings: &Settings,
        course: Course,
        make: impl Fn(&Device) -> Result<S>,
    ) -> Outcome<Self> {
        let Course { way, limited } = course;
        let memory_limit = match limited {
            true => {
                let needed_bytes = Self::needed_bytes(settings, way, &make)?;
                Some(needed_bytes + needed_bytes / 20)
            }
            false => None,
        };
        Self::within(settings, way, memory_limit, make)
    }

    fn within(
        settings: &Settings,
        way: Way,
        memory_limit: Option<u64>,
        make: impl Fn(&Device) -> Result<S>,
    ) -> Outcome<Self> {
        let device = way.device(settings, memory_limit)?;
        let step = {
            let _current = device.enter();
            make(&device)?
        };
        Ok(Self {
            step,
            way,
            memory_limit,
            device,
        })
    }

    /// Returns the peak of the live bytes of a step, including its inputs. The policy Bump reuses
    /// no memory before the end of the step. So for Bump, the result is the sum of all requests.
    fn needed_bytes(
        settings: &Settings,
        way: Way,
        make: impl Fn(&Device) -> Result<S>,
    ) -> Outcome<u64> {
        if way != Way::Scope(Policy::Bump) {
            let mut runner = Self::within(settings, Way::Pool, None, make)?;
            runner.run(2)?;
            runner.device.reset_peaks();
            runner.run(2)?;
            return Ok(runner.device.memory_stats().peak_live_bytes);
        }
        let mut runner = Self::within(settings, Way::Scope(Policy::Recycle), None, make)?;
        let config = CacheConfig {
            record: true,
            ..Default::default()
        };
        runner.device.configure_cache("w7-step", config);
        runner.run(2)?;
        let requests = runner.device.cache_record("w7-step");
        let live_bytes = runner.device.memory_stats().live_bytes;
        Ok(live_bytes + requests.iter().map(|request| request.bytes).sum::<u64>())
    }

    fn once(&mut self) -> Result<()> {
        match self.way {
            Way::Scope(policy) => {
                cache_scope!("w7-step", policy = policy, { self.step.run() })
            }
            _ => self.step.run(),
        }
    }
}

impl<S: Step> Work for Runner<S> {
    fn run(&mut self, times: u64) -> Outcome<Duration> {
        let device = self.device.clone();
        let _current = device.enter();
        let start = Instant::now();
        for _ in 0..times {
            self.once()?;
        }
        device.synchronize()?;
        Ok(start.elapsed())
    }

    fn check(&mut self) -> Outcome<Value> {
        let _current = self.device.enter();
        self.step.check()
    }

    fn extra(&self) -> Value {
        let stats = self.device.memory_stats();
        json!({
            "peak_reserved_bytes": stats.peak_reserved_bytes,
            "reserves": stats.reserves,
            "memory_limit": self.memory_limit,
        })
    }
}

/// Returns a runner of `sin(rand(n))`. The expression has two temporaries of `elements` elements of
/// `f32`.
pub(crate) fn chain(
    settings: &Settings,
    course: Course,
    elements: usize,
) -> Outcome<Runner<Chain>> {
    Runner::new(settings, course, |_| Ok(Chain(elements)))
}

pub(crate) struct Chain(usize);

impl Step for Chain {
    fn run(&mut self) -> Result<()> {
        Array::<f32>::rand(self.0)?.sin().eval().map(drop)
    }

    fn check(&mut self) -> Outcome<Value> {
        let mean = Array::<f32>::rand(self.0)?.sin().mean()?.item()?;
        Ok(json!({ "mean": mean }))
    }
}

/// Returns a runner of a training step of `examples/train_digits`.
pub(crate) fn digits(
    settings: &Settings,
    course: Course,
    units: usize,
) -> Outcome<Runner<Training>> {
    let digits = read(settings)?;
    Runner::new(settings, course, |_| Training::new(&digits, units))
}

/// Returns a runner that captures the training step once, and then launches it as a graph.
pub(crate) fn graph(settings: &Settings) -> Outcome<Runner<Captured>> {
    let digits = read(settings)?;
    // The captured step enters its scope itself.
    Runner::within(settings, Way::Pool, None, |device| {
        Captured::new(device, Training::new(&digits, HIDDEN_UNITS)?)
    })
}

fn read(settings: &Settings) -> Outcome<Digits> {
    Digits::read(&settings.options.digits).map_err(|failure| failure.to_string().into())
}

/// A training step on the digits, with one mini-batch per step.
pub(crate) struct Training {
    data: Dataset,
    batches: Vec<Array<i64>>,
    model: Model,
    /// The sum of the losses of all steps, allocated outside of all scopes.
    total_loss: Array<f32>,
    next: usize,
}

impl Training {
    fn new(digits: &Digits, units: usize) -> Result<Self> {
        let mut generator = Generator::new(1);
        let count = digits.labels.len();
        let data = Dataset {
            images: Array::from_slice(&digits.pixels, [count, PIXELS])?,
            labels: Array::from_slice(&digits.labels, count)?,
        };
        let mut batches = data.batches(BATCH_SIZE, &mut generator)?;
        batches.retain(|batch| batch.len() == BATCH_SIZE);
        Ok(Self {
            data,
            batches,
            model: Model::new(units, &mut generator)?,
            total_loss: Array::zeros([])?,
            next: 0,
        })
    }

    fn learn(&mut self, batch: &Array<i64>) -> Result<()> {
        let loss = self.model.step(&self.data.take(batch)?)?;
        self.total_loss.assign(&self.total_loss + loss)
    }

    fn next_batch(&mut self) -> Array<i64> {
        let batch = &self.batches[self.next % self.batches.len()];
        self.next += 1;
        batch.clone()
    }

    /// Returns the initial state. Other programs also start from this state.
    fn beginning(&self) -> Outcome<Value> {
        let layers = [&self.model.hidden, &self.model.output];
        let weights = layers.map(|layer| layer.weights.value.to_vec());
        let [hidden, output] = weights;
        let batches = self.batches.iter().map(Array::to_vec);
        Ok(json!({
            "hidden_units": HIDDEN_UNITS,
            "hidden": hidden?,
            "output": output?,
            "batches": batches.collect::<Result<Vec<_>>>()?,
            "steps": CHECKED_STEPS,
        }))
    }
}

impl Step for Training {
    fn run(&mut self) -> Result<()> {
        let batch = self.next_batch();
        self.learn(&batch)
    }

    fn check(&mut self) -> Outcome<Value> {
        // Other programs train only with `HIDDEN_UNITS`. With more units, the weights would be
        // megabytes of text.
        let mut checked = match self.model.hidden.weights.value.shape() {
            [_, HIDDEN_UNITS] => self.beginning()?,
            _ => json!({ "steps": CHECKED_STEPS }),
        };
        while self.next < CHECKED_STEPS {
            self.run()?;
        }
        checked["total_loss"] = json!(self.total_loss.item()?);
        Ok(checked)
    }
}

/// A captured training step. The graph reads the batch indices from `indices`.
pub(crate) struct Captured {
    graph: Graph,
    indices: Array<i64>,
    training: Training,
}

impl Captured {
    fn new(device: &Device, mut training: Training) -> Result<Self> {
        let mut indices = Array::<i64>::zeros(BATCH_SIZE)?;
        for _ in 0..2 {
            indices.assign(training.next_batch())?;
            Self::once(&mut training, &indices)?;
        }
        let graph = graph::capture(device, || Self::once(&mut training, &indices))?;
        Ok(Self {
            graph,
            indices,
            training,
        })
    }

    fn once(training: &mut Training, indices: &Array<i64>) -> Result<()> {
        cache_scope!("w7-graph", policy = Policy::Plan, {
            training.learn(indices)
        })
    }
}

impl Step for Captured {
    fn run(&mut self) -> Result<()> {
        self.indices.assign(self.training.next_batch())?;
        self.graph.launch()
    }

    fn check(&mut self) -> Outcome<Value> {
        while self.training.next < CHECKED_STEPS {
            self.run()?;
        }
        let total_loss = self.training.total_loss.item()?;
        Ok(json!({ "steps": CHECKED_STEPS, "total_loss": total_loss }))
    }
}
