//! The changes of the reserved address ranges.

use std::cmp::Reverse;

use crate::profile::{EventKind, Profile};

/// The maximum gap between two reservations of one segment. A segment grows and shrinks in place.
const NEIGHBOURHOOD_BYTES: u64 = 32 << 20;

/// A reservation or a release of an address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReservedChange {
    /// The moment of the change; 0 for memory that was reserved before the recording.
    pub(super) moment: u64,
    pub(super) from: u64,
    /// The address after the last address.
    pub(super) to: u64,
    pub(super) is_reserve: bool,
}

impl ReservedChange {
    fn new(moment: u64, address: u64, bytes: u64, is_reserve: bool) -> Self {
        Self {
            moment,
            from: address,
            to: address.saturating_add(bytes),
            is_reserve,
        }
    }
}

pub(super) fn changes(profile: &Profile) -> Vec<ReservedChange> {
    let before = (profile.segments.iter())
        .map(|segment| ReservedChange::new(0, segment.address, segment.bytes, true));
    let during = (1..).zip(&profile.events).filter_map(|(moment, event)| {
        let is_reserve = event.kind == EventKind::Reserve;
        let is_change = is_reserve || event.kind == EventKind::Release;
        is_change.then(|| ReservedChange::new(moment, event.address, event.bytes, is_reserve))
    });
    before
        .chain(during)
        .filter(|change| change.from < change.to)
        .collect()
}

/// Returns the address spans that were ever reserved, the longest first. The map of the page has a
/// row for each span.
pub(super) fn neighbourhoods(changes: &[ReservedChange]) -> Vec<(u64, u64)> {
    let mut reserves: Vec<(u64, u64)> = (changes.iter())
        .filter(|change| change.is_reserve)
        .map(|change| (change.from, change.to))
        .collect();
    reserves.sort_unstable();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for (from, to) in reserves {
        match spans.last_mut() {
            Some(last) if from <= last.1.saturating_add(NEIGHBOURHOOD_BYTES) => {
                last.1 = last.1.max(to);
            }
            _ => spans.push((from, to)),
        }
    }
    spans.sort_by_key(|&(from, to)| (Reverse(to - from), from));
    spans
}
