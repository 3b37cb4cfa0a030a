//! The memory that entries of a scope leave: memory that grows with the number of entries.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::lifetimes::lifetimes;
use crate::nesting::{Activity, Nesting, Slice};
use crate::profile::{EventKind, Profile};

/// The growth of a scope's memory on a thread.
///
/// Only entries count that were entered and left in the recording, and that are not inside another
/// entry of their scope. An entry leaves the memory that was allocated in it, on its thread, and
/// that lives after it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopeGrowth {
    /// The scope, by its number.
    pub scope: Option<u32>,
    /// The thread.
    pub thread: u32,
    /// The number of entries.
    pub entries: u64,
    /// The average of the bytes that an entry left, over the second half of the entries. The first
    /// half is skipped because it includes what is made once.
    pub left_bytes_per_entry: u64,
    /// The number of entries in a row, up to the last, at whose exit the live bytes of the cache
    /// were higher than at the exit before.
    pub rising_entries: u64,
    /// The growth by line, the largest first.
    pub sites: Vec<SiteGrowth>,
}

/// The former name of [`ScopeGrowth`].
#[deprecated = "write `ScopeGrowth`"]
pub type Growth = ScopeGrowth;

/// The memory that allocations of a line leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SiteGrowth {
    /// The line, by its number.
    pub call_site: Option<u32>,
    /// The average of the bytes that an entry left, over the second half of the entries.
    pub left_bytes_per_entry: u64,
}

/// Returns the growth of each scope on each thread on which it was entered and left, the largest
/// first.
///
/// An entry may leave memory without growth, for example if each result replaces the one before.
/// Then few exits in a row rise.
pub fn growth(profile: &Profile) -> Vec<ScopeGrowth> {
    let nesting = Nesting::of(profile);
    let groups = groups(profile, &nesting);
    let mut left = LeftMemory::of(&nesting, &groups);
    left.add_all(profile, &nesting);
    let mut growths: Vec<ScopeGrowth> = groups
        .iter()
        .zip(&left.bytes)
        .map(|(group, bytes)| group.growth(profile, &nesting, bytes))
        .collect();
    growths.sort_by_key(|own| (Reverse(own.left_bytes_per_entry), own.scope, own.thread));
    growths
}

/// The entries of a scope on a thread, as numbers of slices in their order.
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

/// Returns the live bytes at the exit of an entry whose two events were recorded.
fn exit_bytes(profile: &Profile, slice: &Slice) -> Option<u64> {
    let exit = &profile.events[slice.begin.and(slice.end)?];
    let is_own = exit.kind == EventKind::Exit && slice.activity == Activity::Scope(exit.scope);
    is_own.then_some(exit.bytes)
}

impl EntryGroup {
    fn second_half(&self) -> &[usize] {
        &self.entries[self.entries.len() / 2..]
    }

    fn growth(&self, profile: &Profile, nesting: &Nesting, bytes: &LeftBytes) -> ScopeGrowth {
        let entries = self.second_half().len() as u64;
        let sites = bytes.iter().map(|(&call_site, bytes)| SiteGrowth {
            call_site,
            left_bytes_per_entry: bytes / entries,
        });
        let mut sites: Vec<SiteGrowth> = sites.collect();
        sites.sort_by_key(|own| (Reverse(own.left_bytes_per_entry), own.call_site));
        let all = bytes
            .values()
            .fold(0u64, |sum, own| sum.saturating_add(*own));
        ScopeGrowth {
            scope: self.scope,
            thread: self.thread,
            entries: self.entries.len() as u64,
            left_bytes_per_entry: all / entries,
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

/// The bytes left, by line.
type LeftBytes = BTreeMap<Option<u32>, u64>;

/// The memory that the second halves of the groups left.
struct LeftMemory {
    /// The group of each slice that counts.
    group_of: Vec<Option<usize>>,
    /// The bytes left, by group.
    bytes: Vec<LeftBytes>,
}

impl LeftMemory {
    fn of(nesting: &Nesting, groups: &[EntryGroup]) -> Self {
        let mut group_of = vec![None; nesting.slices.len()];
        for (number, group) in groups.iter().enumerate() {
            for &entry in group.second_half() {
                group_of[entry] = Some(number);
            }
        }
        Self {
            group_of,
            bytes: vec![LeftBytes::new(); groups.len()],
        }
    }

    fn add_all(&mut self, profile: &Profile, nesting: &Nesting) {
        for lifetime in lifetimes(profile) {
            let Some(allocated) = lifetime.allocated else {
                continue;
            };
            for entry in nesting.entries_around(allocated) {
                let end = nesting.slices[entry].end;
                let outlived = end.is_some_and(|end| lifetime.freed.is_none_or(|at| at > end));
                if let Some(group) = self.group_of[entry].filter(|_| outlived) {
                    let call_site = profile.events[allocated].call_site;
                    let bytes = self.bytes[group].entry(call_site).or_default();
                    *bytes = bytes.saturating_add(lifetime.bytes);
                }
            }
        }
    }
}
