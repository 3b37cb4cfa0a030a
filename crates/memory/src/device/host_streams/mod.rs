//! Host-executed streams: give CPU-side work such as MPI calls the semantics of streams and events.
//!
//! For the layers above, host streams have identifiers and events like device streams. Only waits
//! differ. A device stream cannot wait for a thread. So the host waits before it enqueues the
//! dependent work.
//!
//! Each use of memory by a host stream has a position, because a wait for too much work can
//! deadlock. For example, a rank's next exchange may need the waiting thread. The position of an
//! exchange is known at its start. So later users of its memory wait for this exchange only.
//!
//! A stream identifier can be reused, even after a failure. A failure applies only to positions of
//! the owner whose work failed.

#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::Location;

use super::{Event, StreamId};
use crate::error::{Error, Result};
use crate::sync::plain::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use crate::sync::{Arc, Weak, thread_token};

/// The host streams of a device, including idle streams without an owner.
#[derive(Debug, Default)]
pub struct HostStreams {
    /// True after the first host stream has opened. Devices without host streams need no lock.
    are_any: AtomicBool,
    /// All host streams, sorted by identifier.
    all: Mutex<Vec<Arc<HostStream>>>,
}

/// A stream whose work host threads execute.
///
/// Ranks own the stream one after another. Positions rise across all owners. So an event of an
/// earlier owner is complete, and never waits for work of a later owner.
///
/// Invariants: each piece of work raises the position by one, and pieces end in order of position.
/// No other stream of the device ever has the identifier of a host stream.
pub struct HostStream {
    id: StreamId,
    /// The token of the thread that executes a piece of work, or [`BETWEEN`], or [`NO_OWNER`].
    server: AtomicU64,
    executor: Mutex<Weak<dyn StealWork>>,
    /// The token of the thread that began the latest piece of work.
    submitter: AtomicU64,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// The interface through which a waiting thread executes a host stream's work.
pub trait StealWork: Send + Sync {
    /// Tries to execute the next piece of work. Returns whether a piece was executed.
    ///
    /// Executes nothing while another thread executes a piece, or if the next piece needs a certain
    /// thread. Executes nothing after the wait is over.
    ///
    /// An implementation calls `is_over` while no piece can end. Otherwise, the awaited position
    /// could end after the check. The implementation could then execute a later piece, and this
    /// piece may wait for the calling thread.
    fn steal(&self, is_over: &dyn Fn() -> bool) -> bool;
}

#[derive(Default)]
struct Progress {
    begun: u64,
    done: u64,
    /// The first failure of each owner whose work failed, sorted by position.
    failures: Vec<OwnerFailure>,
    /// True after a wait returned the current owner's failure.
    is_reported: bool,
}

/// The failure of an owner's work. All later work of the owner also counts as failed.
struct OwnerFailure {
    /// The position of the failed work.
    first: u64,
    /// The last position of the owner; [`PRESENT`] for the current owner.
    last: u64,
    error: Error,
    /// The position of the first piece whose memory may still be read or written. This memory is
    /// never reused.
    never_done: Option<u64>,
}

/// The value of `last` for the current owner.
const PRESENT: u64 = u64::MAX;

/// The failure of a piece of work.
#[derive(Debug)]
pub struct HostFailure {
    pub error: Error,
    /// True if an operation that cannot be stopped may still use the memory. The memory is then
    /// never reused.
    pub keeps_memory: bool,
}

impl HostFailure {
    /// Adds the call site that submitted the work.
    pub fn at(self, call_site: &'static Location<'static>) -> Self {
        let error = self.error.at(call_site);
        Self { error, ..self }
    }
}

impl From<Error> for HostFailure {
    fn from(error: Error) -> Self {
        Self {
            error,
            keeps_memory: false,
        }
    }
}

impl HostStreams {
    /// Returns a host stream whose work `executor` executes. Reuses an idle stream, or creates a
    /// stream with the identifier from `new_stream`. This identifier must be above all earlier
    /// identifiers.
    pub fn open(
        &self,
        executor: Weak<dyn StealWork>,
        new_stream: impl FnOnce() -> Result<StreamId>,
    ) -> Result<Arc<HostStream>> {
        let mut all = self.all.lock();
        if let Some(idle) = all.iter().find(|host_stream| host_stream.is_idle()) {
            let idle = Arc::clone(idle);
            idle.progress.lock().change_owner();
            *idle.executor.lock() = executor;
            idle.server.store(BETWEEN, Ordering::Release);
            return Ok(idle);
        }
        let fresh = Arc::new(HostStream {
            id: new_stream()?,
            server: AtomicU64::new(BETWEEN),
            executor: Mutex::new(executor),
            submitter: AtomicU64::new(0),
            progress: Mutex::default(),
            changed: Condvar::default(),
        });
        all.push(Arc::clone(&fresh));
        self.are_any.store(true, Ordering::Release);
        Ok(fresh)
    }

    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.are_any.load(Ordering::Acquire)
    }

