//! Graphs: what a stream is given is recorded instead of done, and then done as often as wanted.
//!
//! The driver records in its relaxed mode, in which it forbids nothing to other threads and streams. What
//! would be wrong in a graph is refused here: work on another stream, another thread's work on this one,
//! waiting for what has not been done, and copies from and to the host, whose bytes are others by the time
//! the graph runs.

use std::ops::Range;
use std::ptr;

use cudarc::driver::sys::{CUgraphExec_st, CUstreamCaptureMode};

use super::Cuda;
use super::context::{Context, RawHandle};
use super::driver::Driver;
use crate::device::{StreamId, Use};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::plain::{
    AtomicU64, Mutex, MutexGuard, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use crate::sync::{Arc, thread_token};

/// Which stream is being captured, and by which thread.
///
/// Invariant: one number holds both, so that nobody sees the one without the other.
#[derive(Debug, Default)]
pub(super) struct CaptureState(AtomicU64);

/// No thread has this token.
const NO_CAPTURE: u64 = 0;
/// The token stands above the stream's number.
const TOKEN: u32 = u16::BITS;

impl CaptureState {
    pub(super) fn begin(&self, stream: StreamId) -> Result<()> {
        let own = thread_token() << TOKEN | u64::from(stream.0);
        let begun = self
            .0
            .compare_exchange(NO_CAPTURE, own, Ordering::SeqCst, Ordering::Relaxed);
        begun
            .map(drop)
            .map_err(|_| refused("another one is under way on this device"))
    }

    pub(super) fn end(&self) {
        self.0.store(NO_CAPTURE, Ordering::Release);
    }

    /// Who captures, and what.
    #[inline]
    fn current(&self) -> Option<(u64, StreamId)> {
        // In one order with the counts of who is at work: see `StreamTable::begin_capture`.
        match self.0.load(Ordering::SeqCst) {
            NO_CAPTURE => None,
            both => Some((both >> TOKEN, StreamId(both as u16))),
        }
    }

    /// Whether any thread captures.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.current().is_some()
    }

    /// Whether any thread captures `stream`.
    pub(super) fn captures(&self, stream: StreamId) -> bool {
        self.current()
            .is_some_and(|(_, captured)| captured == stream)
    }

    /// Whether the calling thread captures.
    pub(super) fn is_by_this_thread(&self) -> bool {
        self.current()
            .is_some_and(|(token, _)| token == thread_token())
    }

    /// # Errors
    ///
    /// Where work that the calling thread gives to `stream` would end up in the wrong place.
    #[inline]
    pub(super) fn check_submission(&self, stream: StreamId) -> Result<()> {
        let Some((token, captured)) = self.current() else {
            return Ok(());
        };
        match (token == thread_token(), stream == captured) {
            (true, true) | (false, false) => Ok(()),
            (true, false) => Err(refused(
                "work goes to the stream that is captured, and to no other",
            )),
            (false, true) => Err(refused("another thread captures this stream")),
        }
    }

    /// # Errors
    ///
    /// Where the calling thread captures, or another does so on `stream`.
    pub(super) fn check_not_captured(&self, what: &str, stream: StreamId) -> Result<()> {
        match self.current() {
            Some((token, captured)) if token == thread_token() || captured == stream => {
                Err(refused(&format!("{what} is no part of a graph")))
            }
            _ => Ok(()),
        }
    }
}

#[cold]
fn refused(why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("graph::capture: {why}"))
}

/// What keeps launches of graphs apart from other work on the memory that they use.
///
/// Arrays are borrowed while work on them is handed to a stream, so that nobody else writes to them. A graph
/// borrows none: it writes to memory by addresses. In the stead of the borrow stands this lock, which whoever
/// hands work on such memory to a stream shares with others, and a launch has guard.
#[derive(Debug, Default)]
pub(super) struct LaunchLock {
    order: RwLock<()>,
    exports: Mutex<Vec<Export>>,
}

/// Memory that is exports to foreign code of one thread, which hands work on it to streams whenever it likes.
#[derive(Debug)]
struct Export {
    number: u64,
    thread: u64,
    range: Range<u64>,
    used: Use,
}

/// While this lives no graph of the device is launched.
#[derive(Debug)]
#[must_use]
pub(crate) struct SharedLaunchGuard<'a>(
    #[expect(dead_code, reason = "held for its drop")] RwLockReadGuard<'a, ()>,
);

