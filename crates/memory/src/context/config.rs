//! The configuration of a device, and the creation of devices.

use std::time::Duration;

use crate::cache::{CacheConfig, Caches, CachesConfig, Policy};
use crate::context::Device;
use crate::context::environment::{ProfileFile, of_environment, profile};
use crate::context::recording::RecordOptions;
use crate::device::cuda::Cuda;
use crate::device::host::HostBackend;
use crate::device::{Backend, DeviceId};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::memory::{DEFAULT_RECLAIM_WAIT, DeviceMemory, MemoryConfig};
use crate::pool::PoolKind;
use crate::recorder::{Profiling, profile_process};
use crate::source::fault::FaultPlan;
use crate::sync::plain::Mutex;
use crate::sync::{Arc, OnceLock};

/// The configuration of a device. Initialise it with `..Default::default()`.
///
/// The environment does not change the configuration, except through
/// [`from_environment`](Self::from_environment). `CACHESCOPE_PROFILE` (see [`Device::record`])
/// applies to the whole program.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, DeviceConfig};
///
/// let config = DeviceConfig { memory_limit: Some(1 << 20), ..Default::default() };
/// let device = Device::host_with(config)?;
/// assert!(Buffer::new(&device, 2 << 20).unwrap_err().is_out_of_memory());
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceConfig {
    /// The pool, which divides segments into blocks.
    pub pool: PoolKind,
    /// The limit on bytes reserved from the device; none by default. The limit excludes allocations
    /// of CUDA and its libraries: the context, kernels, and the workspace of cuBLAS. Each stream
    /// that multiplies matrices has a workspace: 32 MiB on Hopper and later GPUs, 4 MiB on earlier
    /// GPUs.
    pub memory_limit: Option<u64>,
    /// True to make segments grow in place (the default). Addresses are reserved in advance. Pages
    /// of 2 MiB are committed as needed, and [`trim`](Device::trim) decommits them. The option
    /// applies to [`BestFit`](PoolKind::BestFit) on platforms with virtual memory. Otherwise, each
    /// segment is a separate reservation.
    pub expandable_segments: bool,
    /// True to measure the time of the memory's phases for
    /// [`memory_report`](Device::memory_report). The measurement of a phase reads the clock twice.
    pub time_phases: bool,
    /// The policy of caches without a configuration.
    pub policy: Policy,
    /// True to let `matmul` and `attention` of `f32` round their operands to TF32 (11 significant
    /// bits instead of 24). TF32 is several times as fast on NVIDIA GPUs since Ampere. Sums stay in
    /// `f32`. The option is off by default, and has no effect on the host.
    pub tf32: bool,
    /// The maximum time that a request waits for idle memory of threads inside scopes; 1 second by
    /// default. After this time, the request fails. A thread inside a scope releases its idle
    /// blocks at its next request, drop or exit. A request waits only while the live blocks leave
    /// enough memory for the request. If the time is zero, a request does not wait.
    pub reclaim_wait: Duration,
    /// For tests: a byte that overwrites every block before the block is returned. So no code can
    /// depend on old contents.
    pub fill_recycled: Option<u8>,
    /// For tests: reservations that fail although the device has enough memory. They test the
    /// handling of exhausted memory.
    pub fault: Option<FaultPlan>,
    /// For tests, on a host device: true to delay the work of streams as long as stream order
    /// allows. A missing wait then results in wrong data, as on a busy device.
    pub delay_streams: bool,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            pool: PoolKind::default(),
            memory_limit: None,
            expandable_segments: true,
            time_phases: false,
            policy: Policy::default(),
            tf32: false,
            reclaim_wait: DEFAULT_RECLAIM_WAIT,
            fill_recycled: None,
            fault: None,
            delay_streams: false,
        }
    }
}

impl Device {
    /// Returns the process-wide host device, configured [from the environment] at the first call.
    ///
    /// If a variable does not parse, each allocation on the device fails with an error that names
    /// the variable.
    ///
    /// [from the environment]: DeviceConfig::from_environment
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::Device;
    ///
    /// let device = Device::host();
    /// assert_eq!((device.to_string().as_str(), &device), ("host", &Device::host()));
    /// ```
    pub fn host() -> Self {
        static HOST: OnceLock<Device> = OnceLock::new();
        let build = || {
            let backend = HostBackend::new();
            let config = of_environment(&backend)?;
            Self::build(Arc::new(backend), config, "CACHESCOPE_POOL=")
        };
        HOST.get_or_init(|| build().unwrap_or_else(Self::broken).permanent())
            .clone()
    }

    /// Creates a separate host device with its own memory, limit and caches.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let config = DeviceConfig { memory_limit: Some(1 << 20), ..Default::default() };
    /// let device = Device::host_with(config)?;
    /// assert_ne!(device, Device::host());
    /// assert!(Buffer::new(&device, 2 << 20).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for the pool
    /// [`StreamOrdered`](PoolKind::StreamOrdered), which only CUDA devices have.
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `CACHESCOPE_PROFILE` does not name
    /// a known format.
    #[track_caller]
    pub fn host_with(config: DeviceConfig) -> Result<Self> {
        let backend = if config.delay_streams {
            HostBackend::delaying()
        } else {
            HostBackend::new()
        };
        Self::build(Arc::new(backend), config, "pool ").at_caller()
    }

