//! The construction of a profile: tables of names and lines, and events.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

use cachescope_reports::{CallSite, Event, EventKind, Frame, Profile};

/// Returns an event of `bytes` bytes, which is also the size of the block.
pub(super) fn event_of(kind: EventKind, time_ns: u64, address: u64, bytes: u64) -> Event {
    Event {
        address,
        bytes,
        block_bytes: bytes,
        ..Event::new(kind, time_ns)
    }
}

/// A profile under construction.
#[derive(Default)]
pub(super) struct ProfileBuilder {
    pub(super) profile: Profile,
    /// Allocations from before the first event.
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

    /// Adds the next event, in the order of the file. Clocks differ between threads, so a time
    /// before the previous event's time is raised to that time.
    pub(super) fn push(&mut self, mut event: Event) {
        let last = self.profile.events.last();
        event.time_ns = event.time_ns.max(last.map_or(0, |last| last.time_ns));
        self.profile.events.push(event);
    }

    /// Adds an allocation from before the first event.
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

/// The numbers of the values of a table, by hash. No value is stored twice, except after a
/// collision.
#[derive(Default)]
struct ValueNumbers {
    hasher: RandomState,
    by_hash: HashMap<u64, u32>,
}

impl ValueNumbers {
    /// Returns the number of a value in `table`, and adds it if it is new. If two values have one
    /// hash, the second is added each time.
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
