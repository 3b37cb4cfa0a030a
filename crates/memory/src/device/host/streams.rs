//! The streams of a host device: their identifiers, and a test mode. The test mode delays work as
//! long as stream order allows. So a missing wait results in wrong data.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::device::{Event, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::plain::{AtomicU16, Mutex, Ordering};

/// The maximum number of streams of a device. The stream owner of a block has special values above
/// this count.
const MAX_STREAMS: u16 = u16::MAX - 8;

/// The allocator of stream identifiers.
///
/// Invariant: `retired` has distinct identifiers from 1 to `next - 1`.
#[derive(Debug)]
pub(crate) struct StreamIds {
    next: AtomicU16,
    retired: Mutex<Vec<StreamId>>,
}

impl Default for StreamIds {
    /// Returns the identifiers of a device with stream 0 only.
    fn default() -> Self {
        Self {
            next: AtomicU16::new(1),
            retired: Mutex::default(),
        }
    }
}

impl StreamIds {
    /// Returns the most recently retired identifier. If no identifier is retired, returns a new
    /// one.
    pub(in crate::device) fn acquire(&self) -> Result<StreamId> {
        let mut retired = self.retired.lock();
        match retired.pop() {
            Some(stream) => Ok(stream),
            None => self.next(),
        }
    }

    /// Returns an identifier that no stream has had.
    pub(in crate::device) fn acquire_fresh(&self) -> Result<StreamId> {
        let _retired = self.retired.lock();
        self.next()
    }

    /// Returns a new identifier. The caller must hold the lock of `retired`.
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

enum QueueEntry {
    Run(DelayedWork),
    /// A wait: later entries must not run before the event is done.
    Wait(Event),
}

#[derive(Default)]
struct Queue {
    /// The number of finished entries, which is the stream's position.
    done: u64,
    entries: VecDeque<QueueEntry>,
}

/// Streams whose work runs only when the host waits for it or for dependent work.
///
/// Work runs on the waiting thread, under the lock of `queues`. So work must not use a stream.
///
/// If work panics, the memory that it should write stays unwritten. So after a panic, no more work
/// runs on the device, and every wait returns an error. Unwritten memory is then never read.
#[derive(Default)]
pub struct DelayedStreams {
    queues: Mutex<StreamQueues>,
}

/// Invariant: an event is recorded before a queue waits for it. So waits never form a cycle.
#[derive(Default)]
struct StreamQueues {
    streams: Vec<Queue>,
    failure: Option<String>,
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

    /// Runs the work before `event`, and all work that this work waits for. Pending events are on
    /// an explicit stack, because recursion over a long chain of waits overflows the thread's
    /// stack.
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
                // After a panic, no more work runs, so state that the panic left broken is not
                // used.
                let outcome = catch_unwind(AssertUnwindSafe(work));
                self.failure = outcome.err().map(|panic| panic_message(&*panic).to_owned());
            }
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic value that is not text")
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

    /// Delayed streams with a log of the executed work.
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

    /// A wait executes a chain of waits that is too long for recursion.
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
