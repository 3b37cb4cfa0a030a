//! Scope entries as bars of the page.

use super::data::moment;
use crate::nesting::{Activity, Nesting};
use crate::profile::Profile;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) thread: u32,
    pub(super) scope: Option<u32>,
    /// The moment of the Enter; 0 if the entry began before the recording.
    pub(super) from: u64,
    /// The moment of the Exit; later than all events if the Exit was not recorded.
    pub(super) to: u64,
    /// The number of entries that contain this entry.
    pub(super) depth: u64,
    /// True if no entry of the same scope contains this entry.
    pub(super) is_outermost: bool,
}

/// Returns the entries in order of their begin, and the index of each slice's entry.
pub(super) fn entries(profile: &Profile, nesting: &Nesting) -> (Vec<Entry>, Vec<Option<usize>>) {
    let end = profile.events.len();
    let mut entries: Vec<Entry> = Vec::new();
    let mut numbers: Vec<Option<usize>> = vec![None; nesting.slices.len()];
    for mark in nesting.marks.iter().filter(|mark| mark.begins) {
        let slice = &nesting.slices[mark.slice];
        if let Activity::Scope(scope) = slice.activity {
            // An entry begins after the entries that contain it, so their indices are already set.
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