/// While this lives nobody hands work on memory that graphs use to a stream but the one who has it.
#[derive(Debug)]
#[must_use]
pub(crate) struct ExclusiveLaunchGuard<'a> {
    #[expect(dead_code, reason = "held for its drop")]
    order: RwLockWriteGuard<'a, ()>,
    exports: MutexGuard<'a, Vec<Export>>,
}

impl ExclusiveLaunchGuard<'_> {
    /// # Errors
    ///
    /// Where other threads have exports some of the memory for a use that must not be beside these.
    pub(crate) fn check(&self, mut used: impl Iterator<Item = (Range<u64>, Use)>) -> Result<()> {
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
            let text = "Graph::launch: another thread lends an array that the graph uses to foreign code \
                        (`cuda_view`, `cuda_view_mut`): launch once its view has dropped";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }
}

/// A graph that can be launched.
#[derive(Debug)]
pub(crate) struct Executable {
    context: Arc<Context>,
    raw: RawHandle<CUgraphExec_st>,
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: nobody else has it; a launch that is under way goes on.
        self.context
            .discard(|driver| unsafe { driver.graph_exec_destroy(self.raw.0) });
    }
}

impl Cuda {
    /// Records what this thread gives to `stream` from now on, instead of doing it.
    pub(crate) fn begin_capture(&self, stream: StreamId) -> Result<()> {
        self.streams.begin_capture(stream)?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as u32;
        let what = "beginning to capture";
        // SAFETY: the stream lives as long as this.
        let begin = |driver: &Driver, raw| unsafe { driver.stream_begin_capture(raw, mode) };
        let begun = self.streams.run(stream, what, begin);
        begun.inspect_err(|_| self.streams.capture.end())
    }

    /// Ends what [`begin_capture`](Self::begin_capture) began; the answer is what was recorded.
    pub(crate) fn end_capture(&self, stream: StreamId) -> Result<Executable> {
        let submission = self.streams.submit_to(stream)?;
        let raw = submission.raw();
        let ended = self.context.run("making a graph", |driver| {
            let mut graph = ptr::null_mut();
            let mut made = RawHandle(ptr::null_mut());
            // SAFETY: both can be written to, this thread began to capture the stream, and the graph that
            // comes of that is destroyed once.
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
            // Only now, so that what was made is dropped.
            destroyed?;
            Ok(executable)
        });
        // Only now: what others give to the stream is not recorded any more.
        self.streams.capture.end();
        ended
    }

    /// Keeps launches of graphs off until the answer drops; for who hands work on memory that graphs use to
    /// a stream, from before it looks who else used that until the stream has the work. Nothing is
    /// allocated meanwhile: that may call back what launches.
    pub(crate) fn lock_launches_shared(&self) -> SharedLaunchGuard<'_> {
        SharedLaunchGuard(self.launch_lock.order.read())
    }

    /// Keeps everybody else off; for who launches a graph on `stream`.
    ///
    /// # Errors
    ///
    /// Where the stream is being captured: another graph would launch this one, and not keep its memory.
    pub(crate) fn lock_launches_exclusive(
        &self,
        stream: StreamId,
    ) -> Result<ExclusiveLaunchGuard<'_>> {
        let guard = ExclusiveLaunchGuard {
            order: self.launch_lock.order.write(),
            exports: self.launch_lock.exports.lock(),
        };
        let capture = &self.streams.capture;
        capture.check_not_captured("a launch of another graph", stream)?;
        Ok(guard)
    }

    /// Lends memory to foreign code of the calling thread, for as long as [`end_export`](Self::end_export)
    /// is not told the number.
    pub(crate) fn begin_export(&self, range: Range<u64>, used: Use) -> u64 {
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

    pub(crate) fn end_export(&self, number: u64) {
        let mut exports = self.launch_lock.exports.lock();
        exports.retain(|export| export.number != number);
    }

    /// Runs a graph in the order of `stream`.
    ///
    /// # Safety
    ///
    /// The memory that the graph reads and writes must be this device's, reserved, and nobody else may use
    /// it outside the stream's order.
    pub(crate) unsafe fn launch_graph(
        &self,
        graph: &Executable,
        stream: StreamId,
        _guard: &ExclusiveLaunchGuard<'_>,
    ) -> Result<()> {
        let submission = self.streams.submit_to(stream)?;
        let raw = submission.raw();
        // SAFETY: graph and stream live, and the rest is this function's contract.
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
                assert!(capture.check_not_captured("a copy", own).is_err());
                assert!(capture.check_not_captured("a copy", other).is_ok());
                assert!(capture.is_active() && !capture.is_by_this_thread());
            });
        });
        capture.end();
        assert!(capture.check_submission(other).is_ok() && !capture.is_by_this_thread());
    }
}
