//! What is placed, what may lie how low, and how to take the last step back.

use crate::plan::sections::{Item, Problem};

/// No item, or no frame.
pub(super) const NONE: u32 = u32::MAX;

/// Items are named by their rank in the order of the search.
///
/// Invariants:
/// - `lowest[c]` of an item that is not placed is the highest end of a placed item that it meets, or 0;
/// - `tops[s]` is the highest placed item of section `s`; `left[s]` the bytes not yet placed there;
/// - `crossing[s]` counts the items not yet placed that live in both `s` and `s + 1`.
#[derive(Debug)]
pub(super) struct State {
    pub(super) items: Vec<Item>,
    pub(super) offsets: Vec<u64>,
    pub(super) placed: Vec<bool>,
    pub(super) lowest: Vec<u64>,
    pub(super) tops: Vec<u32>,
    pub(super) left: Vec<u64>,
    pub(super) crossing: Vec<u32>,
    /// The item before it in rank with the same lifetime and size, if any.
    pub(super) twins: Vec<u32>,
    /// Old values of `lowest`, and of `tops`.
    lowest_trail: Vec<(u32, u64)>,
    tops_trail: Vec<u32>,
}

impl State {
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
            twins: twins(&items),
            lowest_trail: Vec::new(),
            tops_trail: Vec::new(),
            items,
        }
    }

    /// How far the trail has come, for [`undo`](Self::undo).
    pub(super) fn mark(&self) -> u32 {
        self.lowest_trail.len() as u32
    }

    /// Places an item where it can lie lowest. What it lifts is for [`lift`](Self::lift) to say.
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

    /// Notes that an item can lie no lower than `end` now.
    #[inline]
    pub(super) fn lift(&mut self, item: u32, end: u64) {
        let old = std::mem::replace(&mut self.lowest[item as usize], end);
        self.lowest_trail.push((item, old));
    }

    /// Takes back the placing of `item`, which was the last one, and what it lifted since `mark`.
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

    /// Whether the order of an item and the one right below it is one of two that come to the same:
    /// both live equally long, so they could change places.
    ///
    /// The larger lies below; of equal ones, the one of lower rank.
    pub(super) fn is_swapped(&self, item: u32) -> bool {
        let index = item as usize;
        let twin = self.twins[index];
        if twin != NONE && !self.placed[twin as usize] {
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

fn twins(items: &[Item]) -> Vec<u32> {
    let mut last = std::collections::HashMap::new();
    (0u32..)
        .zip(items)
        .map(|(rank, item)| {
            let likeness = (item.first, item.end, item.size);
            last.insert(likeness, rank).unwrap_or(NONE)
        })
        .collect()
}
