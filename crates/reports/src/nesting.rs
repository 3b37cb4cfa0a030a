//! The nesting of scope entries and operations, per thread.

use std::collections::BTreeMap;

use crate::lifetimes::AllocationLifetime;
use crate::profile::{Event, EventKind, Profile};

/// A scope or an operation that a thread executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// An entry of a scope, with the index of the scope.
    Scope(Option<u32>),
    /// An operation, with the index of the calling line.
    Operation(Option<u32>),
}

/// A time span in which a thread executed a scope or an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) thread: u32,
    pub(crate) activity: Activity,
    /// The index of the first event; `None` if the slice began before the recording.
    pub(crate) begin: Option<usize>,
    /// The index of the last event; `None` if the slice was open at the end.
    pub(crate) end: Option<usize>,
    /// The index of the innermost scope entry that contains the slice.
    pub(crate) parent: Option<usize>,
}

/// The begin or the end of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceMark {
    /// The index of the event; `None` if the event was not recorded.
    pub(crate) event: Option<usize>,
    pub(crate) slice: usize,
    pub(crate) begins: bool,
}

impl SliceMark {
    fn new(event: Option<usize>, slice: usize, begins: bool) -> Self {
        Self {
            event,
            slice,
            begins,
        }
    }
}

/// All slices of a profile.
///
/// Invariant: the slices of a thread nest, even if events were lost. If the end of a slice was
/// lost, the slice ends with the slice that contains it. An end without a begin is ignored while
/// another slice is open. If no slice is open, the end creates a slice that began before the
/// recording.
#[derive(Debug, Default)]
pub(crate) struct Nesting {
    pub(crate) slices: Vec<Slice>,
    /// The marks in order of their events. Begins without an event are first. If several slices end
    /// at one event, the marks of inner slices are first.
    pub(crate) marks: Vec<SliceMark>,
    /// For each event, the index of the innermost scope entry on its thread.
    pub(crate) entries: Vec<Option<usize>>,
}

#[derive(Debug, Default)]
struct OpenSlices {
    /// The open slices of the thread, from the outermost to the innermost.
    slices: Vec<usize>,
    /// The innermost open slice that is a scope entry.
    entry: Option<usize>,
}

impl Nesting {
    pub(crate) fn of(profile: &Profile) -> Self {
        let mut nesting = Self::default();
        let mut threads: BTreeMap<u32, OpenSlices> = BTreeMap::new();
        for (index, event) in profile.events.iter().enumerate() {
            let open = threads.entry(event.thread).or_default();
            match Step::of(event) {
                Step::Begin(activity) => nesting.begin(index, event.thread, activity, open),
                Step::End(activity) => nesting.end(index, event.thread, activity, open),
                Step::None => {}
            }
            nesting.entries.push(open.entry);
        }
        for mut open in threads.into_values() {
            nesting.close(&mut open, 0, None);
        }
        nesting.begin_before(profile);
        nesting
    }

    /// Returns whether no entry of the same scope contains the entry.
    pub(crate) fn is_outermost(&self, slice: usize) -> bool {
        let activity = self.slices[slice].activity;
        let around = |slice: &usize| self.slices[*slice].parent;
        std::iter::successors(around(&slice), around)
            .all(|outer| self.slices[outer].activity != activity)
    }

    /// Returns the entry of an allocation: the outermost open entry of the allocation's scope on
    /// its thread.
    pub(crate) fn entry_of(
        &self,
        profile: &Profile,
        lifetime: &AllocationLifetime,
    ) -> Option<usize> {
        let allocated = lifetime.allocated?;
        let own = Activity::Scope(profile.events[allocated].scope);
        let entries = self.entries_around(allocated);
        entries
            .filter(|&slice| self.slices[slice].activity == own)
            .last()
    }

    /// Returns the scope entries that contain an event, from the innermost outwards.
    pub(crate) fn entries_around(&self, event: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.entries[event], |slice| self.slices[*slice].parent)
    }

    fn begin(&mut self, index: usize, thread: u32, activity: Activity, open: &mut OpenSlices) {
        let number = self.slices.len();
        self.slices.push(Slice {
            thread,
            activity,
            begin: Some(index),
            end: None,
            parent: open.entry,
        });
        self.marks.push(SliceMark::new(Some(index), number, true));
        open.slices.push(number);
        if matches!(activity, Activity::Scope(_)) {
            open.entry = Some(number);
        }
    }

    fn end(&mut self, index: usize, thread: u32, ended: Activity, open: &mut OpenSlices) {
        let matches = |&slice: &usize| match (self.slices[slice].activity, ended) {
            (Activity::Operation(_), Activity::Operation(_)) => true,
            (activity, ended) => activity == ended,
        };
        if let Some(depth) = open.slices.iter().rposition(matches) {
            self.close(open, depth, Some(index));
        } else if open.slices.is_empty() {
            self.slices.push(Slice {
                thread,
                activity: ended,
                begin: None,
                end: Some(index),
                parent: None,
            });
            let number = self.slices.len() - 1;
            self.marks.push(SliceMark::new(Some(index), number, false));
        }
    }

    /// Ends all open slices of a thread from `depth` on.
    fn close(&mut self, open: &mut OpenSlices, depth: usize, event: Option<usize>) {
        for number in open.slices.drain(depth..).rev() {
            let slice = &mut self.slices[number];
            slice.end = event;
            if matches!(slice.activity, Activity::Scope(_)) {
                open.entry = slice.parent;
            }
            self.marks.push(SliceMark::new(event, number, false));
        }
    }

    /// Sets the parents of slices that began before the recording, and the parents of slices in
    /// them. On a thread, the slice with the later end contains the slice with the earlier end.
    fn begin_before(&mut self, profile: &Profile) {
        let mut around: BTreeMap<u32, usize> = BTreeMap::new();
        let mut begins = Vec::new();
        let mut end_of_slice = vec![None; profile.events.len()];
        let mut begin_of_slice = vec![None; profile.events.len()];
        for (number, slice) in self.slices.iter().enumerate() {
            match (slice.begin, slice.end) {
                (None, Some(end)) => end_of_slice[end] = Some(number),
                (Some(begin), _) => begin_of_slice[begin] = Some(number),
                (None, None) => {}
            }
        }
        for (index, event) in profile.events.iter().enumerate().rev() {
            let outer = around.get(&event.thread).copied();
            if let Some(number) = end_of_slice[index] {
                self.slices[number].parent = outer;
                begins.push(SliceMark::new(None, number, true));
                if matches!(self.slices[number].activity, Activity::Scope(_)) {
                    around.insert(event.thread, number);
                }
            } else if let Some(number) = begin_of_slice[index] {
                let parent = &mut self.slices[number].parent;
                *parent = parent.or(outer);
            }
            self.entries[index] = self.entries[index].or(outer);
        }
        begins.append(&mut self.marks);
        self.marks = begins;
    }
}

/// The effect of an event on the open slices.
enum Step {
    Begin(Activity),
    End(Activity),
    None,
}

impl Step {
    fn of(event: &Event) -> Self {
        match event.kind {
            EventKind::Enter => Self::Begin(Activity::Scope(event.scope)),
            EventKind::Exit => Self::End(Activity::Scope(event.scope)),
            EventKind::OperationBegin => Self::Begin(Activity::Operation(event.call_site)),
            EventKind::OperationEnd => Self::End(Activity::Operation(None)),
            _ => Self::None,
        }
    }
}
