//! The times at which a device reaches marked positions of its streams, measured by the driver's
//! events.

use std::ptr;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUevent_flags, CUevent_st};

use super::{CallGuard, StreamTable, is_done};
use crate::device::cuda::enabled::context::RawHandle;
use crate::device::cuda::enabled::driver::Driver;
use crate::device::cuda::enabled::error::DriverResult;
use crate::device::{StreamId, TimeMark, TimeSpan};
use crate::error::Result;

/// The distance from `base` beyond which a mark becomes the new base. The driver returns times as
/// `f32` milliseconds. Up to this distance, the rounding is below the timer's resolution of 0.5 µs.
const LONGEST_FROM_BASE: Duration = Duration::from_secs(4);

type TimedEvent = RawHandle<CUevent_st>;

/// Events with timing enabled. A mark is an index of `events`.
#[derive(Debug, Default)]
pub(super) struct Timing {
    events: Vec<TimedEvent>,
    unused: Vec<TimeMark>,
    /// A mark that the device has passed, and its time on the host's clock. The times of all other
    /// marks are measured from this mark.
    base: Option<(TimeMark, Instant)>,
}

impl Timing {
    fn event(&self, mark: TimeMark) -> TimedEvent {
        self.events[mark.0]
    }

    fn take_unused(&mut self, driver: &Driver) -> DriverResult<TimeMark> {
        if let Some(mark) = self.unused.pop() {
            return Ok(mark);
        }
        let mut event = RawHandle(ptr::null_mut());
        // SAFETY: `event` is writable. The caller has made the context current.
        unsafe { driver.event_create(&mut event.0, CUevent_flags::CU_EVENT_DEFAULT as u32) }?;
        self.events.push(event);
        Ok(TimeMark(self.events.len() - 1))
    }

    /// Returns the seconds between two passed marks; negative if the device passed the second mark
    /// first.
    fn elapsed_seconds(&self, driver: &Driver, marks: [TimeMark; 2]) -> DriverResult<f64> {
        let [first, last] = marks.map(|mark| self.event(mark).0);
        let mut milliseconds = 0.0;
        // SAFETY: `milliseconds` is writable, and the events live as long as `self`.
        unsafe { driver.event_elapsed_time(&mut milliseconds, first, last) }?;
        Ok(f64::from(milliseconds) / 1e3)
    }

    /// Returns the time at which the device passed a mark. If the mark is not passed, or if there
    /// is no base, returns `None`.
    fn time_of(&self, driver: &Driver, mark: TimeMark) -> DriverResult<Option<Instant>> {
        let Some((base, base_time)) = self.base else {
            return Ok(None);
        };
        if !is_done(driver, self.event(mark))? {
            return Ok(None);
        }
        let seconds = self.elapsed_seconds(driver, [base, mark])?;
        let distance = Duration::from_secs_f64(seconds.abs());
        let time = if seconds < 0.0 {
            base_time.checked_sub(distance)
        } else {
            base_time.checked_add(distance)
        };
        Ok(time.or(Some(base_time)))
    }

    /// Releases a passed mark, or makes it the base if the present base is too old.
    fn retire(&mut self, mark: TimeMark, time: Instant) {
        let own = (mark, time);
        let base = *self.base.get_or_insert(own);
        let is_far = time.saturating_duration_since(base.1) > LONGEST_FROM_BASE;
        let (base, unused) = if is_far { (own, base) } else { (base, own) };
        self.base = Some(base);
        self.unused.push(unused.0);
    }
}

impl StreamTable {
    /// Begins to measure times, and records a base on a new stream. Waits only for this stream,
    /// which has no earlier work.
    pub(in crate::device::cuda::enabled) fn begin_timing(&self) -> Result<()> {
        if self.capture.is_by_this_thread() {
            return Ok(());
        }
        let mark = self.take_mark()?;
        let passed = self.pass_at_once(mark);
        let mut timing = self.timing.lock();
        let unused = match passed {
            Ok(time) => timing.base.replace((mark, time)).map(|base| base.0),
            Err(_) => Some(mark),
        };
        timing.unused.extend(unused);
        passed.map(drop)
    }

    /// Records the event of `mark` on a new stream, waits for the event, and returns the time.
    fn pass_at_once(&self, mark: TimeMark) -> Result<Instant> {
        let event = self.timing.lock().event(mark).0;
        let stream = self.new_raw()?;
        let passed = self.context.run("marking a time", |driver| {
            // SAFETY: event and stream are of this context. The stream is destroyed below.
            unsafe {
                driver.event_record(event, stream.0)?;
                driver.event_synchronize(event)?;
            }
            Ok(Instant::now())
        });
        // SAFETY: nothing else has the stream.
        self.context
            .discard(|driver| unsafe { driver.stream_destroy(stream.0) });
        passed
    }

    fn take_mark(&self) -> Result<TimeMark> {
        let mut timing = self.timing.lock();
        self.context
            .run("marking a time", |driver| timing.take_unused(driver))
    }

    /// Marks the current position of a stream. Returns `None` if the stream is captured, if the
    /// thread captures, or if no times are measured.
    pub(in crate::device::cuda::enabled) fn mark_time(
        &self,
        stream: StreamId,
    ) -> Result<Option<TimeMark>> {
        let entry = self.get(stream)?;
        let _call = CallGuard::with(entry);
        if self.capture.captures(stream)
            || self.capture.is_by_this_thread()
            || self.timing.lock().base.is_none()
        {
            return Ok(None);
        }
        let mark = self.take_mark()?;
        let event = self.timing.lock().event(mark).0;
        // The lock is not held, because the call waits if the driver's queue is full.
        let recorded = self.context.run("marking a time", |driver| {
            // SAFETY: event and stream are of this context and live as long as `self`.
            unsafe { driver.event_record(event, entry.raw.0) }
        });
        recorded.inspect_err(|_| self.discard_mark(mark))?;
        Ok(Some(mark))
    }

    /// Returns the time at which the device passed the first mark, and the time between the marks.
    /// If the device has not passed the second mark, returns `None`. Every other result releases
    /// both marks.
    pub(in crate::device::cuda::enabled) fn take_times(
        &self,
        [begin, end]: [TimeMark; 2],
    ) -> Result<Option<TimeSpan>> {
        let mut timing = self.timing.lock();
        let span = self.context.run("asking for a time", |driver| {
            let Some(ended) = timing.time_of(driver, end)? else {
                return Ok(None);
            };
            let began = timing.time_of(driver, begin)?.unwrap_or(ended);
            let seconds = timing.elapsed_seconds(driver, [begin, end])?;
            Ok(Some((began, ended, seconds)))
        });
        match span {
            Ok(None) => Ok(None),
            Ok(Some((began, ended, seconds))) => {
                timing.retire(begin, began);
                timing.retire(end, ended);
                Ok(Some(TimeSpan {
                    began,
                    duration: Duration::from_secs_f64(seconds.max(0.0)),
                }))
            }
            Err(error) => {
                timing.unused.extend([begin, end]);
                Err(error)
            }
        }
    }

    /// Releases an unused mark, so that its event can be recorded again.
    pub(in crate::device::cuda::enabled) fn discard_mark(&self, mark: TimeMark) {
        self.timing.lock().unused.push(mark);
    }

    /// Destroys the events. Errors are ignored, because they cannot be reported.
    pub(super) fn destroy_timing(&self) {
        for event in std::mem::take(&mut *self.timing.lock()).events {
            // SAFETY: nothing else has the event.
            self.context
                .discard(|driver| unsafe { driver.event_destroy(event.0) });
        }
    }
}
