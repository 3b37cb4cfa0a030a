//! The command line.

use std::path::PathBuf;

use cachescope::{CacheConfig, Device, DeviceConfig, Policy, PoolKind, Result};
use clap::Parser;
use clap::builder::RangedU64ValueParser;

use crate::parallel::Ranks;

/// Trains a two-layer network on handwritten digits inside a cache scope, and compares a training
/// step without a cache with the same step under each policy.
#[derive(Debug, Parser)]
#[command(name = "train_digits", args_override_self = true)]
pub(crate) struct Options {
    /// Passes over the training images
    #[arg(long, default_value_t = 40, value_parser = count(100_000))]
    pub(crate) epochs: usize,

    /// Images in a step; the last step of an epoch takes what is left
    #[arg(long, default_value_t = 256, value_parser = count(1 << 20))]
    pub(crate) batch_size: usize,

    /// Units of the hidden layer
    #[arg(long, default_value_t = 512, value_parser = count(1 << 20))]
    pub(crate) hidden: usize,

    /// What the cache "train" does with idle blocks: recycle or release
    /// [default: $CACHESCOPE_POLICY, else recycle]
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<Policy>,

    /// Where to train: host, cuda:0 and so on
    /// [default: $CACHESCOPE_DEVICE, else cuda:0 if there is one, else host]
    #[arg(long, value_name = "NAME")]
    device: Option<Device>,

    /// Trains on several ranks: mpi, under mpirun; threads:4, which are of this process; or environment, by the
    /// variables of mpirun, torchrun or SLURM
    #[arg(long, value_name = "RANKS")]
    pub(crate) parallel: Option<Ranks>,

    /// The most memory to reserve from the device, such as 64MiB or 500MB
    /// [default: $CACHESCOPE_MEMORY_LIMIT, else unlimited]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory_limit: Option<u64>,

    /// Seed of the split into training and test images, the first weights and the order of training
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Lines of 64 pixels from 0 to 16 and a digit from 0 to 9; compressed if the name ends in .gz
    #[arg(
        long,
        value_name = "PATH",
        default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/digits.csv.gz"),
        hide_default_value = true
    )]
    pub(crate) data: PathBuf,
}

impl Options {
    /// Sets up the device to train on as asked.
    pub(crate) fn set_up_device(&self) -> Device {
        let device = self.device.clone().unwrap_or_else(Device::current);
        if self.memory_limit.is_some() {
            device.set_memory_limit(self.memory_limit);
        }
        if let Some(policy) = self.policy {
            let config = CacheConfig {
                policy,
                ..Default::default()
            };
            device.configure_cache("train", config);
        }
        device
    }

    /// Another device of the kind of `device`, with memory of its own under the same limit.
    pub(crate) fn fresh_device(&self, device: &Device, pool: PoolKind) -> Result<Device> {
        let config = DeviceConfig {
            pool,
            memory_limit: self.memory_limit,
            ..Default::default()
        };
        match device.to_string().strip_prefix("cuda:").map(str::parse) {
            Some(Ok(ordinal)) => Device::cuda_with(ordinal, config),
            _ => Device::host_with(config),
        }
    }
}

/// Reads a number from 1 to `max`.
fn count(max: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=max)
}

/// Reads a number of bytes with its unit.
fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 8] = [
        ("", 1),
        ("B", 1),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let (number, unit) = text.split_at(text.len() - rest.len());
    let unit = UNITS.iter().find(|(name, _)| *name == unit.trim());
    let number = number.parse::<u64>().ok();
    number
        .zip(unit)
        .and_then(|(number, (_, unit_bytes))| number.checked_mul(*unit_bytes))
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| "a whole number with a unit is wanted, such as 64MiB or 500MB".into())
}
