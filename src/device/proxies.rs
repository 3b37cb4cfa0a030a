//! Streams whose work threads of the host do: what a library does that knows nothing of streams, MPI, say.
//!
//! To the layers above they are streams as any other: they have numbers, and events at positions. What differs is who waits.
//! A stream of the device cannot wait for a thread, so the host waits, as it submits the work that comes after.

use std::fmt;
use std::panic::Location;

use super::{Event, StreamId};
use crate::error::{Error, Result};
use crate::sync::plain::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use crate::sync::{Arc, Weak, thread_token};

/// The proxy streams of a device, including idle ones that wait for another owner.
#[derive(Debug, Default)]
pub(crate) struct ProxyStreams {
    /// Set with the first stream, so that devices without one need no lock.
    are_any: AtomicBool,
    /// By rising number.
    all: Mutex<Vec<Arc<ProxyStream>>>,
}

/// One proxy stream.
///
/// Owners, the ranks, have it one after the other. Positions rise through all of them, so that an
/// event of an earlier owner is completed, and never waits for a later one.
///
/// Invariants: positions rise by one with each piece of work, and pieces end in this order. No
/// stream of the device ever has its number.
pub(crate) struct ProxyStream {
    id: StreamId,
    /// The token of the thread that does its work now, [`BETWEEN`] two pieces, or [`LEFT`].
    server: AtomicU64,
    helper: Mutex<Weak<dyn Help>>,
    /// The token of the thread that began work last.
    asker: AtomicU64,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// What does the work of a proxy stream, of which the calling thread may do some.
pub(crate) trait Help: Send + Sync {
    /// Does the piece that is next, if no thread is at one, any thread may do it, and the wait is not over. Answers whether it did.
    ///
    /// `is_over` is asked where no piece can end meanwhile: what comes after the wait may wait for the thread that waits.
    fn help(&self, is_over: &dyn Fn() -> bool) -> bool;
}

#[derive(Default)]
struct Progress {
    begun: u64,
    done: u64,
    /// The first failure of each owner that had one, by rising position.
    failures: Vec<Failure>,
    /// Whether the present owner's failure was returned to a thread that waited.
    is_reported: bool,
}

/// The failure of an owner's work. All of its later work counts as failed too.
struct Failure {
    /// The position of the work that failed.
    first: u64,
    /// The last position of the owner; [`PRESENT`] until there is another owner.
    last: u64,
    error: Error,
    /// The position of the first piece whose memory something may still read or write.
    never_done: Option<u64>,
}

/// The end of the present owner's positions.
const PRESENT: u64 = u64::MAX;

/// How a piece of work failed.
#[derive(Debug)]
pub(crate) struct ProxyFailure {
    pub(crate) error: Error,
    /// Whether something that nothing can stop still has the memory. It is never used again then.
    pub(crate) keeps_memory: bool,
}

impl ProxyFailure {
    /// The same, with the line that asked for the work.
    pub(crate) fn at(self, call_site: &'static Location<'static>) -> Self {
        let error = self.error.at(call_site);
        Self { error, ..self }
    }
}

impl From<Error> for ProxyFailure {
    fn from(error: Error) -> Self {
        Self {
            error,
            keeps_memory: false,
        }
    }
}

impl ProxyStreams {
    /// Returns a proxy stream whose work `helper` does: one that its owner left, or else one with
    /// the number that `new_stream` returns, which is above all before.
    pub(crate) fn open(
        &self,
        helper: Weak<dyn Help>,
        new_stream: impl FnOnce() -> Result<StreamId>,
    ) -> Result<Arc<ProxyStream>> {
        let mut all = self.all.lock();
        if let Some(idle) = all.iter().find(|proxy| proxy.is_idle()) {
            let idle = Arc::clone(idle);
            idle.progress.lock().change_owner();
            *idle.helper.lock() = helper;
            idle.server.store(BETWEEN, Ordering::Release);
            return Ok(idle);
        }
        let fresh = Arc::new(ProxyStream {
            id: new_stream()?,
            server: AtomicU64::new(BETWEEN),
            helper: Mutex::new(helper),
            asker: AtomicU64::new(0),
            progress: Mutex::default(),
            changed: Condvar::default(),
        });
        all.push(Arc::clone(&fresh));
        self.are_any.store(true, Ordering::Release);
        Ok(fresh)
    }

