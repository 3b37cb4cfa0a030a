//! Streams and events: numbers above, the driver's handles here.

use std::ptr;

use cudarc::driver::sys::{CUstream, CUstream_flags, CUstream_st};

use super::context::{Context, Raw};
use super::driver::Driver;
use super::error::Outcome;
use super::graphs::Capturing;
use super::places::{Places, is_done, new_event};
use super::slots::Slots;
use crate::device::host::streams::Numbers;
use crate::device::{Event, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;
use crate::sync::plain::{AtomicBool, AtomicU64, Mutex, Ordering, yield_now};

/// The streams of a device.
///
/// Each is made as its number is first handed out, and destroyed with the device. A number without a
/// stream is one that the driver failed to make: nothing was ever given to it.
#[derive(Debug)]
pub(super) struct Streams {
    context: Arc<Context>,
    numbers: Numbers,
    made: Slots<Stream>,
    pub(super) capturing: Capturing,
}

#[derive(Debug)]
struct Stream {
    raw: Raw<CUstream_st>,
    /// Whether somebody else may have the handle for as long as the process lives.
    is_lent: AtomicBool,
    /// How much work it was given.
    given: AtomicU64,
    /// Threads that are just giving it work, or recording an event.
    busy: AtomicU64,
    places: Mutex<Places>,
}

impl Stream {
    /// The place that it has reached. Work that another thread is just giving to it may stand before it.
    fn place(&self) -> u64 {
        if self.is_lent.load(Ordering::Acquire) {
            // Who knows what others gave it.
            return self.given.fetch_add(1, Ordering::AcqRel) + 1;
        }
        self.given.load(Ordering::Acquire)
    }
}

/// A stream that is being given work: a handle of the driver's, good for as long as the streams live.
///
/// The work counts once this drops, which is after the driver has it: what is recorded before stands before
/// the next place at most.
#[derive(Debug)]
pub(super) struct Giving<'a>(
    &'a Stream,
    #[expect(dead_code, reason = "held for its drop")] Busy<'a>,
);

impl Giving<'_> {
    pub(super) fn raw(&self) -> CUstream {
        self.0.raw.0
    }
}

/// A thread that is about to call the driver for a stream. Whoever has one may look whether the stream is
/// captured: no capture of another thread's begins from then on until this drops.
#[derive(Debug)]
struct Busy<'a>(&'a AtomicU64);

impl<'a> Busy<'a> {
    fn with(stream: &'a Stream) -> Self {
        stream.busy.fetch_add(1, Ordering::SeqCst);
        Self(&stream.busy)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        self.0.given.fetch_add(1, Ordering::AcqRel);
    }
}

