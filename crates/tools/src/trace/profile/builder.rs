//! The builder of a profile: it collects tables of names and lines, and events.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

use cachescope_reports::{CallSite, Event, EventKind, Frame, Profile};

/// Returns an event whose requested size and block size are `bytes`.
pub(super) fn event_of(kind: EventKind, time_ns: u64, address: u64, bytes: u64) -> Event {
    Event {
        address,
        bytes,
        block_bytes: bytes,
        ..Event::new(kind, time_ns)
    }
}

#[derive(Default)]
pub(super) struct ProfileBuilder {
    pub(super) profile: Profile,
    /// The allocations that precede the first event.
    before: Vec<Event>,
    scopes: ValueNumbers,
    call_sites: ValueNumbers,
    stacks: ValueNumbers,
}

impl ProfileBuilder {
    pub(super) fn new(device: String) -> Self {
        let profile = Profile {
            device,
            ..Profile::default()
        };
        Self {
            profile,
            ..Self::default()
        }
    }

    pub(super) fn scope(&mut self, name: String) -> u32 {
        self.scopes.number(&mut self.profile.scopes, name)
    }

    pub(super) fn call_site(&mut self, call_site: CallSite) -> u32 {
        self.call_sites
            .number(&mut self.profile.call_sites, call_site)
    }

    pub(super) fn stack(&mut self, stack: Vec<Frame>) -> u32 {
        self.stacks.number(&mut self.profile.stacks, stack)
    }

    /// Adds the next event in file order. Clocks differ between threads, so the event's time is
    /// raised to at least the time of its predecessor.
    pub(super) fn push(&mut self, mut event: Event) {
        let last = self.profile.events.last();
        event.time_ns = event.time_ns.max(last.map_or(0, |last| last.time_ns));
        self.profile.events.push(event);
    }

    pub(super) fn push_before(&mut self, mut event: Event) {
        let first = self.profile.events.first();
        event.time_ns = first.map_or(0, |first| first.time_ns);
        self.before.push(event);
    }

    /// Returns the profile. Its times are relative to the first event.
    pub(super) fn finish(mut self) -> Profile {
        self.before.reserve_exact(self.profile.events.len());
        self.before.append(&mut self.profile.events);
        self.profile.events = self.before;
        let events = &mut self.profile.events;
        let first_ns = events.first().map_or(0, |event| event.time_ns);
        for event in &mut *events {
            event.time_ns -= first_ns;
        }
        self.profile.began_unix_ns = first_ns;
        self.profile.duration_ns = events.last().map_or(0, |event| event.time_ns);
        self.profile
    }
}

/// The indices of the values of a table, by hash. A value is stored twice only after a hash
/// collision.
#[derive(Default)]
struct ValueNumbers {
    hasher: RandomState,
    by_hash: HashMap<u64, u32>,
}

impl ValueNumbers {
    /// Returns the index of a value in `table`. If the value is new, adds it. After a hash
    /// collision, the later value is added on each call.
    fn number<T: Eq + Hash>(&mut self, table: &mut Vec<T>, value: T) -> u32 {
        let next = table.len() as u32;
        let hash = self.hasher.hash_one(&value);
        let number = *self.by_hash.entry(hash).or_insert(next);
        if table.get(number as usize) == Some(&value) {
            return number;
        }
        table.push(value);
        next
    }
}
