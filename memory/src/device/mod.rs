//! The lowest layer: the interface of a device, and the devices that implement it.
//!
//! Architecture invariant: a backend knows nothing of pools, caches or arrays. It moves bytes.

pub(crate) mod cuda;
pub(crate) mod handles;
pub(crate) mod host;
pub(crate) mod host_streams;
mod virtual_memory;

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorCode, Result};
use crate::sync::{Arc, Weak};
use cuda::Cuda;
use host::streams::DelayedStreams;
use host_streams::{Help, HostStream};
pub(crate) use virtual_memory::{PageCost, VirtualMemory};

/// An address in a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// The address `offset_bytes` further on.
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
/// its stream, and what is ordered after it stays ordered when the number is reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u16);

/// How work uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// It reads.
    Read,
    /// It writes, and may read.
    Write,
}

/// A position in a stream: after all work submitted before the event was recorded.
///
/// Plain data, which can be stored and forgotten. Positions rise along a stream, so an event that
/// is done implies that earlier ones are, and a backend needs its own event only until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The stream it was recorded on.
    pub stream: StreamId,
    /// The position in that stream.
    pub position: u64,
}

/// A place of a stream whose time can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeMark(pub usize);

/// A time in which a device did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    pub began: Instant,
    pub duration: Duration,
}

/// The interface of a device: large reservations, and copies in stream order.
pub trait Backend: fmt::Debug + Send + Sync {
    /// The identity of the device.
    fn id(&self) -> DeviceId;

    /// The total memory of the device.
    fn total_bytes(&self) -> u64;

    /// Reserves `bytes` (not 0), aligned to at least 512; `None` when the device is exhausted.
    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>>;

    /// Releases what [`reserve`](Self::reserve) returned, with the same `bytes`.
    fn release(&self, address: DevicePtr, bytes: u64) -> Result<()>;

    /// The device's virtual memory, where it is supported.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        None
    }

    /// Copies `source` to `target` in the order of `stream`.
    ///
    /// # Safety
    ///
    /// `target` must point to `source.len()` bytes of this device's reserved memory that nothing
    /// else reads or writes outside the stream's order.
    unsafe fn upload(&self, stream: StreamId, target: DevicePtr, source: &[u8]) -> Result<()>;

    /// Copies from `source` into `target`; returns when the bytes are there.
    ///
    /// # Safety
    ///
    /// `source` must point to `target.len()` initialised bytes of this device's reserved memory
    /// that nothing writes outside the stream's order.
    unsafe fn download(&self, stream: StreamId, source: DevicePtr, target: &mut [u8])
    -> Result<()>;

    /// Fills `bytes` bytes at `target` with the repeated `pattern`, in the order of `stream`.
    ///
    /// # Safety
    ///
    /// As for [`upload`](Self::upload). `pattern` has 1, 2, 4, 8 or 16 bytes; `bytes` and the
    /// address `target` are multiples of that.
    unsafe fn fill(
        &self,
        stream: StreamId,
        target: DevicePtr,
        bytes: u64,
        pattern: &[u8],
    ) -> Result<()>;

    /// Waits until all work submitted to `stream` is done.
    fn synchronize(&self, stream: StreamId) -> Result<()>;

    /// Creates a stream, or reuses a retired one.
    fn new_stream(&self) -> Result<StreamId>;

    /// A stream whose work threads of the host do; `helper` lets who waits do some.
    fn new_host_stream(&self, helper: Weak<dyn Help>) -> Result<Arc<HostStream>>;

    /// The host stream of that number, to whoever asks; `None` for a stream of the device.
    fn host_stream(&self, _stream: StreamId) -> Option<Arc<HostStream>> {
        None
    }

    /// Retires the number of a stream that nobody will enter again. Its submitted work still
    /// completes.
    fn retire_stream(&self, stream: StreamId);

    /// The number of streams, retired ones included; their numbers are those below it.
    fn streams(&self) -> u16;

    /// Whether work of one stream may run before earlier work of another, or is captured. False
    /// while there is only stream 0: then streams need no ordering.
    fn uses_streams(&self) -> bool;

    /// Records an event on `stream`.
    fn record_event(&self, stream: StreamId) -> Result<Event>;

    /// Makes later work of `stream` wait for `event`.
    fn stream_wait_event(&self, stream: StreamId, event: &Event) -> Result<()>;

    /// Whether all work before `event` is done.
    fn query_event(&self, event: &Event) -> Result<bool>;

    /// Waits on the host until all work before `event` is done.
    fn synchronize_event(&self, event: &Event) -> Result<()>;

    /// Begins to tell the times of marks, on an asynchronous device. May wait.
    fn begin_timing(&self) -> Result<()> {
        Ok(())
    }

    /// Marks the present place of a stream, on an asynchronous device; `None` where it cannot be
    /// marked, as while it is captured.
    fn mark_time(&self, _stream: StreamId) -> Option<TimeMark> {
        None
    }

    /// When the device came from one mark to the other; `None` where it has not come there yet.
    /// After anything else both have ended.
    fn take_times(&self, _marks: [TimeMark; 2]) -> Result<Option<TimeSpan>> {
        Ok(None)
    }

    /// Ends a mark that nobody will ask for.
    fn discard_mark(&self, _mark: TimeMark) {}

    /// The delayed streams of a host device in that test mode; `None` where the host runs kernels
    /// at once, and for other devices.
    fn delayed(&self) -> Option<&DelayedStreams> {
        None
    }

    /// Whether the calling thread captures its submissions to a stream. Nothing may be reserved,
    /// released or waited for then.
    fn is_capturing(&self) -> bool {
        false
    }

    /// Whether any thread captures `stream`. No other thread may submit to it then.
    fn is_captured(&self, _stream: StreamId) -> bool {
        false
    }

    /// The device as a CUDA device, if it is one.
    fn cuda(&self) -> Option<&Cuda> {
        None
    }
}
