//! What each line allocated in each scope: the rows of the table.

use std::collections::{BTreeMap, HashMap};

use super::passes::{Pass, has_escaped};
use crate::lifetimes::{Lifetime, Peak};
use crate::profile::{EventKind, Profile};

/// A line in a scope: their numbers.
pub(super) type Key = (Option<u32>, Option<u32>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) live_bytes: u64,
    pub(super) peak_bytes: u64,
    /// Live at the device's peak.
    pub(super) at_peak_bytes: u64,
    pub(super) count: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) escaped: u64,
    pub(super) copies: u64,
    /// Between the begin and the end of operations that the line called.
    pub(super) kernel_ns: u64,
}

/// `entries` holds the entry of each lifetime, as an index of `passes`.
pub(super) fn rows(
    profile: &Profile,
    lifetimes: &[Lifetime],
    peak: Peak,
    passes: &[Pass],
    entries: &[Option<usize>],
) -> BTreeMap<Key, Row> {
    let mut rows: BTreeMap<Key, Row> = BTreeMap::new();
    for (lifetime, entry) in lifetimes.iter().zip(entries) {
        let entry = entry.map(|index| &passes[index]);
        let row = rows.entry(key_of(profile, lifetime)).or_default();
        row.escaped += u64::from(has_escaped(profile, lifetime, entry));
        row.copies += u64::from(lifetime.is_copy_on_write);
        if lifetime.allocated.is_some() {
            let kind = lifetime.event(profile).kind;
            row.count += 1;
            row.hits += u64::from(kind == EventKind::Hit);
            row.misses += u64::from(kind == EventKind::Miss);
        }
    }
    add_live_bytes(profile, lifetimes, peak, &mut rows);
    add_kernel_times(profile, &mut rows);
    rows
}

fn key_of(profile: &Profile, lifetime: &Lifetime) -> Key {
    let event = lifetime.event(profile);
    (event.call_site, event.scope)
}

fn add_live_bytes(
    profile: &Profile,
    lifetimes: &[Lifetime],
    peak: Peak,
    rows: &mut BTreeMap<Key, Row>,
) {
    // By moments; what ends at one ends before what begins there.
    let mut changes: Vec<(usize, bool, &Lifetime)> = Vec::new();
    for lifetime in lifetimes {
        changes.push((
            lifetime.allocated.map_or(0, |event| event + 1),
            true,
            lifetime,
        ));
        changes.extend(lifetime.freed.map(|event| (event + 1, false, lifetime)));
    }
    changes.sort_by_key(|&(moment, begins, _)| (moment, begins));
    let peak_moment = peak.event.map_or(0, |event| event + 1);
    for (moment, begins, lifetime) in changes {
        let row = rows.entry(key_of(profile, lifetime)).or_default();
        row.live_bytes = if begins {
            row.live_bytes.saturating_add(lifetime.bytes)
        } else {
            row.live_bytes.saturating_sub(lifetime.bytes)
        };
        row.peak_bytes = row.peak_bytes.max(row.live_bytes);
        if moment <= peak_moment {
            row.at_peak_bytes = row.live_bytes;
        }
    }
}

/// Operations of one thread nest; each counts for the line that called it, with what it called.
fn add_kernel_times(profile: &Profile, rows: &mut BTreeMap<Key, Row>) {
    let mut open: HashMap<u32, Vec<usize>> = HashMap::new();
    for (index, event) in profile.events.iter().enumerate() {
        if event.kind == EventKind::OperationBegin {
            open.entry(event.thread).or_default().push(index);
        } else if event.kind == EventKind::OperationEnd
            && let Some(begin) = open.get_mut(&event.thread).and_then(Vec::pop)
        {
            let begin = &profile.events[begin];
            let row = rows.entry((begin.call_site, begin.scope)).or_default();
            row.kernel_ns += event.time_ns.saturating_sub(begin.time_ns);
        }
    }
}
