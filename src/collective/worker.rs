//! What carries out the calls that a rank asks for, one after the other: a thread, or whoever waits
//! for one of them.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::thread::{Builder, JoinHandle};

use super::engine::{Asker, Engine, Members, Memory, Work};
use super::memory::Spans;
use super::queue::{Answering, answer};
use super::turns::{Failed, Job, Turns, ended};
use crate::context::{Device, Timed};
use crate::device::StreamId;
use crate::device::host_streams::{Help, HostFailure, HostStream};
use crate::error::{AtCaller, Error, ErrorKind, Result, asked_at};
use crate::memory::uses::StreamUse;
use crate::sync::plain::Mutex;
use crate::sync::{Arc, Weak};

/// The asking side of a rank. Its thread ends with what was asked for when this drops.
pub(super) struct Worker {
    /// Closed when the rank has ended.
    turns: Arc<Turns>,
    /// On each device whose memory the rank's calls were about, the stream that stands for them.
    /// Calls are asked for under the lock: their order on the stream is that of the turns.
    streams: Mutex<Vec<(Device, Arc<HostStream>)>>,
}

/// A call, and the memory of a device that it is about.
pub(super) struct Asked<'a> {
    pub(super) work: Work,
    pub(super) spans: Spans<'a>,
}

impl Worker {
    /// Starts the thread of a rank. It gives the first failure, unless somebody has heard of it.
    pub(super) fn start(
        rank: usize,
        engine: Box<dyn Engine>,
    ) -> Result<(Arc<Self>, JoinHandle<Option<Error>>)> {
        let turns = Arc::new(Turns::new(engine));
        let served = Arc::clone(&turns);
        let thread = Builder::new().name(format!("cachescope-rank-{rank}"));
        let thread = thread.spawn(move || served.serve()).map_err(|error| {
            let text = format!("the thread of rank {rank} was not started: {error}");
            Error::new(ErrorKind::Driver, text).caused_by(error)
        })?;
        let worker = Self {
            turns,
            streams: Mutex::default(),
        };
        Ok((Arc::new(worker), thread))
    }

    /// Asks for a call on memory of a device, in stream order. Where the ranks check what they
    /// call, waits until they agree.
    #[track_caller]
    pub(super) fn ask(&self, asked: Asked<'_>) -> Result<()> {
        let Asked { work, spans } = asked;
        let (hears, heard) = answer();
        let verdict = work.checks.then_some(hears);
        let (device, call_site) = (spans.device(), asked_at(Location::caller()));
        let is_recorded = device.memory().recorder().is_active();
        // The thread that waits may be capturing work of the device, or be inside of an operation
        // that is recorded itself.
        let by_any_thread = device.backend().cuda().is_none() && !is_recorded;
        {
            let mut streams = self.streams.lock();
            let stream = self.stream(&mut streams, device)?;
            spans
                .order_on(StreamUse::until(stream.next_event()))
                .at_caller()?;
            let memory = spans.detached(stream.id());
            let begun = Begun::new(stream, work.call.operation.name());
            let job = move |engine: &mut dyn Engine| {
                let serving = begun.stream.serve();
                let begin = || Timed::begin_on_at(memory.device(), begun.id(), call_site);
                let timed = is_recorded.then(begin);
                let mut asker = Hearing(verdict);
                let carried = catch_unwind(AssertUnwindSafe(|| {
                    // SAFETY: the stream's order gives the call its memory until `finish`: it
                    // waited for all uses before, and all later ones wait for it.
                    unsafe { memory.carry(engine, &work, &mut asker) }
                }));
                let outcome = carried.unwrap_or_else(|_| {
                    // Whether others are through with the memory, nobody knows.
                    memory.keep_for_ever();
                    Err(panicked(work.call.operation.name()))
                });
                let outcome = outcome.map_err(|failure| failure.at(call_site));
                let failed = outcome.as_ref().err().map(|failure| Failed {
                    error: failure.error.clone(),
                    stream: Arc::clone(&begun.stream),
                });
                // What nobody has heard of yet: nothing that comes after may pass for done.
                failed.iter().for_each(|failed| engine.fail(&failed.error));
                // Who waits for the exchange finds its end recorded.
                drop(timed);
                drop(serving);
                begun.finish(outcome);
                failed
            };
            self.turns.ask(Job::new(by_any_thread, job))?;
        }
        match heard.wait() {
            Some(agreed) => agreed.at_caller(),
            // Nobody was to hear it, or the thread failed, which the stream tells.
            None => Ok(()),
        }
    }

