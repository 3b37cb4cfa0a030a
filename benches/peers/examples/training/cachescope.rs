//! Training in this library.

use ::cachescope::grad::optim::AdamW;
use ::cachescope::grad::{activation_budget, value_and_grad};
use ::cachescope::{CacheConfig, Device, MemoryStats, Policy, cache_scope};

use crate::cases::{DECAY, Network, RATE};
use crate::measure::{Error, Training};
use crate::networks::{Loss, images, text};
use crate::values::Values;

type Started = Result<Box<dyn Training>, Error>;

/// The changes to a plain training run.
#[derive(Clone, Copy, Default)]
struct Ways {
    /// The activation budget, as a fraction of the saved bytes.
    part: Option<f64>,
    /// True to compute in `bf16`.
    in_bf16: bool,
}

struct Trained<N: Loss> {
    network: N,
    inputs: N::Inputs,
    optimizer: AdamW,
    ways: Ways,
    /// The bytes that a step without a budget saves, once measured.
    saved_bytes: Option<u64>,
}

impl<N: Loss> Training for Trained<N> {
    fn step(&mut self) -> Result<f32, Error> {
        let Self {
            network,
            inputs,
            optimizer,
            ways,
            saved_bytes,
        } = self;
        let budget = ways.part.map(|part| {
            let saved_bytes = saved_bytes.map_or(f64::INFINITY, |bytes| bytes as f64);
            activation_budget((part * saved_bytes) as u64)
        });
        let loss = cache_scope!("step", {
            let (loss, gradients) = value_and_grad(&*network, |network| match ways.in_bf16 {
                true => network.loss_in_bf16(inputs),
                false => network.loss(inputs),
            })?;
            optimizer.step(network, &gradients)?;
            loss.item()?
        });
        if let Some(budget) = budget
            && saved_bytes.is_none()
        {
            *saved_bytes = Some(budget.report().saved_bytes);
            // The first step has no budget, so it must not count in the peak.
            Device::current().reset_peaks();
        }
        Ok(loss)
    }

    fn device_bytes(&self) -> (u64, u64) {
        let MemoryStats {
            live_bytes,
            peak_live_bytes,
            ..
        } = Device::current().memory_stats();
        (live_bytes, peak_live_bytes)
    }
}

/// Creates a network with its optimizer and its inputs.
pub fn start(network: Network, values: &mut Values) -> Started {
    start_in(Ways::default(), network, values)
}

/// Starts like [`start`], with an activation budget of 75 % of the saved bytes.
pub fn start_75(network: Network, values: &mut Values) -> Started {
    start_within(0.75, network, values)
}

/// Starts like [`start`], with an activation budget of 50 % of the saved bytes.
pub fn start_50(network: Network, values: &mut Values) -> Started {
    start_within(0.5, network, values)
}

/// Starts like [`start`], with an activation budget of 33 % of the saved bytes.
pub fn start_33(network: Network, values: &mut Values) -> Started {
    start_within(0.33, network, values)
}

/// Starts like [`start`], with a copy of the parameters in `bf16`.
pub fn start_bf16(network: Network, values: &mut Values) -> Started {
    let ways = Ways {
        in_bf16: true,
        ..Ways::default()
    };
    start_in(ways, network, values)
}

fn start_within(part: f64, network: Network, values: &mut Values) -> Started {
    let ways = Ways {
        part: Some(part),
        ..Ways::default()
    };
    start_in(ways, network, values)
}

fn start_in(ways: Ways, network: Network, values: &mut Values) -> Started {
    fn trained<N: Loss + 'static>(
        ways: Ways,
        (network, inputs): (N, N::Inputs),
    ) -> Box<dyn Training> {
        Box::new(Trained {
            network,
            inputs,
            optimizer: AdamW::new(RATE).weight_decay(DECAY),
            ways,
            saved_bytes: None,
        })
    }
    Ok(match network {
        Network::Gpt(gpt) => trained(ways, text(gpt, values)?),
        Network::Cnn(cnn) => trained(ways, images(cnn, values)?),
    })
}

/// Starts like [`start`], in a scope with the policy Plan.
pub fn start_planned(network: Network, values: &mut Values) -> Started {
    let config = CacheConfig {
        policy: Policy::Plan,
        ..CacheConfig::default()
    };
    Device::current().configure_cache("step", config);
    start(network, values)
}
