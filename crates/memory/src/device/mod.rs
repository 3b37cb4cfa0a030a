//! The lowest layer: the interface of a device, and the devices that implement it.
//!
//! Architecture invariant: a backend does not use pools, caches or arrays. It reserves and copies
//! bytes.

/// Implements methods of an uninhabited type from their signatures. The methods cannot be called.
#[allow(unused_macros, reason = "some builds have no uninhabited type")]
macro_rules! uninhabited {
    () => {};
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident(&$self:ident $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        $vis fn $name(&$self $(, $argument: $type)*) $(-> $result)? {
            match *$self {}
        }

        uninhabited! { $($rest)* }
    };
    (
        $(#[$meta:meta])*
        $vis:vis unsafe fn $name:ident(
            &$self:ident $(, $argument:ident: $type:ty)*
        ) $(-> $result:ty)?;
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        /// Cannot be called, because the type has no value.
        ///
        /// # Safety
        ///
        /// No condition is required, because the method cannot be called.
        $vis unsafe fn $name(&$self $(, $argument: $type)*) $(-> $result)? {
            match *$self {}
        }

        uninhabited! { $($rest)* }
    };
}

pub(crate) mod budget;
pub(crate) mod cuda;
pub(crate) mod handles;
pub(crate) mod host;
pub(crate) mod host_streams;
pub(crate) mod simulated;
mod virtual_memory;

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::costs::DriverLedger;
use crate::error::{Error, ErrorCode, Result};
use crate::sync::{Arc, Weak};
use cuda::Cuda;
use host::streams::DelayedStreams;
use host_streams::{HostStream, StealWork};
pub(crate) use virtual_memory::{Destination, PageCost, VirtualMemory};

/// An address in a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// Returns the address `offset_bytes` bytes after this address.
    pub fn offset(self, offset_bytes: u64) -> Self {
        Self(self.0 + offset_bytes)
    }
}

/// The identity of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceId {
    /// The host, which is the reference device.
    Host,
    /// A CUDA device by its ordinal.
    Cuda(usize),
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl FromStr for DeviceId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "host" {
            return Ok(Self::Host);
        }
        let ordinal = text
            .strip_prefix("cuda:")
            .and_then(|ordinal| ordinal.parse().ok());
        ordinal.map(Self::Cuda).ok_or_else(|| {
            let text =
                format!("unknown device \"{text}\", expected \"host\", \"cuda:0\" and so on");
            Error::new(ErrorCode::Setting, text)
        })
    }
}

/// The identifier of a stream. Every device has stream 0.
///
/// The backend stream behind an identifier exists as long as the backend. So an identifier may
/// outlive the handles on its stream. If an identifier is reused, work that is ordered after the
/// old stream stays ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u16);

/// The kind of access that an operation has to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// A read.
    Read,
    /// A write, which may also read.
    Write,
}

/// A position in a stream, after all work that was submitted before the event was recorded.
///
/// An event is plain data, which can be stored and dropped at any time. Positions rise along a
/// stream. If an event is done, all earlier events of its stream are done too. A backend needs its
/// native event only until the position is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The stream that the event was recorded on.
    pub stream: StreamId,
    /// The position in the stream.
    pub position: u64,
}

/// A marked position in a stream, whose time can be queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeMark(pub usize);

/// A period of work on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    pub began: Instant,
    pub duration: Duration,
}

/// The time at which a device executes host kernels.
#[derive(Clone, Copy, Debug)]
pub enum HostExecution<'a> {
    /// At once, on the calling thread and worker threads.
    AtOnce,
    /// As late as stream order allows, in a test mode.
    Delayed(&'a DelayedStreams),
    /// Never: the device has no data.
    Never,
}