    /// Makes a call on memory of the host that is nobody else's, and waits for its end. Gives what
    /// the rank gets.
    #[track_caller]
    pub(super) fn ask_now(
        &self,
        work: Work,
        mut source: Vec<u64>,
        length: usize,
    ) -> Result<Vec<u64>> {
        let (hears, heard) = answer();
        let mut target = vec![0; length];
        let job = move |engine: &mut dyn Engine| {
            let memory = Memory {
                is_of_device: false,
                source: source.as_mut_ptr().cast(),
                target: target.as_mut_ptr().cast(),
            };
            let mut failure = None;
            let mut asker = |agreed: Result<()>| {
                failure = agreed.err();
                true
            };
            // SAFETY: both vectors are this job's, which keeps them until the call returns.
            let outcome = unsafe { engine.run(&work, memory, &mut asker) };
            let outcome = match outcome {
                Ok(()) => failure.map_or(Ok(target), Err),
                Err(failure) => {
                    if failure.keeps_memory {
                        std::mem::forget((source, target));
                    }
                    Err(failure.error)
                }
            };
            // Whoever asked waits for it.
            hears.give(outcome);
            None
        };
        self.turns.ask(Job::of_any_thread(job))?;
        while self.turns.help(&|| heard.has_come()) {}
        heard.wait().unwrap_or_else(|| Err(ended())).at_caller()
    }

    /// The rank has the group no longer, after what it asked for.
    pub(super) fn end_group(&self, members: Arc<Members>) {
        let job = move |engine: &mut dyn Engine| {
            engine.end(&members);
            None
        };
        // An ended rank has no groups.
        let _ = self.turns.ask(Job::of_any_thread(job));
    }

    /// The rank asks for nothing any more. The thread ends after what it was asked for.
    pub(super) fn close(&self) {
        let mut streams = self.streams.lock();
        for (_, stream) in std::mem::take(&mut *streams) {
            // Also if the job is dropped because the rank's thread has ended.
            let left = scopeguard::guard(stream, |stream| stream.leave());
            let job = move |_: &mut dyn Engine| {
                drop(left);
                None
            };
            let _ = self.turns.ask(Job::of_any_thread(job));
        }
        self.turns.close();
    }

    /// The stream of a device that stands for the rank's calls.
    fn stream(
        &self,
        streams: &mut Vec<(Device, Arc<HostStream>)>,
        device: &Device,
    ) -> Result<Arc<HostStream>> {
        if self.turns.is_closed() {
            return Err(ended());
        }
        let known = streams.iter().find(|(own, _)| own == device);
        if let Some((_, stream)) = known {
            return Ok(Arc::clone(stream));
        }
        let turns: Weak<dyn Help> = Arc::downgrade(&self.turns) as Weak<dyn Help>;
        let stream = device.backend().new_host_stream(turns)?;
        streams.push((device.clone(), Arc::clone(&stream)));
        Ok(stream)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

#[cold]
fn panicked(operation: &str) -> HostFailure {
    let text = format!("{operation}: the work of this rank panicked");
    HostFailure {
        error: Error::new(ErrorKind::Driver, text),
        keeps_memory: true,
    }
}

/// A piece of work of a stream, which ends in any case: as a failure where it drops.
struct Begun {
    stream: Arc<HostStream>,
    operation: &'static str,
    is_finished: bool,
}

impl Begun {
    fn new(stream: Arc<HostStream>, operation: &'static str) -> Self {
        stream.begin();
        Self {
            stream,
            operation,
            is_finished: false,
        }
    }

    fn id(&self) -> StreamId {
        self.stream.id()
    }

    fn finish(mut self, outcome: Result<(), HostFailure>) {
        self.is_finished = true;
        self.stream.finish(outcome);
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.is_finished {
            let text = format!("{}: the thread of this rank has ended", self.operation);
            let error = Error::new(ErrorKind::Driver, text);
            self.stream.finish(Err(error.into()));
        }
    }
}

/// Tells who waits, once.
struct Hearing(Option<Answering<Result<()>>>);

impl Asker for Hearing {
    fn tell(&mut self, agreed: Result<()>) -> bool {
        let hears = self.0.take();
        hears.is_some_and(|hears| hears.give(agreed))
    }
}

impl<F: FnMut(Result<()>) -> bool> Asker for F {
    fn tell(&mut self, agreed: Result<()>) -> bool {
        self(agreed)
    }
}
