//! Which bytes are taken at which times.

use super::sections::Item;

/// Disjoint stretches of bytes that do not touch, from the lowest up.
type Stretches = Vec<(u64, u64)>;

/// The placed buffers, in a segment tree over the sections.
///
/// A buffer is entered at the few nodes that make up its time. Buffers that were packed against each
/// other melt into one stretch, so the lists stay short however many buffers there are.
///
/// Invariants:
/// - `whole[v]` is the union of what is taken for all of the time of node `v` by buffers entered there;
/// - `some[v]` is the union of what any buffer entered at `v` or below it takes.
#[derive(Debug)]
pub(crate) struct Occupied {
    leaves: usize,
    whole: Vec<Stretches>,
    some: Vec<Stretches>,
    /// Lists that the last look-up went through, and how far: kept for their memory.
    lists: Vec<(List, u32)>,
}

#[derive(Clone, Copy, Debug)]
enum List {
    Whole(u32),
    Some(u32),
}

impl Occupied {
    pub(crate) fn new(sections: usize) -> Self {
        let leaves = sections.next_power_of_two();
        Self {
            leaves,
            whole: vec![Vec::new(); leaves * 2],
            some: vec![Vec::new(); leaves * 2],
            lists: Vec::new(),
        }
    }

    /// Takes `size` bytes from `offset` on for all of the time of `item`.
    pub(crate) fn take(&mut self, item: &Item, offset: u64) {
        let stretch = (offset, offset + item.size);
        let (mut left, mut right) = self.leaves_of(item);
        let (lowest, highest) = (left, right - 1);
        while left < right {
            if left & 1 == 1 {
                add(&mut self.whole[left], stretch);
                add(&mut self.some[left], stretch);
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                add(&mut self.whole[right], stretch);
                add(&mut self.some[right], stretch);
            }
            left >>= 1;
            right >>= 1;
        }
        // Above the entered nodes stand only ancestors of the outermost leaves.
        let (mut low, mut high) = (lowest >> 1, highest >> 1);
        while low > 0 {
            add(&mut self.some[low], stretch);
            if high != low {
                add(&mut self.some[high], stretch);
            }
            low >>= 1;
            high >>= 1;
        }
    }

    fn leaves_of(&self, item: &Item) -> (usize, usize) {
        (
            self.leaves + item.first as usize,
            self.leaves + item.end as usize,
        )
    }

    /// The lowest offset at which `item` fits.
    pub(crate) fn lowest(&mut self, item: &Item) -> u64 {
        self.collect(item);
        let mut lists = std::mem::take(&mut self.lists);
        let mut offset = 0;
        let (mut at, mut agreed) = (0, 0);
        // Round and round until all lists agree, without a break, that the item can lie at `offset`.
        while agreed < lists.len() {
            let (list, cursor) = &mut lists[at];
            let fits = next_fit(self.stretches(*list), cursor, offset, item.size);
            agreed = if fits == offset { agreed + 1 } else { 1 };
            offset = fits;
            at = if at + 1 == lists.len() { 0 } else { at + 1 };
        }
        self.lists = lists;
        offset
    }

    /// Finds the lists that together say what is taken at some time of `item`.
    fn collect(&mut self, item: &Item) {
        self.lists.clear();
        let (mut left, mut right) = self.leaves_of(item);
        let (mut low, mut high) = (left, right - 1);
        while left < right {
            if left & 1 == 1 {
                self.list(List::Some(left as u32));
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                self.list(List::Some(right as u32));
            }
            left >>= 1;
            right >>= 1;
        }
        low >>= 1;
        high >>= 1;
        while low > 0 {
            self.list(List::Whole(low as u32));
            if high != low {
                self.list(List::Whole(high as u32));
            }
            low >>= 1;
            high >>= 1;
        }
    }

    fn list(&mut self, list: List) {
        if !self.stretches(list).is_empty() {
            self.lists.push((list, 0));
        }
    }

    #[inline]
    fn stretches(&self, list: List) -> &[(u64, u64)] {
        match list {
            List::Whole(node) => &self.whole[node as usize],
            List::Some(node) => &self.some[node as usize],
        }
    }
}

/// The first place of `size` bytes at or above `offset` between stretches, of which those before
/// `cursor` do not matter any more.
#[inline]
fn next_fit(stretches: &[(u64, u64)], cursor: &mut u32, mut offset: u64, size: u64) -> u64 {
    let from_cursor = &stretches[*cursor as usize..];
    for (passed, &(from, to)) in (0u32..).zip(from_cursor) {
        if to > offset {
            if from >= offset + size {
                *cursor += passed;
                return offset;
            }
            offset = to;
        }
    }
    *cursor = stretches.len() as u32;
    offset
}

/// Adds a stretch, melting it with what it touches or overlaps.
fn add(stretches: &mut Stretches, (from, to): (u64, u64)) {
    let first = stretches.partition_point(|stretch| stretch.1 < from);
    let touched = stretches[first..]
        .iter()
        .take_while(|stretch| stretch.0 <= to)
        .count();
    if touched == 0 {
        stretches.insert(first, (from, to));
        return;
    }
    let last = stretches[first + touched - 1];
    stretches[first] = (stretches[first].0.min(from), last.1.max(to));
    stretches.drain(first + 1..first + touched);
}
