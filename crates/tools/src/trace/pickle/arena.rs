//! An arena that stores the elements of all containers in one vector.

use std::ops::Range;

use super::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerKind {
    List,
    Tuple,
    Dict,
    Set,
}

#[derive(Debug)]
pub(super) struct ContainerNode {
    pub(super) kind: ContainerKind,
    start: u32,
    length: u32,
}

impl ContainerNode {
    pub(super) fn range(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.length as usize
    }
}

/// A container under construction. Its elements are one run, or a chain of runs. Most containers
/// have one run, which needs no entry in `runs`.
#[derive(Debug)]
struct OpenContainer {
    kind: ContainerKind,
    is_chain: bool,
    /// The start of the only run, or the index of the chain's first run.
    first: u32,
    /// The length of the only run, or the index of the chain's last run.
    last: u32,
}

const NO_RUN: u32 = u32::MAX;

/// A run of elements that were appended together.
#[derive(Debug)]
struct ElementRun {
    start: u32,
    length: u32,
    /// The next run of the container, or [`NO_RUN`].
    next: u32,
}

/// The containers of a file while it is read.
///
/// Invariant: containers, elements and runs are each at most as many as the bytes of the file,
/// fewer than 2³². One byte creates at most one container, extends at most one container, and
/// pushes at most one element. Each extension of a container adds at most one run.
#[derive(Debug, Default)]
pub(super) struct Arena {
    open: Vec<OpenContainer>,
    items: Vec<Value>,
    runs: Vec<ElementRun>,
}

impl Arena {
    /// Adds a container with the elements `items`. Returns the index of the container.
    pub(super) fn push(&mut self, kind: ContainerKind, items: &[Value]) -> u32 {
        let number = self.open.len() as u32;
        self.open.push(OpenContainer {
            kind,
            is_chain: false,
            first: 0,
            last: 0,
        });
        self.extend(number, items);
        number
    }

    pub(super) fn kind(&self, number: u32) -> ContainerKind {
        self.open[number as usize].kind
    }

    pub(super) fn extend(&mut self, number: u32, items: &[Value]) {
        if items.is_empty() {
            return;
        }
        let (start, length) = (self.items.len() as u32, items.len() as u32);
        self.items.extend_from_slice(items);
        let container = &mut self.open[number as usize];
        if !container.is_chain {
            if container.last == 0 {
                container.first = start;
            }
            if container.first + container.last == start {
                container.last += length;
                return;
            }
            let only = ElementRun {
                start: container.first,
                length: container.last,
                next: NO_RUN,
            };
            let run = self.runs.len() as u32;
            self.runs.push(only);
            container.is_chain = true;
            container.first = run;
            container.last = run;
        }
        let next = self.runs.len() as u32;
        let last = &mut self.runs[container.last as usize];
        if last.start + last.length == start {
            last.length += length;
            return;
        }
        last.next = next;
        container.last = next;
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
        // `ContainerNode` and `OpenContainer` have equal sizes, so `collect` reuses the vector.
        let nodes = open.into_iter().map(|container| {
            let start = sorted.len() as u32;
            let mut add = |start: u32, length: u32| {
                let from = start as usize;
                sorted.extend_from_slice(&items[from..from + length as usize]);
            };
            if container.is_chain {
                let mut number = container.first;
                while let Some(run) = runs.get(number as usize) {
                    add(run.start, run.length);
                    number = run.next;
                }
            } else {
                add(container.first, container.last);
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

#[cfg(test)]
mod tests {
    use super::{Arena, ContainerKind};
    use crate::trace::pickle::Value;

    #[test]
    fn a_container_that_grows_at_once_takes_no_run() {
        let mut arena = Arena::default();
        let numbers: Vec<u32> = (0..100)
            .map(|_| arena.push(ContainerKind::List, &[]))
            .collect();
        // The lists are nested. The innermost list is appended first.
        for pair in numbers.windows(2).rev() {
            arena.extend(pair[0], &[Value::ContainerNode(pair[1])]);
        }
        assert!(arena.runs.is_empty());
        let (nodes, items) = arena.finish();
        for (at, node) in nodes.iter().enumerate().take(99) {
            let inner = Value::ContainerNode(at as u32 + 1);
            assert_eq!(items[node.range()], [inner]);
        }
        assert!(nodes[99].range().is_empty());
    }

    #[test]
    fn containers_that_grow_in_turn_keep_their_order() {
        let mut arena = Arena::default();
        let numbers = [0; 3].map(|_| arena.push(ContainerKind::List, &[]));
        for round in 0..4 {
            for (at, &number) in numbers.iter().enumerate() {
                // The last container is extended twice in succession. The two extensions create
                // only one run.
                for step in 0..=at as i32 / 2 {
                    arena.extend(number, &[Value::Int(round * 10 + step)]);
                }
            }
        }
        assert_eq!(arena.runs.len(), 12);
        let (nodes, items) = arena.finish();
        let own = |at: usize| items[nodes[at].range()].to_vec();
        assert_eq!(own(0), [0, 10, 20, 30].map(Value::Int));
        assert_eq!(own(0), own(1));
        assert_eq!(own(2), [0, 1, 10, 11, 20, 21, 30, 31].map(Value::Int));
    }
}
