//! The last events of one thread: written by that thread alone, read by anyone.

use std::ops::RangeInclusive;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, fence};

use bytemuck::allocation::try_zeroed_slice_box;

use super::event::{EventRecord, Recorded, WORDS};
use crate::error::asked_at;
use crate::sync::plain::{AtomicU64, Ordering};

/// The events of the longest ring, of 3 GiB.
const MOST_EVENTS: u64 = 1 << 26;

/// The bytes of an event.
const EVENT_BYTES: u64 = (WORDS as u64 + 1) * 8;

/// A bounded sequence of events; the newest overwrites the oldest.
///
/// Invariant: of the events below `written`, those that the length reaches back to are whole, but for the oldest, which
/// the thread may be overwriting. A call site is null or came from a reference.
#[derive(Debug)]
pub(super) struct Ring {
    thread: u64,
    /// How many events were ever written.
    written: AtomicU64,
    words: Box<[[AtomicU64; WORDS]]>,
    call_sites: Box<[AtomicPtr<Location<'static>>]>,
}

impl Ring {
    /// The events that a ring of so many bytes has: a power of two.
    pub(super) fn events_in(bytes: u64) -> u64 {
        1 << (bytes / EVENT_BYTES).clamp(2, MOST_EVENTS).ilog2()
    }

    /// A ring for a thread; `None` where there is no memory. The pages are zero already, and not touched before an event
    /// comes there.
    pub(super) fn new(thread: u64, events: u64) -> Option<Self> {
        let events = usize::try_from(events).ok()?;
        Some(Self {
            thread,
            written: AtomicU64::new(0),
            words: try_zeroed_slice_box(events).ok()?,
            call_sites: try_zeroed_slice_box(events).ok()?,
        })
    }

    /// The longest ring of a length in `events` that there is memory for.
    pub(super) fn longest(thread: u64, events: RangeInclusive<u64>) -> Option<Self> {
        let (least, most) = events.into_inner();
        let lengths = std::iter::successors(Some(most), |length| Some(length / 2));
        let mut lengths = lengths.take_while(|length| *length >= least.max(2));
        lengths.find_map(|length| Self::new(thread, length))
    }

    pub(super) fn thread(&self) -> u64 {
        self.thread
    }

    /// How many events it has room for.
    pub(super) fn events(&self) -> u64 {
        self.words.len() as u64
    }

    fn slot(&self, number: u64) -> usize {
        number as usize & (self.words.len() - 1)
    }

    /// Appends an event; for the ring's own thread.
    pub(super) fn write(&self, time_ns: u64, event: &EventRecord) {
        let number = self.written.load(Ordering::Relaxed);
        let slot = self.slot(number);
        // A reader that sees a word of this event sees that `written` has come so far, and drops the event before it.
        fence(Ordering::Release);
        for (word, value) in self.words[slot].iter().zip(event.to_words(time_ns)) {
            word.store(value, Ordering::Relaxed);
        }
        let call_site = event.call_site.map(asked_at);
        let call_site = call_site.map_or(ptr::null(), ptr::from_ref);
        self.call_sites[slot].store(call_site.cast_mut(), Ordering::Relaxed);
        self.written.store(number + 1, Ordering::Release);
    }

    /// How many events were written so far.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Appends the events from that number on to `events`; answers how many of them were overwritten.
    pub(super) fn read(&self, from: u64, events: &mut Vec<Recorded>) -> u64 {
        let length = self.events();
        let end = self.written();
        let begin = end.saturating_sub(length).max(from);
        let first = events.len();
        events.extend((begin..end).map(|number| self.event(number)));
        fence(Ordering::Acquire);
        // The event that is being written now may have overwritten one, as those did that were written meanwhile.
        let now = self.written.load(Ordering::Relaxed);
        let whole = (now + 1).saturating_sub(length).clamp(begin, end);
        events.drain(first..first + (whole - begin) as usize);
        whole - from
    }

    fn event(&self, number: u64) -> Recorded {
        let slot = self.slot(number);
        let words = std::array::from_fn(|word| self.words[slot][word].load(Ordering::Relaxed));
        let call_site = self.call_sites[slot].load(Ordering::Relaxed);
        // SAFETY: the invariant; a `Location<'static>` is never freed.
        let call_site = unsafe { call_site.as_ref() };
        Recorded::from_words(self.thread, words, call_site)
    }
}
