//! Recordings of a device's memory, and the reports over them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cachescope_reports::{CallSite, EventKind, Profile, Segment, SiteSummary, by_call_site};

use super::Device;
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::recorder::{HAS_BACKTRACES, RecordingStart, write_report};

/// The options of a recording. Initialise them with `..Default::default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// The capacity of each thread's event buffer: 64 MiB by default, at most 3 GiB. An event needs
    /// 48 bytes. If the buffer is full, new events overwrite the oldest events. A buffer uses only
    /// the memory that its events need. The device keeps this memory for later recordings.
    pub max_bytes: u64,
    /// True to record the backtrace of each allocation. This option needs the feature `backtraces`,
    /// and costs 2 to 3 µs per allocation. A device stores each distinct stack once, up to 65,535
    /// stacks. `CACHESCOPE_PROFILE` records backtraces in every build with the feature
    /// `backtraces`.
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

/// A recording of a device's memory, which lasts from [`Device::record`] until this value drops.
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
    mark: RecordingStart,
    segments: Vec<Segment>,
}

/// An event of a device's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// The time since the beginning of the recording.
    pub time: Duration,
    /// The kind of event.
    pub kind: EventKind,
    /// The identifier of the thread in this process.
    pub thread: u32,
    /// The identifier of the stream that orders the memory. 0 is the default stream.
    pub stream: u32,
    /// The scope of the cache; `None` for memory that belongs to no cache.
    pub scope: Option<Arc<str>>,
    /// The call site that requested the memory, if it was recorded. For a free, the call site of
    /// the allocation.
    pub call_site: Option<CallSite>,
    /// The first address of the memory, or 0.
    pub address: u64,
    /// The size in bytes. For an allocation and its free, the value is the requested bytes. For
    /// other events, [`EventKind`] documents the value.
    pub bytes: u64,
    /// The length of the block of an allocation or free, at least `bytes`.
    pub block_bytes: u64,
}

impl Device {
    /// Records the events of this device's memory on every thread and stream, until the
    /// [`Recording`] drops.
    ///
    /// An event takes no lock and allocates no memory, with three exceptions. The first event of a
    /// thread allocates the thread's ring. The first event of a scope or backtrace stores the scope
    /// or backtrace. An operation on a CUDA device takes a lock, because its times are read later.
    ///
    /// On a CUDA device, this call waits for an event on a new stream. The device's times are
    /// measured from this event.
    ///
    /// Recordings may overlap. If another thread is inside a scope when the recording begins, the
    /// scope is recorded from its next entry on. `CACHESCOPE_PROFILE=run.html` records a whole
    /// program without code changes, and writes the file at exit.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig, RecordOptions};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let recording = device.record(RecordOptions::default())?;
    /// drop(Buffer::new(&device, 1000)?);
    /// assert_eq!(recording.by_call_site()[0].peak_bytes, 1000);
    /// let too_small = RecordOptions { max_bytes: 1, ..Default::default() };
    /// assert!(device.record(too_small).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if `max_bytes` is too small for two events.
    /// [`Unsupported`](ErrorKind::Unsupported) for backtraces in a build without the feature
    /// `backtraces`.
    #[track_caller]
    pub fn record(&self, options: RecordOptions) -> Result<Recording> {
        const LEAST_BYTES: u64 = 96;
        if options.max_bytes < LEAST_BYTES {
            let text = format!(
                "record: max_bytes is {}, expected at least {LEAST_BYTES}",
                options.max_bytes
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if options.backtraces && !HAS_BACKTRACES {
            let text = r#"record: built without the feature `backtraces`: add `features = ["backtraces"]` in Cargo.toml"#;
            return Err(Error::new(ErrorCode::Feature, text));
        }
        Ok(self.begin_recording(options))
    }

    /// Like [`record`](Self::record), for options that the caller has checked.
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

fn reserved_segments(device: &Device) -> Vec<Segment> {
    let parts = device.caches.memory().reserved_parts().into_iter();
    parts
        .map(|(address, bytes)| Segment { address, bytes })
        .collect()
}

impl Recording {
    /// Returns the events so far as plain data, the input of every report.
    ///
    /// This function does not wait. On a CUDA device, incomplete operations have no time yet.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig, RecordOptions};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let recording = device.record(RecordOptions::default())?;
    /// drop(Buffer::new(&device, 1000)?);
    /// let profile = recording.profile();
    /// assert_eq!(profile.device, "host");
    /// assert!(profile.events.iter().any(|event| event.bytes == 1000));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn profile(&self) -> Profile {
        let memory = self.device.caches.memory();
        let recorder = memory.recorder();
        recorder.finish_kernels(memory.backend());
        let name = self.device.to_string();
        recorder.profile(&self.mark, name, self.segments.clone(), || {
            self.device.caches.live_and_reserved_bytes()
        })
    }

    /// Returns the events so far, sorted by time.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig, RecordOptions};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let recording = device.record(RecordOptions::default())?;
    /// drop(Buffer::new(&device, 1000)?);
    /// let events = recording.events();
    /// let frees = events.iter().filter(|event| event.kind.is_free());
    /// assert_eq!(frees.map(|event| event.bytes).collect::<Vec<_>>(), [1000]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
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

    /// Returns the allocations so far, grouped by call site. The call sites are sorted by
    /// descending peak of live bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig, RecordOptions};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let recording = device.record(RecordOptions::default())?;
    /// drop(Buffer::new(&device, 1000)?);
    /// let site = &recording.by_call_site()[0];
    /// assert_eq!((site.allocations, site.peak_bytes, site.live_bytes), (1, 1000, 0));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn by_call_site(&self) -> Vec<SiteSummary> {
        by_call_site(&self.profile())
    }

    /// Writes a report of the events so far. The extension of the file selects the format:
    ///
    /// - `.html`: a page for a browser
    /// - `.pickle`: a snapshot for PyTorch's memory viewer
    /// - `.json`: a trace for Perfetto
    /// - `.dhat`: JSON for DHAT's viewer
    /// - `.folded`: the stacks of the peak as text
    /// - `.svg`: the flame graph of the peak's stacks
    /// - `.txt`: a table
    /// - `.csv`: a log of reservations for `cachescope replay`
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig, RecordOptions};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let recording = device.record(RecordOptions::default())?;
    /// drop(Buffer::new(&device, 1000)?);
    /// let path = std::env::temp_dir().join(format!("cachescope-run-{}.txt", std::process::id()));
    /// recording.write(&path)?;
    /// assert!(path.metadata().unwrap().len() > 0);
    /// assert!(recording.write(path.with_extension("unknown")).is_err());
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for any other extension.
    /// [`Io`](ErrorKind::Io) if the file cannot be written. The message names the file.
    #[track_caller]
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        write_report(&self.profile(), path.as_ref())
    }
}

impl Recording {
    /// Returns the nanoseconds since the beginning of the recording.
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
