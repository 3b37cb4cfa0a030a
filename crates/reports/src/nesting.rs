//! The nesting of entries of scopes and operations on their threads.

use std::collections::BTreeMap;

use crate::lifetimes::AllocationLifetime;
use crate::profile::{Event, EventKind, Profile};

/// The scope or operation that a thread was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// An entry of a scope, by the number of the scope.
    Scope(Option<u32>),
    /// An operation, by the line that called it.
    Operation(Option<u32>),
}

/// A time that a thread spent in a scope or an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) thread: u32,
    pub(crate) activity: Activity,
    /// The event that began it; `None` before the recording began.
    pub(crate) begin: Option<usize>,
    /// The event that ended it; `None` where it was open at the end.
    pub(crate) end: Option<usize>,
    /// The entry of a scope around it.
    pub(crate) parent: Option<usize>,
}

/// A slice that begins or ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceMark {
    /// The event; `None` at the beginning or at the end of the recording.
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
/// Invariant: on each thread slices nest, whatever events were lost. A slice without an end ends
/// with the slice around it. If no slice is open, an end without a begin makes a slice that began
/// before the recording. Otherwise, this end is ignored.
#[derive(Debug, Default)]
pub(crate) struct Nesting {
    pub(crate) slices: Vec<Slice>,
    /// The marks, first of slices that begin before the recording, then by event. At one event,
    /// inner slices end first.
    pub(crate) marks: Vec<SliceMark>,
    /// For each event, the innermost entry of a scope that its thread was in.
    pub(crate) entries: Vec<Option<usize>>,
}

#[derive(Debug, Default)]
struct OpenSlices {
    /// Slices, the innermost last.
    slices: Vec<usize>,
    /// The innermost slice that is an entry of a scope.
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

    /// Returns whether an entry of a scope is not inside another entry of that scope.
    pub(crate) fn is_outermost(&self, slice: usize) -> bool {
        let activity = self.slices[slice].activity;
        let around = |slice: &usize| self.slices[*slice].parent;
        std::iter::successors(around(&slice), around)
            .all(|outer| self.slices[outer].activity != activity)
    }

    /// Returns the entry that an allocation belongs to: the outermost entry of the allocation's
    /// scope that its thread was in.
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

    /// Returns the innermost entry that an event is in, and the entries around it.
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

    /// Ends all slices of a thread from a depth on.
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

    /// Puts the slices from before the recording around the slices in them. On a thread, slices
    /// that ended later are around slices that ended earlier.
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

/// The effect of an event on the nesting.
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
