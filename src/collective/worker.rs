//! The worker of a rank, which executes the rank's calls in order. The calls run on the worker's
//! thread, or on a thread that waits for a call.
//!
//! MPI makes progress only inside of its calls, so the worker's thread calls MPI while the rank
//! computes. The worker's queue orders a rank's calls over all its groups. Therefore each pair of
//! ranks begins its common calls in one order. A rank waits in one call at a time, so the ranks
//! that it waits for are known.
//!
//! The memory treats the worker as a stream, and an exchange in flight as a kernel in flight.

use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::thread::{Builder, JoinHandle};

use super::call_queue::{CallQueue, Job, StreamFailure, ended};
use super::channel::one_shot;
use super::engine::{CallMemory, Engine, Members, Work};
use super::memory::Spans;
use crate::context::{Device, Timed};
use crate::device::StreamId;
use crate::device::host_streams::{HostFailure, HostStream, StealWork};
use crate::error::{AtCaller, Error, ErrorKind, Result, reported_call_site};
use crate::memory::uses::StreamUse;
use crate::sync::plain::Mutex;
use crate::sync::{Arc, Weak};

/// A rank's handle of its call queue. When the handle drops, the rank's own thread executes the
/// queued calls and ends.
pub(super) struct Worker {
    /// The call queue. It is closed when the rank has ended.
    queue: Arc<CallQueue>,
    /// The host streams of the rank's calls, one for each device whose memory the calls use. Calls
    /// are queued under this lock, so that their order on the stream is their order in the queue.
    streams: Mutex<Vec<(Device, Arc<HostStream>)>>,
}

impl Worker {
    /// Starts the thread of a rank. The thread returns the first failure, unless it was reported
    /// before.
    pub(super) fn start(
        rank: usize,
        engine: Box<dyn Engine>,
    ) -> Result<(Arc<Self>, JoinHandle<Option<Error>>)> {
        let queue = Arc::new(CallQueue::new(engine));
        let served = Arc::clone(&queue);
        let thread = Builder::new().name(format!("cachescope-rank-{rank}"));
        let thread = thread.spawn(move || served.serve());
        let thread =
            thread.map_err(|error| not_started(&format!("the thread of rank {rank}"), error))?;
        let worker = Self {
            queue,
            streams: Mutex::default(),
        };
        Ok((Arc::new(worker), thread))
    }

    /// Queues a call on device memory, in stream order. If the ranks compare their calls, waits for
    /// the comparison.
    #[track_caller]
    pub(super) fn submit(&self, work: Work, spans: Spans<'_>) -> Result<()> {
        let (sender, receiver) = one_shot();
        let mut verdict = work.settings.checks.then_some(sender);
        let (device, call_site) = (spans.device(), reported_call_site(Location::caller()));
        let is_recorded = device.memory().recorder().is_active();
        // A waiting thread may be capturing work of the device, or may be inside of a recorded
        // operation. A thread in either state must not execute the call.
        let is_stealable = device.backend().cuda().is_none() && !is_recorded;
        {
            let mut streams = self.streams.lock();
            let stream = self.stream(&mut streams, device)?;
            spans
                .order_on(StreamUse::until(stream.next_event()))
                .at_caller()?;
            let memory = spans.detached(stream.id());
            let pending = PendingOperation::new(stream, work.call.operation.name());
            let job = move |engine: &mut dyn Engine| {
                let serving = pending.stream.serve();
                let begin = || Timed::begin_on_at(&memory.device, pending.id(), call_site);
                let timed = is_recorded.then(begin);
                let mut completion =
                    |agreed| verdict.take().is_some_and(|sender| sender.send(agreed));
                let carried = catch_unwind(AssertUnwindSafe(|| {
                    // SAFETY: the stream orders the call after all earlier uses of its memory.
                    // Later uses wait until `finish`.
                    unsafe { memory.carry(engine, &work, &mut completion) }
                }));
                let outcome = carried.unwrap_or_else(|_| {
                    // Other ranks may still use the memory.
                    memory.leak_device();
                    Err(panicked(work.call.operation.name()))
                });
                let outcome = outcome.map_err(|failure| failure.at(call_site));
                let failed = outcome.as_ref().err().map(|failure| StreamFailure {
                    error: failure.error.clone(),
                    stream: Arc::clone(&pending.stream),
                });
                // The failure is not reported yet. Later calls must fail, too, so that no later
                // call appears to have succeeded.
                failed.iter().for_each(|failed| engine.fail(&failed.error));
                // The end of the call must be recorded before `finish` wakes the threads that wait
                // for the call.
                drop(timed);
                drop(serving);
                pending.finish(outcome);
                failed
            };
            self.queue.push(Job::new(is_stealable, job))?;
        }
        match receiver.wait() {
            Some(agreed) => agreed.at_caller(),
            // No verdict was requested, or the thread failed. The stream reports the failure.
            None => Ok(()),
        }
    }

