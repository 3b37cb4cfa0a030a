//! Assertions about memory for tests. They check the memory of a block of code: its peak, its
//! growth between entries, and the absence of allocations.
//!
//! The assertions count the exact bytes that the device's arrays and buffers request, on every
//! thread. Pools, caches and rounding do not count. A test that runs in parallel with other tests
//! needs its own device.
//!
//! # Examples
//!
//! ```
//! use cachescope::{Array, Device, DeviceConfig, Result, testing};
//!
//! fn step(w: &mut Array<f32>) -> Result<()> {
//!     w.update(|w| w - 0.1 * w.square())
//! }
//!
//! let device = Device::host_with(DeviceConfig::default())?;
//! let _current = device.enter();
//! let mut w = Array::<f32>::ones([1000])?;
//! let (sum, peak_bytes) = testing::peak_of(&device, || (&w * 2.0).eval()?.sum()?.item())?;
//! assert_eq!((sum, peak_bytes), (2000.0, 4004));
//! testing::assert_peak!(&device, 4096, { (&w * 2.0).eval()?; });
//! testing::assert_no_allocations!(&device, { step(&mut w)?; });
//! testing::assert_no_growth!("testing-example", 10, { (&w + 1.0).eval()?; });
//! # Ok::<(), cachescope::Error>(())
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use cachescope_reports::{AllocationLifetime, Event, Peak, Profile, lifetimes, live_at};

use crate::context::{Device, RecordOptions, Recording};
use crate::error::{Error, ErrorKind, Result};
use crate::size::ByteSize;
use crate::sorting::sort_descending;

#[doc(inline)]
pub use crate::{assert_no_allocations, assert_no_growth, assert_peak};

/// The bound of a recording: half a gigabyte of addresses for each thread. Only the addresses in
/// use are backed by memory.
const OPTIONS: RecordOptions = RecordOptions {
    backtraces: false,
    max_bytes: 512 << 20,
};

/// The maximum number of lines of a program that a failure lists.
const LINES: usize = 8;

/// Runs `body`. Returns its result, and the peak of live bytes on the device, above the bytes that
/// were live before `body`.
///
/// # Examples
///
/// ```
/// use cachescope::testing::peak_of;
/// use cachescope::{Array, Device};
///
/// let device = Device::current();
/// let (sum, peak_bytes) = peak_of(&device, || Array::<f32>::ones(1024)?.sum()?.item())?;
/// assert_eq!(sum, 1024.0);
/// assert!((4096..8192).contains(&peak_bytes));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The error of `body`. [`Unsupported`](ErrorKind::Unsupported) if `body` made more requests than
/// can be recorded, about four million on each thread.
#[track_caller]
pub fn peak_of<R>(device: &Device, body: impl FnOnce() -> Result<R>) -> Result<(R, u64)> {
    let recording = device.begin_recording(OPTIONS);
    let result = body()?;
    let measured = Measured::of(&recording)?;
    Ok((result, measured.peak.bytes))
}

/// The recorded events of a device during a block of code, and the analysis of these events.
struct Measured {
    profile: Profile,
    lifetimes: Vec<AllocationLifetime>,
    peak: Peak,
}

