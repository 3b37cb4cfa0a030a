//! Report files, and `CACHESCOPE_PROFILE`. With it, every device is recorded from its beginning.
//! Its report is written at exit, and when a request first fails for lack of memory.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use cachescope_reports::{Format, Profile};

use super::{HAS_BACKTRACES, Recorder, RecordingStart};
use crate::device::Backend;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::sync::at_exit::at_exit;
use crate::sync::plain::Mutex;
use crate::sync::{Arc, Weak};

/// Writes the report in the format of the path's extension.
#[track_caller]
pub(crate) fn write_report(profile: &Profile, path: &Path) -> Result<()> {
    let format = format_of(path)?;
    let written = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        format.write(profile, &mut out)?;
        out.flush()
    });
    let written = written.map_err(|error| {
        let text = format!("report {}: {error}", path.display());
        Error::new(ErrorKind::Io, text).caused_by(error)
    });
    written.at_caller()
}

/// Returns the format of the path's extension.
#[track_caller]
pub(crate) fn format_of(path: &Path) -> Result<Format> {
    let format = Format::of(path).ok_or_else(|| {
        let endings = Format::ENDINGS.join(", ");
        let text = format!("report {}: no known ending: {endings}", path.display());
        Error::new(ErrorKind::InvalidArgument, text)
    });
    format.at_caller()
}

/// A device that is recorded until the process ends.
struct Profiled {
    /// Shared, because it must outlive the device.
    recorder: Arc<Recorder>,
    backend: Weak<dyn Backend>,
    mark: RecordingStart,
    device: String,
    path: PathBuf,
    /// Set if a request failed, and the report of the failure was written.
    is_exhausted: bool,
}

/// Entries are never removed.
static PROFILED: Mutex<Vec<Profiled>> = Mutex::new(Vec::new());

/// Records a device from here on, and writes its report to `path` at exit. The report of a second
/// device has a file name with the device's name added. Allocations have backtraces if the build
/// supports them.
///
/// # Errors
///
/// If the extension is not known.
#[track_caller]
pub(crate) fn profile_process(
    recorder: &Arc<Recorder>,
    backend: &Arc<dyn Backend>,
    path: &Path,
    ring_bytes: u64,
) -> Result<()> {
    format_of(path)?;
    let device = backend.name();
    // If the device cannot measure times, its operations are recorded without.
    let _ = backend.begin_timing();
    let mut profiled = PROFILED.lock();
    if profiled.is_empty() {
        at_exit(write_all);
    }
    let path = match profiled.len() {
        0 => path.to_owned(),
        others => with_suffix(path, &format!("{}-{}", device.replace(':', ""), others + 1)),
    };
    profiled.push(Profiled {
        mark: recorder.begin(ring_bytes, HAS_BACKTRACES),
        recorder: Arc::clone(recorder),
        backend: Arc::downgrade(backend),
        device,
        path,
        is_exhausted: false,
    });
    Ok(())
}

/// Writes the report of the events before a request to the recorder's device failed, the first time
/// that it fails. Called without a lock.
#[cold]
pub(crate) fn write_exhausted(recorder: &Recorder) {
    let mut all = PROFILED.lock();
    let own = all
        .iter_mut()
        .find(|profiled| std::ptr::eq(&*profiled.recorder, recorder));
    if let Some(profiled) = own.filter(|profiled| !profiled.is_exhausted) {
        profiled.is_exhausted = true;
        let path = with_suffix(&profiled.path, "out-of-memory");
        tell(profiled.write_to(&path));
    }
}

extern "C" fn write_all() {
    for profiled in &*PROFILED.lock() {
        tell(profiled.write_to(&profiled.path));
    }
}

impl Profiled {
    fn write_to(&self, path: &Path) -> Result<()> {
        if let Some(backend) = self.backend.upgrade() {
            self.recorder.finish_kernels(&*backend);
        }
        let device = self.device.clone();
        let profile = self.recorder.profile(&self.mark, device, Vec::new());
        write_report(&profile, path)
    }
}

/// Returns `run-SUFFIX.html` for `run.html`.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let [stem, ending] =
        [path.file_stem(), path.extension()].map(|part| part.unwrap_or_default().to_string_lossy());
    path.with_file_name(format!("{stem}-{suffix}.{ending}"))
}

/// Prints an error to standard error: no caller can receive it.
fn tell(written: Result<()>) {
    if let Err(error) = written {
        // `eprintln!` panics if standard error is closed.
        let _ = writeln!(io::stderr(), "cachescope: {error}");
    }
}
