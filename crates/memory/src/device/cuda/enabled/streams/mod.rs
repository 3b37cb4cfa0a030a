//! The streams and events of a device. The layers above use ids. This module has the handles.

mod timing;

use std::ptr;

use cudarc::driver::sys::{CUstream, CUstream_flags, CUstream_st};

use super::context::{Context, RawHandle};
use super::driver::Driver;
use super::error::DriverResult;
use super::graphs::CaptureState;
use super::once_vec::OnceVec;
use super::progress::{StreamProgress, is_done, new_event};
use crate::device::host::streams::StreamIds;
use crate::device::{Event, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;
use crate::sync::plain::{AtomicBool, AtomicU64, Mutex, Ordering, yield_now};
use timing::Timing;

/// The streams of a device.
///
/// A stream is created when its id is first handed out, and destroyed with the device. If an id has
/// no stream, the creation failed, and nothing was ever submitted to it.
#[derive(Debug)]
pub(super) struct StreamTable {
    context: Arc<Context>,
    ids: StreamIds,
    entries: OnceVec<StreamEntry>,
    pub(super) capture: CaptureState,
    timing: Mutex<Timing>,
}

#[derive(Debug)]
struct StreamEntry {
    raw: RawHandle<CUstream_st>,
    /// Set if foreign code may have the handle until the process ends.
    is_exported: AtomicBool,
    /// Set if foreign code created the stream, and destroys it.
    is_imported: bool,
    submitted: AtomicU64,
    /// The number of threads that are submitting work or recording an event.
    active_calls: AtomicU64,
    progress: Mutex<StreamProgress>,
}

impl StreamEntry {
    fn new(raw: RawHandle<CUstream_st>, is_exported: bool, is_imported: bool) -> Self {
        Self {
            raw,
            is_exported: AtomicBool::new(is_exported),
            is_imported,
            submitted: AtomicU64::new(0),
            active_calls: AtomicU64::new(0),
            progress: Mutex::default(),
        }
    }

    /// Returns the current position, which may omit work that another thread is submitting.
    fn position(&self) -> u64 {
        if self.is_exported.load(Ordering::Acquire) {
            // Foreign code may have submitted work, so the position advances.
            return self.submitted.fetch_add(1, Ordering::AcqRel) + 1;
        }
        self.submitted.load(Ordering::Acquire)
    }
}

/// A submission in progress: a driver handle, valid as long as the stream table.
///
/// The submission is counted on drop, after the driver has the work. So an event recorded earlier
/// gets at most the position before this submission.
#[derive(Debug)]
pub(super) struct Submission<'a>(
    &'a StreamEntry,
    #[expect(dead_code, reason = "held for its drop")] CallGuard<'a>,
);

impl Submission<'_> {
    pub(super) fn raw(&self) -> CUstream {
        self.0.raw.0
    }
}

/// A guard that counts its thread as about to call the driver for a stream. Until the guard drops,
/// no other thread's capture of the stream begins. So the result of a check for a capture stays
/// valid.
#[derive(Debug)]
struct CallGuard<'a>(&'a AtomicU64);

impl<'a> CallGuard<'a> {
    fn with(stream: &'a StreamEntry) -> Self {
        stream.active_calls.fetch_add(1, Ordering::SeqCst);
        Self(&stream.active_calls)
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        self.0.submitted.fetch_add(1, Ordering::AcqRel);
    }
}