/// The interface of a device: large reservations, and copies in stream order.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Returns the identity of the device.
    fn id(&self) -> DeviceId;

    /// Returns the total memory of the device.
    fn total_bytes(&self) -> u64;

    /// Reserves `bytes` bytes (not 0), aligned to at least 512 bytes. Returns `None` if the device
    /// is exhausted.
    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>>;

    /// Releases memory that [`reserve`](Self::reserve) returned for the same `bytes`.
    fn release(&self, address: DevicePtr, bytes: u64) -> Result<()>;

    /// Returns the device's virtual memory, if it is supported.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        None
    }

    /// Copies `source` to `target` in the order of `stream`.
    ///
    /// # Safety
    ///
    /// `target` must point to `source.len()` bytes of this device's reserved memory. All other
    /// reads and writes of these bytes must be ordered by the stream.
    unsafe fn upload(&self, stream: StreamId, target: DevicePtr, source: &[u8]) -> Result<()>;

    /// Copies from `source` into `target`. Returns after the copy has completed.
    ///
    /// # Safety
    ///
    /// `source` must point to `target.len()` initialised bytes of this device's reserved memory.
    /// All writes to these bytes must be ordered by the stream.
    unsafe fn download(&self, stream: StreamId, source: DevicePtr, target: &mut [u8])
    -> Result<()>;

    /// Fills `bytes` bytes at `target` with the repeated `pattern`, in the order of `stream`.
    ///
    /// # Safety
    ///
    /// The conditions of [`upload`](Self::upload) hold for `bytes` bytes at `target`. `pattern` has
    /// 1, 2, 4, 8 or 16 bytes. `bytes` and the address `target` are multiples of the pattern's
    /// length.
    unsafe fn fill(
        &self,
        stream: StreamId,
        target: DevicePtr,
        bytes: u64,
        pattern: &[u8],
    ) -> Result<()>;

    /// Waits until all work submitted to `stream` is done.
    fn synchronize(&self, stream: StreamId) -> Result<()>;

    /// Creates a stream, or reuses a retired stream.
    fn new_stream(&self) -> Result<StreamId>;

    /// Opens a stream whose work host threads execute. Waiting threads execute some of the work
    /// through `executor`.
    fn new_host_stream(&self, executor: Weak<dyn StealWork>) -> Result<Arc<HostStream>>;

    /// Returns the host stream with this identifier; `None` for a device stream. The result does
    /// not depend on the calling thread.
    fn host_stream(&self, _stream: StreamId) -> Option<Arc<HostStream>> {
        None
    }

    /// Retires the identifier of a stream that no thread will enter again. The stream's submitted
    /// work still completes.
    fn retire_stream(&self, stream: StreamId);

    /// Returns the count of streams, including retired streams. Each number below this count
    /// identifies a stream.
    fn streams(&self) -> u16;

    /// Returns whether streams need ordering, because work is captured, or may overtake earlier
    /// work of another stream. Returns false while stream 0 is the only stream.
    fn uses_streams(&self) -> bool;

    /// Records an event on `stream`.
    fn record_event(&self, stream: StreamId) -> Result<Event>;

    /// Makes later work of `stream` wait for `event`.
    fn stream_wait_event(&self, stream: StreamId, event: &Event) -> Result<()>;

    /// Returns whether all work before `event` is done.
    fn query_event(&self, event: &Event) -> Result<bool>;

    /// Waits on the host until all work before `event` is done.
    fn synchronize_event(&self, event: &Event) -> Result<()>;

    /// Starts the measurement of time marks on an asynchronous device. May block.
    fn begin_timing(&self) -> Result<()> {
        Ok(())
    }

    /// Marks the current position of a stream on an asynchronous device. Returns `None` if the
    /// position cannot be marked, for example during a capture of the stream.
    fn mark_time(&self, _stream: StreamId) -> Option<TimeMark> {
        None
    }

    /// Returns the time span between two marks. Returns `None` if the device has not reached the
    /// second mark. After any other result, the two marks are invalid.
    fn take_times(&self, _marks: [TimeMark; 2]) -> Result<Option<TimeSpan>> {
        Ok(None)
    }

    /// Releases an unused mark.
    fn discard_mark(&self, _mark: TimeMark) {}

    /// Returns the time at which the device executes host kernels.
    fn host_execution(&self) -> HostExecution<'_> {
        HostExecution::AtOnce
    }

    /// Returns the delayed streams of a host device in the delayed test mode. Returns `None` for
    /// all other devices.
    fn delayed(&self) -> Option<&DelayedStreams> {
        match self.host_execution() {
            HostExecution::Delayed(streams) => Some(streams),
            HostExecution::AtOnce | HostExecution::Never => None,
        }
    }

    /// Returns whether the device is a meta device, which has no data. Reads return zeros.
    fn is_meta(&self) -> bool {
        matches!(self.host_execution(), HostExecution::Never)
    }

    /// Returns the assumed result length, at most `most`, of an operation whose result length
    /// depends on data. Returns `None` if the device has data.
    fn assumed_count(&self, _most: usize) -> Option<usize> {
        None
    }

    /// Returns the ledger of memory calls; `None` if the driver is not simulated.
    fn simulated_ledger(&self) -> Option<DriverLedger> {
        None
    }

    /// Returns the name of the device for messages.
    fn name(&self) -> String {
        self.id().to_string()
    }

    /// Returns whether the calling thread captures its submissions to a stream. During the capture,
    /// the thread must not reserve, release or wait.
    fn is_capturing(&self) -> bool {
        false
    }

    /// Returns whether any thread captures `stream`. During the capture, no other thread may submit
    /// to the stream.
    fn is_captured(&self, _stream: StreamId) -> bool {
        false
    }

    /// Returns the device as a CUDA device, if it is one.
    fn cuda(&self) -> Option<&Cuda> {
        None
    }
}
