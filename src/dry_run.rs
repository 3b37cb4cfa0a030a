//! Dry runs: the memory and the driver calls of a program before it runs.

use std::fmt;
use std::ops::RangeInclusive;

use cachescope_reports::{EventKind, Profile, SiteSummary, by_call_site};

use crate::MetaOptions;
use crate::context::{Device, RecordOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::keeping_generator;
use crate::simulation::DriverLedger;
use crate::size::ByteSize;
use crate::sorting::sort_descending;

/// The bound of a recording: half a gigabyte of addresses for each thread. Only the addresses in
/// use are backed by memory.
const RECORDED: RecordOptions = RecordOptions {
    backtraces: false,
    max_bytes: 512 << 20,
};

/// The maximum number of program lines that `Display` lists.
const LINES: usize = 8;

/// The result of a dry run, with the memory that the run needed.
///
/// `Display` writes the peaks of live and of reserved bytes, and the calls of a simulated driver.
/// For each scope with several entries, it then writes the peaks of the first and the last entry.
/// Finally, it writes the program lines that allocated the most memory live at the peak.
#[derive(Debug)]
#[non_exhaustive]
pub struct DryRun<R> {
    /// The result of the closure. Its arrays have no data.
    pub value: R,
    /// The peak of the bytes that arrays and buffers requested.
    pub peak_live_bytes: u64,
    /// The peak of the bytes that were reserved from the device.
    pub peak_reserved_bytes: u64,
    profile: Profile,
    ledger: Option<DriverLedger>,
}

impl<R> DryRun<R> {
    /// Returns the recording of the run, for reports.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, MetaOptions, dry_run};
    ///
    /// let run = dry_run(MetaOptions::default(), || Array::<f32>::ones([1000, 1000])?.sum())?;
    /// let mut page = Vec::new();
    /// cachescope::record::Format::Text.write(run.profile(), &mut page)?;
    /// assert!(!page.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns a summary of each program line that allocated memory. The lines are sorted by their
    /// live bytes at the device's peak, the largest first.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, MetaOptions, dry_run};
    ///
    /// let run = dry_run(MetaOptions::default(), || Array::<f32>::ones([1000, 1000])?.sum())?;
    /// assert_eq!(run.by_call_site()[0].peak_bytes, 4_000_000);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn by_call_site(&self) -> Vec<SiteSummary> {
        let mut sites = by_call_site(&self.profile);
        sort_descending(&mut sites, |site| site.device_peak_bytes);
        sites
    }

    /// Returns the memory calls of the simulated driver, with times from a table of costs. Returns
    /// `None` for a host, which has no simulated driver.
    ///
    /// # Examples
    ///
    #[cfg_attr(feature = "cuda", doc = "```")]
    #[cfg_attr(not(feature = "cuda"), doc = "```no_run")]
    /// use cachescope::{Array, MetaKind, MetaOptions, dry_run};
    ///
    /// let gpu = MetaOptions { like: MetaKind::Cuda, ..Default::default() };
    /// let run = dry_run(gpu, || Array::<f32>::ones([1000, 1000])?.sum())?;
    /// let ledger = run.driver_ledger().expect("a driver is simulated");
    /// assert!(ledger.calls() > 0 && ledger.microseconds() > 0.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn driver_ledger(&self) -> Option<&DriverLedger> {
        self.ledger.as_ref()
    }

    /// Returns whether the reserved bytes fit into a device with `capacity_bytes` of memory. The
    /// program may fit into less memory, because an allocation reclaims idle memory before it
    /// fails. Only a dry run on a device with this capacity is certain.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, MetaOptions, dry_run};
    ///
    /// let run = dry_run(MetaOptions::default(), || Array::<f32>::ones([1000, 1000])?.sum())?;
    /// assert!(run.fits(8 << 20) && !run.fits(1 << 20));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn fits(&self, capacity_bytes: u64) -> bool {
        self.peak_reserved_bytes <= capacity_bytes
    }
}

