//! The times of events, and the lifetimes that begin or end at events.

use crate::lifetimes::AllocationLifetime;
use crate::profile::Profile;

/// Returns the times of all events, and then the end time of the recording. The times are
/// monotonic.
pub(crate) fn times_ns(profile: &Profile) -> Vec<u64> {
    let events = profile.events.iter().map(|event| event.time_ns);
    let mut latest_ns = 0;
    let times = events.chain([profile.duration_ns]).map(|time_ns| {
        latest_ns = time_ns.max(latest_ns);
        latest_ns
    });
    times.collect()
}

/// The begin or the end of a lifetime at an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LifetimeChange {
    /// The index in [`Profile::events`]; `None` at the start of the recording.
    pub(crate) event: Option<usize>,
    /// True if the lifetime begins, false if it ends.
    pub(crate) begins: bool,
    pub(crate) lifetime: usize,
}

impl LifetimeChange {
    /// Applies the change to `live_bytes`, the live bytes before the change.
    pub(crate) fn apply(self, live_bytes: &mut u64, bytes: u64) {
        *live_bytes = if self.begins {
            live_bytes.saturating_add(bytes)
        } else {
            live_bytes.saturating_sub(bytes)
        };
    }
}

/// Returns the changes of all lifetimes, in order of their events. Changes at the start of the
/// recording are first. If some lifetimes end and others begin at one event, the ends are first.
pub(crate) fn changes(lifetimes: &[AllocationLifetime]) -> Vec<LifetimeChange> {
    let mut changes = Vec::with_capacity(2 * lifetimes.len());
    for (lifetime, own) in lifetimes.iter().enumerate() {
        let change = |event, begins| LifetimeChange {
            event,
            begins,
            lifetime,
        };
        changes.push(change(own.allocated, true));
        changes.extend(own.freed.map(|event| change(Some(event), false)));
    }
    changes.sort_unstable();
    changes
}
