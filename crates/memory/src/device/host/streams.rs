//! The streams of a host device: their numbers, and a test mode. The mode delays work as long as
//! stream order allows, so that a missing wait shows as wrong data.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::device::{Event, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::plain::{AtomicU16, Mutex, Ordering};

/// The maximum number of streams of a device. Stream owners need a few values beyond it.
const MAX_STREAMS: u16 = u16::MAX - 8;

/// The stream numbers in use.
///
/// Invariant: `retired` lists numbers below `next`, each once and none of them 0.
#[derive(Debug)]
pub(crate) struct StreamIds {
    next: AtomicU16,
    retired: Mutex<Vec<StreamId>>,
}

impl Default for StreamIds {
    /// Returns the numbers of a device that has stream 0 alone.
    fn default() -> Self {
        Self {
            next: AtomicU16::new(1),
            retired: Mutex::default(),
        }
    }
}

impl StreamIds {
    /// Returns the most recently retired number, else a new number.
    pub(in crate::device) fn acquire(&self) -> Result<StreamId> {
        let mut retired = self.retired.lock();
        match retired.pop() {
            Some(stream) => Ok(stream),
            None => self.next(),
        }
    }

    /// Returns a number that no stream has had.
    pub(in crate::device) fn acquire_fresh(&self) -> Result<StreamId> {
        let _retired = self.retired.lock();
        self.next()
    }

    /// Returns a new number. The caller holds the lock of `retired`.
    fn next(&self) -> Result<StreamId> {
        let fresh = self.count();
        if fresh >= MAX_STREAMS {
            let text = format!("a device has at most {MAX_STREAMS} streams at a time");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        self.next.store(fresh + 1, Ordering::Release);
        Ok(StreamId(fresh))
    }

    pub(in crate::device) fn retire(&self, stream: StreamId) {
        self.retired.lock().push(stream);
    }

    pub(in crate::device) fn count(&self) -> u16 {
        self.next.load(Ordering::Acquire)
    }
}

type DelayedWork = Box<dyn FnOnce() + Send>;

/// An entry of a stream's queue.
enum QueueEntry {
    Run(DelayedWork),
    /// Later entries must not run before the event is done.
    Wait(Event),
}

#[derive(Default)]
struct Queue {
    /// The number of finished entries: the position of the stream.
    done: u64,
    entries: VecDeque<QueueEntry>,
}

/// Streams whose work runs only when the host waits for it, or for work that depends on it.
///
/// Work runs under the lock, on the waiting thread, and must not use a stream.
///
/// Delayed work writes memory that was handed out long before. So after a panic no more work runs
/// on the device. Every wait returns an error, so unwritten memory is never read.
#[derive(Default)]
pub struct DelayedStreams {
    queues: Mutex<StreamQueues>,
}

/// Invariant: an event is recorded before a queue waits for it. So queues never wait for each other
/// in a cycle.
#[derive(Default)]
struct StreamQueues {
    streams: Vec<Queue>,
    failure: Option<String>,
    /// The number of events so far.
    recorded: u64,
}

impl DelayedStreams {
    /// Appends `work` to the queue of `stream`.
    pub fn push(&self, stream: StreamId, work: impl FnOnce() + Send + 'static) {
        let mut queues = self.queues.lock();
        queues
            .of(stream)
            .entries
            .push_back(QueueEntry::Run(Box::new(work)));
    }

    pub(super) fn record(&self, stream: StreamId) -> Event {
        let mut queues = self.queues.lock();
        queues.recorded += 1;
        let queue = queues.of(stream);
        Event {
            stream,
            position: queue.done + queue.entries.len() as u64,
        }
    }

    pub(super) fn wait(&self, stream: StreamId, event: Event) {
        let mut queues = self.queues.lock();
        queues.of(stream).entries.push_back(QueueEntry::Wait(event));
    }

    pub(super) fn is_done(&self, event: Event) -> bool {
        self.queues.lock().is_done(event)
    }

    /// # Errors
    ///
    /// [`Panic`](ErrorKind::Panic) if work on the device has panicked.
    pub(super) fn wait_for(&self, event: Event) -> Result<()> {
        let mut queues = self.queues.lock();
        queues.run_until(event);
        match &queues.failure {
            None => Ok(()),
            Some(said) => Err(Error::new(
                ErrorKind::Panic,
                format!("work on the device panicked, and the device is unusable: {said}"),
            )),
        }
    }

    /// Returns the number of events recorded so far.
    pub fn recorded(&self) -> u64 {
        self.queues.lock().recorded
    }
}

impl StreamQueues {
    fn of(&mut self, stream: StreamId) -> &mut Queue {
        let index = usize::from(stream.0);
        if index >= self.streams.len() {
            self.streams.resize_with(index + 1, Queue::default);
        }
        &mut self.streams[index]
    }

