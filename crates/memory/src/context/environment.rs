//! The environment variables of devices. If a variable does not parse, the error names the
//! variable.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::context::{Device, DeviceConfig};
use crate::device::Backend;
use crate::error::{AtCaller, Error, ErrorCode, Result};
use crate::memory::DEFAULT_RECLAIM_WAIT;
use crate::naming::names;
use crate::recorder::format_of;
use crate::size::SizeSetting;

/// The setting of an optional feature.
#[derive(Debug, PartialEq)]
pub enum Switch {
    /// Disabled.
    Off,
    /// Enabled.
    On,
}

names!(Switch {
    Off => "off",
    On => "on",
});

impl DeviceConfig {
    /// Returns the configuration that the environment sets for devices such as `device`.
    /// [`Device::host`] and [`Device::cuda`] use this configuration. Devices with a custom
    /// configuration read the environment only through this function.
    ///
    /// | variable | field | values |
    /// |---|---|---|
    /// | `CACHESCOPE_POOL` | `pool` | best-fit, binned, direct, stream-ordered |
    /// | `CACHESCOPE_MEMORY_LIMIT` | `memory_limit` | 8GiB, 500MB, or 50%, of the memory of `device` |
    /// | `CACHESCOPE_POLICY` | `policy` | recycle, release, bump, plan |
    /// | `CACHESCOPE_TIME_PHASES` | `time_phases` | on, off |
    /// | `CACHESCOPE_RECLAIM_WAIT` | `reclaim_wait` | seconds, such as 0.5; 0 waits for nothing |
    ///
    /// If a variable is not set or empty, the default applies.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if a variable does not parse. The
    /// message names the variable.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Device, DeviceConfig};
    ///
    /// let config = DeviceConfig::from_environment(&Device::host())?;
    /// let device = Device::host_with(DeviceConfig { time_phases: true, ..config })?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[track_caller]
    pub fn from_environment(device: &Device) -> Result<Self> {
        of_environment(device.backend())
    }
}

#[track_caller]
pub(super) fn of_environment(backend: &dyn Backend) -> Result<DeviceConfig> {
    Ok(DeviceConfig {
        pool: setting("CACHESCOPE_POOL")?.unwrap_or_default(),
        memory_limit: size_setting("CACHESCOPE_MEMORY_LIMIT", backend.total_bytes())?,
        policy: setting("CACHESCOPE_POLICY")?.unwrap_or_default(),
        time_phases: setting("CACHESCOPE_TIME_PHASES")? == Some(Switch::On),
        reclaim_wait: setting("CACHESCOPE_RECLAIM_WAIT")?
            .map_or(DEFAULT_RECLAIM_WAIT, |Seconds(wait)| wait),
        ..DeviceConfig::default()
    })
}

fn path(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable)?;
    (!path.is_empty()).then(|| path.into())
}

/// The file of the whole program's report, and the interval at which it is written.
pub(super) struct ProfileFile {
    /// The path of the file. The extension of the path has been checked.
    pub(super) path: PathBuf,
    pub(super) interval: Option<Duration>,
}

/// Returns the file of the whole program's report, if `CACHESCOPE_PROFILE` is set.
#[track_caller]
pub(super) fn profile() -> Result<Option<ProfileFile>> {
    let Some(path) = path("CACHESCOPE_PROFILE") else {
        return Ok(None);
    };
    format_of(&path).map_err(|error| error.of("CACHESCOPE_PROFILE"))?;
    let seconds: Option<Interval> = setting("CACHESCOPE_PROFILE_EVERY")?;
    let interval = seconds.map(|Interval(interval)| interval);
    Ok(Some(ProfileFile { path, interval }))
}

/// A time that may be 0.
struct Seconds(Duration);

impl FromStr for Seconds {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = seconds(text).map(Self);
        parsed.ok_or_else(|| unreadable(text, "a number, such as \"0.5\""))
    }
}

/// A time above 0.
struct Interval(Duration);

impl FromStr for Interval {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = seconds(text).filter(|time| !time.is_zero()).map(Self);
        parsed.ok_or_else(|| unreadable(text, "a number above 0, such as \"60\""))
    }
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()
}

fn unreadable(text: &str, expected: &str) -> Error {
    let reason = format!("cannot read \"{text}\" as seconds: write {expected}");
    Error::new(ErrorCode::Setting, reason)
}

/// Returns the bytes that a variable sets. The value is a size, or a percentage of `total_bytes`.
#[track_caller]
pub fn size_setting(variable: &str, total_bytes: u64) -> Result<Option<u64>> {
    let size: Option<SizeSetting> = setting(variable)?;
    Ok(size.map(|size| size.resolve(total_bytes)))
}

/// Returns the value of a variable. Returns `None` if the variable is not set or empty.
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
