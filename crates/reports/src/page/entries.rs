//! Entries of scopes as bars, from the moment after the Enter to the moment after the Exit.

use super::data::moment;
use crate::nesting::{Activity, Nesting};
use crate::profile::Profile;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) thread: u32,
    pub(super) scope: Option<u32>,
    /// The moment after the Enter; 0 if the entry began before the recording.
    pub(super) from: u64,
    /// The moment after the Exit; after all moments if the recording ended before the Exit.
    pub(super) to: u64,
    /// The number of entries around it.
    pub(super) depth: u64,
    /// True if none of the entries around it is an entry of its scope.
    pub(super) is_outermost: bool,
}

/// Returns the entries in the order in which they began, and for each slice the index of its entry.
pub(super) fn entries(profile: &Profile, nesting: &Nesting) -> (Vec<Entry>, Vec<Option<usize>>) {
    let end = profile.events.len();
    let mut entries: Vec<Entry> = Vec::new();
    let mut numbers: Vec<Option<usize>> = vec![None; nesting.slices.len()];
    for mark in nesting.marks.iter().filter(|mark| mark.begins) {
        let slice = &nesting.slices[mark.slice];
        if let Activity::Scope(scope) = slice.activity {
            // An entry begins after the entries around it, so these have numbers already.
            let around = slice.parent.and_then(|parent| numbers[parent]);
            numbers[mark.slice] = Some(entries.len());
            entries.push(Entry {
                thread: slice.thread,
                scope,
                from: moment(slice.begin),
                to: moment(slice.end.or(Some(end))),
                depth: around.map_or(0, |around| entries[around].depth + 1),
                is_outermost: nesting.is_outermost(mark.slice),
            });
        }
    }
    (entries, numbers)
}
