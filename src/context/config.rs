//! The settings of a device, and the making of devices from them.

use std::path::PathBuf;

use crate::cache::{CacheConfig, Caches, CachesConfig};
use crate::context::Device;
use crate::context::environment::Environment;
use crate::device::cuda::Cuda;
use crate::device::host::HostBackend;
use crate::device::{Backend, DeviceId};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::memory::{DeviceMemory, MemoryConfig};
use crate::pool::PoolKind;
use crate::source::fault::FaultPlan;
use crate::sync::plain::Mutex;
use crate::sync::{Arc, OnceLock};

/// The settings of a device; write it with `..Default::default()`.
///
/// What is left at its default is filled in from the environment: `CACHESCOPE_POOL` (best-fit,
/// binned, direct, stream-ordered), `CACHESCOPE_MEMORY_LIMIT` ("8GiB", "500MB", "50%" of the device),
/// `CACHESCOPE_TRACE` (a path), `CACHESCOPE_TIME_PHASES` ("on" or "off") and, for caches that nobody configures, `CACHESCOPE_POLICY`.
///
/// # Examples
///
/// ```
/// use cachescope::{Buffer, Device, DeviceConfig};
///
/// let config = DeviceConfig { memory_limit: Some(1 << 20), ..Default::default() };
/// let device = Device::host_with(config)?;
/// assert!(Buffer::new(&device, 2 << 20).unwrap_err().is_out_of_memory());
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceConfig {
    /// How segments are cut into blocks.
    pub pool: PoolKind,
    /// The most bytes that may be reserved from the device; unbounded by default. What CUDA's libraries take
    /// for themselves is not among them: context, kernels, and the room that cuBLAS works in, of each stream
    /// that multiplies matrices 32 MiB since Hopper and 4 MiB before.
    pub memory_limit: Option<u64>,
    /// Whether segments grow in place, which they do by default: addresses are reserved ahead, and
    /// memory is put behind them in pages of 2 MiB as it is needed, and taken away again by
    /// [`trim`](Device::trim) page by page. It concerns [`BestFit`](PoolKind::BestFit) on a device
    /// whose platform has the means; elsewhere every segment is a reservation of its own.
    pub expandable_segments: bool,
    /// Where to log each reservation and release of device memory, of every stream and thread, as
    /// comma separated values in the format of RMM's `logging_resource_adaptor`:
    /// `Thread,Time,Action,Pointer,Size,Stream`, with times in UTC, and threads and streams numbered.
    ///
    /// What is logged is what the pool asks of the device. Over [`Direct`](PoolKind::Direct) that is
    /// each request of the program that no named cache serves, rounded to 512 bytes: so
    /// `CACHESCOPE_POOL=direct CACHESCOPE_TRACE=log.csv program` records what `cachescope replay log.csv`
    /// can run through any other pool. Where pages are committed, each has a row of its own.
    ///
    /// The file is emptied by the first device of the process that names it; later ones go on with it.
    /// It is complete once its devices are gone, at [`synchronize`](Device::synchronize), and at the
    /// end of the process. An error in writing it is told by the next call that reserves memory, or by
    /// `synchronize`.
    pub trace: Option<PathBuf>,
    /// Whether the phases of the memory are timed, for
    /// [`memory_report`](Device::memory_report): two readings of the clock each. `CACHESCOPE_TIME_PHASES`
    /// ("on" or "off") where it is false.
    pub time_phases: bool,
    /// Whether `matmul` of `f32` may round the elements to TF32, of 11 significant bits instead of 24, before
    /// it multiplies them, which is several times as fast on NVIDIA's GPUs since Ampere; sums are of `f32`
    /// all the same. Never by default. The host has no such numbers, and does not round.
    pub tf32: bool,
    /// For tests: every block is overwritten with this byte before it is handed out, so that
    /// nothing can depend on what memory held before.
    pub fill_recycled: Option<u8>,
    /// For tests: reservations that fail though the device has room, to see a program through its
    /// out-of-memory paths.
    pub fault: Option<FaultPlan>,
    /// For tests, on a host device: its streams do their work as late as the rules of streams allow,
    /// as a busy device would, so that a missing wait shows as wrong data.
    pub delay_streams: bool,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            pool: PoolKind::default(),
            memory_limit: None,
            expandable_segments: true,
            trace: None,
            time_phases: false,
            tf32: false,
            fill_recycled: None,
            fault: None,
            delay_streams: false,
        }
    }
}

impl Device {
    /// The process-wide host device.
    pub fn host() -> Self {
        static HOST: OnceLock<Device> = OnceLock::new();
        HOST.get_or_init(|| Self::build_host(DeviceConfig::default()).unwrap_or_else(Self::broken))
            .clone()
    }

