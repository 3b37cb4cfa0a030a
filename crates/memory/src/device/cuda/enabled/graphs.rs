//! Graphs: stream capture and launches.
//!
//! The driver captures in relaxed mode. This mode restricts no other thread or stream. So this
//! module rejects work that would be wrong in a graph:
//!
//! - work of the capturing thread on another stream,
//! - work of another thread on the captured stream,
//! - waits for captured work,
//! - copies from and to the host, because the host's bytes may change before the graph runs.
//!
//! A launch reads the uses of a block, makes its stream wait for them, and records its own use. An
//! operation of another thread on the block performs these steps too. Without a lock, the launch
//! and the operation could miss each other's use. So the device has one [`LaunchLock`]. A lock in
//! each block would slow every operation for a feature that few programs use. Nothing is allocated
//! under the lock. An allocation may call a pressure callback, and the callback may launch a graph.
//! This launch would wait for the lock forever.

use std::ops::Range;
use std::ptr;

use cudarc::driver::sys::{CUgraphExec_st, CUstreamCaptureMode};

use super::Cuda;
use super::context::{Context, RawHandle};
use super::driver::Driver;
use crate::device::{StreamId, Use};
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::sync::plain::{
    AtomicU64, Mutex, MutexGuard, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use crate::sync::{Arc, thread_token};

/// The captured stream and the capturing thread.
///
/// Invariant: one word stores the stream and the thread, so they are always consistent.
#[derive(Debug, Default)]
pub(super) struct CaptureState(AtomicU64);

const OTHER_THREAD: &str = "another thread captures this stream";

/// The token that means no capture: no thread has it.
const NO_CAPTURE: u64 = 0;
/// The bit position of the token, above the stream's number.
const TOKEN: u32 = u16::BITS;

impl CaptureState {
    pub(super) fn begin(&self, stream: StreamId) -> Result<()> {
        let own = thread_token() << TOKEN | u64::from(stream.0);
        let begun = self
            .0
            .compare_exchange(NO_CAPTURE, own, Ordering::SeqCst, Ordering::Relaxed);
        begun
            .map(drop)
            .map_err(|_| refused("another capture is in progress on this device"))
    }

    pub(super) fn end(&self) {
        self.0.store(NO_CAPTURE, Ordering::Release);
    }

    #[inline]
    fn current(&self) -> Option<(u64, StreamId)> {
        // This load is sequentially consistent with the counts of active calls: see
        // `StreamTable::begin_capture`.
        match self.0.load(Ordering::SeqCst) {
            NO_CAPTURE => None,
            both => Some((both >> TOKEN, StreamId(both as u16))),
        }
    }

    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.current().is_some()
    }

    pub(super) fn captures(&self, stream: StreamId) -> bool {
        self.current()
            .is_some_and(|(_, captured)| captured == stream)
    }

    pub(super) fn is_by_this_thread(&self) -> bool {
        self.current()
            .is_some_and(|(token, _)| token == thread_token())
    }

    /// # Errors
    ///
    /// If a capture would wrongly record, or miss, work of the calling thread on `stream`.
    #[inline]
    pub(super) fn check_submission(&self, stream: StreamId) -> Result<()> {
        let Some((token, captured)) = self.current() else {
            return Ok(());
        };
        match (token == thread_token(), stream == captured) {
            (true, true) | (false, false) => Ok(()),
            (true, false) => Err(refused("all work must go to the captured stream")),
            (false, true) => Err(refused(OTHER_THREAD)),
        }
    }

    /// # Errors
    ///
    /// If the calling thread captures, or another thread captures `stream`.
    pub(super) fn check_not_captured(&self, what: &str, stream: StreamId) -> Result<()> {
        self.check_not_capturing(what)?;
        match self.captures(stream) {
            true => Err(refused(OTHER_THREAD)),
            false => Ok(()),
        }
    }

    /// # Errors
    ///
    /// If the calling thread captures.
    pub(super) fn check_not_capturing(&self, what: &str) -> Result<()> {
        match self.is_by_this_thread() {
            true => Err(refused(&format!("{what} cannot be captured"))),
            false => Ok(()),
        }
    }
}

