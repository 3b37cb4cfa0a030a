//! Logs of reservations in the format of RMM's `logging_resource_adaptor`, one per path in the
//! process.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::device::{DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::at_exit::at_exit;
use crate::sync::plain::Mutex;
use crate::sync::{Arc, thread_token};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// A log file; several devices may share it.
///
/// Invariants:
/// - `live` holds the logged reservations that no row has freed yet, by address, so every row that
///   frees matches address and size of one that allocates;
/// - nothing is written after the first error, even once it was returned: rows would be missing.
#[derive(Debug)]
pub(crate) struct ReservationLog {
    path: PathBuf,
    state: Mutex<LogState>,
}

#[derive(Debug)]
struct LogState {
    file: BufWriter<File>,
    live: BTreeMap<u64, u64>,
    error: Option<Error>,
    is_broken: bool,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Allocate,
    Fail,
    Free,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Fail => "allocate failure",
            Self::Free => "free",
        }
    }
}

impl ReservationLog {
    /// Opens the log at `path`. The first device of the process that names it truncates it; later
    /// ones share it.
    pub(crate) fn open(path: &Path) -> Result<Arc<Self>> {
        let failed = |error| failed(path, error);
        let path = std::path::absolute(path).map_err(failed)?;
        let mut logs = LOGS.lock();
        if let Some(log) = logs.iter().find(|log| log.path == path) {
            return Ok(Arc::clone(log));
        }
        let mut file = BufWriter::new(File::create(&path).map_err(failed)?);
        writeln!(file, "{HEADER}").map_err(failed)?;
        let log = Arc::new(Self {
            path,
            state: Mutex::new(LogState {
                file,
                live: BTreeMap::new(),
                error: None,
                is_broken: false,
            }),
        });
        if logs.is_empty() {
            at_exit(flush_all);
        }
        logs.push(Arc::clone(&log));
        Ok(log)
    }

    /// Logs a reservation of `bytes` at `address`, in rows of `row_bytes`.
    pub(super) fn log_reserve(
        &self,
        address: DevicePtr,
        bytes: u64,
        row_bytes: u64,
        stream: StreamId,
    ) {
        let mut state = self.state.lock();
        let mut offset = 0;
        while offset < bytes {
            let (row, row_bytes) = (address.offset(offset), row_bytes.min(bytes - offset));
            state.live.insert(row.0, row_bytes);
            self.write(&mut state, Action::Allocate, row, row_bytes, stream);
            offset += row_bytes;
        }
    }

    pub(super) fn log_failure(&self, bytes: u64, stream: StreamId) {
        let mut state = self.state.lock();
        self.write(&mut state, Action::Fail, DevicePtr(0), bytes, stream);
    }

    /// Logs the rows of `bytes` at `address` as freed.
    pub(super) fn log_release(&self, address: DevicePtr, bytes: u64, stream: StreamId) {
        let mut state = self.state.lock();
        let rows = address.0..address.0 + bytes;
        let rows: Vec<_> = state
            .live
            .range(rows)
            .map(|(&row, &bytes)| (row, bytes))
            .collect();
        for (row, bytes) in rows {
            state.live.remove(&row);
            self.write(&mut state, Action::Free, DevicePtr(row), bytes, stream);
        }
    }

    /// Returns the first write error, once.
    pub(crate) fn take_error(&self) -> Result<()> {
        self.state.lock().error.take().map_or(Ok(()), Err)
    }

    /// Flushes the file. [`take_error`](Self::take_error) returns a failure.
    pub(crate) fn flush(&self) {
        let mut state = self.state.lock();
        if !state.is_broken
            && let Err(error) = state.file.flush()
        {
            self.defer(&mut state, error);
        }
    }

    fn write(
        &self,
        state: &mut LogState,
        action: Action,
        address: DevicePtr,
        bytes: u64,
        stream: StreamId,
    ) {
        if state.is_broken {
            return;
        }
        let written = writeln!(
            state.file,
            "{},{},{},{:#x},{bytes},{:#x}",
            thread_token(),
            TimeOfDay::now(),
            action.name(),
            address.0,
            stream.0
        );
        if let Err(error) = written {
            self.defer(state, error);
        }
    }

    fn defer(&self, state: &mut LogState, error: std::io::Error) {
        state.is_broken = true;
        state.error = Some(failed(&self.path, error));
    }
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("trace {}: {error}", path.display())).caused_by(error)
}

/// All logs of the process. Logs are never closed: a later device may continue one.
static LOGS: Mutex<Vec<Arc<ReservationLog>>> = Mutex::new(Vec::new());

/// Flushes at process exit, because the process-wide devices are never dropped.
extern "C" fn flush_all() {
    for log in &*LOGS.lock() {
        log.flush();
    }
}

/// The time since midnight, UTC.
struct TimeOfDay(Duration);

impl TimeOfDay {
    fn now() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self(since_epoch.unwrap_or_default())
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
        let micros = self.0.subsec_micros();
        write!(f, "{hours:02}:{minutes:02}:{:02}.{micros:06}", seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_a_day() {
        let text = |micros| TimeOfDay(Duration::from_micros(micros)).to_string();
        assert_eq!(text(0), "00:00:00.000000");
        assert_eq!(text(86_399_999_999), "23:59:59.999999");
        assert_eq!(text(86_400_000_000 + 3_661_000_042), "01:01:01.000042");
    }

    #[test]
    fn a_path_that_cannot_be_written_is_an_error_that_names_it() {
        let error = ReservationLog::open(Path::new("no such folder/log.csv")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("no such folder"), "{error}");
    }

    /// The device that is always full; Linux only.
    #[cfg(target_os = "linux")]
    #[test]
    fn an_error_of_the_log_is_reported_once() {
        let log = ReservationLog::open(Path::new("/dev/full")).unwrap();
        log.log_failure(512, StreamId(0));
        log.take_error().unwrap();
        log.flush();
        assert_eq!(log.take_error().unwrap_err().kind(), ErrorKind::Io);
        log.flush();
        log.take_error().unwrap();
    }
}