    /// Whether there are any.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.are_any.load(Ordering::Acquire)
    }

    /// The proxy stream of that number. `None` also on the thread that does its work now: to that it is what it stands for, a
    /// stream of the device, where that has such.
    #[inline]
    pub(super) fn of(&self, stream: StreamId) -> Option<Arc<ProxyStream>> {
        self.named(stream).filter(|proxy| !proxy.is_served_here())
    }

    /// The same to every thread.
    #[inline]
    pub(super) fn named(&self, stream: StreamId) -> Option<Arc<ProxyStream>> {
        if !self.are_any() {
            return None;
        }
        let all = self.all.lock();
        let found = all.binary_search_by_key(&stream, |proxy| proxy.id);
        found.ok().map(|index| Arc::clone(&all[index]))
    }
}

/// The server of a proxy stream between two pieces of work, and of one whose work has ended: no thread's tokens.
const BETWEEN: u64 = u64::MAX;
const LEFT: u64 = 0;

impl ProxyStream {
    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// The calling thread does its next piece of work, until the guard drops.
    pub(crate) fn serve(&self) -> impl Drop {
        self.server.store(thread_token(), Ordering::Release);
        let server = &self.server;
        scopeguard::guard((), |()| server.store(BETWEEN, Ordering::Release))
    }

    /// Ends the owner's use of the stream. Once all work is done, the stream may be opened again.
    pub(crate) fn leave(&self) {
        self.asker.store(0, Ordering::Release);
        self.server.store(LEFT, Ordering::Release);
    }

    fn has_ended(&self, position: u64) -> bool {
        self.progress.lock().done >= position
    }

    /// Does a piece of its work on the calling thread, which waits for a position. Answers whether it did.
    fn help(&self, position: u64) -> bool {
        let helper = self.helper.lock().upgrade();
        helper.is_some_and(|helper| helper.help(&|| self.has_ended(position)))
    }

    fn is_served_here(&self) -> bool {
        self.server.load(Ordering::Acquire) == thread_token()
    }

    fn is_idle(&self) -> bool {
        let progress = self.progress.lock();
        let ended = self.server.load(Ordering::Acquire) == LEFT;
        ended && progress.done == progress.begun
    }

    /// Whether the calling thread began its work. Only then may the thread wait for all of it: what another rank began may wait for
    /// what this one is to begin.
    pub(crate) fn is_asked_here(&self) -> bool {
        self.asker.load(Ordering::Acquire) == thread_token()
    }

    /// Begins a piece of work. It is to be finished.
    pub(crate) fn begin(&self) {
        self.asker.store(thread_token(), Ordering::Release);
        self.progress.lock().begun += 1;
    }

    /// Ends the piece that was begun first of those that are not done.
    pub(crate) fn finish(&self, outcome: Result<(), ProxyFailure>) {
        let mut progress = self.progress.lock();
        progress.done += 1;
        if let Err(failure) = outcome {
            progress.fail(failure);
        }
        drop(progress);
        self.changed.notify_all();
    }

    /// Returns whether a thread that waited got the present owner's failure.
    pub(crate) fn is_reported(&self) -> bool {
        self.progress.lock().is_reported
    }

    /// Returns the event after the piece of work that is begun next.
    pub(crate) fn next_event(&self) -> Event {
        let mut event = self.event();
        event.position += 1;
        event
    }

    /// Returns the event after all work begun so far.
    pub(crate) fn event(&self) -> Event {
        Event {
            stream: self.id,
            position: self.progress.lock().begun,
        }
    }

    /// Waits until what was begun before the event has ended, whatever came of it.
    pub(crate) fn settle(&self, event: &Event) {
        drop(self.ended(event));
    }

    pub(super) fn is_done(&self, event: &Event) -> bool {
        self.progress.lock().is_done(event.position)
    }

    /// Waits for what was begun before the event: does it, where nobody is at it yet.
    ///
    /// # Errors
    ///
    /// The first failure, where it comes before the event: whoever waits would read what was not written.
    pub(crate) fn wait_for(&self, event: &Event) -> Result<()> {
        let mut progress = self.ended(event);
        let Some(failure) = progress.failure_at(event.position) else {
            return Ok(());
        };
        let (error, is_present) = (failure.error.clone(), failure.last == PRESENT);
        progress.is_reported |= is_present;
        Err(error)
    }