#[cold]
fn refused(why: &str) -> Error {
    Error::new(ErrorCode::Capture, format!("graph::capture: {why}"))
}

/// A lock that separates graph launches from other work on the memory of graphs.
///
/// While work on an array is submitted, the array is borrowed, so that no other thread writes to
/// it. A graph borrows no array: it writes to addresses. This lock replaces the borrow. A thread
/// that submits work on a graph's memory holds the lock in shared mode. A launch holds the lock in
/// exclusive mode.
#[derive(Debug, Default)]
pub(super) struct LaunchLock {
    order: RwLock<()>,
    exports: Mutex<Vec<Export>>,
}

/// Memory that is exported to foreign code of one thread. The foreign code may submit work on the
/// memory at any time.
#[derive(Debug)]
struct Export {
    number: u64,
    thread: u64,
    range: Range<u64>,
    used: Use,
}

/// A guard that prevents launches of the device's graphs.
#[derive(Debug)]
#[must_use]
pub struct SharedLaunchGuard<'a>(
    #[expect(dead_code, reason = "held for its drop")] RwLockReadGuard<'a, ()>,
);

/// A guard that prevents other threads from submitting work on memory that graphs use.
#[derive(Debug)]
#[must_use]
pub struct ExclusiveLaunchGuard<'a> {
    #[expect(dead_code, reason = "held for its drop")]
    order: RwLockWriteGuard<'a, ()>,
    exports: MutexGuard<'a, Vec<Export>>,
}

impl ExclusiveLaunchGuard<'_> {
    /// # Errors
    ///
    /// If another thread exported some of the memory for a conflicting use.
    pub fn check(&self, mut used: impl Iterator<Item = (Range<u64>, Use)>) -> Result<()> {
        if self.exports.is_empty() {
            return Ok(());
        }
        let own = thread_token();
        let collides = |(range, used): (Range<u64>, Use)| {
            self.exports.iter().any(|export| {
                let overlaps = range.start < export.range.end && export.range.start < range.end;
                export.thread != own && overlaps && used.max(export.used) == Use::Write
            })
        };
        if used.any(collides) {
            let text = "Graph::launch: another thread has exported an array that the graph uses to foreign code \
                        (`cuda_view`, `cuda_view_mut`): launch once its view has dropped";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }
}

/// An executable graph.
///
/// The driver does not synchronise its graph objects: calls on one graph object must not overlap.
/// Only [`launch_graph`](Cuda::launch_graph) and `drop` pass the handle to the driver. A launch
/// holds the device's launch lock exclusively, so no two launches overlap. A launch borrows the
/// executable, so `drop` runs after the launch.
#[derive(Debug)]
pub struct Executable {
    context: Arc<Context>,
    raw: RawHandle<CUgraphExec_st>,
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: nothing else has the handle. A launch in progress continues.
        self.context
            .discard(|driver| unsafe { driver.graph_exec_destroy(self.raw.0) });
    }
}

impl Cuda {
    /// Begins to capture the calling thread's work on `stream`.
    pub fn begin_capture(&self, stream: StreamId) -> Result<()> {
        self.context.captures.begin();
        let begun = self.try_begin_capture(stream);
        begun.inspect_err(|_| self.context.captures.end())
    }

    fn try_begin_capture(&self, stream: StreamId) -> Result<()> {
        self.streams.begin_capture(stream)?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as u32;
        let what = "beginning a capture";
        // SAFETY: the stream lives as long as `self`.
        let begin = |driver: &Driver, raw| unsafe { driver.stream_begin_capture(raw, mode) };
        let begun = self.streams.run(stream, what, begin);
        begun.inspect_err(|_| self.streams.end_capture(stream))
    }