impl Streams {
    /// Stream 0.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        let streams = Self {
            context: Arc::clone(context),
            numbers: Numbers::default(),
            made: Slots::default(),
            capturing: Capturing::default(),
        };
        streams.make(StreamId::default())?;
        Ok(streams)
    }

    /// Makes the stream behind a number that has none.
    fn make(&self, stream: StreamId) -> Result<()> {
        let lent = self.context.lent_streams.lock().pop();
        let made = Stream {
            is_lent: AtomicBool::new(lent.is_some()),
            raw: lent.map_or_else(|| self.new_raw(), Ok)?,
            given: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            places: Mutex::default(),
        };
        if let Err(second) = self.made.set(stream.0, made) {
            self.destroy(&second);
        }
        Ok(())
    }

    fn new_raw(&self) -> Result<Raw<CUstream_st>> {
        let mut raw = Raw(ptr::null_mut());
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `raw` can be written to, and the context is current.
        self.context.run("making a stream", |driver| unsafe {
            driver.stream_create(&mut raw.0, flags)
        })?;
        Ok(raw)
    }

    pub(super) fn take(&self) -> Result<StreamId> {
        let number = self.numbers.take()?;
        if self.made.get(number.0).is_none()
            && let Err(error) = self.make(number)
        {
            self.numbers.give(number);
            return Err(error);
        }
        Ok(number)
    }

    pub(super) fn give(&self, stream: StreamId) {
        self.numbers.give(stream);
    }

    /// How many numbers were handed out.
    pub(super) fn made(&self) -> u16 {
        self.numbers.made()
    }

    fn get(&self, stream: StreamId) -> Result<&Stream> {
        self.made.get(stream.0).ok_or_else(|| {
            let text = format!("{}: there is no stream {}", self.context.id(), stream.0);
            Error::new(ErrorKind::Driver, text)
        })
    }

    /// Gives work to a stream by calls of the driver; their failure becomes an error that tells what was
    /// `attempting`. From here on who asks where the stream is finds the work before that.
    #[inline]
    pub(super) fn run<T>(
        &self,
        stream: StreamId,
        attempting: &str,
        call: impl FnOnce(&'static Driver, CUstream) -> Outcome<T>,
    ) -> Result<T> {
        let giving = self.give_to(stream)?;
        let raw = giving.raw();
        self.context.run(attempting, |driver| call(driver, raw))
    }

    /// The same for one who does not call by himself.
    pub(super) fn give_to(&self, stream: StreamId) -> Result<Giving<'_>> {
        let made = self.get(stream)?;
        let busy = Busy::with(made);
        self.capturing.allow_work(stream)?;
        Ok(Giving(made, busy))
    }

    /// The same for somebody else, good for as long as the process lives: when the device ends, the stream
    /// goes to the next one of its ordinal.
    pub(super) fn lend(&self, stream: StreamId) -> Result<CUstream> {
        let giving = self.give_to(stream)?;
        giving.0.is_lent.store(true, Ordering::Release);
        Ok(giving.raw())
    }

    pub(super) fn synchronize(&self, stream: StreamId) -> Result<()> {
        let Some(made) = self.made.get(stream.0) else {
            return Ok(());
        };
        self.capturing.allow_outside("waiting", stream)?;
        self.finish(made)
    }

    /// Waits until all is done that the stream was given.
    fn finish(&self, made: &Stream) -> Result<()> {
        let reached = made.place();
        // SAFETY: the stream lives as long as these.
        unsafe { self.context.wait_for_stream(made.raw.0) }?;
        made.places.lock().pass(reached);
        Ok(())
    }

    /// Lets `stream` be captured by the calling thread, once it is done with all that it was given.
    pub(super) fn begin_capture(&self, stream: StreamId) -> Result<()> {
        self.capturing.begin(stream)?;
        let finished = self.get(stream).and_then(|made| {
            // Who did not see that it is captured has the driver called before it is.
            while made.busy.load(Ordering::SeqCst) > 0 {
                yield_now();
            }
            self.finish(made)
        });
        finished.inspect_err(|_| self.capturing.end())
    }

    pub(super) fn record(&self, stream: StreamId) -> Result<Event> {
        let Some(made) = self.made.get(stream.0) else {
            return Ok(Event {
                stream,
                position: 0,
            });
        };
        let mut places = made.places.lock();
        let _busy = Busy::with(made);
        if self.capturing.is_of(stream) {
            // What the stream was given before is done, and what is recorded is not given to it yet.
            let position = places.done;
            return Ok(Event { stream, position });
        }
        let position = made.place();
        let is_known = |&(place, _): &(u64, _)| place >= position;
        if position <= places.done || places.waiting.back().is_some_and(is_known) {
            // Nothing was given to it since somebody asked.
            return Ok(Event { stream, position });
        }
        self.context.run("recording an event", |driver| {
            places.pass_first(driver)?;
            let event = match places.idle.pop() {
                Some(event) => event,
                None => new_event(driver)?,
            };
            // SAFETY: event and stream are of this context and live as long as these.
            if let Err(failure) = unsafe { driver.event_record(event.0, made.raw.0) } {
                places.idle.push(event);
                return Err(failure);
            }
            places.waiting.push_back((position, event));
            Ok(())
        })?;
        Ok(Event { stream, position })
    }

    pub(super) fn wait(&self, stream: StreamId, event: &Event) -> Result<()> {
        let Some(made) = self.made.get(event.stream.0) else {
            return Ok(());
        };
        // The event stays at its place until it is waited for.
        let places = made.places.lock();
        let Some((_, recorded)) = places.event(event.position) else {
            return Ok(());
        };
        self.capturing
            .allow_outside("waiting for another stream", stream)?;
        // SAFETY: event and stream are of this context and live as long as these.
        self.run(
            stream,
            "letting a stream wait for another",
            |driver, raw| unsafe { driver.stream_wait_event(raw, recorded.0, 0) },
        )
    }

    pub(super) fn is_done(&self, event: &Event) -> Result<bool> {
        let Some(made) = self.made.get(event.stream.0) else {
            return Ok(true);
        };
        let mut places = made.places.lock();
        let Some((place, recorded)) = places.event(event.position) else {
            return Ok(true);
        };
        let done = self
            .context
            .run("looking at an event", |driver| is_done(driver, recorded))?;
        if done {
            places.pass(place);
        }
        Ok(done)
    }

    pub(super) fn wait_for(&self, event: &Event) -> Result<()> {
        let Some(made) = self.made.get(event.stream.0) else {
            return Ok(());
        };
        let recorded = made.places.lock().event(event.position);
        let Some((place, recorded)) = recorded else {
            return Ok(());
        };
        self.capturing.allow_outside("waiting", event.stream)?;
        // SAFETY: the event is destroyed with its stream. Where others found it done meanwhile, and it was
        // recorded again, that was on the same stream: this waits for more then.
        self.context.run("waiting for an event", |driver| unsafe {
            driver.event_synchronize(recorded.0)
        })?;
        made.places.lock().pass(place);
        Ok(())
    }

    /// Destroys a stream and its events; there is nobody to tell an error.
    fn destroy(&self, stream: &Stream) {
        let places = std::mem::take(&mut *stream.places.lock());
        self.context.discard(|driver| {
            let waiting = places.waiting.into_iter().map(|(_, event)| event);
            for event in waiting.chain(places.idle) {
                // SAFETY: nobody else has the event: the stream is not in use any more.
                let _ = unsafe { driver.event_destroy(event.0) };
            }
            if stream.is_lent.load(Ordering::Relaxed) {
                self.context.lent_streams.lock().push(stream.raw);
                return Ok(());
            }
            // SAFETY: nobody has the stream any more.
            unsafe { driver.stream_destroy(stream.raw.0) }
        });
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for stream in self.made.iter() {
            self.destroy(stream);
        }
    }
}