    /// Returns the process-wide CUDA device with this ordinal, configured [from the environment] at
    /// the first call.
    ///
    /// [from the environment]: DeviceConfig::from_environment
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::Device;
    ///
    /// let device = Device::cuda(0).unwrap_or_else(|_| Device::host());
    /// assert!(["cuda:0", "host"].contains(&device.to_string().as_str()));
    /// assert!(Device::cuda(9999).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`Driver`](crate::ErrorKind::Driver) if the CUDA driver is missing, too old or fails. The
    /// message states what to install. [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for
    /// an ordinal out of range, or if an environment variable does not parse.
    /// [`Unsupported`](crate::ErrorKind::Unsupported) in a build without CUDA.
    #[track_caller]
    pub fn cuda(ordinal: usize) -> Result<Self> {
        static DEVICES: Mutex<Vec<(usize, Device)>> = Mutex::new(Vec::new());
        let mut devices = DEVICES.lock();
        if let Some((_, device)) = devices.iter().find(|(known, _)| *known == ordinal) {
            return Ok(device.clone());
        }
        let backend = Cuda::open(ordinal).at_caller()?;
        let config = of_environment(&backend)?;
        let device = Self::build(Arc::new(backend), config, "CACHESCOPE_POOL=").at_caller()?;
        let device = device.permanent();
        devices.push((ordinal, device.clone()));
        Ok(device)
    }

    /// Creates a separate CUDA device on the hardware with this ordinal, with its own memory,
    /// limit, streams and caches.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Device, DeviceConfig};
    ///
    /// let config = DeviceConfig { memory_limit: Some(1 << 30), ..Default::default() };
    /// if let Ok(device) = Device::cuda_with(0, config) {
    ///     assert_ne!(device, Device::cuda(0)?);
    /// }
    /// assert!(Device::cuda_with(9999, DeviceConfig::default()).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`cuda`](Self::cuda). `CACHESCOPE_PROFILE` is the only environment variable
    /// that can cause an error.
    #[track_caller]
    pub fn cuda_with(ordinal: usize, config: DeviceConfig) -> Result<Self> {
        let mut backend = Cuda::open(ordinal).at_caller()?;
        backend.allow_tf32(config.tf32);
        Self::build(Arc::new(backend), config, "pool ").at_caller()
    }

    /// Returns every usable device. The host is the last device.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::Device;
    ///
    /// assert_eq!(Device::available().last(), Some(&Device::host()));
    /// ```
    pub fn available() -> Vec<Self> {
        let cuda = (0..Cuda::count()).filter_map(|ordinal| Self::cuda(ordinal).ok());
        cuda.chain([Self::host()]).collect()
    }

    /// Marks the device as permanent: the caller holds a handle until the process ends.
    fn permanent(self) -> Self {
        self.caches().set_permanent();
        self
    }

    /// Builds a separate device on `backend`. In errors, `pool_source` names the setting that chose
    /// the pool.
    #[track_caller]
    pub(super) fn build(
        backend: Arc<dyn Backend>,
        config: DeviceConfig,
        pool_source: &str,
    ) -> Result<Self> {
        if config.pool == PoolKind::StreamOrdered && backend.id() == DeviceId::Host {
            let pool = config.pool;
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{pool_source}{pool}: the driver's own pool exists on CUDA devices only"),
            ));
        }
        // A meta device is not recorded, because the file of `CACHESCOPE_PROFILE` is for the
        // program's real memory.
        let profile = profile()?.filter(|_| !backend.is_meta());
        let memory = MemoryConfig {
            pool: config.pool,
            limit_bytes: config.memory_limit,
            expandable: config.expandable_segments,
            fault: config.fault,
            time_phases: config.time_phases,
            reclaim_wait: config.reclaim_wait,
        };
        let memory = DeviceMemory::new(Arc::clone(&backend), &memory)?;
        let caches = CachesConfig {
            default_cache: CacheConfig {
                policy: config.policy,
                ..CacheConfig::default()
            },
            fill_recycled: config.fill_recycled,
            broken: None,
        };
        let device = Self {
            caches: Caches::over(memory, caches),
        };
        if let Some(ProfileFile { path, interval }) = profile {
            let caches = device.caches.downgrade();
            let counters = move || match caches.upgrade() {
                Some(caches) => caches.live_and_reserved_bytes(),
                None => (0, 0),
            };
            profile_process(Profiling {
                recorder: Arc::clone(device.caches.memory().recorder()),
                backend: Arc::downgrade(&backend),
                counters: Box::new(counters),
                path,
                interval,
                ring_bytes: RecordOptions::default().max_bytes,
            })?;
        }
        Ok(device)
    }

    /// Returns a device on which every allocation fails with `error`. A caller that cannot return
    /// the error uses this device.
    pub(super) fn broken(error: Error) -> Self {
        let memory = DeviceMemory::new(Arc::new(HostBackend::new()), &MemoryConfig::default())
            .expect("the default configuration is valid");
        let caches = CachesConfig {
            broken: Some(error),
            ..CachesConfig::default()
        };
        Self {
            caches: Caches::over(memory, caches),
        }
    }
}
