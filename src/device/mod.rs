//! The lowest layer: what a device must be able to do, and the devices that can.
//!
//! Architecture invariant: a backend knows nothing of pools, caches or arrays. It moves bytes.

pub(crate) mod cuda;
pub(crate) mod host;
mod virtual_memory;

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};
use cuda::Cuda;
use host::streams::DelayedStreams;
pub(crate) use virtual_memory::VirtualMemory;

/// An address in a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DevicePtr(pub(crate) u64);

impl DevicePtr {
    /// The address `offset_bytes` further on.
    pub(crate) fn offset(self, offset_bytes: u64) -> Self {
        Self(self.0 + offset_bytes)
    }
}

/// Which device a backend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DeviceId {
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
            Error::new(ErrorKind::InvalidArgument, text)
        })
    }
}

/// A stream of a device, by its number; every device has stream 0.
///
/// The raw stream behind a number lives as long as its backend. So a number may outlive the handles
/// on its stream, and what is ordered after it stays ordered when the number is handed out again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamId(pub(crate) u16);

/// What work does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// Reads it.
    Read,
    /// Writes to it, and may read it.
    Write,
}

/// A place in a stream: behind everything that the stream was given before the event was recorded.
///
/// Plain data, so that it can be kept and forgotten anywhere. Positions rise along a stream, hence
/// an event that is done tells that those before it are, and a backend needs to keep what stands
/// for an event only until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Where it was recorded.
    pub(crate) stream: StreamId,
    /// Which of the stream's places it is.
    pub(crate) position: u64,
}

/// What the layers above need of a device: memory in large reservations, and bytes moved in
/// stream order.
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// Which device this is.
    fn id(&self) -> DeviceId;

    /// The memory that the device has in all.
    fn total_bytes(&self) -> u64;

    /// Reserves `bytes` (not 0), aligned to 512 or better; `None` when the device is exhausted.
    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>>;

    /// Releases what [`reserve`](Self::reserve) gave, with the same `bytes`.
    fn release(&self, address: DevicePtr, bytes: u64) -> Result<()>;

    /// The device's address space apart from its memory, where it has the means.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        None
    }

    /// Copies `source` to `target` in the order of `stream`.
    ///
    /// # Safety
    ///
    /// `target` must begin `source.len()` bytes of this device's reserved memory that nothing else
    /// reads or writes outside the stream's order.
    unsafe fn upload(&self, stream: StreamId, target: DevicePtr, source: &[u8]) -> Result<()>;

    /// Copies from `source` into `target`, and returns when the bytes are there.
    ///
    /// # Safety
    ///
    /// `source` must begin `target.len()` initialised bytes of this device's reserved memory that
    /// nothing writes outside the stream's order.
    unsafe fn download(&self, stream: StreamId, source: DevicePtr, target: &mut [u8])
    -> Result<()>;

    /// Fills `bytes` bytes from `target` on with `pattern`, over and over, in the order of `stream`.
    ///
    /// # Safety
    ///
    /// As for [`upload`](Self::upload); and `pattern` has 1, 2, 4 or 8 bytes, of which `bytes` and the
    /// address `target` are multiples.
    unsafe fn fill(
        &self,
        stream: StreamId,
        target: DevicePtr,
        bytes: u64,
        pattern: &[u8],
    ) -> Result<()>;

    /// Waits until everything given to `stream` is done.
    fn synchronize(&self, stream: StreamId) -> Result<()>;

    /// Makes a stream, or hands out one that was retired.
    fn new_stream(&self) -> Result<StreamId>;

    /// Takes back the number of a stream that nobody will enter again. What it was given is done
    /// all the same.
    fn retire_stream(&self, stream: StreamId);

    /// How many streams there are, retired ones included: their numbers are those below.
    fn streams(&self) -> u16;

    /// Whether work of one stream may ever come before what another was given earlier, or is recorded for
    /// later. False while there is only stream 0; then nothing needs to be ordered across streams.
    fn uses_streams(&self) -> bool;

    /// Marks the place that `stream` has reached.
    fn record_event(&self, stream: StreamId) -> Result<Event>;

    /// Lets what `stream` is given from now on begin only when `event` is done.
    fn stream_wait_event(&self, stream: StreamId, event: &Event) -> Result<()>;

    /// Whether everything before `event` is done.
    fn query_event(&self, event: &Event) -> Result<bool>;

    /// Returns when everything before `event` is done.
    fn synchronize_event(&self, event: &Event) -> Result<()>;

    /// The streams of a host device that delays their work, through which its kernels go too;
    /// `None` where kernels of the host run at once, and for every other device.
    fn delayed(&self) -> Option<&DelayedStreams> {
        None
    }

    /// Whether the calling thread records what it gives to a stream, instead of having it done. Nothing may
    /// be reserved, released or waited for then.
    fn is_capturing(&self) -> bool {
        false
    }

    /// Whether any thread records what `stream` is given, instead of having it done. Nothing else may be given
    /// to it then.
    fn is_captured(&self, _stream: StreamId) -> bool {
        false
    }

    /// The device as one that runs CUDA kernels, where it does.
    fn cuda(&self) -> Option<&Cuda> {
        None
    }
}
