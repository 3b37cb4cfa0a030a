//! The call queue of a rank, and the engine that executes the calls.
//!
//! The rank's own thread executes the calls, so that exchanges overlap with the rank's computation.
//! If no thread has begun a call, a thread that waits for the call executes it. A wake-up of the
//! rank's own thread would take longer than a small exchange.
//!
//! A queued call still wakes the rank's own thread, because possibly no thread waits for the call.
//! The woken thread first yields for some microseconds, so that a waiting thread can begin the
//! call. Only the rank's own thread executes calls on a CUDA device, because a waiting thread may
//! be capturing a graph.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use super::engine::Engine;
use crate::device::host_streams::{HostStream, StealWork};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;
use crate::sync::plain::{Condvar, Mutex};

/// The work of a job. Returns the failure, if any.
type JobFn = dyn FnOnce(&mut dyn Engine) -> Option<StreamFailure> + Send;

/// A failure, and the stream that reports it to waiting threads.
pub(super) struct StreamFailure {
    pub(super) error: Error,
    pub(super) stream: Arc<HostStream>,
}

pub(super) struct Job {
    work: Box<JobFn>,
    /// True if a waiting thread may steal the job. Otherwise, only the rank's own thread may
    /// execute it.
    is_stealable: bool,
}

impl Job {
    pub(super) fn new(
        is_stealable: bool,
        work: impl FnOnce(&mut dyn Engine) -> Option<StreamFailure> + Send + 'static,
    ) -> Self {
        Self {
            work: Box::new(work),
            is_stealable,
        }
    }

    pub(super) fn stealable(
        work: impl FnOnce(&mut dyn Engine) -> Option<StreamFailure> + Send + 'static,
    ) -> Self {
        Self::new(true, work)
    }
}

/// The queue of a rank's calls. Invariant: jobs are executed one at a time, in the order in which
/// they were queued.
pub(super) struct CallQueue {
    state: Mutex<CallQueueState>,
    changed: Condvar,
}

struct CallQueueState {
    waiting: VecDeque<Job>,
    /// The engine. `None` while a thread uses it, and always after a panic or the end of `serve`.
    engine: Option<Box<dyn Engine>>,
    /// True if no more jobs are accepted.
    is_closed: bool,
    /// True if no more jobs are executed.
    is_over: bool,
    /// The first failure, which causes all later failures.
    failed: Option<StreamFailure>,
}

impl CallQueueState {
    fn may_be_stolen(&self) -> bool {
        self.waiting.front().is_some_and(|job| job.is_stealable)
    }
}

impl CallQueue {
    pub(super) fn new(engine: Box<dyn Engine>) -> Self {
        let state = CallQueueState {
            waiting: VecDeque::new(),
            engine: Some(engine),
            is_closed: false,
            is_over: false,
            failed: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::default(),
        }
    }

    pub(super) fn push(&self, job: Job) -> Result<()> {
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            // Dropping the job notifies the threads that wait for it.
            drop(job);
            return Err(ended());
        }
        state.waiting.push_back(job);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Stops accepting jobs. Queued jobs are still executed.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Executes jobs on the rank's own thread until the queue is closed and empty. Returns the
    /// first failure, unless it was reported before.
    pub(super) fn serve(&self) -> Option<Error> {
        // If the engine panics, the guard also abandons the queue.
        let _over = scopeguard::guard((), |()| self.abandon());
        while let Some((engine, job)) = self.next() {
            self.run(engine, job);
        }
        let mut state = self.state.lock();
        let (engine, failed) = (state.engine.take(), state.failed.take());
        drop(state);
        if let Some(mut engine) = engine {
            engine.close();
        }
        let unreported = failed.filter(|failed| !failed.stream.is_reported());
        unreported.map(|failed| failed.error)
    }

    /// Waits for the next job of the rank's own thread, and returns it with the engine. Returns
    /// `None` if the queue was abandoned, or is closed and empty.
    fn next(&self) -> Option<(Box<dyn Engine>, Job)> {
        let mut state = self.state.lock();
        let mut has_slept = false;
        loop {
            if state.is_over {
                return None;
            }
            if std::mem::take(&mut has_slept) && state.may_be_stolen() {
                drop(state);
                yield_to_waiters();
                state = self.state.lock();
            }
            let Some(mut engine) = state.engine.take() else {
                // Another thread has the engine. If work remains when that thread returns the
                // engine, it notifies this thread.
                state = self.changed.wait(&self.state, state);
                continue;
            };
            if let Some(job) = state.waiting.pop_front() {
                return Some((engine, job));
            }
            if state.is_closed {
                state.engine = Some(engine);
                return None;
            }
            drop(state);
            let pause = engine.make_progress();
            state = self.state.lock();
            state.engine = Some(engine);
            if state.waiting.is_empty() && !state.is_closed {
                has_slept = true;
                state = match pause {
                    None => self.changed.wait(&self.state, state),
                    Some(pause) => self.changed.wait_timeout(&self.state, state, pause),
                };
            }
        }
    }

