//! The command line.

use std::ffi::OsString;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use cachescope::{CacheConfig, Device, DeviceConfig, Policy, PoolKind, Result};
use lexopt::{Arg, Parser};

use crate::parallel::Ranks;

const HELP: &str = "\
Trains a two-layer network on handwritten digits inside a cache scope, and compares a training
step without a cache with the same step under each policy.

Usage: train_digits [OPTIONS]

Options:
  --epochs N           Passes over the training images [default: 40]
  --batch-size N       Images in a step; the last step of an epoch takes the rest [default: 256]
  --hidden N           Units of the hidden layer [default: 512]
  --policy NAME        Policy of the cache \"train\": recycle or release
                       [default: $CACHESCOPE_POLICY, else recycle]
  --device NAME        Device to train on: host, cuda:0 and so on
                       [default: $CACHESCOPE_DEVICE, else cuda:0 if there is one, else host]
  --parallel RANKS     Trains on several ranks: mpi, under mpirun; threads:4, threads of this process;
                       or environment, by the variables of mpirun, torchrun or SLURM
  --memory-limit SIZE  Maximum memory to reserve from the device, such as 64MiB or 500MB
                       [default: $CACHESCOPE_MEMORY_LIMIT, else unlimited]
  --seed N             Seed of the split into training and test images, the first weights and the
                       order of training [default: 1]
  --data PATH          Lines of 64 pixels from 0 to 16 and a digit from 0 to 9; compressed if the
                       name ends in .gz [default: examples/data/digits.csv.gz]
  -h, --help           Prints this text";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) epochs: usize,
    pub(crate) batch_size: usize,
    pub(crate) hidden: usize,
    pub(crate) policy: Option<Policy>,
    device: Option<Device>,
    pub(crate) parallel: Option<Ranks>,
    memory_limit: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) data: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            epochs: 40,
            batch_size: 256,
            hidden: 512,
            policy: None,
            device: None,
            parallel: None,
            memory_limit: None,
            seed: 1,
            data: concat!(env!("CARGO_MANIFEST_DIR"), "/data/digits.csv.gz").into(),
        }
    }
}

impl Options {
    /// Reads the command line. If the command line requests the help, prints it and returns `None`.
    pub(crate) fn parse() -> Result<Option<Self>, lexopt::Error> {
        let mut options = Self::default();
        let mut parser = Parser::from_env();
        while let Some(argument) = parser.next()? {
            let option = match argument {
                Arg::Short('h') => "help".to_owned(),
                Arg::Long(name) => name.to_owned(),
                unknown => return Err(unknown.unexpected()),
            };
            if option == "help" {
                println!("{HELP}");
                return Ok(None);
            }
            let mut read = || parser.value();
            match option.as_str() {
                "epochs" => options.epochs = count(&option, read()?, 1..=100_000)?,
                "batch-size" => options.batch_size = count(&option, read()?, 1..=1 << 20)?,
                "hidden" => options.hidden = count(&option, read()?, 1..=1 << 20)?,
                "policy" => options.policy = Some(value(&option, read()?, str::parse)?),
                "device" => options.device = Some(value(&option, read()?, str::parse)?),
                "parallel" => options.parallel = Some(value(&option, read()?, str::parse)?),
                "memory-limit" => {
                    options.memory_limit = Some(value(&option, read()?, parse_size)?);
                }
                "seed" => options.seed = value(&option, read()?, str::parse)?,
                "data" => options.data = read()?.into(),
                _ => return Err(Arg::Long(&option).unexpected()),
            }
        }
        Ok(Some(options))
    }

    /// Configures and returns the device to train on.
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

    /// Opens another device of the kind of `device`, with its own memory and an equal memory limit.
    pub(crate) fn fresh_device(&self, device: &Device, pool: PoolKind) -> Result<Device> {
        let config = DeviceConfig::from_environment(device)?;
        let config = DeviceConfig {
            pool,
            memory_limit: self.memory_limit.or(config.memory_limit),
            ..config
        };
        match device.to_string().strip_prefix("cuda:").map(str::parse) {
            Some(Ok(ordinal)) => Device::cuda_with(ordinal, config),
            _ => Device::host_with(config),
        }
    }
}

fn value<T, E: Display>(
    option: &str,
    text: OsString,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, lexopt::Error> {
    let text = text.to_string_lossy();
    parse(&text).map_err(|error| format!("--{option} {text}: {error}").into())
}

/// Parses a number within a range.
fn count(
    option: &str,
    text: OsString,
    range: RangeInclusive<usize>,
) -> Result<usize, lexopt::Error> {
    value(option, text, |text| match usize::from_str(text) {
        Ok(count) if range.contains(&count) => Ok(count),
        Ok(_) => Err(format!("not in {}..={}", range.start(), range.end())),
        Err(error) => Err(error.to_string()),
    })
}

/// Parses a number of bytes with its unit.
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
