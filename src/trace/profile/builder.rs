//! A profile on the way: tables of names and lines, and events.

use std::collections::HashMap;

use cachescope_reports::{CallSite, Event, EventKind, Frame, Profile};

/// A profile on the way.
#[derive(Default)]
pub(super) struct ProfileBuilder {
    profile: Profile,
    /// Allocations from before the first event.
    before: Vec<Event>,
    scopes: HashMap<String, u32>,
    call_sites: HashMap<CallSite, u32>,
    stacks: HashMap<Vec<Frame>, u32>,
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

    pub(super) fn profile(&mut self) -> &mut Profile {
        &mut self.profile
    }

    pub(super) fn scope(&mut self, name: &str) -> u32 {
        let names = &mut self.profile.scopes;
        number(&mut self.scopes, names, name.to_owned())
    }

    pub(super) fn call_site(&mut self, call_site: CallSite) -> u32 {
        let known = &mut self.profile.call_sites;
        number(&mut self.call_sites, known, call_site)
    }

    pub(super) fn stack(&mut self, stack: Vec<Frame>) -> u32 {
        number(&mut self.stacks, &mut self.profile.stacks, stack)
    }

    /// Adds what happened next. The order is the file's: clocks differ from thread to thread, and an earlier time than that
    /// of the event before counts as that.
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

    /// The profile. Times become those since the first event.
    pub(super) fn finish(mut self) -> Profile {
        let events = &mut self.profile.events;
        events.splice(..0, self.before);
        let first_ns = events.first().map_or(0, |event| event.time_ns);
        for event in &mut *events {
            event.time_ns -= first_ns;
        }
        self.profile.began_unix_ns = first_ns;
        self.profile.duration_ns = events.last().map_or(0, |event| event.time_ns);
        self.profile
    }
}

/// An event of a kind at a time, about nothing yet.
pub(super) fn event(kind: EventKind, time_ns: u64) -> Event {
    Event {
        time_ns,
        kind,
        thread: 0,
        stream: 0,
        scope: None,
        call_site: None,
        stack: None,
        address: 0,
        bytes: 0,
        block_bytes: 0,
    }
}

/// The number of a value in a table, at whose end it is put where it is new.
fn number<T: Clone + Eq + std::hash::Hash>(
    numbers: &mut HashMap<T, u32>,
    table: &mut Vec<T>,
    value: T,
) -> u32 {
    *numbers.entry(value).or_insert_with_key(|value| {
        table.push(value.clone());
        table.len() as u32 - 1
    })
}