    /// Ends the capture that [`begin_capture`](Self::begin_capture) began. Returns the graph.
    pub fn end_capture(&self, stream: StreamId) -> Result<Executable> {
        let submission = self.streams.submit_to(stream)?;
        let raw = submission.raw();
        let ended = self.context.run("instantiating a graph", |driver| {
            let mut graph = ptr::null_mut();
            let mut made = RawHandle(ptr::null_mut());
            // SAFETY: `graph` and `made` are writable. This thread began to capture the stream, and
            // the resulting graph is destroyed once.
            let (instantiated, destroyed) = unsafe {
                driver.stream_end_capture(raw, &mut graph)?;
                let instantiated = driver.graph_instantiate(&mut made.0, graph, 0);
                (instantiated, driver.graph_destroy(graph))
            };
            instantiated?;
            let executable = Executable {
                context: Arc::clone(&self.context),
                raw: made,
            };
            // This check is last, so that the executable is dropped on failure.
            destroyed?;
            Ok(executable)
        });
        // The driver no longer captures the stream, so other threads may submit to it again.
        self.streams.end_capture(stream);
        self.context.captures.end();
        ended
    }

    /// Blocks graph launches until the guard drops. For work on memory that graphs use, the caller
    /// holds the guard from reading the memory's uses until submission. Meanwhile the caller must
    /// not allocate, because an allocation may call a pressure callback that launches a graph.
    pub fn lock_launches_shared(&self) -> SharedLaunchGuard<'_> {
        SharedLaunchGuard(self.launch_lock.order.read())
    }

    /// Blocks all other submissions on memory that graphs use, for a launch on `stream`.
    ///
    /// # Errors
    ///
    /// If the stream is being captured. The captured graph would launch this graph without pinning
    /// its memory.
    pub fn lock_launches_exclusive(&self, stream: StreamId) -> Result<ExclusiveLaunchGuard<'_>> {
        let guard = ExclusiveLaunchGuard {
            order: self.launch_lock.order.write(),
            exports: self.launch_lock.exports.lock(),
        };
        let capture = &self.streams.capture;
        capture.check_not_captured("a launch of another graph", stream)?;
        Ok(guard)
    }

    /// Exports memory to foreign code of the calling thread. The export lasts until
    /// [`end_export`](Self::end_export) is called with the returned number.
    pub fn begin_export(&self, range: Range<u64>, used: Use) -> u64 {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        self.launch_lock.exports.lock().push(Export {
            number,
            thread: thread_token(),
            range,
            used,
        });
        number
    }

    pub fn end_export(&self, number: u64) {
        let mut exports = self.launch_lock.exports.lock();
        exports.retain(|export| export.number != number);
    }

    /// Launches a graph in the order of `stream`.
    ///
    /// # Safety
    ///
    /// The memory that the graph reads and writes must be reserved memory of this device. Only work
    /// that is ordered with `stream` may use this memory.
    pub unsafe fn launch_graph(
        &self,
        graph: &Executable,
        stream: StreamId,
        _guard: &ExclusiveLaunchGuard<'_>,
    ) -> Result<()> {
        let submission = self.streams.submit_to(stream)?;
        let raw = submission.raw();
        // SAFETY: graph and stream live, and the memory is valid by this function's contract.
        self.context.run("launching a graph", |driver| unsafe {
            driver.graph_launch(graph.raw.0, raw)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_let_through_only_where_it_belongs() {
        let capture = CaptureState::default();
        let (own, other) = (StreamId(3), StreamId(0));
        assert!(capture.check_submission(own).is_ok() && !capture.is_active());
        capture.begin(own).unwrap();
        assert!(capture.begin(other).is_err(), "one at a time");
        assert!(capture.check_submission(own).is_ok() && capture.check_submission(other).is_err());
        assert!(capture.check_not_captured("a copy", own).is_err());
        assert!(capture.is_by_this_thread());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(
                    capture.check_submission(own).is_err()
                        && capture.check_submission(other).is_ok()
                );
                let refusal = capture.check_not_captured("a copy", own).unwrap_err();
                assert!(refusal.to_string().contains("another thread"), "{refusal}");
                assert!(capture.check_not_captured("a copy", other).is_ok());
                assert!(capture.is_active() && !capture.is_by_this_thread());
            });
        });
        capture.end();
        assert!(capture.check_submission(other).is_ok() && !capture.is_by_this_thread());
    }
}
