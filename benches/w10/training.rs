//! Training steps.

use std::time::Instant;

use cachescope::grad::optim::AdamW;
use cachescope::grad::{MapArrays, value_and_step};
use cachescope::graph::{self, Graph};
use cachescope::{Array, CacheConfig, Device, Float, MemoryStats, Policy, Result, cache_scope};
use serde_json::{Value, json};

use crate::cases::{Case, DECAY, Network, RATE};
use crate::networks::{Loss, images, text};
use crate::values::Values;
use crate::{Memory, Numbers, Outcome, Train};

/// The steps that are not timed. The second step runs in planned memory, and the third step is the
/// first launch of a graph.
const WARM_UP: usize = 3;
/// The multiple of the minimum time after which three timed steps are enough.
const SLOW: f64 = 4.0;
/// The number of losses in the result.
const LOSSES: usize = 5;

struct Training<N: Loss> {
    network: N,
    inputs: N::Inputs,
    optimizer: AdamW,
    in_bf16: bool,
    loss: Array<f32>,
}

impl<N: Loss> Training<N> {
    fn new((network, inputs): (N, N::Inputs), train: &Train) -> Result<Self> {
        let optimizer = AdamW::new(RATE).weight_decay(DECAY);
        Ok(Self {
            network,
            inputs,
            optimizer: match train.memory {
                Memory::Graph => optimizer.capturable(),
                Memory::Recycle | Memory::Plan => optimizer,
            },
            in_bf16: train.numbers == Numbers::Bf16,
            loss: Array::zeros([])?,
        })
    }

    /// Enqueues a step. The loss is in `self.loss`.
    fn enqueue(&mut self) -> Result<()> {
        let (inputs, in_bf16) = (&self.inputs, self.in_bf16);
        cache_scope!("step", {
            let loss =
                value_and_step(
                    &mut self.network,
                    &mut self.optimizer,
                    |network| match in_bf16 {
                        true => network.loss_in_bf16(inputs),
                        false => network.loss(inputs),
                    },
                )?;
            self.loss.assign(&loss)
        })
    }
}

/// Trains a network, and returns the result as JSON.
pub(crate) fn measured(train: &Train, case: Case) -> Outcome<Value> {
    if train.memory != Memory::Recycle {
        let config = CacheConfig {
            policy: Policy::Plan,
            ..CacheConfig::default()
        };
        Device::current().configure_cache("step", config);
    }
    let mut values = Values::default();
    match case.network {
        Network::Gpt(gpt) => {
            let training = Training::new(text(gpt, &mut values)?, train)?;
            let tokens = gpt.batch * gpt.length;
            // Products with the parameters, and attention, forward and backward. A causal mask
            // leaves half of the scores.
            let attention = 6 * gpt.layers * gpt.width * gpt.length;
            steps(training, train, case, |parameters| {
                (tokens, 6 * parameters + attention)
            })
        }
        Network::Cnn(cnn) => {
            let training = Training::new(images(cnn, &mut values)?, train)?;
            steps(training, train, case, |_| (cnn.batch, 0))
        }
    }
}

/// `work` returns the number of items in a step and the operations of an item, for a number of
/// parameters.
fn steps<N: Loss>(
    mut training: Training<N>,
    train: &Train,
    case: Case,
    work: impl FnOnce(usize) -> (usize, usize),
) -> Outcome<Value> {
    let mut count = Count(0);
    training.network.map_arrays(&mut count)?;
    let (mut times, mut losses) = (Vec::new(), Vec::new());
    let mut graph: Option<Graph> = None;
    let device = Device::current();
    loop {
        let sum: f64 = times.iter().sum();
        let is_slow = times.len() > WARM_UP + 2 && sum > SLOW * train.seconds;
        if is_slow || times.len() >= case.steps && sum > train.seconds {
            break;
        }
        if train.memory == Memory::Graph && times.len() + 1 == WARM_UP {
            graph = Some(graph::capture(&device, || training.enqueue())?);
        }
        let began = Instant::now();
        match &graph {
            Some(graph) => graph.launch()?,
            None => training.enqueue()?,
        }
        let loss = training.loss.item()?;
        times.push(began.elapsed().as_secs_f64());
        if losses.len() < LOSSES {
            losses.push(loss);
        }
    }
    let MemoryStats {
        peak_live_bytes,
        peak_reserved_bytes,
        ..
    } = device.memory_stats();
    let times = &mut times[WARM_UP..];
    times.sort_unstable_by(f64::total_cmp);
    let (items, flops) = work(count.0);
    Ok(json!({
        "step_ms": times[times.len() / 2] * 1e3,
        "least_ms": times[0] * 1e3,
        "steps": times.len(),
        "losses": losses,
        "peak_bytes": peak_live_bytes,
        "peak_reserved_bytes": peak_reserved_bytes,
        "parameters": count.0,
        "items": items,
        "flops": items * flops,
    }))
}

/// The number of elements of a network.
struct Count(usize);

impl MapArrays for Count {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.0 += array.len();
        Ok(array.clone())
    }
}
