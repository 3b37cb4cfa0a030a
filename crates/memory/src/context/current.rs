//! The current device of a thread.

use std::str::FromStr;

use crate::cache::{Entered, scope};
use crate::context::Device;
use crate::context::environment::setting;
use crate::device::DeviceId;
use crate::error::{AtCaller, Error, Result};
use crate::sync::OnceLock;

/// A guard that makes a device current for its thread until the guard drops.
#[must_use = "the device is current until this guard drops"]
#[derive(Debug)]
pub struct DeviceGuard {
    _entered: Entered,
}

impl Device {
    /// Returns the thread's current device: the innermost entered device. If the thread has entered
    /// no device, returns the device of `CACHESCOPE_DEVICE` ("host", "cuda:1"). If the variable is
    /// not set, returns `cuda:0` if present, else the host.
    ///
    /// If the variable does not parse or names a missing device, every allocation on the returned
    /// device fails. The error names the variable.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Device, DeviceConfig};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let guard = device.enter();
    /// assert_eq!(Device::current(), device);
    /// drop(guard);
    /// assert_ne!(Device::current(), device);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn current() -> Self {
        Self::with_current(Self::clone)
    }

    /// Calls `f` with the current device, without a counted handle.
    #[doc(hidden)]
    pub fn with_current<R>(f: impl FnOnce(&Self) -> R) -> R {
        match scope::current_device() {
            Some(caches) => f(Self::from_caches(&caches)),
            None => f(first_device()),
        }
    }

    /// Makes the device current for this thread until the guard drops.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Device, DeviceConfig};
    ///
    /// let (outer, inner) = (Device::host(), Device::host_with(DeviceConfig::default())?);
    /// let _outer = outer.enter();
    /// {
    ///     let _inner = inner.enter();
    ///     assert_eq!(Device::current(), inner);
    /// }
    /// assert_eq!(Device::current(), outer);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn enter(&self) -> DeviceGuard {
        DeviceGuard {
            _entered: scope::enter_device(self.caches()),
        }
    }
}

/// Returns the current device of a thread that has entered no device. This device is process-wide
/// and never dropped.
fn first_device() -> &'static Device {
    static FIRST: OnceLock<Device> = OnceLock::new();
    FIRST.get_or_init(|| find_first_device().unwrap_or_else(Device::broken))
}

#[track_caller]
fn find_first_device() -> Result<Device> {
    match setting("CACHESCOPE_DEVICE")? {
        Some(DeviceId::Host) => Ok(Device::host()),
        Some(DeviceId::Cuda(ordinal)) => {
            let device = Device::cuda(ordinal);
            device.map_err(|error| error.of(&format!("CACHESCOPE_DEVICE=cuda:{ordinal}")))
        }
        None => Ok(Device::cuda(0).unwrap_or_else(|_| Device::host())),
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Parses "host" or "cuda:1".
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for any other text, and the errors of
    /// [`Device::cuda`].
    #[track_caller]
    fn from_str(text: &str) -> Result<Self> {
        match text.parse().at_caller()? {
            DeviceId::Host => Ok(Self::host()),
            DeviceId::Cuda(ordinal) => Self::cuda(ordinal),
        }
    }
}