    /// Returns the host stream with this identifier. Returns `None` on the thread that executes the
    /// stream's work. For this thread, the identifier means the device stream behind the host
    /// stream.
    #[inline]
    pub(super) fn of(&self, stream: StreamId) -> Option<Arc<HostStream>> {
        self.named(stream)
            .filter(|host_stream| !host_stream.is_served_here())
    }

    /// Like [`of`](Self::of), but independent of the calling thread.
    #[inline]
    pub(super) fn named(&self, stream: StreamId) -> Option<Arc<HostStream>> {
        if !self.are_any() {
            return None;
        }
        let all = self.all.lock();
        let found = all.binary_search_by_key(&stream, |host_stream| host_stream.id);
        found.ok().map(|index| Arc::clone(&all[index]))
    }
}

/// The value of `server` between two pieces of work. No thread has this token.
const BETWEEN: u64 = u64::MAX;
/// The value of `server` without an owner. No thread has this token.
const NO_OWNER: u64 = 0;

impl HostStream {
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Marks the calling thread as the executor of the next piece of work, until the guard drops.
    pub fn serve(&self) -> impl Drop {
        self.server.store(thread_token(), Ordering::Release);
        let server = &self.server;
        scopeguard::guard((), |()| server.store(BETWEEN, Ordering::Release))
    }

    /// Ends the ownership of the stream. After all work is done, the stream may be opened again.
    pub fn leave(&self) {
        self.submitter.store(0, Ordering::Release);
        self.server.store(NO_OWNER, Ordering::Release);
    }

    fn has_ended(&self, position: u64) -> bool {
        self.progress.lock().done >= position
    }

    /// Executes a piece of work on the calling thread, which waits for `position`. Returns whether
    /// a piece was executed.
    fn steal(&self, position: u64) -> bool {
        let executor = self.executor.lock().upgrade();
        executor.is_some_and(|executor| executor.steal(&|| self.has_ended(position)))
    }

    fn is_served_here(&self) -> bool {
        self.server.load(Ordering::Acquire) == thread_token()
    }

    fn is_idle(&self) -> bool {
        let progress = self.progress.lock();
        let ended = self.server.load(Ordering::Acquire) == NO_OWNER;
        ended && progress.done == progress.begun
    }

    /// Returns whether the calling thread began the stream's latest work. If not, the thread must
    /// not wait for all work of the stream. The wait could deadlock, because another rank's work
    /// may wait for work that this rank has not begun yet.
    pub fn is_submitted_here(&self) -> bool {
        self.submitter.load(Ordering::Acquire) == thread_token()
    }

    /// Begins a piece of work. The caller must end the piece with [`finish`](Self::finish).
    pub fn begin(&self) {
        self.submitter.store(thread_token(), Ordering::Release);
        self.progress.lock().begun += 1;
    }

