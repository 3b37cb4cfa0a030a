//! The calls that a rank has asked for, and the engine that makes them.
//!
//! The rank's own thread makes them, so that exchanges go on while the rank computes. A thread that
//! waits for a call makes it itself if no thread has begun it: waking another thread, and being
//! woken by it, takes longer than a small exchange.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use super::engine::Engine;
use crate::device::host_streams::{Help, HostStream};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;
use crate::sync::plain::{Condvar, Mutex};

/// What a job does. It returns its failure.
type Do = dyn FnOnce(&mut dyn Engine) -> Option<Failed> + Send;

/// A failure, and the stream on which those who wait are told.
pub(super) struct Failed {
    pub(super) error: Error,
    pub(super) stream: Arc<HostStream>,
}

/// Something that a rank was asked for.
pub(super) struct Job {
    work: Box<Do>,
    /// Whether any thread may do it, or the rank's own alone.
    by_any_thread: bool,
}

impl Job {
    pub(super) fn new(
        by_any_thread: bool,
        work: impl FnOnce(&mut dyn Engine) -> Option<Failed> + Send + 'static,
    ) -> Self {
        Self {
            work: Box::new(work),
            by_any_thread,
        }
    }

    pub(super) fn of_any_thread(
        work: impl FnOnce(&mut dyn Engine) -> Option<Failed> + Send + 'static,
    ) -> Self {
        Self::new(true, work)
    }
}

/// Invariant: jobs are done one at a time, in the order in which they were asked for.
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: VecDeque<Job>,
    /// Away while a thread has its turn; for good after a panic, or the end.
    engine: Option<Box<dyn Engine>>,
    /// Nothing is asked for any more.
    is_closed: bool,
    /// Nor is anything done.
    is_over: bool,
    /// The first failure: others follow from it.
    failed: Option<Failed>,
}

impl State {
    fn may_be_helped(&self) -> bool {
        self.waiting.front().is_some_and(|job| job.by_any_thread)
    }
}

