//! The recorder of a device: a ring of events for each running thread, written without a lock
//! during a recording.
//!
//! The layers above record events. A recording reads them as a [`Profile`], the input of every
//! report.
//!
//! Architecture invariant: while no recording is active, the recorder is one flag that slow paths
//! read. An event takes no lock and allocates no memory. There are four exceptions. The first event
//! of a thread allocates its ring. The first event of a scope stores its name. A thread whose
//! locals are being destroyed borrows a ring for each event, under the lock of the rings. Events
//! inside of an operation with scratch memory are stored in a list until the operation ends.
//!
//! The recorder is a layer below the memory, because two layers record events. `memory/` records
//! reservations, and a shard records drops. The recorder uses only times and names, so both layers
//! may call it. If the recorder were above the caches, each drop would call it through a trait
//! object.

mod backtraces;
mod collect;
mod event;
mod files;
mod kernels;
mod ring;
mod rings;
mod scratch;
mod signals;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::HashMap;
use std::time::{Instant, SystemTime};

use backtraces::Stacks;
pub(crate) use backtraces::{IS_SUPPORTED as HAS_BACKTRACES, NO_STACK};
pub(crate) use cachescope_reports::EventKind;
pub(crate) use event::{EventRecord, NO_SCOPE, ScopeNumber};
pub(crate) use files::{Profiling, format_of, profile_process, write_exhausted, write_report};
use kernels::Kernels;
use ring::Ring;
pub(crate) use scratch::{ScratchRegion, is_inside};

use crate::sync::Arc;
use crate::sync::plain::{AtomicU64, Mutex, Ordering};

/// The recorder of the events of one device.
///
/// Invariant: rings are added, and never removed before the recorder ends.
#[derive(Debug)]
pub struct Recorder {
    /// The key of this recorder's rings among the known rings of a thread. The key changes whenever
    /// rings get longer, and no other recorder ever has this key.
    key: AtomicU64,
    began: Instant,
    began_at: SystemTime,
    /// The number of active recordings.
    recordings: AtomicU64,
    /// The length of rings that are created from now on.
    ring_events: AtomicU64,
    /// The number of active recordings with backtraces.
    tracing: AtomicU64,
    stacks: Stacks,
    kernels: Kernels,
    /// The number of events that were lost because they had no ring.
    lost: AtomicU64,
    /// The time at which the last event without a ring was lost.
    last_lost_ns: AtomicU64,
    rings: Mutex<Vec<Arc<Ring>>>,
    scopes: Mutex<Scopes>,
}

/// The names of scopes by number, and their numbers by name.
#[derive(Debug, Default)]
struct Scopes {
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, ScopeNumber>,
}

/// The start of a recording.
#[derive(Debug)]
pub(crate) struct RecordingStart {
    time_ns: u64,
    /// The number of events without a ring before the start.
    lost: u64,
    /// The number of events that were written to each ring before the start, by the ring's index.
    written: Vec<u64>,
    backtraces: bool,
}

