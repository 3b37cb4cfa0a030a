//! The partial placement of the search, with a trail for backtracking.

use cachescope_memory::internal::plan::{Item, Problem};

/// The sentinel index for no item or no choice point.
pub(super) const NONE: u32 = u32::MAX;

/// A partial placement. An item is identified by its rank in the search order.
///
/// Invariants:
/// - `lowest[c]` of an unplaced item `c` is 0, or the highest end of a placed item in a common
///   section;
/// - `tops[s]` is the highest placed item of section `s`;
/// - `left[s]` is the number of unplaced bytes in section `s`;
/// - `crossing[s]` is the number of unplaced items that are live in both `s` and `s + 1`.
#[derive(Debug)]
pub(super) struct SearchState {
    pub(super) items: Vec<Item>,
    pub(super) offsets: Vec<u64>,
    pub(super) placed: Vec<bool>,
    pub(super) lowest: Vec<u64>,
    pub(super) tops: Vec<u32>,
    pub(super) left: Vec<u64>,
    pub(super) crossing: Vec<u32>,
    /// The previous item by rank that has equal sections and an equal size, or [`NONE`].
    pub(super) identical: Vec<u32>,
    /// The trail of `lowest`: items with their previous values.
    lowest_trail: Vec<(u32, u64)>,
    /// The trail of `tops`: previous values.
    tops_trail: Vec<u32>,
}

impl SearchState {
    pub(super) fn new(problem: &Problem, order: &[u32]) -> Self {
        let items: Vec<Item> = order.iter().map(|&i| problem.items[i as usize]).collect();
        let sections = problem.load.len();
        let mut crossing = vec![0; sections];
        for item in &items {
            for section in item.first..item.end - 1 {
                crossing[section as usize] += 1;
            }
        }
        Self {
            offsets: vec![0; items.len()],
            placed: vec![false; items.len()],
            lowest: vec![0; items.len()],
            tops: vec![NONE; sections],
            left: problem.load.clone(),
            crossing,
            identical: identical(&items),
            lowest_trail: Vec::new(),
            tops_trail: Vec::new(),
            items,
        }
    }

    /// Returns the length of the trail of `lowest`, for [`undo`](Self::undo).
    pub(super) fn mark(&self) -> u32 {
        self.lowest_trail.len() as u32
    }

    /// Places an item at its lowest offset. The caller must [raise](Self::raise) the unplaced items
    /// that share a section with it.
    pub(super) fn place(&mut self, item: u32) {
        let index = item as usize;
        let Item { size, .. } = self.items[index];
        self.offsets[index] = self.lowest[index];
        self.placed[index] = true;
        let sections = self.items[index].sections();
        self.tops_trail
            .extend_from_slice(&self.tops[sections.clone()]);
        self.tops[sections.clone()].fill(item);
        for left in &mut self.left[sections.clone()] {
            *left -= size;
        }
        for crossing in &mut self.crossing[sections.start..sections.end - 1] {
            *crossing -= 1;
        }
    }

    /// Sets the lowest offset of an item to `end`.
    #[inline]
    pub(super) fn raise(&mut self, item: u32, end: u64) {
        let old = std::mem::replace(&mut self.lowest[item as usize], end);
        self.lowest_trail.push((item, old));
    }

    /// Undoes the last placement, which placed `item`, and all raises since `mark`.
    pub(super) fn undo(&mut self, item: u32, mark: u32) {
        let index = item as usize;
        let size = self.items[index].size;
        self.placed[index] = false;
        let sections = self.items[index].sections();
        let kept = self.tops_trail.len() - sections.len();
        self.tops[sections.clone()].copy_from_slice(&self.tops_trail[kept..]);
        self.tops_trail.truncate(kept);
        for left in &mut self.left[sections.clone()] {
            *left += size;
        }
        for crossing in &mut self.crossing[sections.start..sections.end - 1] {
            *crossing += 1;
        }
        for (item, old) in self.lowest_trail.drain(mark as usize..).rev() {
            self.lowest[item as usize] = old;
        }
    }

    /// Returns whether placing `item` now yields the dominated one of two equivalent orders. The
    /// orders swap `item` with the item directly below it, so both items must have equal sections.
    ///
    /// In the dominant order, the larger item is below. Among identical items, the item with the
    /// lower rank is below.
    pub(super) fn is_dominated(&self, item: u32) -> bool {
        let index = item as usize;
        let predecessor = self.identical[index];
        if predecessor != NONE && !self.placed[predecessor as usize] {
            return true;
        }
        let sections = self.items[index].sections();
        let below = self.tops[sections.start];
        if below == NONE {
            return false;
        }
        let other = &self.items[below as usize];
        other.sections() == sections
            && other.size < self.items[index].size
            && self.tops[sections].iter().all(|&top| top == below)
    }
}

fn identical(items: &[Item]) -> Vec<u32> {
    let mut last = std::collections::HashMap::new();
    (0u32..)
        .zip(items)
        .map(|(rank, item)| {
            let shape = (item.first, item.end, item.size);
            last.insert(shape, rank).unwrap_or(NONE)
        })
        .collect()
}