impl Turns {
    pub(super) fn new(engine: Box<dyn Engine>) -> Self {
        let state = State {
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

    /// Asks for something more.
    pub(super) fn ask(&self, job: Job) -> Result<()> {
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            // Whoever waits for it hears that it is not done.
            drop(job);
            return Err(ended());
        }
        state.waiting.push_back(job);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Nothing is asked for any more. What was, is done.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Does the jobs, on the rank's own thread, until there will be none. Gives the first failure,
    /// unless somebody has heard of it.
    pub(super) fn serve(&self) -> Option<Error> {
        // Also where the engine panics.
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
        let unheard = failed.filter(|failed| !failed.stream.is_reported());
        unheard.map(|failed| failed.error)
    }

    /// The next job of the rank's own thread, and the engine; `None` where there will be none.
    fn next(&self) -> Option<(Box<dyn Engine>, Job)> {
        let mut state = self.state.lock();
        let mut has_slept = false;
        loop {
            if state.is_over {
                return None;
            }
            if std::mem::take(&mut has_slept) && state.may_be_helped() {
                drop(state);
                let_waiters_go_first();
                state = self.state.lock();
            }
            let Some(mut engine) = state.engine.take() else {
                // The thread that has it wakes this one afterwards, if there is anything to do.
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
            let pause = engine.go_on();
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

    /// Does a job on the calling thread, and puts the engine back.
    fn run(&self, mut engine: Box<dyn Engine>, job: Job) {
        let done = catch_unwind(AssertUnwindSafe(move || {
            let failed = (job.work)(&mut *engine);
            let goes_on = engine.go_on().is_some();
            (engine, failed, goes_on)
        }));
        let Ok((engine, failed, goes_on)) = done else {
            return self.abandon();
        };
        let mut state = self.state.lock();
        state.engine = Some(engine);
        state.failed = state.failed.take().or(failed);
        let is_awaited = goes_on || state.is_closed || !state.waiting.is_empty();
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// Nothing is done any more: the engine is lost, or closed.
    fn abandon(&self) {
        let mut state = self.state.lock();
        (state.is_closed, state.is_over) = (true, true);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.changed.notify_all();
        // Without the lock: whoever waits for them hears that they are not done.
        drop(waiting);
    }
}

impl Help for Turns {
    fn help(&self, is_over: &dyn Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        // While the engine is here, no job ends.
        if state.engine.is_none() || !state.may_be_helped() || is_over() {
            return false;
        }
        let (engine, job) = (state.engine.take(), state.waiting.pop_front());
        drop(state);
        self.run(engine.expect("it is here"), job.expect("there is one"));
        true
    }
}

/// A thread that waits right after it has asked begins the job itself within this time, and need
/// not be woken then.
fn let_waiters_go_first() {
    const PATIENCE: Duration = Duration::from_micros(5);
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        yield_now();
    }
}

#[cold]
pub(super) fn ended() -> Error {
    let text = "the group is used after its end: the ranks of its world have ended";
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

    fn turns() -> Turns {
        let engine = ThreadEngine::world(1).pop().unwrap();
        Turns::new(Box::new(engine))
    }

    fn failed(text: &str, stream: &Arc<HostStream>) -> Failed {
        Failed {
            error: Error::new(ErrorKind::Driver, text),
            stream: Arc::clone(stream),
        }
    }

    fn stream() -> Arc<HostStream> {
        let nothing: Weak<dyn Help> = Weak::<Turns>::new();
        let host_streams = HostStreams::default();
        host_streams.open(nothing, || Ok(StreamId(7))).unwrap()
    }

    #[test]
    fn jobs_are_done_in_order_whoever_does_them() {
        let turns = turns();
        let done = Arc::new(Mutex::new(Vec::new()));
        let stream = stream();
        std::thread::scope(|threads| {
            let server = threads.spawn(|| turns.serve());
            for number in 0..2000 {
                let (done, stream) = (Arc::clone(&done), Arc::clone(&stream));
                let job = move |_: &mut dyn Engine| {
                    done.lock().push(number);
                    (number == 7 || number == 9).then(|| failed(&number.to_string(), &stream))
                };
                turns.ask(Job::new(number % 5 > 0, job)).unwrap();
                if number % 3 == 0 {
                    while turns.help(&|| false) {}
                }
            }
            turns.close();
            let unheard = server.join().unwrap().expect("two failed");
            assert!(unheard.to_string().contains('7'), "the first: {unheard}");
        });
        assert_eq!(*done.lock(), (0..2000).collect::<Vec<_>>());
        assert!(turns.state.lock().engine.is_none(), "it is closed");
        let late = turns.ask(Job::of_any_thread(|_| None)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn a_failure_that_was_heard_is_told_no_more() {
        let stream = stream();
        let (turns, failing) = (turns(), Arc::clone(&stream));
        stream.begin();
        let fails = move |_: &mut dyn Engine| {
            let failed = failed("it failed", &failing);
            failing.finish(Err(failed.error.clone().into()));
            Some(failed)
        };
        turns.ask(Job::of_any_thread(fails)).unwrap();
        assert!(turns.help(&|| false));
        assert!(stream.wait_for(&stream.event()).is_err());
        turns.close();
        assert!(turns.serve().is_none());
    }

    #[test]
    fn who_waits_does_only_what_by_any_thread_and_nobody_is_at() {
        let turns = turns();
        assert!(!turns.help(&|| false), "there is nothing to do");
        let (begins, begun) = channel();
        let (ends, ended) = channel::<()>();
        let at_it = move |_: &mut dyn Engine| {
            begins.send(()).unwrap();
            ended.recv().unwrap();
            None
        };
        turns.ask(Job::of_any_thread(at_it)).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| assert!(turns.help(&|| false)));
            begun.recv().unwrap();
            turns.ask(Job::of_any_thread(|_| None)).unwrap();
            assert!(!turns.help(&|| false), "another thread has the engine");
            ends.send(()).unwrap();
        });
        assert!(!turns.help(&|| true), "the wait is over");
        turns.ask(Job::new(false, |_| None)).unwrap();
        assert!(turns.help(&|| false));
        assert!(
            !turns.help(&|| false),
            "what is left is for the rank's own thread"
        );
    }

    #[test]
    fn after_a_panic_nothing_is_done_and_all_who_wait_hear_it() {
        let turns = turns();
        let (tells, told) = channel::<()>();
        turns
            .ask(Job::of_any_thread(|_| panic!("on purpose")))
            .unwrap();
        let never = move |_: &mut dyn Engine| {
            tells.send(()).unwrap();
            None
        };
        turns.ask(Job::of_any_thread(never)).unwrap();
        assert!(turns.help(&|| false), "it was tried");
        assert!(told.recv().is_err(), "what came after it was dropped");
        assert!(!turns.help(&|| false));
        assert!(turns.ask(Job::of_any_thread(|_| None)).is_err());
        assert!(turns.serve().is_none(), "its thread ends");
    }
}