    /// Executes a job on the calling thread, then returns the engine to the queue.
    fn run(&self, mut engine: Box<dyn Engine>, job: Job) {
        let done = catch_unwind(AssertUnwindSafe(move || {
            let failed = (job.work)(&mut *engine);
            let has_more = engine.make_progress().is_some();
            (engine, failed, has_more)
        }));
        let Ok((engine, failed, has_more)) = done else {
            return self.abandon();
        };
        let mut state = self.state.lock();
        state.engine = Some(engine);
        state.failed = state.failed.take().or(failed);
        let is_awaited = has_more || state.is_closed || !state.waiting.is_empty();
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// Drops all jobs and accepts no more jobs, because the engine is lost or closed.
    fn abandon(&self) {
        let mut state = self.state.lock();
        (state.is_closed, state.is_over) = (true, true);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.changed.notify_all();
        // The jobs are dropped without the lock, because their drop notifies the threads that wait
        // for them.
        drop(waiting);
    }
}

impl StealWork for CallQueue {
    fn steal(&self, is_over: &dyn Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        // While the engine is in the state, no job runs, so `is_over` cannot change.
        if state.engine.is_none() || !state.may_be_stolen() || is_over() {
            return false;
        }
        let (engine, job) = (state.engine.take(), state.waiting.pop_front());
        drop(state);
        self.run(
            engine.expect("the state has an engine"),
            job.expect("the state has a waiting job"),
        );
        true
    }
}

/// Yields, so that a thread that queues a job and waits for it can begin the job itself. Then no
/// thread needs to be woken.
fn yield_to_waiters() {
    const HEAD_START: Duration = Duration::from_micros(5);
    let began = Instant::now();
    while began.elapsed() < HEAD_START {
        yield_now();
    }
}

#[cold]
pub(super) fn ended() -> Error {
    let text = "the group cannot be used after its end: the ranks of its world have ended";
    Error::new(ErrorKind::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::collective::threads::ThreadEngine;
    use crate::device::StreamId;
    use crate::device::host_streams::HostStreams;
    use crate::sync::Weak;

    fn queue() -> CallQueue {
        let engine = ThreadEngine::world(1).pop().unwrap();
        CallQueue::new(Box::new(engine))
    }

    fn failed(text: &str, stream: &Arc<HostStream>) -> StreamFailure {
        StreamFailure {
            error: Error::new(ErrorKind::Driver, text),
            stream: Arc::clone(stream),
        }
    }

    fn stream() -> Arc<HostStream> {
        let nothing: Weak<dyn StealWork> = Weak::<CallQueue>::new();
        let host_streams = HostStreams::default();
        host_streams.open(nothing, || Ok(StreamId(7))).unwrap()
    }

    #[test]
    fn jobs_are_executed_in_order_by_any_thread() {
        let queue = queue();
        let done = Arc::new(Mutex::new(Vec::new()));
        let stream = stream();
        std::thread::scope(|threads| {
            let server = threads.spawn(|| queue.serve());
            for number in 0..2000 {
                let (done, stream) = (Arc::clone(&done), Arc::clone(&stream));
                let job = move |_: &mut dyn Engine| {
                    done.lock().push(number);
                    (number == 7 || number == 9).then(|| failed(&number.to_string(), &stream))
                };
                queue.push(Job::new(number % 5 > 0, job)).unwrap();
                if number % 3 == 0 {
                    while queue.steal(&|| false) {}
                }
            }
            queue.close();
            let unreported = server.join().unwrap().expect("two failed");
            assert!(
                unreported.to_string().contains('7'),
                "the first: {unreported}"
            );
        });
        assert_eq!(*done.lock(), (0..2000).collect::<Vec<_>>());
        assert!(queue.state.lock().engine.is_none(), "it is closed");
        let late = queue.push(Job::stealable(|_| None)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn a_reported_failure_is_not_reported_again() {
        let stream = stream();
        let (queue, failing) = (queue(), Arc::clone(&stream));
        stream.begin();
        let fails = move |_: &mut dyn Engine| {
            let failed = failed("it failed", &failing);
            failing.finish(Err(failed.error.clone().into()));
            Some(failed)
        };
        queue.push(Job::stealable(fails)).unwrap();
        assert!(queue.steal(&|| false));
        assert!(stream.wait_for(&stream.event()).is_err());
        queue.close();
        assert!(queue.serve().is_none());
    }

    #[test]
    fn a_waiting_thread_steals_only_stealable_idle_jobs() {
        let queue = queue();
        assert!(!queue.steal(&|| false), "there is nothing to do");
        let (begins, begun) = channel();
        let (ends, ended) = channel::<()>();
        let at_it = move |_: &mut dyn Engine| {
            begins.send(()).unwrap();
            ended.recv().unwrap();
            None
        };
        queue.push(Job::stealable(at_it)).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| assert!(queue.steal(&|| false)));
            begun.recv().unwrap();
            queue.push(Job::stealable(|_| None)).unwrap();
            assert!(!queue.steal(&|| false), "another thread has the engine");
            ends.send(()).unwrap();
        });
        assert!(!queue.steal(&|| true), "the wait is over");
        queue.push(Job::new(false, |_| None)).unwrap();
        assert!(queue.steal(&|| false));
        assert!(
            !queue.steal(&|| false),
            "what is left is for the rank's own thread"
        );
    }

    #[test]
    fn a_panic_drops_all_jobs_and_ends_all_waits() {
        let queue = queue();
        let (tells, told) = channel::<()>();
        queue
            .push(Job::stealable(|_| panic!("on purpose")))
            .unwrap();
        let never = move |_: &mut dyn Engine| {
            tells.send(()).unwrap();
            None
        };
        queue.push(Job::stealable(never)).unwrap();
        assert!(queue.steal(&|| false), "it was tried");
        assert!(told.recv().is_err(), "what came after it was dropped");
        assert!(!queue.steal(&|| false));
        assert!(queue.push(Job::stealable(|_| None)).is_err());
        assert!(queue.serve().is_none(), "its thread ends");
    }
}
