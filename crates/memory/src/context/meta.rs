//! Meta devices, which have no data.

use super::{Device, DeviceConfig};
use crate::costs::{DriverCosts, DriverLedger};
use crate::device::Backend;
use crate::device::cuda::Cuda;
use crate::device::host::HostBackend;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::sync::Arc;

/// The kind of device that a [`Device::meta`](crate::Device::meta) imitates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetaKind {
    /// A host device, whose memory grows by pages as needed.
    #[default]
    Host,
    /// A CUDA device, including the workspaces of its operations. This kind needs the feature
    /// `cuda`, but no driver.
    Cuda,
}

/// The options of a [`Device::meta`]. Initialise them with `..Default::default()`.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Device, MetaKind, MetaOptions};
///
/// let options = MetaOptions { like: MetaKind::Host, capacity_bytes: 80 << 30, ..Default::default() };
/// assert_eq!(Device::meta(options)?.to_string(), "meta");
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MetaOptions {
    /// The kind of device to imitate; a host by default.
    pub like: MetaKind,
    /// The memory of the device in bytes; 16 GiB by default. The growth steps of memory depend on
    /// the capacity. So the reserved bytes are exact for a real device of this capacity.
    pub capacity_bytes: u64,
    /// The costs of the memory calls of a CUDA driver; the table `h100` by default.
    pub costs: Option<DriverCosts>,
    /// The configuration of the device. `delay_streams` has no effect.
    pub config: DeviceConfig,
    /// The assumed result length of an operation with a data-dependent length, such as `nonzero`.
    /// By default, the result has all elements.
    pub assumed_count: Option<usize>,
}

impl Default for MetaOptions {
    fn default() -> Self {
        Self {
            like: MetaKind::default(),
            capacity_bytes: 16 << 30,
            costs: None,
            config: DeviceConfig::default(),
            assumed_count: None,
        }
    }
}

impl Device {
    /// Creates a device without data. The device measures how much memory a program needs.
    ///
    /// Scopes, caches, pools, limits, plans and recordings work as on the imitated device.
    /// Operations compute nothing, and reads return zeros. Addresses are reserved without memory,
    /// so a write to [`Buffer::address`](crate::Buffer::address) is an access violation. Exchanges
    /// of arrays between ranks copy through real memory. `CACHESCOPE_PROFILE` does not record the
    /// device.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, MetaOptions};
    ///
    /// let device = Device::meta(MetaOptions { capacity_bytes: 80 << 30, ..Default::default() })?;
    /// let buffer = Buffer::new(&device, 60 << 30)?;
    /// assert_eq!(device.memory_stats().live_bytes, 60 << 30);
    /// assert!(Buffer::new(&device, 30 << 30).unwrap_err().is_out_of_memory());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a capacity of 0.
    /// [`Unsupported`](ErrorKind::Unsupported) on a platform that cannot reserve addresses without
    /// memory, and for the pool [`StreamOrdered`](crate::PoolKind::StreamOrdered).
    #[track_caller]
    pub fn meta(options: MetaOptions) -> Result<Self> {
        let MetaOptions {
            like,
            capacity_bytes,
            costs,
            config,
            assumed_count,
        } = options;
        if capacity_bytes == 0 {
            let text = "meta: capacity_bytes is 0, expected at least 1";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let backend: Arc<dyn Backend> = match like {
            MetaKind::Host => {
                let backend = HostBackend::meta(capacity_bytes, assumed_count);
                Arc::new(backend.ok_or_else(no_addresses)?)
            }
            MetaKind::Cuda => {
                let costs = costs.map_or_else(|| DriverCosts::named("h100"), Ok)?;
                let ledger = DriverLedger::new(&costs);
                Arc::new(Cuda::meta(ledger, capacity_bytes, assumed_count).at_caller()?)
            }
        };
        Self::build(backend, config, "pool ").at_caller()
    }
}

#[cold]
#[track_caller]
fn no_addresses() -> Error {
    let text = "meta: this platform cannot reserve addresses without memory";
    Error::new(ErrorKind::Unsupported, text)
}
