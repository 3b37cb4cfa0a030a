//! The lowest layer: the interface of a device, and the devices that implement it.
//!
//! Architecture invariant: a backend knows nothing of pools, caches or arrays. It moves bytes.

/// Implements the methods of an uninhabited type by their signatures: they cannot be called.
#[allow(unused_macros, reason = "some builds have no such type")]
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
        /// Nothing is required, because there is nothing to call it on.
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
    /// The embedded reference device.
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
            let text = format!("unknown device \"{text}\": \"host\", or \"cuda:0\" and so on");
            Error::new(ErrorCode::Setting, text)
        })
    }
}

/// The number of a stream; every device has stream 0.
///
/// The raw stream of a number lives as long as its backend. So a number may outlive the handles on
/// its stream. Work that is ordered after the stream stays ordered when the number is reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u16);

/// The access of a piece of work to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Reads.
    Read,
    /// Writes, and may read.
    Write,
}

/// A position in a stream, after all work that was submitted before the event was recorded.
///
/// Plain data, which can be stored and dropped at will. Positions rise along a stream, so if an
/// event is done, earlier events are done, too. A backend needs its native event only until the
/// position is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The stream it was recorded on.
    pub stream: StreamId,
    /// The position in that stream.
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

/// The time at which a device runs the kernels of the host.
#[derive(Clone, Copy, Debug)]
pub enum HostExecution<'a> {
    /// At once, on the calling thread and others.
    AtOnce,
    /// In a test mode: as late as stream order allows.
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

    /// Reserves `bytes` (not 0), aligned to at least 512; `None` if the device is exhausted.
    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>>;

    /// Releases memory that [`reserve`](Self::reserve) returned, with the same `bytes`.
    fn release(&self, address: DevicePtr, bytes: u64) -> Result<()>;

    /// Returns the device's virtual memory, if it is supported.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        None
    }

    /// Copies `source` to `target` in the order of `stream`.
    ///
    /// # Safety
    ///
    /// `target` must point to `source.len()` bytes of this device's reserved memory. Outside the
    /// stream's order, nothing else may read or write these bytes.
    unsafe fn upload(&self, stream: StreamId, target: DevicePtr, source: &[u8]) -> Result<()>;

    /// Copies from `source` into `target`; returns after the copy has completed.
    ///
    /// # Safety
    ///
    /// `source` must point to `target.len()` initialised bytes of this device's reserved memory.
    /// Outside the stream's order, nothing may write these bytes.
    unsafe fn download(&self, stream: StreamId, source: DevicePtr, target: &mut [u8])
    -> Result<()>;

    /// Fills `bytes` bytes at `target` with the repeated `pattern`, in the order of `stream`.
    ///
    /// # Safety
    ///
    /// As for [`upload`](Self::upload). `pattern` has 1, 2, 4, 8 or 16 bytes; `bytes` and the
    /// address `target` are multiples of its length.
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

    /// Opens a stream whose work host threads execute. Through `executor`, waiting threads execute
    /// some of the work.
    fn new_host_stream(&self, executor: Weak<dyn StealWork>) -> Result<Arc<HostStream>>;

    /// Returns the host stream with this number, on every thread; `None` for a stream of the
    /// device.
    fn host_stream(&self, _stream: StreamId) -> Option<Arc<HostStream>> {
        None
    }

    /// Retires the number of a stream that no thread will enter again. The stream's submitted work
    /// still completes.
    fn retire_stream(&self, stream: StreamId);

    /// Returns the count of streams, retired ones included. The stream numbers are all numbers
    /// below this count.
    fn streams(&self) -> u16;

    /// Returns whether work of one stream may run before earlier work of another stream, or is
    /// captured. Returns false while there is only stream 0: then streams need no ordering.
    fn uses_streams(&self) -> bool;

    /// Records an event on `stream`.
    fn record_event(&self, stream: StreamId) -> Result<Event>;

    /// Makes later work of `stream` wait for `event`.
    fn stream_wait_event(&self, stream: StreamId, event: &Event) -> Result<()>;

    /// Returns whether all work before `event` is done.
    fn query_event(&self, event: &Event) -> Result<bool>;

    /// Waits on the host until all work before `event` is done.
    fn synchronize_event(&self, event: &Event) -> Result<()>;

    /// Begins to measure the times of marks, on an asynchronous device. May wait.
    fn begin_timing(&self) -> Result<()> {
        Ok(())
    }

    /// Marks the current position of a stream, on an asynchronous device. Returns `None` if it
    /// cannot be marked, for example while it is captured.
    fn mark_time(&self, _stream: StreamId) -> Option<TimeMark> {
        None
    }

    /// Returns the time span between two marks; `None` if the device has not reached the last.
    /// After any other result, both marks have ended.
    fn take_times(&self, _marks: [TimeMark; 2]) -> Result<Option<TimeSpan>> {
        Ok(None)
    }

    /// Ends an unused mark.
    fn discard_mark(&self, _mark: TimeMark) {}

    /// Returns the time at which the device runs the kernels of the host.
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

    /// Returns whether the device has no data: reads give zeros.
    fn is_meta(&self) -> bool {
        matches!(self.host_execution(), HostExecution::Never)
    }

    /// Returns the assumed result length, at most `most`, of an operation whose result length
    /// depends on data. Returns `None` if the device has data.
    fn assumed_count(&self, _most: usize) -> Option<usize> {
        None
    }

    /// Returns the ledger of the calls for memory so far, if the driver is simulated.
    fn simulated_ledger(&self) -> Option<DriverLedger> {
        None
    }

    /// Returns the name of the device for messages.
    fn name(&self) -> String {
        self.id().to_string()
    }

    /// Returns whether the calling thread captures its submissions to a stream. During a capture it
    /// must not reserve, release or wait.
    fn is_capturing(&self) -> bool {
        false
    }

    /// Returns whether any thread captures `stream`. During the capture no other thread may submit
    /// to it.
    fn is_captured(&self, _stream: StreamId) -> bool {
        false
    }

    /// Returns the device as a CUDA device, if it is one.
    fn cuda(&self) -> Option<&Cuda> {
        None
    }
}