    /// Returns the failure before the event, if an earlier owner of the stream had it. The present
    /// owner's work is ordered after its own, and fails with it.
    pub(crate) fn check_predecessors(&self, event: &Event) -> Result<()> {
        let progress = self.progress.lock();
        let failure = progress.failure_at(event.position);
        match failure.filter(|failure| failure.last != PRESENT) {
            Some(failure) => Err(failure.error.clone()),
            None => Ok(()),
        }
    }

    /// The progress, once what was begun before the event has ended.
    fn ended(&self, event: &Event) -> MutexGuard<'_, Progress> {
        while !self.has_ended(event.position) && self.help(event.position) {}
        let mut progress = self.progress.lock();
        while progress.done < event.position {
            progress = self.changed.wait(&self.progress, progress);
        }
        progress
    }

    /// Waits for everything begun so far.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.wait_for(&self.event())
    }
}

impl Progress {
    /// Returns the failure at or before a position, of the owner that the position belongs to.
    fn failure_at(&self, position: u64) -> Option<&Failure> {
        let next = self
            .failures
            .partition_point(|failure| failure.first <= position);
        let before = &self.failures[next.checked_sub(1)?];
        (position <= before.last).then_some(before)
    }

    /// Records that the piece of work that ended last has failed.
    fn fail(&mut self, failure: ProxyFailure) {
        let position = self.done;
        let never_done = failure.keeps_memory.then_some(position);
        match self.failures.last_mut() {
            Some(first) if first.last == PRESENT => {
                first.never_done = first.never_done.or(never_done);
            }
            _ => self.failures.push(Failure {
                first: position,
                last: PRESENT,
                error: failure.error,
                never_done,
            }),
        }
    }

    /// Closes the present owner's failure, so that it does not reach the next owner's work.
    fn change_owner(&mut self) {
        self.is_reported = false;
        if let Some(failure) = self.failures.last_mut() {
            failure.last = failure.last.min(self.done);
        }
    }

    fn is_done(&self, position: u64) -> bool {
        let never_done = self.failure_at(position).and_then(|f| f.never_done);
        self.done >= position && never_done.is_none_or(|never| never > position)
    }
}

