//! Time, cut into the moments that matter.
//!
//! Which buffers are alive together is all that a plan depends on, and that is told by the largest
//! sets of buffers alive at one moment: the maximal cliques of an interval graph. Each of them is a
//! *section*; a buffer lives in a run of neighbouring sections, and two buffers meet in time exactly
//! where their runs share one (Fulkerson and Gross, 1965).

use super::Buffer;

/// A buffer as the planners see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Its first section.
    pub(crate) first: u32,
    /// The section after its last.
    pub(crate) end: u32,
    /// Bytes, not 0.
    pub(crate) size: u64,
    /// How long it lives, in the time of the input.
    pub(crate) length: u64,
}

impl Item {
    /// Its sections, as indices.
    #[inline]
    pub(crate) fn sections(&self) -> std::ops::Range<usize> {
        self.first as usize..self.end as usize
    }

    /// Whether both are alive at one moment.
    #[inline]
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.first < other.end && other.first < self.end
    }

    /// Bytes times time.
    pub(crate) fn area(&self) -> u128 {
        u128::from(self.size) * u128::from(self.length)
    }
}

/// Buffers that are packed by themselves, over sections.
///
/// Invariants:
/// - every item has `first < end <= load.len()` and a size above 0;
/// - every section is the first of some item and the last of some item;
/// - `load[s]` is the sum of the sizes of the items alive in `s`.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) items: Vec<Item>,
    /// The place of each item in the input.
    pub(crate) sources: Vec<u32>,
    /// Bytes alive in each section.
    pub(crate) load: Vec<u64>,
}

impl Problem {
    /// Of some of `buffers`, each of which occupies something. Their sizes sum up to 63 bits.
    pub(crate) fn new(buffers: &[Buffer], sources: Vec<u32>) -> Self {
        let mut items: Vec<Item> = sources
            .iter()
            .map(|&source| unnumbered(&buffers[source as usize]))
            .collect();
        let sections = number_sections(&mut items, &sources, buffers);
        let load = load(&items, sections);
        Self {
            items,
            sources,
            load,
        }
    }

    /// No slab can be smaller than this.
    pub(crate) fn max_load(&self) -> u64 {
        self.load.iter().copied().max().unwrap_or(0)
    }

    /// The end of the highest item.
    pub(crate) fn slab(&self, offsets: &[u64]) -> u64 {
        let ends = self.items.iter().zip(offsets);
        ends.map(|(item, offset)| offset + item.size)
            .max()
            .unwrap_or(0)
    }
}

fn unnumbered(buffer: &Buffer) -> Item {
    Item {
        first: 0,
        end: 0,
        size: buffer.size_bytes,
        length: buffer.upper - buffer.lower,
    }
}

/// Sweeps through time: a section ends at the first end after a start, because only there was the set
/// of living buffers one that no later set contains. Answers how many sections there are.
fn number_sections(items: &mut [Item], sources: &[u32], buffers: &[Buffer]) -> usize {
    const START: u32 = 1 << 31;
    let mut events: Vec<(u64, u32)> = Vec::with_capacity(items.len() * 2);
    for (index, &source) in (0u32..).zip(sources) {
        let buffer = &buffers[source as usize];
        events.push((buffer.lower, index | START));
        events.push((buffer.upper, index));
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
        let size = i64::try_from(item.size).expect("sizes sum up to 63 bits");
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