    /// Executes a call on the host memory of `source`, waits for its end, and returns the rank's
    /// output.
    #[track_caller]
    pub(super) fn call_and_wait(
        &self,
        work: Work,
        mut source: Vec<u64>,
        length: usize,
    ) -> Result<Vec<u64>> {
        let (sender, receiver) = one_shot();
        let mut target = vec![0; length];
        let job = move |engine: &mut dyn Engine| {
            let memory = CallMemory {
                is_of_device: false,
                source: source.as_mut_ptr().cast(),
                target: target.as_mut_ptr().cast(),
            };
            let mut failure = None;
            let mut completion = |agreed: Result<()>| {
                failure = agreed.err();
                true
            };
            // SAFETY: both vectors belong to this job, which drops neither before the call returns.
            let outcome = unsafe { engine.run(&work, memory, &mut completion) };
            let outcome = match outcome {
                Ok(()) => failure.map_or(Ok(target), Err),
                Err(failure) => {
                    if failure.keeps_memory {
                        std::mem::forget((source, target));
                    }
                    Err(failure.error)
                }
            };
            // The caller waits for the outcome, so the outcome is always received.
            sender.send(outcome);
            None
        };
        self.queue.push(Job::stealable(job))?;
        while self.queue.steal(&|| receiver.is_ready()) {}
        receiver.wait().unwrap_or_else(|| Err(ended())).at_caller()
    }

    /// Marks the rank as gone after the queued calls, and waits until the rank is marked.
    pub(super) fn leave(&self, reason: String) {
        let (sender, receiver) = one_shot();
        let job = move |engine: &mut dyn Engine| {
            engine.leave(&reason);
            sender.send(());
            None
        };
        // If the queue is closed, the rank has already ended, and there is nothing to wait for.
        if self.queue.push(Job::stealable(job)).is_ok() {
            while self.queue.steal(&|| receiver.is_ready()) {}
            receiver.wait();
        }
    }

    /// Records that this rank has dropped the group, after the queued calls.
    pub(super) fn end_group(&self, members: Arc<Members>) {
        let job = move |engine: &mut dyn Engine| {
            engine.end(&members);
            None
        };
        // The push fails only if the queue is closed. The rank then has no groups.
        let _ = self.queue.push(Job::stealable(job));
    }

    /// Closes the queue. The thread ends after the queued calls.
    pub(super) fn close(&self) {
        let mut streams = self.streams.lock();
        for (_, stream) in std::mem::take(&mut *streams) {
            // If the rank's thread has ended, the job is dropped, and the guard runs in this case,
            // too.
            let left = scopeguard::guard(stream, |stream| stream.leave());
            let job = move |_: &mut dyn Engine| {
                drop(left);
                None
            };
            let _ = self.queue.push(Job::stealable(job));
        }
        self.queue.close();
    }

    /// Returns the host stream of the rank's calls on `device`, and creates it at the first use.
    fn stream(
        &self,
        streams: &mut Vec<(Device, Arc<HostStream>)>,
        device: &Device,
    ) -> Result<Arc<HostStream>> {
        if self.queue.is_closed() {
            return Err(ended());
        }
        let known = streams.iter().find(|(own, _)| own == device);
        if let Some((_, stream)) = known {
            return Ok(Arc::clone(stream));
        }
        let queue: Weak<dyn StealWork> = Arc::downgrade(&self.queue) as Weak<dyn StealWork>;
        let stream = device.backend().new_host_stream(queue)?;
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

/// Returns the error of a thread that the operating system did not start.
#[cold]
#[track_caller]
pub(super) fn not_started(thread: &str, error: io::Error) -> Error {
    let text = format!("{thread} was not started: {error}");
    Error::new(ErrorKind::Thread, text).caused_by(error)
}

#[cold]
fn panicked(operation: &str) -> HostFailure {
    let text = format!("{operation}: the work of this rank panicked");
    HostFailure {
        error: Error::new(ErrorKind::Panic, text),
        keeps_memory: true,
    }
}

/// One operation of a host stream. It always finishes: if it is dropped unfinished, it finishes
/// with a failure.
struct PendingOperation {
    stream: Arc<HostStream>,
    operation: &'static str,
    is_finished: bool,
}

impl PendingOperation {
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

impl Drop for PendingOperation {
    fn drop(&mut self) {
        if !self.is_finished {
            let text = format!("{}: the thread of this rank has ended", self.operation);
            let error = Error::new(ErrorKind::Thread, text);
            self.stream.finish(Err(error.into()));
        }
    }
}
