//! A comparison of one training step without a pool, without a cache, under each policy, and as a
//! CUDA graph.

use std::time::{Duration, Instant};

use cachescope::graph::{self, Graph};
use cachescope::simulation::{DriverCall, DriverCosts};
use cachescope::{
    Array, CacheConfig, Device, Generator, MemoryStats, Policy, PoolKind, Result, cache_scope,
};

use crate::options::Options;
use shared::dataset::Dataset;
use shared::digits::Digits;
use shared::model::Model;

/// The number of timed steps of each contender.
pub(crate) const STEPS: usize = 100;
/// The number of steps in a contender's turn. The contenders take turns, so that a temporary
/// disturbance of the machine affects all contenders.
const TURN: usize = 10;

/// The figures of a step. Counts are totals over [`STEPS`] steps.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) pool: PoolKind,
    /// The policy, or `None` without a cache.
    pub(crate) policy: Option<Policy>,
    /// True if the step was captured and then launched as a graph.
    pub(crate) is_graph: bool,
    /// The median time of a step.
    pub(crate) step_time: Duration,
    /// The number of requests for memory. `None` without a cache, and for a graph.
    pub(crate) requests: Option<u64>,
    /// The number of requests that the cache did not serve.
    pub(crate) misses: u64,
    /// The number of segments reserved from the device.
    pub(crate) reserves: u64,
    /// The maximum of the reserved bytes, data and model included.
    pub(crate) peak_reserved_bytes: u64,
    /// The simulated time of a step's reservations on an H100, from measured costs of driver calls.
    pub(crate) simulated: Duration,
}

/// Runs the step without a pool, without a cache, and under each policy. On a CUDA device it also
/// runs the step as a graph.
pub(crate) fn compare(options: &Options, digits: &Digits) -> Result<Vec<Figures>> {
    let kinds = [
        (PoolKind::Direct, None),
        (PoolKind::BestFit, None),
        (PoolKind::BestFit, Some(Policy::Recycle)),
        (PoolKind::BestFit, Some(Policy::Release)),
        (PoolKind::BestFit, Some(Policy::Plan)),
    ];
    let mut contenders = kinds
        .into_iter()
        .map(|(pool, policy)| Contender::new(pool, policy, options, digits))
        .collect::<Result<Vec<_>>>()?;
    if Device::current() != Device::host() {
        let planned = (PoolKind::BestFit, Some(Policy::Plan));
        contenders.push(Contender::new(planned.0, planned.1, options, digits)?.captured()?);
    }
    for _ in 0..STEPS / TURN {
        for contender in &mut contenders {
            contender.take_turn()?;
        }
    }
    contenders.into_iter().map(Contender::figures).collect()
}

/// One configuration of the step, on its own device.
struct Contender {
    pool: PoolKind,
    policy: Option<Policy>,
    device: Device,
    data: Dataset,
    batches: Vec<Array<i64>>,
    model: Model,
    /// The captured step with the first batch.
    graph: Option<Graph>,
    before: Counts,
    times: Vec<Duration>,
}

impl Contender {
    /// Sets up the training step, and runs it twice.
    fn new(
        pool: PoolKind,
        policy: Option<Policy>,
        options: &Options,
        digits: &Digits,
    ) -> Result<Self> {
        let device = options.fresh_device(&Device::current(), pool)?;
        let _current = device.enter();
        let mut generator = Generator::new(options.seed);
        let (data, _) = Dataset::split(digits, &mut generator)?;
        let mut batches = data.batches(options.batch_size, &mut generator)?;
        if batches.len() > 1 {
            // The last batch of an epoch may be smaller. Its step would allocate arrays of other
            // sizes.
            batches.pop();
        }
        let mut contender = Self {
            pool,
            policy,
            batches,
            model: Model::new(options.hidden, &mut generator)?,
            data,
            graph: None,
            before: Counts::default(),
            times: Vec::with_capacity(STEPS),
            device: device.clone(),
        };
        // Only the first step allocates the optimizer's state.
        contender.step(0)?;
        contender.step(0)?;
        contender.before = Counts::of(&device);
        Ok(contender)
    }

    /// Captures the step as a graph. After the two steps of `new`, the memory is planned and the
    /// kernels are compiled.
    fn captured(mut self) -> Result<Self> {
        let device = self.device.clone();
        let _current = device.enter();
        self.graph = Some(graph::capture(&device, || self.step(0))?);
        Ok(self)
    }

    fn take_turn(&mut self) -> Result<()> {
        let _current = self.device.enter();
        for _ in 0..TURN {
            let start = Instant::now();
            self.step(self.times.len() % self.batches.len())?;
            self.device.synchronize()?;
            self.times.push(start.elapsed());
        }
        Ok(())
    }

    fn step(&mut self, batch: usize) -> Result<()> {
        if let Some(graph) = &self.graph {
            return graph.launch();
        }
        match self.policy {
            None => self.learn(batch),
            Some(policy) => cache_scope!("train", policy = policy, { self.learn(batch) }),
        }
    }

    fn learn(&mut self, batch: usize) -> Result<()> {
        let batch = self.data.take(&self.batches[batch])?;
        self.model.step(&batch).map(drop)
    }

    /// Returns the simulated time in which an H100's driver reserves and releases memory for each
    /// request of a step.
    fn simulated_reservations(&mut self) -> Result<Duration> {
        let _current = self.device.enter();
        let costs = DriverCosts::named("h100")?;
        let config = CacheConfig {
            record: true,
            ..Default::default()
        };
        self.device.configure_cache("recorded", config);
        cache_scope!("recorded", { self.learn(0)? });
        let requests = self.device.cache_record("recorded");
        let nanos = requests.iter().map(|request| {
            costs.nanos(DriverCall::MemAlloc, request.bytes)
                + costs.nanos(DriverCall::MemFree, request.bytes)
        });
        Ok(Duration::from_nanos(nanos.sum::<f64>() as u64))
    }

    fn figures(mut self) -> Result<Figures> {
        let after = Counts::of(&self.device);
        let reserves = after.memory.reserves - self.before.memory.reserves;
        // If the pool reserved no segment, the steps made no driver call.
        let simulated = match reserves {
            0 => Duration::ZERO,
            _ => self.simulated_reservations()?,
        };
        let misses = after.misses - self.before.misses;
        self.times.sort_unstable();
        Ok(Figures {
            pool: self.pool,
            policy: self.policy,
            is_graph: self.graph.is_some(),
            step_time: self.times[self.times.len() / 2],
            requests: (self.policy.is_some() && self.graph.is_none())
                .then(|| after.hits - self.before.hits + misses),
            misses,
            reserves,
            peak_reserved_bytes: after.memory.peak_reserved_bytes,
            simulated,
        })
    }
}

/// A snapshot of the counters.
#[derive(Default)]
struct Counts {
    hits: u64,
    misses: u64,
    memory: MemoryStats,
}

impl Counts {
    fn of(device: &Device) -> Self {
        let cache = device.cache_stats("train").unwrap_or_default();
        Self {
            hits: cache.hits,
            misses: cache.misses,
            memory: device.memory_stats(),
        }
    }
}