impl Measured {
    #[track_caller]
    fn of(recording: &Recording) -> Result<Self> {
        let profile = recording.profile();
        if profile.lost_events > 0 {
            let text = format!(
                "testing: the recording lost {} events, expected a block with fewer requests",
                profile.lost_events
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let lifetimes = lifetimes(&profile);
        let peak = peak_above_start(&profile);
        Ok(Self {
            profile,
            lifetimes,
            peak,
        })
    }

    /// Returns the program lines that allocated the memory in `chosen`, with their bytes, the
    /// largest first.
    fn lines<'a>(&self, chosen: impl Iterator<Item = &'a AllocationLifetime>) -> String {
        let mut lines: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for lifetime in chosen {
            let (count, bytes) = lines.entry(self.line(lifetime)).or_default();
            *count += 1;
            *bytes += lifetime.bytes;
        }
        let mut lines: Vec<_> = lines.into_iter().collect();
        // The stable sort keeps lines of equal size in the order of their names.
        sort_descending(&mut lines, |(_, (_, bytes))| *bytes);
        let mut text = String::new();
        for (line, (count, bytes)) in lines.iter().take(LINES) {
            let _ = write!(
                text,
                "\n  {:>10}  {count} of {line}",
                ByteSize(*bytes).to_string()
            );
        }
        if lines.len() > LINES {
            let _ = write!(text, "\n  and {} more lines", lines.len() - LINES);
        }
        text
    }

    fn line(&self, lifetime: &AllocationLifetime) -> String {
        let event = lifetime.event(&self.profile);
        let mut line = match event.call_site {
            Some(number) => {
                let site = &self.profile.call_sites[number as usize];
                format!("{}:{}:{}", site.file, site.line, site.column)
            }
            None => String::from("an unknown line"),
        };
        if let Some(scope) = event.scope {
            let _ = write!(line, ", in scope {:?}", self.profile.scopes[scope as usize]);
        }
        line
    }
}

/// Returns the peak of live bytes above the live bytes at the beginning.
fn peak_above_start(profile: &Profile) -> Peak {
    let mut live_bytes = 0i128;
    let mut peak = Peak::default();
    for (index, event) in profile.events.iter().enumerate() {
        live_bytes += live_change(event);
        if live_bytes > i128::from(peak.bytes) {
            peak.bytes = live_bytes as u64;
            peak.event = Some(index);
        }
    }
    peak
}

/// The measurement of a block, for the expansion of the macros.
#[doc(hidden)]
#[derive(Debug)]
pub struct Watch(Recording);

impl Watch {
    #[doc(hidden)]
    pub fn begin(device: &Device) -> Self {
        Self(device.begin_recording(OPTIONS))
    }

    #[track_caller]
    fn measured(&self) -> Measured {
        Measured::of(&self.0).unwrap_or_else(|error| panic!("{error}"))
    }

    #[doc(hidden)]
    #[track_caller]
    pub fn assert_peak(self, most_bytes: u64) {
        let measured = self.measured();
        let bytes = measured.peak.bytes;
        if bytes <= most_bytes {
            return;
        }
        let live = live_at(&measured.lifetimes, measured.peak);
        let lines = measured.lines(live.filter(|lifetime| lifetime.allocated.is_some()));
        panic!(
            "the block needs {} at its peak, expected at most {} ({bytes} and {most_bytes} bytes); \
             live at the peak:{lines}",
            ByteSize(bytes),
            ByteSize(most_bytes),
        );
    }

    #[doc(hidden)]
    #[track_caller]
    pub fn assert_no_allocations(self) {
        let measured = self.measured();
        let own = |lifetime: &&AllocationLifetime| lifetime.allocated.is_some();
        let count = measured.lifetimes.iter().filter(own).count();
        if count > 0 {
            let lines = measured.lines(measured.lifetimes.iter().filter(own));
            let requests = if count == 1 { "request" } else { "requests" };
            panic!("the block made {count} {requests} for memory:{lines}");
        }
    }
}

/// The measurement of a block that is entered several times, for the expansion of
/// [`assert_no_growth!`].
#[doc(hidden)]
#[derive(Debug)]
pub struct GrowthWatch {
    recording: Recording,
    times: u64,
    entries: u64,
    /// The time at which each entry ended, since the beginning.
    ends_ns: Vec<u64>,
}

impl GrowthWatch {
    #[doc(hidden)]
    #[track_caller]
    pub fn begin(times: u64) -> Self {
        assert!(
            times >= 2,
            "growth is measured from the second entry on: expected at least 2 entries, found {times}"
        );
        Self {
            recording: Device::current().begin_recording(OPTIONS),
            times,
            entries: 0,
            ends_ns: Vec::new(),
        }
    }

    /// Returns whether the block must be entered again.
    #[doc(hidden)]
    pub fn next_entry(&mut self) -> bool {
        if self.entries > 0 {
            self.ends_ns.push(self.recording.elapsed_ns());
        }
        self.entries += 1;
        self.entries <= self.times
    }

