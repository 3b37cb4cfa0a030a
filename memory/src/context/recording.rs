//! Recording what happens to a device's memory, and the reports over it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cachescope_reports::{CallSite, EventKind, Profile, Segment, SiteSummary, by_call_site};

use super::Device;
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::recorder::{HAS_BACKTRACES, Mark, write_report};

/// How a device is recorded; write it with `..Default::default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// The most bytes that the events of each thread take, 48 an event; beyond it, newer events
    /// overwrite the oldest. 64 MiB by default, and 3 GiB at most, of which a thread uses no more
    /// than its events need. What a thread has used stays with the device for later recordings.
    pub max_bytes: u64,
    /// Whether each allocation has its backtrace: who called the function that asked for it, and so
    /// on. Needs the feature `backtraces`, and 2 to 3 µs an allocation; of a device's first 65,535
    /// stacks, each kept once. `CACHESCOPE_PROFILE` takes them wherever that feature is on.
    pub backtraces: bool,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            max_bytes: 64 << 20,
            backtraces: false,
        }
    }
}

/// A recording of a device's memory, from [`Device::record`] until it drops.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::record::{EventKind, RecordOptions};
/// use cachescope::{Buffer, Device, cache_scope};
///
/// let device = Device::current();
/// let recording = device.record(RecordOptions::default())?;
/// for _ in 0..10 {
///     cache_scope!("recording-example", {
///         let a = Buffer::new(&device, 1024)?;
///     });
/// }
/// let sites = recording.by_call_site();
/// assert_eq!((sites[0].allocations, sites[0].hits, sites[0].peak_bytes), (10, 9, 1024));
/// let entries = recording.events().into_iter().filter(|event| event.kind == EventKind::Enter);
/// assert_eq!(entries.count(), 10);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[must_use = "the recording ends when this is dropped"]
#[derive(Debug)]
pub struct Recording {
    device: Device,
    mark: Mark,
    segments: Vec<Segment>,
}

/// Something that happened to a device's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// When it happened, since the beginning of the recording.
    pub time: Duration,
    /// What happened.
    pub kind: EventKind,
    /// The thread, by a number of this process.
    pub thread: u32,
    /// The stream that orders the memory; 0 is the default stream.
    pub stream: u32,
    /// The scope whose cache is concerned; `None` for memory of no cache.
    pub scope: Option<Arc<str>>,
    /// The line that asked for the memory, for a free the line that allocated it, as far as that
    /// was recorded.
    pub call_site: Option<CallSite>,
    /// The first address concerned, or 0.
    pub address: u64,
    /// Bytes: as requested of an allocation and its free, else as [`EventKind`] says.
    pub bytes: u64,
    /// Of an allocation and its free: the length of the block, at least `bytes`.
    pub block_bytes: u64,
}

impl Device {
    /// Records what happens to the memory of this device, on every thread and stream, until the
    /// [`Recording`] drops.
    ///
    /// An event takes no lock and no memory, but for the first of a thread, which makes the ring of
    /// its events, the first of a scope and of a backtrace, and operations on a CUDA device, whose
    /// times are asked for later. There this waits for an event on a new stream, from which the
    /// device's times are told. Recordings may overlap. A scope that another thread is inside of as
    /// the recording begins is recorded from its next entry on. `CACHESCOPE_PROFILE=run.html`
    /// records a whole program, without a change to it, and writes the file as it ends.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where `max_bytes` has no room for two
    /// events, [`Unsupported`](ErrorKind::Unsupported) for backtraces in a build without the
    /// feature `backtraces`.
    #[track_caller]
    pub fn record(&self, options: RecordOptions) -> Result<Recording> {
        const LEAST_BYTES: u64 = 96;
        if options.max_bytes < LEAST_BYTES {
            let text = format!(
                "record: max_bytes is {}, and at least {LEAST_BYTES} are needed",
                options.max_bytes
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if options.backtraces && !HAS_BACKTRACES {
            let text = "record: backtraces need the feature `backtraces` of this crate";
            return Err(Error::new(ErrorCode::Feature, text));
        }
        Ok(self.begin_recording(options))
    }

    /// [`record`](Self::record) with options that are known to be right.
    #[doc(hidden)]
    pub fn begin_recording(&self, options: RecordOptions) -> Recording {
        let segments = reserved_segments(self);
        Recording {
            mark: self
                .caches
                .begin_recording(options.max_bytes, options.backtraces),
            device: self.clone(),
            segments,
        }
    }
}

/// What is reserved now.
fn reserved_segments(device: &Device) -> Vec<Segment> {
    let parts = device.caches.memory().reserved_parts().into_iter();
    parts
        .map(|(address, bytes)| Segment { address, bytes })
        .collect()
}

impl Recording {
    /// What happened so far, as plain data: the input of every report.
    ///
    /// Does not wait: on a CUDA device, operations that are still under way have no time yet.
    pub fn profile(&self) -> Profile {
        let memory = self.device.caches.memory();
        let recorder = memory.recorder();
        recorder.finish_kernels(memory.backend());
        recorder.profile(&self.mark, self.device.to_string(), self.segments.clone())
    }

    /// What happened so far, in the order of time.
    pub fn events(&self) -> Vec<RecordedEvent> {
        let profile = self.profile();
        let mut names: HashMap<u32, Arc<str>> = HashMap::new();
        let mut name = |number: u32| {
            let name = names.entry(number);
            let name = name.or_insert_with(|| profile.scopes[number as usize].as_str().into());
            Arc::clone(name)
        };
        let call_site = |number: u32| profile.call_sites[number as usize].clone();
        let events = profile.events.iter().map(|event| RecordedEvent {
            time: Duration::from_nanos(event.time_ns),
            kind: event.kind,
            thread: event.thread,
            stream: event.stream,
            scope: event.scope.map(&mut name),
            call_site: event.call_site.map(call_site),
            address: event.address,
            bytes: event.bytes,
            block_bytes: event.block_bytes,
        });
        events.collect()
    }

    /// What each line of the program allocated so far, by the most bytes that were live of it, the
    /// largest first.
    pub fn by_call_site(&self) -> Vec<SiteSummary> {
        by_call_site(&self.profile())
    }

    /// Writes a report of what happened so far. The ending of the file's name says which: `.html`,
    /// a page that any browser opens; `.pickle`, a snapshot for PyTorch's memory viewer; `.json`, a
    /// trace for Perfetto; `.dhat` (JSON) for DHAT's viewer; `.folded`, the stacks of the peak as
    /// text, and `.svg`, their flame graph; `.txt`, a table.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for another ending, [`Io`](ErrorKind::Io)
    /// where the file cannot be written; the message names it.
    #[track_caller]
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        write_report(&self.profile(), path.as_ref())
    }
}

impl Recording {
    /// Nanoseconds since the beginning.
    #[doc(hidden)]
    pub fn elapsed_ns(&self) -> u64 {
        self.device
            .caches
            .memory()
            .recorder()
            .elapsed_ns(&self.mark)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.device.caches.end_recording(&self.mark);
    }
}
