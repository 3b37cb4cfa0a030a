//! Passes through scopes, entries among them, from the Enter and Exit of each thread.

use std::collections::HashMap;

use crate::lifetimes::Lifetime;
use crate::profile::{Event, EventKind, Profile};

/// One pass of a thread through a scope, from the moment behind its Enter to that behind its Exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) thread: u32,
    pub(super) scope: Option<u32>,
    /// 0 where the Enter was lost.
    pub(super) from: u64,
    /// Behind all moments where the recording ended first.
    pub(super) to: u64,
    /// How many passes the thread was in.
    pub(super) depth: u64,
    /// Whether none of them was of this scope: then it is an entry.
    pub(super) is_entry: bool,
}

/// The passes of a profile, in the order in which they began.
pub(super) fn passes(profile: &Profile) -> Vec<Pass> {
    let mut threads: HashMap<u32, Thread> = HashMap::new();
    let end = profile.events.len() as u64 + 1;
    for (index, event) in profile.events.iter().enumerate() {
        let moment = index as u64 + 1;
        match event.kind {
            EventKind::Enter => threads
                .entry(event.thread)
                .or_default()
                .enter(event, moment, end),
            EventKind::Exit => threads.entry(event.thread).or_default().exit(event, moment),
            _ => {}
        }
    }
    let mut passes: Vec<Pass> = threads
        .into_values()
        .flat_map(|thread| thread.passes)
        .collect();
    passes.sort_by_key(|pass| (pass.from, pass.thread, pass.depth));
    passes
}

#[derive(Default)]
struct Thread {
    passes: Vec<Pass>,
    /// Those without an Exit yet, as indices.
    open: Vec<usize>,
}

impl Thread {
    fn enter(&mut self, event: &Event, from: u64, to: u64) {
        let is_entry = self.innermost(event.scope).is_none();
        let depth = self.open.len() as u64;
        self.open.push(self.passes.len());
        self.passes.push(Pass {
            thread: event.thread,
            scope: event.scope,
            from,
            to,
            depth,
            is_entry,
        });
    }

    /// Passes within that have no Exit end too. An Exit without an Enter, before all else, ends a pass from the
    /// beginning; another says nothing.
    fn exit(&mut self, event: &Event, moment: u64) {
        if let Some(at) = self.innermost(event.scope) {
            for index in self.open.drain(at..) {
                self.passes[index].to = moment;
            }
        } else if self.passes.is_empty() {
            self.passes.push(Pass {
                thread: event.thread,
                scope: event.scope,
                from: 0,
                to: moment,
                depth: 0,
                is_entry: true,
            });
        }
    }

    fn innermost(&self, scope: Option<u32>) -> Option<usize> {
        (self.open.iter()).rposition(|&index| self.passes[index].scope == scope)
    }
}

/// For each lifetime the entry that it was allocated in, as an index of `passes`.
pub(super) fn entries_of(
    profile: &Profile,
    lifetimes: &[Lifetime],
    passes: &[Pass],
) -> Vec<Option<usize>> {
    let mut entries: HashMap<(u32, Option<u32>), Vec<usize>> = HashMap::new();
    for (index, pass) in passes.iter().enumerate().filter(|(_, pass)| pass.is_entry) {
        entries
            .entry((pass.thread, pass.scope))
            .or_default()
            .push(index);
    }
    let entry_of = |lifetime: &Lifetime| {
        let born = lifetime.allocated? as u64 + 1;
        let event = lifetime.event(profile);
        let own = entries.get(&(event.thread, event.scope))?;
        let begun = own.partition_point(|&index| passes[index].from <= born);
        let last = own[begun.checked_sub(1)?];
        (born < passes[last].to).then_some(last)
    };
    lifetimes.iter().map(entry_of).collect()
}

/// Whether an allocation of `entry` outlived it.
pub(super) fn has_escaped(profile: &Profile, lifetime: &Lifetime, entry: Option<&Pass>) -> bool {
    let end = profile.events.len() as u64;
    entry.is_some_and(|entry| {
        let outlives = |freed: usize| freed as u64 + 1 > entry.to;
        entry.to <= end && lifetime.freed.is_none_or(outlives)
    })
}
