//! Report files, and `CACHESCOPE_PROFILE`. If the variable is set, every device is recorded from
//! its creation. A device's report is written at exit, at the signals that end a program, and at an
//! interval. The report is also written when a request first fails for lack of memory.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use cachescope_reports::{Format, OtherReport, Profile};

use super::signals::{write_every, write_on_signals};
use super::{HAS_BACKTRACES, Recorder, RecordingStart};
use crate::device::Backend;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::sync::at_exit::at_exit;
use crate::sync::plain::{AtomicU64, Mutex, Ordering};
use crate::sync::{Arc, Weak, thread_token};
use crate::text::write_to_stderr;

/// Writes the report in the format of the path's extension.
#[track_caller]
pub(crate) fn write_report(profile: &Profile, path: &Path) -> Result<()> {
    let format = format_of(path)?;
    let written = write_file(profile, format, path);
    written.map_err(|error| of_report(path, error)).at_caller()
}

fn write_file(profile: &Profile, format: Format, path: &Path) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    format.write(profile, &mut out)?;
    out.flush()
}

fn of_report(path: &Path, error: io::Error) -> Error {
    let text = format!("report {}: {error}", path.display());
    Error::new(ErrorKind::Io, text).caused_by(error)
}

#[track_caller]
pub(crate) fn format_of(path: &Path) -> Result<Format> {
    let format = Format::of(path).ok_or_else(|| {
        let endings = Format::ENDINGS.join(", ");
        let text = format!(
            "report {}: unknown ending, expected one of {endings}",
            path.display()
        );
        Error::new(ErrorKind::InvalidArgument, text)
    });
    format.at_caller()
}

/// A device to record until the process ends.
pub(crate) struct Profiling {
    /// The recorder, shared because it must outlive the device.
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) backend: Weak<dyn Backend>,
    /// A function that returns the live and the reserved bytes of the device.
    pub(crate) counters: Box<dyn Fn() -> (u64, u64) + Send + Sync>,
    /// The file of the first device's report.
    pub(crate) path: PathBuf,
    /// The interval at which the report is written, in addition to the report at the end.
    pub(crate) interval: Option<Duration>,
    pub(crate) ring_bytes: u64,
}

struct Profiled {
    profiling: Profiling,
    mark: RecordingStart,
    device: String,
    exhausted: Mutex<ExhaustedReport>,
}

/// The report of the first request that failed.
#[derive(Clone)]
enum ExhaustedReport {
    NotNeeded,
    /// The report that a thread is writing.
    Unfinished,
    /// The path of the report; `None` if it could not be written.
    Finished(Option<PathBuf>),
}

/// The recorded devices. Entries are never removed.
///
/// No profile is built under this lock or under the lock of an [`ExhaustedReport`]. Building a
/// profile reads the counters of a device. This read may run destructors of the program. A
/// destructor may fail a request or call `exit`.
static PROFILED: Mutex<Vec<Arc<Profiled>>> = Mutex::new(Vec::new());

/// The lock under which the reports of all devices are written, so that two threads do not write
/// one file.
static WRITER: Mutex<()> = Mutex::new(());

/// The process to which the devices of [`PROFILED`] belong. A forked child has copies of the
/// devices, and must not replace the report.
static PROFILED_PROCESS: AtomicU64 = AtomicU64::new(0);

/// The token of the thread that holds [`WRITER`]; 0 if no thread holds it.
static WRITING_THREAD: AtomicU64 = AtomicU64::new(0);

/// Records a device from now on, and writes its report at exit. If a launcher started several
/// ranks, the file name contains the rank. If another device is recorded already, the file name
/// contains this device's name. If the build supports backtraces, allocations have backtraces.
///
/// # Errors
///
/// If the extension of the path is not known.
#[track_caller]
pub(crate) fn profile_process(mut profiling: Profiling) -> Result<()> {
    format_of(&profiling.path)?;
    let Some(backend) = profiling.backend.upgrade() else {
        return Ok(());
    };
    let device = backend.name();
    // If the device cannot measure times, its operations are recorded without times.
    let _ = backend.begin_timing();
    let mut profiled = PROFILED.lock();
    if profiled.is_empty() {
        PROFILED_PROCESS.store(process::id().into(), Ordering::Relaxed);
        at_exit(write_at_exit);
        tell(write_on_signals(write_all));
        if let Some(interval) = profiling.interval {
            tell(write_every(interval, write_all));
        }
    }
    if let Some(rank) = rank_of_process(|variable| std::env::var(variable).ok()) {
        profiling.path = with_suffix(&profiling.path, &format!("rank-{rank}"));
    }
    if !profiled.is_empty() {
        let suffix = format!("{}-{}", device.replace(':', ""), profiled.len() + 1);
        profiling.path = with_suffix(&profiling.path, &suffix);
    }
    profiled.push(Arc::new(Profiled {
        mark: (profiling.recorder).begin(profiling.ring_bytes, HAS_BACKTRACES),
        profiling,
        device,
        exhausted: Mutex::new(ExhaustedReport::NotNeeded),
    }));
    Ok(())
}