    #[doc(hidden)]
    #[track_caller]
    pub fn assert_no_growth(self, scope: &str) {
        let measured = Measured::of(&self.recording).unwrap_or_else(|error| panic!("{error}"));
        let events = &measured.profile.events;
        let end = |&end_ns: &u64| events.partition_point(|event| event.time_ns <= end_ns);
        let ends: Vec<usize> = self.ends_ns.iter().map(end).collect();
        let live = ends.iter().map(|&end| live_bytes(&events[..end]));
        let live: Vec<i128> = live.collect();
        let (Some(first), Some(last)) = (live.first(), live.last()) else {
            panic!("scope {scope:?} was never entered and left");
        };
        assert_eq!(
            ends.len() as u64,
            self.times,
            "a `break` of the block ended the entries of scope {scope:?} early"
        );
        if last <= first {
            return;
        }
        let grown_bytes = (last - first) as u64;
        let entries = ends.len() as u64 - 1;
        let after_first = |lifetime: &&AllocationLifetime| {
            lifetime.freed.is_none() && lifetime.allocated.is_some_and(|at| at >= ends[0])
        };
        let lines = measured.lines(measured.lifetimes.iter().filter(after_first));
        panic!(
            "scope {scope:?} grew by {} in {entries} more entries ({} bytes each); \
             allocated since and still live:{lines}",
            ByteSize(grown_bytes),
            grown_bytes / entries,
        );
    }
}

/// Returns the live bytes after `events`, relative to the live bytes before `events`.
fn live_bytes(events: &[Event]) -> i128 {
    events.iter().map(live_change).sum()
}

fn live_change(event: &Event) -> i128 {
    let bytes = i128::from(event.bytes);
    if event.kind.is_allocation() {
        bytes
    } else if event.kind.is_free() {
        -bytes
    } else {
        0
    }
}

/// Asserts that a block's peak is at most `bytes` bytes above the bytes that were live before:
/// `assert_peak!(&device, bytes, { .. })`. The macro returns the block's value. `?`, `return`,
/// `break` and `continue` act on the code around the macro, and end the measurement without an
/// assertion.
///
/// # Panics
///
/// Panics if the peak is higher. The message lists the lines that allocated the memory live at the
/// peak.
///
/// ```should_panic
/// # use cachescope::{Array, Device, testing::assert_peak};
/// let device = Device::current();
/// assert_peak!(&device, 1000, { Array::<f32>::ones([251])?; });
/// # Ok::<(), cachescope::Error>(())
/// ```
#[macro_export]
macro_rules! assert_peak {
    ($device:expr, $bytes:expr, $block:block $(,)?) => {{
        let most_bytes: u64 = $bytes;
        let watch = $crate::testing::Watch::begin($device);
        let value = $block;
        watch.assert_peak(most_bytes);
        value
    }};
}

/// Asserts that a block requests no memory of the device, not even from a cache:
/// `assert_no_allocations!(&device, { .. })`. The macro returns the block's value.
///
/// # Panics
///
/// Panics if the block makes a request. The message lists the lines of the requests.
///
/// ```
/// # use cachescope::{Array, Device, testing::assert_no_allocations};
/// let device = Device::current();
/// let mut w = Array::<f32>::ones([1000])?;
/// assert_no_allocations!(&device, { w.add_assign(1.0)?; });
/// # Ok::<(), cachescope::Error>(())
/// ```
#[macro_export]
macro_rules! assert_no_allocations {
    ($device:expr, $block:block $(,)?) => {{
        let watch = $crate::testing::Watch::begin($device);
        let value = $block;
        watch.assert_no_allocations();
        value
    }};
}

/// Asserts that the live bytes do not grow from entry to entry: `assert_no_growth!("step", 10, { ..
/// })`. The macro enters the named scope on the current device `times` times. Then it compares the
/// live bytes of the device after the first entry and after the last entry. `?` and `return` act on
/// the code around the macro. `continue` starts the next entry.
///
/// # Panics
///
/// Panics if more bytes are live after the last entry than after the first entry. The message lists
/// the lines that allocated these bytes. Also panics if `times` is less than 2, and if the block
/// ends the entries by `break`.
///
/// ```should_panic
/// # use cachescope::{Array, testing::assert_no_growth};
/// let mut losses = Vec::new();
/// assert_no_growth!("growth-example", 10, {
///     losses.push(Array::<f32>::ones([1])?); // and not its number
/// });
/// # Ok::<(), cachescope::Error>(())
/// ```
#[macro_export]
macro_rules! assert_no_growth {
    ($scope:expr, $times:expr, $block:block $(,)?) => {{
        let scope = $scope;
        let scope: &str = ::core::convert::AsRef::as_ref(&scope);
        let mut watch = $crate::testing::GrowthWatch::begin($times);
        while watch.next_entry() {
            $crate::cache_scope!(scope, {
                $block;
            });
        }
        watch.assert_no_growth(scope);
    }};
}