impl fmt::Debug for ProxyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyStream({})", self.id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// Nothing to do for who waits.
    struct Nothing;

    impl Help for Nothing {
        fn help(&self, _: &dyn Fn() -> bool) -> bool {
            false
        }
    }

    fn nothing() -> Weak<dyn Help> {
        Weak::<Nothing>::new()
    }

    fn open(proxies: &ProxyStreams) -> Arc<ProxyStream> {
        proxies.open(nothing(), || Ok(StreamId(7))).unwrap()
    }

    fn failure(text: &str, keeps_memory: bool) -> ProxyFailure {
        let error = Error::new(ErrorKind::Driver, text);
        ProxyFailure {
            error,
            keeps_memory,
        }
    }

    #[test]
    fn an_event_is_done_when_all_before_it_is() {
        let proxies = ProxyStreams::default();
        assert!(proxies.of(StreamId(7)).is_none());
        let proxy = open(&proxies);
        let none = proxy.event();
        proxy.begin();
        let first = proxy.event();
        proxy.begin();
        assert!(proxy.is_done(&none) && !proxy.is_done(&first));
        proxy.finish(Ok(()));
        assert!(proxy.is_done(&first) && !proxy.is_done(&proxy.event()));
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| proxy.synchronize());
            proxy.finish(Ok(()));
            waiting.join().unwrap().unwrap();
        });
    }

    #[test]
    fn who_waits_hears_of_what_failed_before() {
        let proxy = open(&ProxyStreams::default());
        proxy.begin();
        let before = proxy.event();
        proxy.finish(Ok(()));
        proxy.begin();
        proxy.begin();
        proxy.finish(Err(failure("first", false)));
        proxy.finish(Err(failure("second", true)));
        proxy.wait_for(&before).unwrap();
        proxy.settle(&proxy.event());
        assert!(!proxy.is_reported());
        let error = proxy.synchronize().unwrap_err();
        assert!(error.to_string().contains("first") && proxy.is_reported());
        // What nothing can stop keeps its memory, and only that.
        let of_first = Event {
            stream: StreamId(7),
            position: 2,
        };
        assert!(proxy.is_done(&before) && proxy.is_done(&of_first));
        assert!(!proxy.is_done(&proxy.event()));
    }

    #[test]
    fn to_its_own_thread_it_is_a_stream_of_the_device() {
        let proxies = ProxyStreams::default();
        let proxy = open(&proxies);
        assert!(proxies.of(StreamId(7)).is_some());
        let serving = proxy.serve();
        assert!(proxies.of(StreamId(7)).is_none());
        let elsewhere = std::thread::scope(|threads| {
            let other = threads.spawn(|| proxies.of(StreamId(7)).is_some());
            other.join().unwrap()
        });
        assert!(elsewhere);
        drop(serving);
        assert!(proxies.of(StreamId(7)).is_some(), "its work is over");
    }

    #[test]
    fn who_waits_does_what_nobody_is_at() {
        /// Work of a stream that nobody does by itself.
        struct Left {
            proxy: Mutex<Weak<ProxyStream>>,
            pieces: AtomicU64,
        }

        impl Help for Left {
            fn help(&self, is_over: &dyn Fn() -> bool) -> bool {
                assert!(!is_over());
                let proxy = self.proxy.lock().upgrade().unwrap();
                self.pieces.fetch_sub(1, Ordering::Relaxed);
                proxy.finish(Ok(()));
                true
            }
        }

        let left = Arc::new(Left {
            proxy: Mutex::new(Weak::new()),
            pieces: AtomicU64::new(3),
        });
        let helper = Arc::downgrade(&left) as Weak<dyn Help>;
        let proxies = ProxyStreams::default();
        let proxy = proxies.open(helper, || Ok(StreamId(7))).unwrap();
        *left.proxy.lock() = Arc::downgrade(&proxy);
        proxy.begin();
        proxy.begin();
        let second = proxy.event();
        proxy.begin();
        proxy.wait_for(&second).unwrap();
        assert_eq!(left.pieces.load(Ordering::Relaxed), 1, "two were awaited");
        proxy.synchronize().unwrap();
        assert_eq!(left.pieces.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_stream_is_opened_again_once_its_work_is_done() {
        let proxies = ProxyStreams::default();
        let first = open(&proxies);
        first.begin();
        first.leave();
        let second = proxies.open(nothing(), || Ok(StreamId(8))).unwrap();
        assert_eq!(second.id(), StreamId(8), "the first has work to do");
        first.finish(Ok(()));
        assert_eq!(open(&proxies).id(), StreamId(7));
    }

    #[test]
    fn a_failure_stays_with_the_work_of_its_owner() {
        let proxies = ProxyStreams::default();
        let proxy = open(&proxies);
        proxy.begin();
        let good = proxy.event();
        proxy.finish(Ok(()));
        let mut failed = Vec::new();
        for owner in 0..100 {
            let first = proxy.next_event();
            proxy.begin();
            proxy.begin();
            let last = proxy.event();
            proxy.finish(Err(failure(&format!("of {owner}"), owner % 2 == 0)));
            proxy.finish(Err(failure("later", false)));
            failed.push((first, last));
            proxy.wait_for(&proxy.event()).unwrap_err();
            proxy.leave();
            assert_eq!(open(&proxies).id(), proxy.id(), "a failed stream is reused");
            assert!(!proxy.is_reported());
            proxy.begin();
            let event = proxy.event();
            proxy.finish(Ok(()));
            assert!(proxy.is_done(&event));
            proxy.wait_for(&event).unwrap();
            proxy.check_predecessors(&event).unwrap();
        }
        proxy.wait_for(&good).unwrap();
        for (owner, (first, last)) in failed.iter().enumerate() {
            for event in [first, last] {
                let text = proxy.wait_for(event).unwrap_err().to_string();
                assert!(text.contains(&format!("of {owner}")), "{text}");
                proxy.check_predecessors(event).unwrap_err();
                assert_eq!(proxy.is_done(event), owner % 2 == 1, "memory that is kept");
            }
        }
    }
}