impl StreamTable {
    /// Creates the table with stream 0.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        let streams = Self {
            context: Arc::clone(context),
            ids: StreamIds::default(),
            entries: OnceVec::default(),
            capture: CaptureState::default(),
            timing: Mutex::default(),
        };
        streams.make(StreamId::default())?;
        Ok(streams)
    }

    fn make(&self, stream: StreamId) -> Result<()> {
        let exported = self.context.exported_streams.lock().pop();
        let is_exported = exported.is_some();
        let raw = exported.map_or_else(|| self.new_raw(), Ok)?;
        let entry = StreamEntry::new(raw, is_exported, false);
        if let Err(second) = self.entries.set(stream.0, entry) {
            self.destroy(&second);
        }
        Ok(())
    }

    fn new_raw(&self) -> Result<RawHandle<CUstream_st>> {
        let mut raw = RawHandle(ptr::null_mut());
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `raw` is writable, and the context is current.
        self.context.run("creating a stream", |driver| unsafe {
            driver.stream_create(&mut raw.0, flags)
        })?;
        Ok(raw)
    }

    pub(super) fn take(&self) -> Result<StreamId> {
        self.ids.acquire().and_then(|number| self.made(number))
    }

    /// Like [`take`](Self::take), for an id that no stream has had.
    pub(super) fn take_fresh(&self) -> Result<StreamId> {
        self.ids
            .acquire_fresh()
            .and_then(|number| self.made(number))
    }

    /// If `number` has no stream yet, creates the stream. Returns `number`.
    fn made(&self, number: StreamId) -> Result<StreamId> {
        if self.entries.get(number.0).is_none()
            && let Err(error) = self.make(number)
        {
            self.ids.retire(number);
            return Err(error);
        }
        Ok(number)
    }

    /// Returns a new id for a stream of foreign code. The device never destroys this stream. The id
    /// is not reused.
    pub(super) fn import(&self, raw: CUstream) -> Result<StreamId> {
        let number = self.ids.acquire_fresh()?;
        let entry = StreamEntry::new(RawHandle(raw), true, true);
        let set = self.entries.set(number.0, entry);
        debug_assert!(set.is_ok(), "the stream number is already in use");
        Ok(number)
    }

    pub(super) fn give(&self, stream: StreamId) {
        self.ids.retire(stream);
    }

    /// Returns the number of ids that were handed out.
    pub(super) fn count(&self) -> u16 {
        self.ids.count()
    }

    fn get(&self, stream: StreamId) -> Result<&StreamEntry> {
        self.entries.get(stream.0).ok_or_else(|| {
            let text = format!("{}: there is no stream {}", self.context.name(), stream.0);
            Error::new(ErrorKind::Driver, text)
        })
    }

    /// Submits work by driver calls. Later positions include the work. An error's text begins with
    /// `attempting`.
    #[inline]
    pub(super) fn run<T>(
        &self,
        stream: StreamId,
        attempting: &str,
        call: impl FnOnce(&'static Driver, CUstream) -> DriverResult<T>,
    ) -> Result<T> {
        let submission = self.submit_to(stream)?;
        let raw = submission.raw();
        self.context.run(attempting, |driver| call(driver, raw))
    }

    /// Begins a submission whose driver calls the caller makes.
    pub(super) fn submit_to(&self, stream: StreamId) -> Result<Submission<'_>> {
        let entry = self.get(stream)?;
        let call = CallGuard::with(entry);
        self.capture.check_submission(stream)?;
        Ok(Submission(entry, call))
    }

    /// Exports the handle of a stream to foreign code, until the process ends. After the device is
    /// dropped, the next device of its ordinal reuses the stream.
    pub(super) fn export(&self, stream: StreamId) -> Result<CUstream> {
        let submission = self.submit_to(stream)?;
        submission.0.is_exported.store(true, Ordering::Release);
        Ok(submission.raw())
    }

    pub(super) fn synchronize(&self, stream: StreamId) -> Result<()> {
        let Some(entry) = self.entries.get(stream.0) else {
            return Ok(());
        };
        self.capture.check_not_captured("waiting", stream)?;
        self.finish(entry)
    }

    /// Waits until all submitted work of the stream is done.
    fn finish(&self, entry: &StreamEntry) -> Result<()> {
        let reached = entry.position();
        // SAFETY: the stream lives as long as `self`.
        unsafe { self.context.wait_for_stream(entry.raw.0) }?;
        entry.progress.lock().complete_through(reached);
        Ok(())
    }

    /// Begins a capture of `stream` by the calling thread, once all earlier work is done.
    pub(super) fn begin_capture(&self, stream: StreamId) -> Result<()> {
        self.capture.begin(stream)?;
        let finished = self.get(stream).and_then(|entry| {
            // A thread that checked `capture` before the capture began finishes its driver call.
            while entry.active_calls.load(Ordering::SeqCst) > 0 {
                yield_now();
            }
            self.finish(entry)?;
            // The flag is set only after the wait, because other threads may still record events
            // behind earlier work.
            entry.progress.lock().is_captured = true;
            Ok(())
        });
        finished.inspect_err(|_| self.capture.end())
    }

    /// Ends the capture of [`begin_capture`](Self::begin_capture), after the driver's capture.
    pub(super) fn end_capture(&self, stream: StreamId) {
        if let Some(entry) = self.entries.get(stream.0) {
            entry.progress.lock().is_captured = false;
        }
        self.capture.end();
    }

    pub(super) fn record(&self, stream: StreamId) -> Result<Event> {
        let Some(entry) = self.entries.get(stream.0) else {
            return Ok(Event {
                stream,
                position: 0,
            });
        };
        // The lock prevents a capture from beginning until the event is recorded.
        let mut progress = entry.progress.lock();
        if progress.is_captured {
            // Earlier work is done, and captured work is not submitted yet.
            let position = progress.done;
            return Ok(Event { stream, position });
        }
        let position = entry.position();
        let is_known = |&(recorded, _): &(u64, _)| recorded >= position;
        if position <= progress.done || progress.outstanding.back().is_some_and(is_known) {
            // The position is done, or the last event covers it.
            return Ok(Event { stream, position });
        }
        self.context.run("recording an event", |driver| {
            progress.poll_completed(driver)?;
            let event = match progress.free_events.pop() {
                Some(event) => event,
                None => new_event(driver)?,
            };
            // SAFETY: event and stream are of this context and live as long as `self`.
            if let Err(failure) = unsafe { driver.event_record(event.0, entry.raw.0) } {
                progress.free_events.push(event);
                return Err(failure);
            }
            progress.outstanding.push_back((position, event));
            Ok(())
        })?;
        Ok(Event { stream, position })
    }

    pub(super) fn wait(&self, stream: StreamId, event: &Event) -> Result<()> {
        let Some(entry) = self.entries.get(event.stream.0) else {
            return Ok(());
        };
        // The lock prevents a reuse of the event until the wait is submitted.
        let progress = entry.progress.lock();
        let Some((_, recorded)) = progress.event(event.position) else {
            return Ok(());
        };
        self.capture
            .check_not_captured("waiting for another stream", stream)?;
        // SAFETY: event and stream are of this context and live as long as `self`.
        self.run(
            stream,
            "creating a stream wait for another",
            |driver, raw| unsafe { driver.stream_wait_event(raw, recorded.0, 0) },
        )
    }

    pub(super) fn is_done(&self, event: &Event) -> Result<bool> {
        let Some(entry) = self.entries.get(event.stream.0) else {
            return Ok(true);
        };
        let mut progress = entry.progress.lock();
        let Some((position, recorded)) = progress.event(event.position) else {
            return Ok(true);
        };
        let done = self
            .context
            .run("querying an event", |driver| is_done(driver, recorded))?;
        if done {
            progress.complete_through(position);
        }
        Ok(done)
    }

    pub(super) fn wait_for(&self, event: &Event) -> Result<()> {
        let Some(entry) = self.entries.get(event.stream.0) else {
            return Ok(());
        };
        let recorded = entry.progress.lock().event(event.position);
        let Some((position, recorded)) = recorded else {
            return Ok(());
        };
        // Only the calling thread is checked, because captures of other threads began after the
        // event.
        self.capture.check_not_capturing("waiting")?;
        // SAFETY: the event is destroyed with its stream. Other threads may have found the event
        // done, and recorded it again later on its stream. Then this call waits longer than needed.
        self.context.run("waiting for an event", |driver| unsafe {
            driver.event_synchronize(recorded.0)
        })?;
        entry.progress.lock().complete_through(position);
        Ok(())
    }

    /// Destroys a stream and its events. Errors are ignored, because they cannot be reported.
    fn destroy(&self, stream: &StreamEntry) {
        let progress = std::mem::take(&mut *stream.progress.lock());
        self.context.discard(|driver| {
            let outstanding = progress.outstanding.into_iter().map(|(_, event)| event);
            for event in outstanding.chain(progress.free_events) {
                // SAFETY: the event is unused, because its stream is unused.
                let _ = unsafe { driver.event_destroy(event.0) };
            }
            if stream.is_imported {
                return Ok(());
            }
            if stream.is_exported.load(Ordering::Relaxed) {
                self.context.exported_streams.lock().push(stream.raw);
                return Ok(());
            }
            // SAFETY: the stream is unused.
            unsafe { driver.stream_destroy(stream.raw.0) }
        });
    }
}

impl Drop for StreamTable {
    fn drop(&mut self) {
        for stream in self.entries.iter() {
            self.destroy(stream);
        }
        self.destroy_timing();
    }
}
