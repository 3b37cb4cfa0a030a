//! Pruning: proofs that a partial placement cannot be completed.

use super::state::{NONE, SearchState};
use cachescope_memory::internal::plan::{Item, Problem};

/// The number of recently failed sections that are checked first.
const RECENT: usize = 4;

/// The search for a section whose unplaced items do not fit.
///
/// Most choices fail in the section in which the previous choices failed. So each choice is first
/// checked against the most recently failed sections. This check costs only a fraction of a
/// placement that is followed by a check of all sections.
///
/// Invariant: `members[s]` contains the items that are live in section `s`. Bit `s` of an item's
/// mask records whether the item is live in section `s`.
#[derive(Debug)]
pub(super) struct SectionBounds {
    capacity: u64,
    members: Vec<Vec<u32>>,
    /// The masks of all items. Each mask has `words` words.
    masks: Vec<u64>,
    words: usize,
    /// The bit mask of unchecked sections, stored here to reuse its allocation.
    unseen: Vec<u64>,
    recent: [u32; RECENT],
    /// The number of choices that each section pruned.
    failures: Vec<u64>,
}

/// The unplaced items of a range of sections, in order of their lowest offset. No item may be
/// placed below `floor`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unplaced<'a> {
    pub(super) first: u32,
    pub(super) end: u32,
    pub(super) items: &'a [u32],
    pub(super) floor: u64,
}

impl SectionBounds {
    pub(super) fn new(problem: &Problem, items: &[Item], capacity: u64) -> Self {
        let sections = problem.load.len();
        let words = sections.div_ceil(64);
        let mut members = vec![Vec::new(); sections];
        let mut masks = vec![0; words * items.len()];
        for (rank, item) in (0u32..).zip(items) {
            for section in item.sections() {
                members[section].push(rank);
                masks[rank as usize * words + section / 64] |= 1u64 << (section % 64);
            }
        }
        Self {
            capacity,
            members,
            masks,
            words,
            unseen: vec![0; words],
            recent: [0; RECENT],
            failures: vec![0; sections],
        }
    }

    pub(super) fn failures(&self) -> &[u64] {
        &self.failures
    }

    /// Returns whether placing `item` would overflow one of the recently failed sections.
    pub(super) fn fails_recent(
        &mut self,
        state: &SearchState,
        first: u32,
        end: u32,
        item: u32,
    ) -> bool {
        let here = |section: &u32| (first..end).contains(section);
        let place = self
            .recent
            .iter()
            .position(|section| here(section) && self.overflows(state, *section as usize, item));
        if let Some(place) = place {
            self.recent[..=place].rotate_right(1);
            self.failures[self.recent[0] as usize] += 1;
        }
        place.is_some()
    }

    /// Returns whether the unplaced items of a section would exceed the capacity if `item` were
    /// placed.
    fn overflows(&self, state: &SearchState, section: usize, item: u32) -> bool {
        let placed = state.items[item as usize];
        let offset = state.lowest[item as usize];
        let end = offset + placed.size;
        let mut left = state.left[section];
        if placed.sections().contains(&section) {
            left -= placed.size;
        }
        let others = self.members[section].iter().map(|&other| other as usize);
        let others = others.filter(|&other| !state.placed[other] && other != item as usize);
        let lowest = others.map(|other| {
            let meets = state.items[other].meets(&placed);
            state.lowest[other].max(if meets { end } else { offset })
        });
        lowest
            .min()
            .is_some_and(|lowest| lowest + left > self.capacity)
    }

    /// Returns whether the unplaced items cannot be placed. Counts the failed section.
    pub(super) fn fail(&mut self, state: &SearchState, rest: &Unplaced<'_>) -> bool {
        let section = self.full_section(state, rest).or_else(|| {
            let (ceiling, item) = ceiling(state, rest.items);
            let stuck = item != NONE && ceiling <= rest.floor;
            stuck.then(|| state.items[item as usize].first)
        });
        let Some(section) = section else {
            return false;
        };
        self.failures[section as usize] += 1;
        if !self.recent.contains(&section) {
            self.recent.rotate_right(1);
            self.recent[0] = section;
        }
        true
    }

    /// Returns a section whose unplaced items exceed the capacity when stacked from their lowest
    /// offset.
    fn full_section(&mut self, state: &SearchState, rest: &Unplaced<'_>) -> Option<u32> {
        self.unseen[rest.first as usize / 64..(rest.end as usize).div_ceil(64)].fill(u64::MAX);
        let left = &state.left[rest.first as usize..rest.end as usize];
        let mut unseen = left.iter().filter(|&&left| left > 0).count();
        for &item in rest.items {
            if unseen == 0 {
                break;
            }
            let Item { first, end, .. } = state.items[item as usize];
            let lowest = state.lowest[item as usize].max(rest.floor);
            let Some(room) = self.capacity.checked_sub(lowest) else {
                return Some(first);
            };
            let mask = &self.masks[item as usize * self.words..][..self.words];
            let words = first as usize / 64..(end as usize).div_ceil(64);
            let pairs = mask[words.clone()]
                .iter()
                .zip(&mut self.unseen[words.clone()]);
            for (word, (mask, unseen_word)) in words.zip(pairs) {
                let mut new = mask & *unseen_word;
                *unseen_word &= !new;
                unseen -= new.count_ones() as usize;
                while new != 0 {
                    let section = word * 64 + new.trailing_zeros() as usize;
                    new &= new - 1;
                    if state.left[section] > room {
                        return Some(section as u32);
                    }
                }
            }
        }
        None
    }
}

/// Returns the lowest end that any of the items can have, and the item with this end. `items` must
/// be in order of their lowest offset.
pub(super) fn ceiling(state: &SearchState, items: &[u32]) -> (u64, u32) {
    let mut ceiling = (u64::MAX, NONE);
    for &item in items {
        let lowest = state.lowest[item as usize];
        if lowest >= ceiling.0 {
            break;
        }
        ceiling = ceiling.min((lowest + state.items[item as usize].size, item));
    }
    ceiling
}
