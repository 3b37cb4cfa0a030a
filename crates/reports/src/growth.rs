//! Memory of a scope that grows with the number of entries.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::lifetimes::lifetimes;
use crate::nesting::{Activity, Nesting, Slice};
use crate::profile::{EventKind, Profile};

/// The growth of a scope's memory on a thread.
///
/// An entry counts if its Enter and its Exit were recorded, and no entry of its scope contains it.
/// Only memory that was allocated in a counted entry, on the thread of the entry, counts as growth.
/// A block that replaces a freed block of an earlier entry is not growth.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopeGrowth {
    /// The index of the scope.
    pub scope: Option<u32>,
    /// The thread of the entries.
    pub thread: u32,
    /// The number of entries.
    pub entries: u64,
    /// The mean growth per entry: bytes still live, minus freed bytes of earlier entries. Only the
    /// second half of the entries counts, because the first half includes one-time allocations.
    pub left_bytes_per_entry: u64,
    /// The number of consecutive entries, up to the last entry, that raised the cache's live bytes.
    /// If the live bytes are higher at an entry's Exit than at the previous Exit, the entry raises
    /// them.
    pub rising_entries: u64,
    /// The lines that grow, in descending order of growth.
    pub sites: Vec<SiteGrowth>,
}

/// The growth that the allocations of a line cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SiteGrowth {
    /// The index of the line.
    pub call_site: Option<u32>,
    /// The mean growth per entry, like [`ScopeGrowth::left_bytes_per_entry`].
    pub left_bytes_per_entry: u64,
}

/// Returns the growth of each scope on each thread, in descending order. A scope must have an entry
/// whose Enter and Exit were recorded.
pub fn growth(profile: &Profile) -> Vec<ScopeGrowth> {
    let nesting = Nesting::of(profile);
    let groups = groups(profile, &nesting);
    let grown = grown_bytes(profile, &nesting, &groups);
    let mut growths: Vec<ScopeGrowth> = groups
        .iter()
        .zip(&grown)
        .map(|(group, bytes)| group.growth(profile, &nesting, bytes))
        .collect();
    growths.sort_by_key(|own| (Reverse(own.left_bytes_per_entry), own.scope, own.thread));
    growths
}

/// The indices of a scope's entries on a thread, in order.
struct EntryGroup {
    scope: Option<u32>,
    thread: u32,
    entries: Vec<usize>,
}

fn groups(profile: &Profile, nesting: &Nesting) -> Vec<EntryGroup> {
    let mut groups: BTreeMap<(Option<u32>, u32), Vec<usize>> = BTreeMap::new();
    for (number, slice) in nesting.slices.iter().enumerate() {
        if let Activity::Scope(scope) = slice.activity
            && exit_bytes(profile, slice).is_some()
            && nesting.is_outermost(number)
        {
            let entries = groups.entry((scope, slice.thread)).or_default();
            entries.push(number);
        }
    }
    let group = |((scope, thread), entries)| EntryGroup {
        scope,
        thread,
        entries,
    };
    groups.into_iter().map(group).collect()
}

/// Returns the live bytes at the Exit of an entry, if its Enter and its Exit were recorded.
fn exit_bytes(profile: &Profile, slice: &Slice) -> Option<u64> {
    let exit = &profile.events[slice.begin.and(slice.end)?];
    let is_own = exit.kind == EventKind::Exit && slice.activity == Activity::Scope(exit.scope);
    is_own.then_some(exit.bytes)
}

impl EntryGroup {
    fn second_half(&self) -> &[usize] {
        &self.entries[self.entries.len() / 2..]
    }

    /// Returns the first and the last event of the second half of the entries.
    fn half(&self, nesting: &Nesting) -> Option<(usize, usize)> {
        let half = self.second_half();
        let (first, last) = (half.first()?, half.last()?);
        Some((nesting.slices[*first].begin?, nesting.slices[*last].end?))
    }

    fn growth(&self, profile: &Profile, nesting: &Nesting, grown: &GrownBytes) -> ScopeGrowth {
        let entries = self.second_half().len() as i128;
        let per_entry = |bytes: i128| u64::try_from((bytes / entries).max(0)).unwrap_or(u64::MAX);
        let sites = grown.iter().map(|(&call_site, &bytes)| SiteGrowth {
            call_site,
            left_bytes_per_entry: per_entry(bytes),
        });
        let mut sites: Vec<SiteGrowth> = sites.filter(|own| own.left_bytes_per_entry > 0).collect();
        sites.sort_by_key(|own| (Reverse(own.left_bytes_per_entry), own.call_site));
        ScopeGrowth {
            scope: self.scope,
            thread: self.thread,
            entries: self.entries.len() as u64,
            left_bytes_per_entry: per_entry(grown.values().sum()),
            rising_entries: self.rising_entries(profile, nesting),
            sites,
        }
    }

    fn rising_entries(&self, profile: &Profile, nesting: &Nesting) -> u64 {
        let exits = self.entries.iter();
        let live_bytes: Vec<Option<u64>> = exits
            .map(|&number| exit_bytes(profile, &nesting.slices[number]))
            .collect();
        let pairs = live_bytes.windows(2).rev();
        pairs.take_while(|pair| pair[1] > pair[0]).count() as u64
    }
}

/// The growth of the live bytes per line.
type GrownBytes = BTreeMap<Option<u32>, i128>;

/// Returns the growth of each group over the second half of its entries. The growth includes memory
/// that was allocated in the first half.
fn grown_bytes(profile: &Profile, nesting: &Nesting, groups: &[EntryGroup]) -> Vec<GrownBytes> {
    let mut group_of = vec![None; nesting.slices.len()];
    for (number, group) in groups.iter().enumerate() {
        for &entry in &group.entries {
            group_of[entry] = group.half(nesting).map(|half| (number, half));
        }
    }
    let mut grown = vec![GrownBytes::new(); groups.len()];
    for lifetime in lifetimes(profile) {
        let Some(allocated) = lifetime.allocated else {
            continue;
        };
        let is_live = |event| allocated <= event && lifetime.freed.is_none_or(|at| at > event);
        for entry in nesting.entries_around(allocated) {
            let Some((group, (begin, end))) = group_of[entry] else {
                continue;
            };
            let change = i128::from(is_live(end)) - i128::from(is_live(begin));
            if change != 0 {
                let call_site = profile.events[allocated].call_site;
                *grown[group].entry(call_site).or_default() += change * i128::from(lifetime.bytes);
            }
        }
    }
    grown
}