impl<R> fmt::Display for DryRun<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (live, reserved) = (
            ByteSize(self.peak_live_bytes),
            ByteSize(self.peak_reserved_bytes),
        );
        write!(f, "dry run: {live} live at the peak, {reserved} reserved")?;
        if let Some(ledger) = &self.ledger {
            let (calls, millis) = (ledger.calls(), ledger.microseconds() / 1e3);
            write!(
                f,
                "\n  {calls} driver calls for memory, {millis:.1} ms according to the cost table"
            )?;
        }
        for entries in entry_peaks(&self.profile) {
            let (scope, count) = (&entries.scope, entries.count);
            let [first, last] = [entries.first_bytes, entries.last_bytes].map(ByteSize);
            write!(
                f,
                "\n  scope \"{scope}\": {first} live at the peak of the first of {count} entries, {last} of the last"
            )?;
        }
        let sites = self.by_call_site();
        let at_peak = sites.iter().filter(|site| site.device_peak_bytes > 0);
        for site in at_peak.take(LINES) {
            let bytes = ByteSize(site.device_peak_bytes).to_string();
            write!(f, "\n  {bytes:>10}  ")?;
            match &site.call_site {
                Some(site) => write!(f, "{}:{}", site.file, site.line)?,
                None => f.write_str("an unrecorded line")?,
            }
        }
        Ok(())
    }
}

/// A scope, with the device's peaks of live bytes during the first and the last entry.
struct EntryPeaks {
    scope: String,
    count: usize,
    first_bytes: u64,
    last_bytes: u64,
}

/// Returns the peaks of each scope that was entered more than once, in the order of their first
/// entries.
fn entry_peaks(profile: &Profile) -> Vec<EntryPeaks> {
    // The entries that have not ended: the thread, the scope, and the peak up to the current event.
    let mut open: Vec<(u32, Option<u32>, u64)> = Vec::new();
    let mut ended: Vec<(Option<u32>, EntryPeaks)> = Vec::new();
    let mut live_bytes: u64 = 0;
    for event in &profile.events {
        match event.kind {
            kind if kind.is_allocation() => live_bytes += event.bytes,
            // Events of two threads with equal times may be in either order, so a free may precede
            // its allocation.
            kind if kind.is_free() => live_bytes = live_bytes.saturating_sub(event.bytes),
            EventKind::Enter => open.push((event.thread, event.scope, live_bytes)),
            EventKind::Exit => {
                let is_own = |entry: &(u32, Option<u32>, u64)| {
                    (entry.0, entry.1) == (event.thread, event.scope)
                };
                if let Some(last) = open.iter().rposition(is_own) {
                    let (_, scope, peak_bytes) = open.remove(last);
                    note_entry(&mut ended, profile, (scope, peak_bytes));
                }
            }
            _ => {}
        }
        for (_, _, peak_bytes) in &mut open {
            *peak_bytes = live_bytes.max(*peak_bytes);
        }
    }
    let peaks = ended.into_iter().map(|(_, peaks)| peaks);
    peaks.filter(|peaks| peaks.count > 1).collect()
}

fn note_entry(
    ended: &mut Vec<(Option<u32>, EntryPeaks)>,
    profile: &Profile,
    (scope, peak_bytes): (Option<u32>, u64),
) {
    if let Some((_, peaks)) = ended.iter_mut().find(|(own, _)| *own == scope) {
        peaks.count += 1;
        peaks.last_bytes = peak_bytes;
        return;
    }
    let Some(name) = scope.map(|scope| profile.scopes[scope as usize].clone()) else {
        return;
    };
    let peaks = EntryPeaks {
        scope: name,
        count: 1,
        first_bytes: peak_bytes,
        last_bytes: peak_bytes,
    };
    ended.push((scope, peaks));
}