/// The variables in which launchers of MPI programs write the rank and the number of ranks.
const RANK_VARIABLES: [[&str; 2]; 3] = [
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"], // Open MPI
    ["PMI_RANK", "PMI_SIZE"],                         // MPICH and its descendants
    ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],         // srun
];

/// Returns the rank of this process, if a launcher started several ranks. `variable` reads the
/// environment.
fn rank_of_process(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let number = |name: &str| variable(name)?.parse::<u32>().ok();
    let ranks = RANK_VARIABLES.map(|[rank, size]| Some((number(rank)?, number(size)?)));
    let known = ranks.into_iter().flatten().find(|&(_, size)| size > 1);
    known.map(|(rank, _)| rank)
}

/// Writes the report of the events before the first failed request to the recorder's device.
/// Returns the file that was written, or `None` while the file is being written. The caller holds
/// no lock. Does not wait for another writer, because a destructor that a writer runs may have made
/// the request.
#[cold]
pub(crate) fn write_exhausted(recorder: &Recorder) -> Option<PathBuf> {
    if !is_profiled_process() {
        return None;
    }
    let own = {
        let all = PROFILED.lock();
        let mut all = all.iter();
        let own = all.find(|profiled| std::ptr::eq(&*profiled.profiling.recorder, recorder))?;
        Arc::clone(own)
    };
    {
        let mut exhausted = own.exhausted.lock();
        match &*exhausted {
            ExhaustedReport::NotNeeded => *exhausted = ExhaustedReport::Unfinished,
            ExhaustedReport::Unfinished => return None,
            ExhaustedReport::Finished(path) => return path.clone(),
        }
    }
    let path = with_suffix(&own.profiling.path, "out-of-memory");
    let written = write_report(&own.profile(), &path);
    let path = written.is_ok().then_some(path);
    tell(written);
    *own.exhausted.lock() = ExhaustedReport::Finished(path.clone());
    path
}

/// Returns false in a forked child, where another thread's lock may never be released.
fn is_profiled_process() -> bool {
    PROFILED_PROCESS.load(Ordering::Relaxed) == u64::from(process::id())
}

extern "C" fn write_at_exit() {
    write_all();
}

/// Writes the reports of all devices. If another thread is writing reports, waits for that thread
/// first. If the calling thread is writing reports, does nothing: a destructor of the program has
/// called `exit`. Does nothing in a forked child.
fn write_all() {
    let thread = thread_token();
    if !is_profiled_process() || WRITING_THREAD.load(Ordering::Relaxed) == thread {
        return;
    }
    let _writer = WRITER.lock();
    WRITING_THREAD.store(thread, Ordering::Relaxed);
    // The guard is declared after the lock, so that it drops before the lock is released.
    let _reset = scopeguard::guard((), |()| WRITING_THREAD.store(0, Ordering::Relaxed));
    let all = PROFILED.lock().clone();
    for (own, profiled) in all.iter().enumerate() {
        let others = all.iter().enumerate().filter(|(other, _)| *other != own);
        let others = others.map(|(_, other)| OtherReport {
            device: other.device.clone(),
            file: file_name(&other.profiling.path),
        });
        let mut profile = profiled.profile();
        profile.others = others.collect();
        tell(replace_report(&profile, &profiled.profiling.path));
    }
}