    /// A host device of its own: separate memory, limit and caches.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where a variable of the environment
    /// does not parse, [`Unsupported`](crate::ErrorKind::Unsupported) where the pool is to be
    /// [`StreamOrdered`](PoolKind::StreamOrdered), which the host does not have; the message names
    /// the variable; [`Io`](crate::ErrorKind::Io) where the trace cannot be written.
    #[track_caller]
    pub fn host_with(config: DeviceConfig) -> Result<Self> {
        Self::build_host(config).at_caller()
    }

    /// The CUDA device with this ordinal, one for the whole process: set up from the environment at the
    /// first call.
    ///
    /// # Errors
    ///
    /// [`Driver`](crate::ErrorKind::Driver) where there is no CUDA driver, where it is too old, and where it
    /// fails; the message says what to install.
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where there are not so many devices, and where
    /// a variable of the environment does not parse.
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where this build has no CUDA devices.
    #[track_caller]
    pub fn cuda(ordinal: usize) -> Result<Self> {
        static DEVICES: Mutex<Vec<(usize, Device)>> = Mutex::new(Vec::new());
        let mut devices = DEVICES.lock();
        if let Some((_, device)) = devices.iter().find(|(known, _)| *known == ordinal) {
            return Ok(device.clone());
        }
        let device = Self::cuda_with(ordinal, DeviceConfig::default())?;
        devices.push((ordinal, device.clone()));
        Ok(device)
    }

    /// A CUDA device of its own: separate memory, limit, streams and caches on the hardware with this
    /// ordinal.
    ///
    /// # Errors
    ///
    /// As [`cuda`](Self::cuda); [`Io`](crate::ErrorKind::Io) where the trace cannot be written.
    #[track_caller]
    pub fn cuda_with(ordinal: usize, config: DeviceConfig) -> Result<Self> {
        let environment = Environment::read()?;
        let mut backend = Cuda::open(ordinal).at_caller()?;
        backend.allow_tf32(config.tf32);
        Self::build(Arc::new(backend), config, environment).at_caller()
    }

    /// Every device that can be used, the host last.
    pub fn available() -> Vec<Self> {
        let cuda = (0..Cuda::count()).filter_map(|ordinal| Self::cuda(ordinal).ok());
        cuda.chain([Self::host()]).collect()
    }

    #[track_caller]
    fn build_host(config: DeviceConfig) -> Result<Self> {
        let environment = Environment::read()?;
        let backend = Arc::new(if config.delay_streams {
            HostBackend::delaying()
        } else {
            HostBackend::new()
        });
        Self::build(backend, config, environment)
    }

    /// A device of its own on `backend`.
    #[track_caller]
    fn build(
        backend: Arc<dyn Backend>,
        config: DeviceConfig,
        environment: Environment,
    ) -> Result<Self> {
        let memory = MemoryConfig {
            pool: pool_of(&*backend, config.pool, environment.pool)?,
            limit_bytes: config
                .memory_limit
                .or(environment.memory_limit_of(&*backend)),
            expandable: config.expandable_segments,
            fault: config.fault,
            trace: config.trace.or(environment.trace),
            time_phases: config.time_phases || environment.time_phases,
        };
        let memory = DeviceMemory::new(backend, &memory)?;
        let caches = CachesConfig {
            default_cache: CacheConfig {
                policy: environment.policy,
                ..CacheConfig::default()
            },
            fill_recycled: config.fill_recycled,
            broken: None,
        };
        Ok(Self {
            caches: Caches::over(memory, caches),
        })
    }

    /// A device on which every allocation fails with `error`, for callers that cannot return it.
    pub(super) fn broken(error: Error) -> Self {
        let memory = DeviceMemory::new(Arc::new(HostBackend::new()), &MemoryConfig::default())
            .expect("there is nothing to refuse in the defaults");
        let caches = CachesConfig {
            broken: Some(error),
            ..CachesConfig::default()
        };
        Self {
            caches: Caches::over(memory, caches),
        }
    }
}

/// The pool of a device: as configured, else as the environment says.
#[track_caller]
fn pool_of(
    backend: &dyn Backend,
    configured: PoolKind,
    of_environment: PoolKind,
) -> Result<PoolKind> {
    let (pool, origin) = if configured == PoolKind::default() {
        (of_environment, "CACHESCOPE_POOL=")
    } else {
        (configured, "pool ")
    };
    if pool != PoolKind::StreamOrdered || backend.id() != DeviceId::Host {
        return Ok(pool);
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "{origin}{pool}: this is the driver's own pool: a CUDA device has it, the host does not"
        ),
    ))
}
