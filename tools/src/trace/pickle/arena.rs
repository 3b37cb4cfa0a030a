//! The elements of all containers in one vector.

use std::ops::Range;

use super::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerKind {
    List,
    Tuple,
    Dict,
    Set,
}

/// A container that is complete.
#[derive(Debug)]
pub(super) struct ContainerNode {
    pub(super) kind: ContainerKind,
    start: u32,
    length: u32,
}

impl ContainerNode {
    /// Returns the indices of its elements.
    pub(super) fn range(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.length as usize
    }
}

/// A container to which elements are added: a chain of runs.
#[derive(Debug)]
struct OpenContainer {
    kind: ContainerKind,
    /// [`NO_RUN`] if the container is empty.
    first_run: u32,
    last_run: u32,
}

const NO_RUN: u32 = u32::MAX;

/// Elements that were added together.
#[derive(Debug)]
struct ElementRun {
    start: u32,
    length: u32,
    /// The next run of the container, or [`NO_RUN`].
    next: u32,
}

/// The containers of a file while it is read.
///
/// Invariant: the counts of containers, of elements and of runs are at most the length of the
/// file, which is below 2³². A byte makes at most one container, adds at most one run and pushes
/// at most one element.
#[derive(Debug, Default)]
pub(super) struct Arena {
    open: Vec<OpenContainer>,
    items: Vec<Value>,
    runs: Vec<ElementRun>,
}

impl Arena {
    /// Adds a container with `items`. Returns its index.
    pub(super) fn push(&mut self, kind: ContainerKind, items: &[Value]) -> u32 {
        let number = self.open.len() as u32;
        self.open.push(OpenContainer {
            kind,
            first_run: NO_RUN,
            last_run: NO_RUN,
        });
        self.extend(number, items);
        number
    }

    pub(super) fn kind(&self, number: u32) -> ContainerKind {
        self.open[number as usize].kind
    }

    /// Adds `items` at the end of a container.
    pub(super) fn extend(&mut self, number: u32, items: &[Value]) {
        if items.is_empty() {
            return;
        }
        let (start, length) = (self.items.len() as u32, items.len() as u32);
        let next = self.runs.len() as u32;
        self.items.extend_from_slice(items);
        let container = &mut self.open[number as usize];
        if let Some(last) = self.runs.get_mut(container.last_run as usize) {
            if last.start + last.length == start {
                last.length += length;
                return;
            }
            last.next = next;
        } else {
            container.first_run = next;
        }
        container.last_run = next;
        self.runs.push(ElementRun {
            start,
            length,
            next: NO_RUN,
        });
    }

    /// Copies the elements of each container to one contiguous range.
    pub(super) fn finish(self) -> (Vec<ContainerNode>, Vec<Value>) {
        let Self {
            mut open,
            items,
            runs,
        } = self;
        open.shrink_to_fit();
        let mut sorted = Vec::with_capacity(items.len());
        // Both kinds have one size, so the vector is reused.
        let nodes = open.into_iter().map(|container| {
            let start = sorted.len() as u32;
            let mut number = container.first_run;
            while let Some(run) = runs.get(number as usize) {
                let from = run.start as usize;
                sorted.extend_from_slice(&items[from..from + run.length as usize]);
                number = run.next;
            }
            ContainerNode {
                kind: container.kind,
                start,
                length: sorted.len() as u32 - start,
            }
        });
        (nodes.collect(), sorted)
    }
}