/// Like [`write_report`], but the old file stays until the new file is complete, because the
/// process may be killed. If `path` is a symbolic link or a special file, the report is written to
/// it.
fn replace_report(profile: &Profile, path: &Path) -> Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|existing| !existing.is_file()) {
        return write_report(profile, path);
    }
    let format = format_of(path)?;
    let partial = with_suffix(path, "partial");
    let written = write_file(profile, format, &partial).and_then(|()| fs::rename(&partial, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&partial);
        of_report(path, error)
    })
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

impl Profiled {
    fn profile(&self) -> Profile {
        let Profiling {
            recorder,
            backend,
            counters,
            ..
        } = &self.profiling;
        if let Some(backend) = backend.upgrade() {
            recorder.finish_kernels(&*backend);
        }
        recorder.profile(&self.mark, self.device.clone(), Vec::new(), counters)
    }
}

/// Returns `run-SUFFIX.html` for `run.html`.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let [stem, ending] =
        [path.file_stem(), path.extension()].map(|part| part.unwrap_or_default().to_string_lossy());
    path.with_file_name(format!("{stem}-{suffix}.{ending}"))
}

/// Prints an error to standard error, because no caller can receive the error.
fn tell(written: Result<()>) {
    if let Err(error) = written {
        write_to_stderr(format_args!("cachescope: {error}"));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_known_where_there_are_several() {
        let rank = |set: &[(&str, &str)]| {
            rank_of_process(|name| {
                let found = set.iter().find(|(variable, _)| *variable == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let open_mpi = |rank, size| {
            [
                ("OMPI_COMM_WORLD_RANK", rank),
                ("OMPI_COMM_WORLD_SIZE", size),
            ]
        };
        assert_eq!(rank(&open_mpi("3", "4")), Some(3));
        assert_eq!(rank(&open_mpi("0", "2")), Some(0));
        assert_eq!(rank(&open_mpi("0", "1")), None, "a single process");
        assert_eq!(rank(&open_mpi("x", "4")), None);
        assert_eq!(rank(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]), Some(1));
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!(rank(&slurm), None);
        assert_eq!(rank(&[&slurm[..], &open_mpi("1", "2")].concat()), Some(1));
        assert_eq!(rank(&[]), None);
    }

    #[test]
    fn counters_may_fail_a_request_and_exit() {
        let folder = format!("cachescope-nested-{}", process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("run.txt");
        let recorder = Arc::new(Recorder::new());
        let mark = recorder.begin(1 << 12, false);
        // The counters are read only if events were lost.
        recorder.lose();
        let backend: Weak<dyn Backend> = Weak::<crate::device::host::HostBackend>::new();
        let counters = {
            let recorder = Arc::clone(&recorder);
            move || {
                write_all();
                write_exhausted(&recorder);
                (1, 2)
            }
        };
        PROFILED_PROCESS.store(process::id().into(), Ordering::Relaxed);
        PROFILED.lock().push(Arc::new(Profiled {
            profiling: Profiling {
                recorder: Arc::clone(&recorder),
                backend,
                counters: Box::new(counters),
                path: path.clone(),
                interval: None,
                ring_bytes: 0,
            },
            mark,
            device: "test".to_owned(),
            exhausted: Mutex::new(ExhaustedReport::NotNeeded),
        }));
        let (done, written) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            write_all();
            done.send(write_exhausted(&recorder)).unwrap();
        });
        let written = written.recv_timeout(Duration::from_secs(20));
        assert_eq!(written, Ok(Some(folder.join("run-out-of-memory.txt"))));
        assert!(path.exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_written_through_and_a_file_is_replaced() {
        let folder = format!("cachescope-links-{}", process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        let [link, target] = ["link.txt", "target.txt"].map(|name| folder.join(name));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let recorder = Recorder::new();
        let mark = recorder.begin(1 << 12, false);
        let profile = recorder.profile(&mark, String::new(), Vec::new(), || (0, 0));
        // The first pass runs before the target of the link exists, the second pass after.
        for _ in 0..2 {
            replace_report(&profile, &link).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert!(fs::metadata(&target).unwrap().len() > 0);
        }
        fs::write(&target, "old").unwrap();
        replace_report(&profile, &target).unwrap();
        assert_ne!(fs::read(&target).unwrap(), b"old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no partial file");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn suffixes_are_before_the_extension() {
        let path = with_suffix(Path::new("runs/a.b.html"), "rank-1");
        assert_eq!(path, Path::new("runs/a.b-rank-1.html"));
    }
}
