//! The command-line options, and the settings that are derived from the options and the device.

use std::path::PathBuf;

use cachescope::{Buffer, Device, DeviceConfig, PoolKind};
use clap::Parser;
use serde_json::{Value, json};

use crate::{Outcome, driver};

/// The maximum of the live bytes of random allocations, as in RMM's benchmark.
const MOST_LIVE_BYTES: u64 = 16_000 << 20;
/// The host memory that this benchmark assumes.
const HOST_BYTES: u64 = 8 << 30;

/// Times allocations, the hit, the loop and the operations on a device.
#[derive(Debug, Parser)]
#[command(name = "w7")]
pub(crate) struct Options {
    /// Execute commands from the standard input instead, as described in the source
    #[arg(long)]
    pub(crate) serve: bool,

    /// The device to run on: host, cuda:0 and so on
    /// [default: $CACHESCOPE_DEVICE, else cuda:0 if there is one, else host]
    #[arg(long, value_name = "NAME")]
    device: Option<Device>,

    /// The number of batches, of which the median is taken
    #[arg(long, default_value_t = 7)]
    pub(crate) rounds: usize,

    /// The minimum time of a batch, in milliseconds
    #[arg(long, default_value_t = 20)]
    pub(crate) batch_ms: u64,

    /// The maximum number of elements of an array
    #[arg(long, default_value_t = 1 << 26)]
    pub(crate) most_elements: u64,

    /// The handwritten digits of `examples/data`
    #[arg(
        long,
        value_name = "PATH",
        default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/digits.csv.gz"),
        hide_default_value = true
    )]
    pub(crate) digits: PathBuf,

    /// The argument that `cargo bench` passes to all benchmarks
    #[arg(long, hide = true)]
    bench: bool,

    /// The names of the tasks to time; all tasks by default
    pub(crate) names: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) options: Options,
    pub(crate) device: Device,
    /// The ordinal of the CUDA device; `None` for the host.
    pub(crate) ordinal: Option<usize>,
    /// The maximum of the live bytes of random allocations.
    pub(crate) live_bytes: u64,
    name: String,
    driver_version: i32,
    total_bytes: u64,
}

impl Settings {
    pub(crate) fn new(options: Options) -> Outcome<Self> {
        let device = options.device.clone().unwrap_or_else(Device::current);
        // If the device does not exist, this allocation fails now, instead of during a task.
        drop(Buffer::new(&device, 1)?);
        let id = device.to_string();
        let ordinal = id.strip_prefix("cuda:").and_then(|n| n.parse().ok());
        let described = ordinal.map(driver::describe).transpose()?;
        let (name, driver_version, total_bytes) = described.unwrap_or((id, 0, HOST_BYTES));
        Ok(Self {
            options,
            device,
            ordinal,
            live_bytes: MOST_LIVE_BYTES.min(total_bytes / 8),
            name,
            driver_version,
            total_bytes,
        })
    }

    /// Opens another device of the same kind, with separate memory.
    pub(crate) fn fresh_device(
        &self,
        pool: PoolKind,
        memory_limit: Option<u64>,
    ) -> Outcome<Device> {
        let config = DeviceConfig {
            pool,
            memory_limit,
            ..Default::default()
        };
        Ok(match self.ordinal {
            Some(ordinal) => Device::cuda_with(ordinal, config)?,
            None => Device::host_with(config)?,
        })
    }

    /// Returns the facts about the device and the inputs as JSON.
    pub(crate) fn facts(&self) -> Value {
        json!({
            "device": self.device.to_string(),
            "name": self.name,
            "driver": self.driver_version,
            "total_bytes": self.total_bytes,
            "live_bytes": self.live_bytes,
            "digits": self.options.digits,
        })
    }
}
