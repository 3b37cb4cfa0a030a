//! The recorder of a device: a ring of events for each thread, written without a lock while somebody records.
//!
//! The layers above say what happens; a recording reads it as a [`Profile`], the input of every report.
//!
//! Architecture invariant: while nothing is recorded, this is one flag that slow paths look at. An event takes no lock and
//! no memory, but for the first of a thread, which makes its ring, and the first of a scope, which names it.

mod backtraces;
mod collect;
mod event;
mod files;
mod kernels;
mod ring;
#[cfg(all(test, not(loom)))]
mod tests;

use std::cell::Cell;
use std::collections::HashMap;
use std::ptr;
use std::time::{Instant, SystemTime};

use backtraces::Stacks;
pub(crate) use backtraces::{IS_SUPPORTED as HAS_BACKTRACES, NO_STACK};
pub(crate) use cachescope_reports::EventKind;
pub(crate) use event::{EventRecord, NO_SCOPE, ScopeNumber};
pub(crate) use files::{format_of, profile_process, write_exhausted, write_report};
use kernels::Kernels;
use ring::Ring;

use crate::sync::plain::{AtomicU64, Mutex, Ordering};
use crate::sync::{Arc, thread_local, thread_token};

/// The events of one device.
///
/// Invariant: rings are added, and never removed before the recorder ends.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Another whenever rings get longer, and no other recorder's, ever: by it a thread knows its ring again.
    key: AtomicU64,
    began: Instant,
    began_at: SystemTime,
    /// Recordings under way.
    recordings: AtomicU64,
    /// The length of a ring that is made from now on.
    ring_events: AtomicU64,
    /// Recordings under way that ask for backtraces.
    tracing: AtomicU64,
    stacks: Stacks,
    kernels: Kernels,
    /// Events that there was no ring for.
    lost: AtomicU64,
    rings: Mutex<Vec<Arc<Ring>>>,
    scopes: Mutex<Scopes>,
}

/// The names of scopes by their number, and back.
#[derive(Debug, Default)]
struct Scopes {
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, ScopeNumber>,
}

/// Where a recording begins.
#[derive(Debug)]
pub(crate) struct Mark {
    time_ns: u64,
    /// Events that there was no ring for.
    lost: u64,
    /// How many events each ring had, by its place.
    written: Vec<u64>,
    backtraces: bool,
}

/// Of so many recorders a thread knows its rings without a look-up.
const OWN_RINGS: usize = 4;

thread_local! {
    /// The keys of recorders that this thread wrote to last, and its rings there. Without a destructor, so that a drop can read it
    /// in a thread's last moments.
    static OWN: [Cell<(u64, *const Ring)>; OWN_RINGS] =
        const { [const { Cell::new((0, ptr::null())) }; OWN_RINGS] };
}

/// Where a thread keeps its ring of the recorder with that key.
fn place(key: u64) -> usize {
    key as usize % OWN_RINGS
}

/// A key that no recorder has or had; not 0.
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
            rings: Mutex::default(),
            scopes: Mutex::default(),
        }
    }

    /// Whether anybody records.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.recordings.load(Ordering::Relaxed) > 0
    }

    /// Begins a recording, for which each thread without a ring of `ring_bytes` gets one, as long as a power of two of events
    /// allows. With `backtraces`, allocations have one.
    pub(crate) fn begin(&self, ring_bytes: u64, backtraces: bool) -> Mark {
        let events = Ring::events_in(ring_bytes);
        let rings = self.rings.lock();
        if events > self.ring_events.load(Ordering::Relaxed) {
            self.ring_events.store(events, Ordering::Relaxed);
            // Threads look for a ring again, and get a longer one; what the other has is read all the same.
            self.key.store(next_key(), Ordering::Relaxed);
        }
        let mark = Mark {
            time_ns: self.time_ns(),
            lost: self.lost.load(Ordering::Relaxed),
            written: rings.iter().map(|ring| ring.written()).collect(),
            backtraces,
        };
        self.tracing.fetch_add(backtraces.into(), Ordering::Relaxed);
        self.recordings.fetch_add(1, Ordering::Relaxed);
        mark
    }

    /// Ends a recording.
    pub(crate) fn end(&self, mark: &Mark) {
        self.tracing
            .fetch_sub(mark.backtraces.into(), Ordering::Relaxed);
        self.recordings.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records an event, if anybody records. Callable in a drop: it neither fails nor waits for a device.
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
        self.write(time_ns, &event);
    }

    /// Writes an event of that time, which may be long ago.
    fn write(&self, time_ns: u64, event: &EventRecord) {
        let key = self.key.load(Ordering::Relaxed);
        let (known, own) = OWN.with(|own| own[place(key)].get());
        let own = if known == key { own } else { self.find_ring() };
        // SAFETY: null, or a ring of the recorder that has or had this key, which is no other's: it keeps its rings.
        match unsafe { own.as_ref() } {
            Some(ring) => ring.write(time_ns, event),
            None => _ = self.lost.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The ring of this thread, which is made if there is none; null where there is no memory for one.
    #[cold]
    fn find_ring(&self) -> *const Ring {
        let thread = thread_token();
        let mut rings = self.rings.lock();
        // Under the lock they belong together.
        let key = self.key.load(Ordering::Relaxed);
        let events = self.ring_events.load(Ordering::Relaxed);
        let own = rings.iter().filter(|ring| ring.thread() == thread);
        let longest = own.map(|ring| ring.events()).max().unwrap_or(0);
        if longest < events {
            rings.extend(Ring::longest(thread, longest + 1..=events).map(Arc::new));
        }
        let own = rings.iter().filter(|ring| ring.thread() == thread);
        let own = own.max_by_key(|ring| ring.events());
        let own = own.map_or(ptr::null(), Arc::as_ptr);
        OWN.with(|rings| rings[place(key)].set((key, own)));
        own
    }

    /// Nanoseconds since the recording began.
    pub(crate) fn elapsed_ns(&self, mark: &Mark) -> u64 {
        self.time_ns() - mark.time_ns
    }

    /// Nanoseconds since the recorder began.
    pub(crate) fn time_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// The number of the scopes of that name.
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