/// Returns a key that no recorder has or had. The key is not 0.
fn next_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            key: AtomicU64::new(next_key()),
            began: Instant::now(),
            began_at: SystemTime::now(),
            recordings: AtomicU64::new(0),
            ring_events: AtomicU64::new(1),
            tracing: AtomicU64::new(0),
            stacks: Stacks::default(),
            kernels: Kernels::default(),
            lost: AtomicU64::new(0),
            last_lost_ns: AtomicU64::new(0),
            rings: Mutex::default(),
            scopes: Mutex::default(),
        }
    }

    /// Returns whether any recording is active.
    #[inline]
    #[doc(hidden)]
    pub fn is_active(&self) -> bool {
        self.recordings.load(Ordering::Relaxed) > 0
    }

    /// Begins a recording. Each thread whose ring is shorter gets a ring of `ring_bytes`, rounded
    /// down to a power of two of events. With `backtraces`, each allocation has a backtrace.
    pub(crate) fn begin(&self, ring_bytes: u64, backtraces: bool) -> RecordingStart {
        let events = Ring::events_in(ring_bytes);
        let rings = self.rings.lock();
        if events > self.ring_events.load(Ordering::Relaxed) {
            self.ring_events.store(events, Ordering::Relaxed);
            // Threads then look for a ring again, and get a longer ring. The events in their old
            // rings are still read.
            self.key.store(next_key(), Ordering::Relaxed);
        }
        let mark = RecordingStart {
            time_ns: self.time_ns(),
            lost: self.lost.load(Ordering::Relaxed),
            written: rings.iter().map(|ring| ring.written()).collect(),
            backtraces,
        };
        self.tracing.fetch_add(backtraces.into(), Ordering::Relaxed);
        self.recordings.fetch_add(1, Ordering::Relaxed);
        mark
    }

    pub(crate) fn end(&self, mark: &RecordingStart) {
        self.tracing
            .fetch_sub(mark.backtraces.into(), Ordering::Relaxed);
        self.recordings.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records an event, if any recording is active. May be called in a drop, because it neither
    /// fails nor waits for a device.
    #[inline]
    pub(crate) fn record(&self, event: impl FnOnce() -> EventRecord) {
        if self.is_active() {
            self.write_now(event());
        }
    }

    #[cold]
    #[inline(never)]
    fn write_now(&self, mut event: EventRecord) {
        let time_ns = self.time_ns();
        if event.kind.is_allocation() && self.tracing.load(Ordering::Relaxed) > 0 {
            event.stack = self.stacks.capture();
        }
        if !scratch::absorb(self, &event) {
            self.write(time_ns, &event);
        }
    }

    /// Writes an event with a time that may be long past.
    fn write(&self, time_ns: u64, event: &EventRecord) {
        let key = self.key.load(Ordering::Relaxed);
        let own = rings::known(key).unwrap_or_else(|| self.find_ring());
        // SAFETY: `own` is null, or a ring of the recorder that has or had this key. No other
        // recorder has this key, so the ring belongs to this recorder. This recorder never removes
        // its rings. This thread has not ended, so it owns the ring.
        match unsafe { own.as_ref() } {
            Some(ring) => ring.write(time_ns, event),
            None => self.write_late(time_ns, event),
        }
    }

    /// Returns the ring of this thread, and assigns one if it has none. Returns null if there is no
    /// memory for a ring, or if the thread's locals are being destroyed.
    #[cold]
    fn find_ring(&self) -> *const Ring {
        let mut all = self.rings.lock();
        // The key is read under the lock, so that the key and the length belong together.
        let key = self.key.load(Ordering::Relaxed);
        let events = self.ring_events.load(Ordering::Relaxed);
        rings::assign_until_end(&mut all, key, events)
    }

    /// Writes an event of a thread that has no ring of its own.
    #[cold]
    fn write_late(&self, time_ns: u64, event: &EventRecord) {
        let mut all = self.rings.lock();
        match rings::assign(&mut all, self.ring_events.load(Ordering::Relaxed)) {
            Some(ring) => {
                ring.write(time_ns, event);
                ring.release();
            }
            None => self.lose(),
        }
    }

    /// Counts an event that is lost because it has no ring.
    fn lose(&self) {
        self.last_lost_ns
            .fetch_max(self.time_ns(), Ordering::Relaxed);
        // A reader that sees the count also sees the time.
        self.lost.fetch_add(1, Ordering::Release);
    }

    /// Returns the nanoseconds since the recording began.
    pub(crate) fn elapsed_ns(&self, mark: &RecordingStart) -> u64 {
        self.time_ns() - mark.time_ns
    }

    pub(crate) fn time_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    pub(crate) fn scope_number(&self, name: &str) -> ScopeNumber {
        let mut scopes = self.scopes.lock();
        if let Some(&number) = scopes.numbers.get(name) {
            return number;
        }
        scopes.names.push(name.into());
        let number = scopes.names.len() as ScopeNumber;
        scopes.numbers.insert(name.into(), number);
        number
    }
}
