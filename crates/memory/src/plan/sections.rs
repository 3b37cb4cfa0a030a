//! Time, reduced to the maximal cliques of the interval graph.
//!
//! A plan depends only on the pairs of buffers that are live together. The maximal sets of buffers
//! that are live at one moment determine these pairs. In order of time, these sets are the maximal
//! cliques of an interval graph (Fulkerson and Gross 1965). Each set is a *section* (MiniMalloc's
//! term). An item lives in a run of consecutive sections. Two items overlap in time exactly if
//! their runs intersect.

use super::BufferInterval;

/// A buffer, with its lifetime in sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The first section.
    pub first: u32,
    /// The section after the last section.
    pub end: u32,
    /// Bytes; not 0.
    pub size: u64,
    /// The length of the lifetime, in the steps of the input.
    pub lifetime: u64,
}

impl Item {
    /// Returns the sections in which the item is live.
    #[inline]
    pub fn sections(&self) -> std::ops::Range<usize> {
        self.first as usize..self.end as usize
    }

    /// Returns true if both items are live in a common section.
    #[inline]
    pub fn meets(&self, other: &Self) -> bool {
        self.first < other.end && other.first < self.end
    }

    /// Visits nodes of a segment tree over `leaves` sections. First visits the nodes that cover the
    /// lifetime, with `true`. Then visits the nodes above these nodes, with `false`, from the
    /// bottom. Each of these upper nodes is an ancestor of the first or the last leaf.
    #[inline]
    pub fn walk(&self, leaves: usize, mut visit: impl FnMut(usize, bool)) {
        let (mut left, mut right) = (leaves + self.first as usize, leaves + self.end as usize);
        let (mut low, mut high) = (left >> 1, (right - 1) >> 1);
        while left < right {
            if left & 1 == 1 {
                visit(left, true);
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                visit(right, true);
            }
            left >>= 1;
            right >>= 1;
        }
        while low > 0 {
            visit(low, false);
            if high != low {
                visit(high, false);
            }
            low >>= 1;
            high >>= 1;
        }
    }

    /// Returns size times lifetime.
    pub fn area(&self) -> u128 {
        u128::from(self.size) * u128::from(self.lifetime)
    }
}

/// A packing problem over sections.
///
/// Invariants:
/// - every item has `first < end <= load.len()` and a size above 0;
/// - every section is the first of some item and the last of some item;
/// - `load[s]` is the sum of the sizes of the items that are live in `s`.
#[derive(Debug)]
pub struct Problem {
    /// The buffers with both a size and a lifetime.
    pub items: Vec<Item>,
    /// The index of each item in the input.
    pub indices: Vec<u32>,
    /// The bytes that are live in each section.
    pub load: Vec<u64>,
}

impl Problem {
    /// Returns the problem of some of `buffers`, each of which has a size and a lifetime. The sizes
    /// sum to less than 2⁶³.
    pub fn new(buffers: &[BufferInterval], indices: Vec<u32>) -> Self {
        let mut items: Vec<Item> = indices
            .iter()
            .map(|&index| unnumbered(&buffers[index as usize]))
            .collect();
        let sections = number_sections(&mut items, &indices, buffers);
        let load = load(&items, sections);
        Self {
            items,
            indices,
            load,
        }
    }

    /// Returns the problem of all buffers that have a size and a lifetime.
    pub fn of_all(buffers: &[BufferInterval]) -> Self {
        Self::new(buffers, occupying(buffers))
    }

    /// Writes the offset of each item, plus `base`, to the item's index in the input.
    pub fn write_offsets(&self, placed: &[u64], base: u64, offsets: &mut [u64]) {
        for (&index, offset) in self.indices.iter().zip(placed) {
            offsets[index as usize] = base + offset;
        }
    }

    /// Returns a lower bound on the slab.
    pub fn max_load(&self) -> u64 {
        self.load.iter().copied().max().unwrap_or(0)
    }

    /// Returns the slab of these offsets: the highest end of an item.
    pub fn slab(&self, offsets: &[u64]) -> u64 {
        let ends = self.items.iter().zip(offsets);
        ends.map(|(item, offset)| offset + item.size)
            .max()
            .unwrap_or(0)
    }
}

/// Returns the indices of the buffers that have a size and a lifetime.
pub(crate) fn occupying(buffers: &[BufferInterval]) -> Vec<u32> {
    let occupying = (0..).zip(buffers).filter(|(_, buffer)| buffer.occupies());
    occupying.map(|(index, _)| index).collect()
}

fn unnumbered(buffer: &BufferInterval) -> Item {
    Item {
        first: 0,
        end: 0,
        size: buffer.size_bytes,
        lifetime: buffer.upper - buffer.lower,
    }
}

/// Numbers the sections by a sweep over time. Returns their count. A section ends at the first end
/// of a buffer after a start. There, the set of live buffers is maximal.
fn number_sections(items: &mut [Item], indices: &[u32], buffers: &[BufferInterval]) -> usize {
    const START: u32 = 1 << 31;
    let mut events: Vec<(u64, u32)> = Vec::with_capacity(items.len() * 2);
    for (item, &index) in (0u32..).zip(indices) {
        let buffer = &buffers[index as usize];
        events.push((buffer.lower, item | START));
        events.push((buffer.upper, item));
    }
    // At equal times ends come first, because lifetimes are half open.
    events.sort_unstable();
    let mut section = 0;
    let mut grew = false;
    for (_, event) in events {
        if event & START != 0 {
            items[(event & !START) as usize].first = section;
            grew = true;
            continue;
        }
        section += u32::from(grew);
        grew = false;
        items[event as usize].end = section;
    }
    section as usize
}

fn load(items: &[Item], sections: usize) -> Vec<u64> {
    let mut change = vec![0i64; sections + 1];
    for item in items {
        let size = i64::try_from(item.size).expect("the sum of the sizes has at most 63 bits");
        change[item.first as usize] += size;
        change[item.end as usize] -= size;
    }
    change[..sections]
        .iter()
        .scan(0i64, |alive, change| {
            *alive += change;
            Some(alive.unsigned_abs())
        })
        .collect()
}
