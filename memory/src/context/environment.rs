//! The environment variables of devices. Each is read once per device; one that does not parse is an error that
//! names the variable.

use std::path::PathBuf;
use std::str::FromStr;

use crate::cache::Policy;
use crate::device::Backend;
use crate::error::{AtCaller, Error, ErrorCode, Result};
use crate::naming::names;
use crate::pool::PoolKind;
use crate::recorder::format_of;
use crate::size::SizeSetting;

/// Whether something is done that may be left out.
#[derive(Debug, PartialEq)]
pub enum Switch {
    /// Not done.
    Off,
    /// Done.
    On,
}

names!(Switch {
    Off => "off",
    On => "on",
});

/// The environment's settings for all devices.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) pool: PoolKind,
    pub(super) policy: Policy,
    pub(super) trace: Option<PathBuf>,
    pub(super) time_phases: bool,
    /// The report of the whole program.
    pub(super) profile: Option<PathBuf>,
    memory_limit: Option<SizeSetting>,
}

impl Environment {
    #[track_caller]
    pub(super) fn read() -> Result<Self> {
        Ok(Self {
            pool: setting("CACHESCOPE_POOL")?.unwrap_or_default(),
            policy: setting("CACHESCOPE_POLICY")?.unwrap_or_default(),
            trace: path("CACHESCOPE_TRACE"),
            profile: profile()?,
            time_phases: setting("CACHESCOPE_TIME_PHASES")? == Some(Switch::On),
            memory_limit: setting("CACHESCOPE_MEMORY_LIMIT")?,
        })
    }

    /// The memory limit in bytes on this device.
    pub(super) fn memory_limit_of(&self, backend: &dyn Backend) -> Option<u64> {
        self.memory_limit
            .as_ref()
            .map(|limit| limit.resolve(backend.total_bytes()))
    }
}

fn path(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable)?;
    (!path.is_empty()).then(|| path.into())
}

/// The file of the program's report, whose ending is known.
#[track_caller]
fn profile() -> Result<Option<PathBuf>> {
    let Some(path) = path("CACHESCOPE_PROFILE") else {
        return Ok(None);
    };
    format_of(&path).map_err(|error| error.of("CACHESCOPE_PROFILE"))?;
    Ok(Some(path))
}

/// The value of a variable, if it is set and not empty.
#[track_caller]
pub fn setting<T: FromStr<Err = Error>>(variable: &str) -> Result<Option<T>> {
    let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let parsed = value.to_str().map_or_else(
        || Err(Error::new(ErrorCode::Setting, "not Unicode")),
        T::from_str,
    );
    parsed
        .map(Some)
        .map_err(|error| error.of(&format!("{variable}={}", value.display())))
        .at_caller()
}