/// Runs `f` on a device without data, and returns the memory that `f` needed.
///
/// Everything except the kernels runs as on the device that `options` describe. This includes
/// shapes and their errors, scopes, policies, pools, limits, plans, gradients and optimizers. Reads
/// return zeros, so a program that branches on a value takes the branch of 0. Arrays that were made
/// outside of `f` are on other devices, so make the model inside of `f`. Run several steps in `f`,
/// because the first step allocates memory that later steps reuse. After the run, the random number
/// generator of this thread has the state from before the run. Memory that `f` requests on other
/// devices is real, and not counted.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, MetaOptions, cache_scope, dry_run};
///
/// let run = dry_run(MetaOptions::default(), || {
///     let mut w = Array::<f32>::zeros([20_000, 20_000])?;
///     for _ in 0..2 {
///         cache_scope!("step", { w.assign(&w - 0.1 * w.matmul(&w)?)?; });
///     }
///     Ok(())
/// })?;
/// assert_eq!(run.peak_live_bytes, 2 * 4 * 20_000 * 20_000);
/// println!("{run}");
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`Device::meta`] and of `f`, and [`OutOfMemory`](ErrorKind::OutOfMemory) if the
/// program does not fit. [`Unsupported`](ErrorKind::Unsupported) if `f` runs more operations than
/// can be recorded, about two million on each thread.
#[track_caller]
pub fn dry_run<R>(options: MetaOptions, f: impl FnOnce() -> Result<R>) -> Result<DryRun<R>> {
    let device = Device::meta(options)?;
    let recording = device.begin_recording(RECORDED);
    let value = run_on(&device, f)?;
    let profile = recording.profile();
    if profile.lost_events > 0 {
        let lost = profile.lost_events;
        let text = format!(
            "dry_run: the recording lost {lost} events, expected a closure with fewer requests: \
             measure fewer steps"
        );
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let stats = device.memory_stats();
    Ok(DryRun {
        value,
        peak_live_bytes: stats.peak_live_bytes,
        peak_reserved_bytes: stats.peak_reserved_bytes,
        profile,
        ledger: device.backend().simulated_ledger(),
    })
}

/// Runs `f` with `device` as the current device, and restores the generator of the thread.
#[track_caller]
fn run_on<R>(device: &Device, f: impl FnOnce() -> Result<R>) -> Result<R> {
    keeping_generator(|| {
        let _current = device.enter();
        f()
    })
}

/// Returns the largest number of `range` with which `f` fits into the memory of a device without
/// data. Returns `None` if no number fits. Use it to find the largest batch that fits.
///
/// Each number is tried on its own device. From the first number on, the search doubles its
/// increment until a number does not fit, and then bisects. The search assumes that, if a number
/// fits, every smaller number fits.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, MetaOptions, largest_fit};
///
/// let options = MetaOptions { capacity_bytes: 1 << 30, ..Default::default() };
/// let batch = largest_fit(1..=4096, options, |batch| {
///     let x = Array::<f32>::zeros([batch, 1 << 20])?;
///     x.softmax(1).map(drop)
/// })?;
/// assert_eq!(batch, Some(128));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`dry_run`], except for a program that does not fit.
#[track_caller]
pub fn largest_fit(
    range: RangeInclusive<usize>,
    options: MetaOptions,
    mut f: impl FnMut(usize) -> Result<()>,
) -> Result<Option<usize>> {
    let (first, last) = range.into_inner();
    // The largest number that is known to fit, and the smallest number that is known not to fit.
    let (mut fitting, mut failing) = (None, None);
    let mut step = 1;
    while let Some(number) = next_number(first..=last, fitting, failing, step) {
        if fits(&options, || f(number))? {
            fitting = Some(number);
            step = step.saturating_mul(2);
        } else {
            failing = Some(number);
        }
    }
    Ok(fitting)
}

/// Returns the next number to try, if there is any. If no number has failed, the next number is
/// `step` after the largest number that fits. Otherwise, it is in the middle between `fitting` and
/// `failing`.
fn next_number(
    range: RangeInclusive<usize>,
    fitting: Option<usize>,
    failing: Option<usize>,
    step: usize,
) -> Option<usize> {
    let Some(fitting) = fitting else {
        return (failing.is_none() && !range.is_empty()).then_some(*range.start());
    };
    let number = match failing {
        None => fitting.saturating_add(step).min(*range.end()),
        Some(failing) => fitting + (failing - fitting) / 2,
    };
    (number > fitting).then_some(number)
}

/// Returns whether `f` runs in the memory of a device with `options`.
#[track_caller]
fn fits(options: &MetaOptions, f: impl FnOnce() -> Result<()>) -> Result<bool> {
    let device = Device::meta(options.clone())?;
    match run_on(&device, f) {
        Ok(()) => Ok(true),
        Err(error) if error.is_out_of_memory() => Ok(false),
        Err(error) => Err(error),
    }
}
