//! Streams whose work a thread of the host does: what a library does that knows nothing of streams, MPI, say.
//!
//! To the layers above they are streams as any other: they have numbers, and events at positions. What differs is who waits.
//! A stream of the device cannot wait for a thread, so the host waits, as it submits the work that comes after.

use std::fmt;
use std::panic::Location;

use super::{Event, StreamId};
use crate::error::{Error, Result};
use crate::sync::plain::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crate::sync::{Arc, thread_token};

/// The proxy streams of a device, and those that nobody serves any more.
#[derive(Debug, Default)]
pub(crate) struct ProxyStreams {
    /// Set with the first, so that devices without one look no further.
    are_any: AtomicBool,
    all: Mutex<Vec<Arc<ProxyStream>>>,
}

/// One proxy stream.
///
/// Invariants: positions rise by one with each piece of work, and pieces end in this order; its number is no other stream's, ever.
pub(crate) struct ProxyStream {
    id: StreamId,
    /// The token of the thread that serves it; 0 for none.
    server: AtomicU64,
    /// The token of the thread that began work last.
    asker: AtomicU64,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    begun: u64,
    done: u64,
    /// The first failure, and the position of what failed.
    failure: Option<(u64, Error)>,
    /// The position of the first piece whose memory may be read or written at any time from now on.
    never_done: Option<u64>,
}

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
    /// A proxy stream that nobody serves, of a number that `new_stream` gives where there is none.
    pub(super) fn open(
        &self,
        new_stream: impl FnOnce() -> Result<StreamId>,
    ) -> Result<Arc<ProxyStream>> {
        let mut all = self.all.lock();
        if let Some(idle) = all.iter().find(|proxy| proxy.is_idle()) {
            let idle = Arc::clone(idle);
            idle.server.store(RESERVED, Ordering::Release);
            return Ok(idle);
        }
        let fresh = Arc::new(ProxyStream {
            id: new_stream()?,
            server: AtomicU64::new(RESERVED),
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

    /// The proxy stream of that number. `None` also on the thread that serves it: to that it is what it stands for, a stream of
    /// the device, where that has such.
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
        all.iter().find(|proxy| proxy.id == stream).cloned()
    }
}

/// The server of a proxy stream that somebody is about to serve: no thread's token.
const RESERVED: u64 = u64::MAX;

impl ProxyStream {
    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// The calling thread serves it from now on.
    pub(crate) fn serve(&self) {
        self.server.store(thread_token(), Ordering::Release);
    }

    /// Nobody serves it any more. Where all that was begun is done, and nothing failed, another thread may.
    pub(crate) fn leave(&self) {
        self.asker.store(0, Ordering::Release);
        self.server.store(0, Ordering::Release);
    }

    fn is_served_here(&self) -> bool {
        self.server.load(Ordering::Acquire) == thread_token()
    }

    fn is_idle(&self) -> bool {
        let progress = self.progress.lock();
        let ended = self.server.load(Ordering::Acquire) == 0;
        ended && progress.done == progress.begun && progress.failure.is_none()
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
        let position = progress.done;
        if let Err(failure) = outcome {
            if failure.keeps_memory {
                progress.never_done.get_or_insert(position);
            }
            progress.failure.get_or_insert((position, failure.error));
        }
        drop(progress);
        self.changed.notify_all();
    }

    /// After everything begun so far.
    pub(super) fn event(&self) -> Event {
        Event {
            stream: self.id,
            position: self.progress.lock().begun,
        }
    }

    /// Waits until what was begun before the event has ended, whatever came of it.
    pub(crate) fn settle(&self, event: &Event) {
        let _ = self.wait_for(event);
    }

    pub(super) fn is_done(&self, event: &Event) -> bool {
        self.progress.lock().is_done(event.position)
    }

    /// Waits for what was begun before the event.
    ///
    /// # Errors
    ///
    /// The first failure, where it comes before the event: whoever waits would read what was not written.
    pub(super) fn wait_for(&self, event: &Event) -> Result<()> {
        let mut progress = self.progress.lock();
        while progress.done < event.position {
            progress = self.changed.wait(&self.progress, progress);
        }
        match &progress.failure {
            Some((position, error)) if *position <= event.position => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Waits for everything begun so far.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.wait_for(&self.event())
    }
}

impl Progress {
    fn is_done(&self, position: u64) -> bool {
        self.done >= position && self.never_done.is_none_or(|never| never > position)
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

    fn open(proxies: &ProxyStreams) -> Arc<ProxyStream> {
        proxies.open(|| Ok(StreamId(7))).unwrap()
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
        let error = proxy.synchronize().unwrap_err();
        assert!(error.to_string().contains("first"));
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
        proxy.serve();
        assert!(proxies.of(StreamId(7)).is_none());
        let elsewhere = std::thread::scope(|threads| {
            let other = threads.spawn(|| proxies.of(StreamId(7)).is_some());
            other.join().unwrap()
        });
        assert!(elsewhere);
    }

    #[test]
    fn only_one_that_is_done_and_never_failed_is_served_again() {
        let proxies = ProxyStreams::default();
        let first = open(&proxies);
        first.begin();
        first.leave();
        let second = proxies.open(|| Ok(StreamId(8))).unwrap();
        assert_eq!(second.id(), StreamId(8), "the first has work to do");
        first.finish(Ok(()));
        assert_eq!(open(&proxies).id(), StreamId(7));
        second.begin();
        second.finish(Err(failure("it failed", false)));
        second.leave();
        let third = proxies.open(|| Ok(StreamId(9))).unwrap();
        assert_eq!(third.id(), StreamId(9), "the second failed");
    }
}