    /// Ends the earliest unfinished piece of work.
    pub fn finish(&self, outcome: Result<(), HostFailure>) {
        let mut progress = self.progress.lock();
        progress.done += 1;
        if let Err(failure) = outcome {
            progress.fail(failure);
        }
        drop(progress);
        self.changed.notify_all();
    }

    /// Returns whether a wait has returned the current owner's failure.
    pub fn is_reported(&self) -> bool {
        self.progress.lock().is_reported
    }

    /// Returns the event after the next piece of work, which has not begun.
    pub fn next_event(&self) -> Event {
        let mut event = self.event();
        event.position += 1;
        event
    }

    /// Returns the event after all work begun so far.
    pub fn event(&self) -> Event {
        Event {
            stream: self.id,
            position: self.progress.lock().begun,
        }
    }

    /// Waits until the work before the event has ended, and ignores failures.
    pub fn settle(&self, event: &Event) {
        drop(self.ended(event));
    }

    pub(super) fn is_done(&self, event: &Event) -> bool {
        self.progress.lock().is_done(event.position)
    }

    /// Returns whether the work before the event has ended without a failure. Does not mark a
    /// failure as reported.
    pub fn has_written(&self, event: &Event) -> bool {
        let progress = self.progress.lock();
        progress.is_done(event.position) && progress.failure_at(event.position).is_none()
    }

    /// Waits for the work before the event. Meanwhile, the thread executes pieces of work that it
    /// can steal.
    ///
    /// # Errors
    ///
    /// The first failure of the event's owner, if the failed work lies before the event. The failed
    /// work did not write its memory.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        let mut progress = self.ended(event);
        let Some(failure) = progress.failure_at(event.position) else {
            return Ok(());
        };
        let (error, is_present) = (failure.error.clone(), failure.last == PRESENT);
        progress.is_reported |= is_present;
        Err(error)
    }

    /// Returns the failure before the event, if the event belongs to an earlier owner. A failure of
    /// the current owner is not returned, because the owner's later work fails with it.
    pub fn check_predecessors(&self, event: &Event) -> Result<()> {
        let progress = self.progress.lock();
        let failure = progress.failure_at(event.position);
        match failure.filter(|failure| failure.last != PRESENT) {
            Some(failure) => Err(failure.error.clone()),
            None => Ok(()),
        }
    }

    /// Waits until the work before the event has ended. Returns the locked progress.
    fn ended(&self, event: &Event) -> MutexGuard<'_, Progress> {
        while !self.has_ended(event.position) && self.steal(event.position) {}
        let mut progress = self.progress.lock();
        while progress.done < event.position {
            progress = self.changed.wait(&self.progress, progress);
        }
        progress
    }

    pub(super) fn synchronize(&self) -> Result<()> {
        self.wait_for(&self.event())
    }
}

impl Progress {
    /// Returns the failure at or before a position, if the position belongs to the failure's owner.
    fn failure_at(&self, position: u64) -> Option<&OwnerFailure> {
        let next = self
            .failures
            .partition_point(|failure| failure.first <= position);
        let before = &self.failures[next.checked_sub(1)?];
        (position <= before.last).then_some(before)
    }

    /// Records the failure of the piece of work that ended last.
    fn fail(&mut self, failure: HostFailure) {
        let position = self.done;
        let never_done = failure.keeps_memory.then_some(position);
        match self.failures.last_mut() {
            Some(first) if first.last == PRESENT => {
                first.never_done = first.never_done.or(never_done);
            }
            _ => self.failures.push(OwnerFailure {
                first: position,
                last: PRESENT,
                error: failure.error,
                never_done,
            }),
        }
    }

    /// Limits the current owner's failure to the owner's positions, so that the next owner's work
    /// does not fail.
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

impl fmt::Debug for HostStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostStream({})", self.id.0)
    }
}
