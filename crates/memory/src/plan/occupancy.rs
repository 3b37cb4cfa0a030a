//! The occupied bytes over time.

use super::sections::Item;

/// Disjoint intervals of bytes that do not touch, in ascending order.
type Intervals = Vec<(u64, u64)>;

/// The placed items in a segment tree over the sections.
///
/// An item is entered at the O(log n) nodes that cover its lifetime. Adjacent items merge into one
/// interval, so the lists stay short.
///
/// Invariants:
/// - `covering[v]` is the union of the items entered at node `v`. These items are live in all
///   sections of `v`;
/// - `any[v]` is the union of the items entered at `v` or below it. These items are live in some
///   sections of `v`.
#[derive(Debug)]
pub struct Occupancy {
    leaves: usize,
    covering: Vec<Intervals>,
    any: Vec<Intervals>,
    /// The lists of the last query, each with a cursor. The vector is kept to reuse its memory.
    lists: Vec<(NodeList, u32)>,
}

#[derive(Clone, Copy, Debug)]
enum NodeList {
    Covering(u32),
    Any(u32),
}

impl Occupancy {
    /// Returns an empty slab over `sections` sections.
    pub fn new(sections: usize) -> Self {
        let leaves = sections.next_power_of_two();
        Self {
            leaves,
            covering: vec![Vec::new(); leaves * 2],
            any: vec![Vec::new(); leaves * 2],
            lists: Vec::new(),
        }
    }

    /// Occupies `item.size` bytes at `offset` for the lifetime of `item`.
    pub fn place(&mut self, item: &Item, offset: u64) {
        let interval = (offset, offset + item.size);
        item.walk(self.leaves, |node, covers| {
            if covers {
                add(&mut self.covering[node], interval);
            }
            add(&mut self.any[node], interval);
        });
    }

    /// Returns the lowest offset that is free for the lifetime of `item`.
    pub fn lowest_fit(&mut self, item: &Item) -> u64 {
        self.fit_from(item, 0)
    }

    /// Returns the lowest offset at or above `offset` that is free for the lifetime of `item`.
    pub fn fit_from(&mut self, item: &Item, mut offset: u64) -> u64 {
        self.collect(item);
        let mut lists = std::mem::take(&mut self.lists);
        let (mut at, mut agreed) = (0, 0);
        // The loop ends when all lists, one after another, have accepted `offset`.
        while agreed < lists.len() {
            let (list, cursor) = &mut lists[at];
            let fits = next_fit(self.intervals(*list), cursor, offset, item.size);
            agreed = if fits == offset { agreed + 1 } else { 1 };
            offset = fits;
            at = if at + 1 == lists.len() { 0 } else { at + 1 };
        }
        self.lists = lists;
        offset
    }

    /// Collects the lists whose union is all bytes that are occupied at some time of `item`.
    fn collect(&mut self, item: &Item) {
        self.lists.clear();
        item.walk(self.leaves, |node, covers| {
            let list = match covers {
                true => NodeList::Any(node as u32),
                false => NodeList::Covering(node as u32),
            };
            if !self.intervals(list).is_empty() {
                self.lists.push((list, 0));
            }
        });
    }

    #[inline]
    fn intervals(&self, list: NodeList) -> &[(u64, u64)] {
        match list {
            NodeList::Covering(node) => &self.covering[node as usize],
            NodeList::Any(node) => &self.any[node as usize],
        }
    }
}

/// Returns the lowest offset at or above `offset` with `size` free bytes between intervals.
/// Intervals before `cursor` are already below `offset`.
#[inline]
fn next_fit(intervals: &[(u64, u64)], cursor: &mut u32, mut offset: u64, size: u64) -> u64 {
    let from_cursor = &intervals[*cursor as usize..];
    for (passed, &(from, to)) in (0u32..).zip(from_cursor) {
        if to > offset {
            if from >= offset + size {
                *cursor += passed;
                return offset;
            }
            offset = to;
        }
    }
    *cursor = intervals.len() as u32;
    offset
}

/// Adds an interval, merged with the intervals that it touches or overlaps.
fn add(intervals: &mut Intervals, (from, to): (u64, u64)) {
    let first = intervals.partition_point(|interval| interval.1 < from);
    let touched = intervals[first..]
        .iter()
        .take_while(|interval| interval.0 <= to)
        .count();
    if touched == 0 {
        intervals.insert(first, (from, to));
        return;
    }
    let last = intervals[first + touched - 1];
    intervals[first] = (intervals[first].0.min(from), last.1.max(to));
    intervals.drain(first + 1..first + touched);
}
