//! The loop: a step that allocates and drops temporaries, without a cache, with a pool alone, under each
//! policy, and as a graph. (W5.)

use std::fmt;
use std::time::{Duration, Instant};

use cachescope::graph::{self, Graph};
use cachescope::{Array, Device, Generator, Policy, PoolKind, Result, cache_scope};
use serde_json::{Value, json};

use crate::dataset::Dataset;
use crate::digits::{Digits, PIXELS};
use crate::model::Model;
use crate::settings::Settings;
use crate::{Outcome, Work};

const BATCH_SIZE: usize = 256;
const HIDDEN_UNITS: usize = 512;
/// The steps after which losses are compared.
const CHECKED_STEPS: usize = 10;

/// Where a step's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// Every array is a reservation of its own.
    Direct,
    /// The driver's own pool, without a scope.
    Driver,
    /// This library's pool, without a scope.
    Pool,
    /// A scope under this policy.
    Scope(Policy),
}

pub(crate) const WAYS: [Way; 7] = [
    Way::Direct,
    Way::Driver,
    Way::Pool,
    Way::Scope(Policy::Recycle),
    Way::Scope(Policy::Release),
    Way::Scope(Policy::Bump),
    Way::Scope(Policy::Plan),
];

/// The ways that there are with or without a driver.
pub(crate) fn ways(has_driver: bool) -> impl Iterator<Item = Way> {
    let possible = move |way: &Way| has_driver || *way != Way::Driver;
    WAYS.into_iter().filter(possible)
}

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
    fn device(self, settings: &Settings) -> Outcome<Device> {
        settings.fresh_device(match self {
            Self::Direct => PoolKind::Direct,
            Self::Driver => PoolKind::StreamOrdered,
            Self::Pool | Self::Scope(_) => PoolKind::BestFit,
        })
    }
}

/// Something to do again and again on the current device.
pub(crate) trait Step {
    fn run(&mut self) -> Result<()>;

    /// Of a new step, what others can be held to.
    fn check(&mut self) -> Outcome<Value>;
}

/// A step on a device of its own.
pub(crate) struct Runner<S> {
    // Dropped before the device that its arrays are on.
    step: S,
    way: Way,
    device: Device,
}

impl<S: Step> Runner<S> {
    fn new(
        settings: &Settings,
        way: Way,
        make: impl FnOnce(&Device) -> Result<S>,
    ) -> Outcome<Self> {
        let device = way.device(settings)?;
        let step = {
            let _current = device.enter();
            make(&device)?
        };
        Ok(Self { step, way, device })
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
        json!({ "peak_reserved_bytes": self.device.memory_stats().peak_reserved_bytes })
    }
}

/// `sin(rand(n))`, the ancestors' example: two temporaries of so many `f32`.
pub(crate) fn chain(settings: &Settings, way: Way, elements: usize) -> Outcome<Runner<Chain>> {
    Runner::new(settings, way, |_| Ok(Chain(elements)))
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

/// A training step of `examples/train_digits`.
pub(crate) fn digits(settings: &Settings, way: Way) -> Outcome<Runner<Training>> {
    let digits = read(settings)?;
    Runner::new(settings, way, |_| Training::new(&digits))
}

/// The same, captured once and launched from then on.
pub(crate) fn graph(settings: &Settings) -> Outcome<Runner<Captured>> {
    let digits = read(settings)?;
    // It enters its scope itself, as it is captured.
    Runner::new(settings, Way::Pool, |device| {
        Captured::new(device, Training::new(&digits)?)
    })
}

fn read(settings: &Settings) -> Outcome<Digits> {
    Digits::read(&settings.options.digits).map_err(|failure| failure.to_string().into())
}

/// Mini-batches of the digits, one after the other.
pub(crate) struct Training {
    data: Dataset,
    batches: Vec<Array<i64>>,
    model: Model,
    /// Summed up over all steps; made outside of every scope.
    total_loss: Array<f32>,
    next: usize,
}

impl Training {
    fn new(digits: &Digits) -> Result<Self> {
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
            model: Model::new(HIDDEN_UNITS, &mut generator)?,
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

    /// What one begins with, for others to begin with the same.
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
        let mut checked = self.beginning()?;
        while self.next < CHECKED_STEPS {
            self.run()?;
        }
        checked["total_loss"] = json!(self.total_loss.item()?);
        Ok(checked)
    }
}

/// A training step as a graph, which reads the batch from where its indices are put.
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