    fn is_done(&mut self, event: Event) -> bool {
        self.of(event.stream).done >= event.position
    }

    /// Runs the work before `event`, and the work that it waits for. Pending events are on an
    /// explicit stack, because a chain of waits may exceed the thread's stack.
    fn run_until(&mut self, event: Event) {
        let mut goals = vec![event];
        while let Some(&goal) = goals.last() {
            if self.is_done(goal) {
                goals.pop();
                continue;
            }
            let queue = self.of(goal.stream);
            if let Some(&QueueEntry::Wait(before)) = queue.entries.front()
                && !self.is_done(before)
            {
                goals.push(before);
                continue;
            }
            let queue = self.of(goal.stream);
            let entry = queue.entries.pop_front();
            queue.done += 1;
            if let Some(QueueEntry::Run(work)) = entry
                && self.failure.is_none()
            {
                // State left behind by a panic is not used again.
                let outcome = catch_unwind(AssertUnwindSafe(work));
                self.failure = outcome.err().map(|panic| panic_message(&*panic).to_owned());
            }
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is no text")
}

impl fmt::Debug for DelayedStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayedStreams").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;

    const A: StreamId = StreamId(0);
    const B: StreamId = StreamId(1);
    const C: StreamId = StreamId(2);

    /// Streams that log what ran.
    #[derive(Default)]
    struct Journal {
        streams: DelayedStreams,
        ran: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Journal {
        fn push(&self, stream: StreamId, name: &'static str) {
            let ran = Arc::clone(&self.ran);
            self.streams.push(stream, move || ran.lock().push(name));
        }

        fn ran(&self) -> Vec<&'static str> {
            self.ran.lock().clone()
        }

        fn synchronize(&self, stream: StreamId) {
            let event = self.streams.record(stream);
            self.streams.wait_for(event).unwrap();
        }
    }

    #[test]
    fn runs_nothing_before_a_wait_and_then_only_the_dependencies() {
        let journal = Journal::default();
        journal.push(A, "a1");
        let first = journal.streams.record(A);
        journal.push(A, "a2");
        journal.push(B, "b1");
        assert!(journal.ran().is_empty() && !journal.streams.is_done(first));
        journal.streams.wait_for(first).unwrap();
        assert_eq!(journal.ran(), ["a1"]);
        assert!(journal.streams.is_done(first));
        journal.synchronize(B);
        assert_eq!(journal.ran(), ["a1", "b1"]);
        journal.synchronize(A);
        assert_eq!(journal.ran(), ["a1", "b1", "a2"]);
    }

    #[test]
    fn a_wait_forces_the_other_stream_up_to_its_event() {
        let journal = Journal::default();
        journal.push(A, "a1");
        let after_a1 = journal.streams.record(A);
        journal.push(A, "a2");
        journal.push(B, "b1");
        journal.streams.wait(B, after_a1);
        journal.push(B, "b2");
        journal.synchronize(B);
        assert_eq!(journal.ran(), ["b1", "a1", "b2"]);
    }

    #[test]
    fn an_event_of_a_stream_without_work_is_done() {
        let streams = DelayedStreams::default();
        let event = streams.record(C);
        assert!(streams.is_done(event));
        streams.wait(A, event);
        streams.wait_for(streams.record(A)).unwrap();
        assert_eq!(streams.recorded(), 2);
    }

    /// Runs a chain of waits that is longer than the call stack allows.
    #[test]
    fn a_long_chain_of_waits_is_walked() {
        let journal = Journal::default();
        let rounds = 100_000;
        for round in 0..rounds {
            let (from, to) = if round % 2 == 0 { (A, B) } else { (B, A) };
            journal.streams.wait(to, journal.streams.record(from));
            journal.push(to, "step");
        }
        journal.synchronize(A);
        assert_eq!(journal.ran().len(), rounds);
    }

    #[test]
    fn retired_numbers_are_handed_out_again() {
        let ids = StreamIds::default();
        let (first, second) = (ids.acquire().unwrap(), ids.acquire().unwrap());
        assert_eq!((first, second), (B, C));
        ids.retire(first);
        assert_eq!(ids.acquire().unwrap(), first);
        assert_eq!(ids.count(), 3);
        for _ in 3..MAX_STREAMS {
            ids.acquire().unwrap();
        }
        assert_eq!(ids.acquire().unwrap_err().kind(), ErrorKind::Unsupported);
        ids.retire(second);
        assert_eq!(ids.acquire().unwrap(), second);
    }
}
