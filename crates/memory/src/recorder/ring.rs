//! A ring: the recent events of a thread, and of earlier threads that had the ring.
//!
//! Only the owner writes. Any thread reads.

use std::ops::RangeInclusive;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, fence};

use bytemuck::allocation::try_zeroed_slice_box;

use super::event::{EventRecord, Recorded, WORDS};
use crate::error::reported_call_site;
use crate::sync::plain::{AtomicU64, Mutex, Ordering};

/// The number of events of the longest ring, of 3 GiB.
const MOST_EVENTS: u64 = 1 << 26;

const EVENT_BYTES: u64 = (WORDS as u64 + 1) * 8;

/// The value of `owner` while no thread writes to the ring. No thread has this token.
pub(super) const IDLE: u64 = 0;

/// A bounded sequence of events. In a full ring, the newest event overwrites the oldest event.
///
/// Invariant: the last `events()` events below `written` are complete. The exception is the oldest
/// event, because the owner may be overwriting it. A call site is null or came from a reference.
#[derive(Debug)]
pub(super) struct Ring {
    /// The token of the thread that writes; [`IDLE`] between two threads.
    owner: AtomicU64,
    /// The threads whose events the ring has, each with the number of its first event.
    owners: Mutex<Vec<(u64, u64)>>,
    /// The number of events ever written.
    written: AtomicU64,
    words: Box<[[AtomicU64; WORDS]]>,
    call_sites: Box<[AtomicPtr<Location<'static>>]>,
}

impl Ring {
    /// Returns the length, in events, of a ring of `bytes`: a power of two.
    pub(super) fn events_in(bytes: u64) -> u64 {
        1 << (bytes / EVENT_BYTES).clamp(2, MOST_EVENTS).ilog2()
    }

    /// Returns an idle ring, or `None` if there is no memory. The allocator returns zeroed pages. A
    /// page is not touched before an event is written to it.
    pub(super) fn new(events: u64) -> Option<Self> {
        let events = usize::try_from(events).ok()?;
        Some(Self {
            owner: AtomicU64::new(IDLE),
            owners: Mutex::default(),
            written: AtomicU64::new(0),
            words: try_zeroed_slice_box(events).ok()?,
            call_sites: try_zeroed_slice_box(events).ok()?,
        })
    }

    /// Returns the longest ring, of a length in `events`, for which there is memory.
    pub(super) fn longest(events: RangeInclusive<u64>) -> Option<Self> {
        let (least, most) = events.into_inner();
        let lengths = std::iter::successors(Some(most), |length| Some(length / 2));
        let mut lengths = lengths.take_while(|length| *length >= least.max(2));
        lengths.find_map(Self::new)
    }

    pub(super) fn owner(&self) -> u64 {
        self.owner.load(Ordering::Acquire)
    }

    /// Assigns an idle ring to a thread. Only one thread at a time may call this function.
    pub(super) fn adopt(&self, thread: u64) {
        let written = self.written();
        let overwritten = written.saturating_sub(self.events());
        let mut owners = self.owners.lock();
        let next = owners.partition_point(|(first, _)| *first <= overwritten);
        owners.drain(..next.saturating_sub(1));
        owners.push((written, thread));
        self.owner.store(thread, Ordering::Relaxed);
    }

    pub(super) fn release(&self) {
        self.owner.store(IDLE, Ordering::Release);
    }

    pub(super) fn events(&self) -> u64 {
        self.words.len() as u64
    }

    fn slot(&self, number: u64) -> usize {
        number as usize & (self.words.len() - 1)
    }

    /// Appends an event. Only the owner may call this function.
    pub(super) fn write(&self, time_ns: u64, event: &EventRecord) {
        let number = self.written.load(Ordering::Relaxed);
        let slot = self.slot(number);
        // A reader that sees a word of this event also sees that `written` has reached `number`.
        // The reader then drops the overwritten event.
        fence(Ordering::Release);
        for (word, value) in self.words[slot].iter().zip(event.to_words(time_ns)) {
            word.store(value, Ordering::Relaxed);
        }
        let call_site = event.call_site.map(reported_call_site);
        let call_site = call_site.map_or(ptr::null(), ptr::from_ref);
        self.call_sites[slot].store(call_site.cast_mut(), Ordering::Relaxed);
        self.written.store(number + 1, Ordering::Release);
    }

    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Appends the events from number `from` on to `events`. Returns the number of these events
    /// that were overwritten.
    pub(super) fn read(&self, from: u64, events: &mut Vec<Recorded>) -> u64 {
        let length = self.events();
        let end = self.written();
        let begin = end.saturating_sub(length).max(from);
        let first = events.len();
        let owners = self.owners.lock().clone();
        let owner = |number| {
            let next = owners.partition_point(|(first, _)| *first <= number);
            owners.get(next.saturating_sub(1)).map_or(IDLE, |own| own.1)
        };
        events.extend((begin..end).map(|number| self.event(number, owner(number))));
        fence(Ordering::Acquire);
        // Events written during the read have overwritten older events. The event that is being
        // written may have overwritten a further event.
        let now = self.written.load(Ordering::Relaxed);
        let whole = (now + 1).saturating_sub(length).clamp(begin, end);
        events.drain(first..first + (whole - begin) as usize);
        whole - from
    }

    fn event(&self, number: u64, thread: u64) -> Recorded {
        let slot = self.slot(number);
        let words = std::array::from_fn(|word| self.words[slot][word].load(Ordering::Relaxed));
        let call_site = self.call_sites[slot].load(Ordering::Relaxed);
        // SAFETY: by the invariant, the pointer is null or came from a reference. A
        // `Location<'static>` is never freed.
        let call_site = unsafe { call_site.as_ref() };
        Recorded::from_words(thread, words, call_site)
    }
}
