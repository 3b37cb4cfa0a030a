//! One depth-first run of the search, with a node budget.
//!
//! Items are placed at non-decreasing offsets. Items at equal offsets are placed by ascending rank.
//! So each plan is reached exactly once. Each item is at offset 0, or directly above an item of a
//! common section. Any other plan can be pushed down to this form. A node is pruned
//! - if an unplaced item would fit below all later items, because that plan could be pushed down;
//! - if the unplaced items of a section exceed the capacity when stacked from their lowest offset.
//!
//! If no unplaced item crosses the border between two sections, the border is a cut point. The
//! sections before and after a cut point are independent subproblems. If one subproblem has no
//! plan, the choice that created it fails.

use super::bounds::{SectionBounds, Unplaced, ceiling};
use super::state::{NONE, SearchState};
use cachescope_memory::internal::plan::Deadline;
use cachescope_memory::internal::plan::{Item, Problem};

/// The number of nodes between two checks of the deadline.
const DEADLINE_NODES: u64 = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SearchOutcome {
    /// The offsets of all items.
    Found(Vec<u64>),
    /// A proof that no plan within the capacity exists.
    Infeasible,
    /// The end of the node budget or of the time, without a result.
    BudgetExhausted,
}

/// A range of sections whose unplaced items are live in no other section.
#[derive(Clone, Copy, Debug)]
struct Subproblem {
    first: u32,
    end: u32,
    /// The start of the range in [`Search::lists`]. The range is sorted by lowest offset, then by
    /// rank.
    from: u32,
    to: u32,
    /// The lower bound on the offset and the rank of later items.
    after: (u64, u32),
    /// The choice point that created this subproblem, or [`NONE`] for the whole problem.
    parent: u32,
    /// The next subproblem to solve, or [`NONE`] for the last subproblem.
    next: u32,
}

/// A choice point: the next item of a subproblem to place.
#[derive(Clone, Copy, Debug)]
struct ChoicePoint {
    subproblem: Subproblem,
    /// True for the first choice point of a subproblem.
    is_root: bool,
    /// The index of the next candidate in the list.
    cursor: u32,
    /// The lowest possible end of an unplaced item. A candidate at or above the ceiling is pruned,
    /// because another item would fit below it.
    ceiling: u64,
    /// The item that is tried, and the trail mark from before its placement.
    item: u32,
    mark: u32,
    /// The number of subproblems when this choice point was opened.
    subproblems: u32,
}

#[derive(Debug)]
pub(super) struct Search {
    order: Vec<u32>,
    state: SearchState,
    bounds: SectionBounds,
    choices: Vec<ChoicePoint>,
    subproblems: Vec<Subproblem>,
    lists: Vec<u32>,
    raised: Vec<u32>,
}

impl Search {
    pub(super) fn new(problem: &Problem, order: Vec<u32>, capacity: u64) -> Self {
        let state = SearchState::new(problem, &order);
        Self {
            order,
            bounds: SectionBounds::new(problem, &state.items, capacity),
            state,
            choices: Vec::new(),
            subproblems: Vec::new(),
            lists: Vec::new(),
            raised: Vec::new(),
        }
    }

    /// Returns the number of pruned nodes per section.
    pub(super) fn failures(&self) -> &[u64] {
        self.bounds.failures()
    }

    pub(super) fn run(&mut self, nodes: u64, deadline: &Deadline) -> SearchOutcome {
        self.lists = (0..self.order.len() as u32).collect();
        let whole = Subproblem {
            first: 0,
            end: self.state.left.len() as u32,
            from: 0,
            to: self.lists.len() as u32,
            after: (0, 0),
            parent: NONE,
            next: NONE,
        };
        if self.order.is_empty() {
            return SearchOutcome::Found(Vec::new());
        }
        if self.fails(&whole) {
            return SearchOutcome::Infeasible;
        }
        self.open(whole, true);
        let mut node = 0;
        while let Some(choice) = self.choices.len().checked_sub(1) {
            self.undo_choice(choice);
            let Some(item) = self.next_candidate(choice) else {
                self.backjump();
                continue;
            };
            node += 1;
            if node > nodes || (node.is_multiple_of(DEADLINE_NODES) && deadline.has_passed()) {
                return SearchOutcome::BudgetExhausted;
            }
            if self.descend(choice, item) {
                return SearchOutcome::Found(self.plan());
            }
        }
        SearchOutcome::Infeasible
    }

    fn plan(&self) -> Vec<u64> {
        let mut offsets = vec![0; self.order.len()];
        for (&item, &offset) in self.order.iter().zip(&self.state.offsets) {
            offsets[item as usize] = offset;
        }
        offsets
    }

    fn open(&mut self, subproblem: Subproblem, is_root: bool) {
        self.choices.push(ChoicePoint {
            subproblem,
            is_root,
            cursor: subproblem.from,
            ceiling: ceiling(&self.state, self.list(&subproblem)).0,
            item: NONE,
            mark: self.state.mark(),
            subproblems: self.subproblems.len() as u32,
        });
    }

    fn list(&self, subproblem: &Subproblem) -> &[u32] {
        &self.lists[subproblem.from as usize..subproblem.to as usize]
    }

    fn undo_choice(&mut self, choice: usize) {
        let ChoicePoint {
            item,
            mark,
            subproblems,
            subproblem,
            ..
        } = self.choices[choice];
        if item != NONE {
            self.state.undo(item, mark);
            self.choices[choice].item = NONE;
        }
        self.subproblems.truncate(subproblems as usize);
        self.lists.truncate(subproblem.to as usize);
    }

    /// Returns the next candidate of a choice point, without pruned candidates.
    fn next_candidate(&mut self, choice: usize) -> Option<u32> {
        let ChoicePoint {
            subproblem,
            mut cursor,
            ceiling,
            ..
        } = self.choices[choice];
        let mut found = None;
        while found.is_none() && cursor < subproblem.to {
            let item = self.lists[cursor as usize];
            let lowest = self.state.lowest[item as usize];
            if lowest >= ceiling {
                cursor = subproblem.to;
                break;
            }
            cursor += 1;
            if (lowest, item) >= subproblem.after && !self.state.is_dominated(item) {
                found = Some(item);
            }
        }
        self.choices[choice].cursor = cursor;
        found
    }

    /// Removes the last choice point, whose candidates are exhausted. If the choice point is the
    /// root of its subproblem, the subproblem is infeasible. Then the search jumps back to the
    /// choice that created the subproblem. The jump skips subproblems that were solved after this
    /// choice.
    fn backjump(&mut self) {
        let Some(choice) = self.choices.pop() else {
            return;
        };
        if !choice.is_root {
            return;
        }
        if choice.subproblem.parent == NONE {
            self.choices.clear();
            return;
        }
        while self.choices.len() - 1 > choice.subproblem.parent as usize {
            self.undo_choice(self.choices.len() - 1);
            self.choices.pop();
        }
    }

    /// Places an item, and opens the next choice point. Returns true if all items are placed.
    fn descend(&mut self, choice: usize, item: u32) -> bool {
        let subproblem = self.choices[choice].subproblem;
        let Subproblem { first, end, .. } = subproblem;
        if self.bounds.fails_recent(&self.state, first, end, item) {
            return false;
        }
        self.choices[choice].item = item;
        self.state.place(item);
        let offset = self.state.offsets[item as usize];
        let rest = Subproblem {
            after: (offset, item),
            from: self.lists.len() as u32,
            to: self.lists.len() as u32 + (subproblem.to - subproblem.from) - 1,
            ..subproblem
        };
        self.list_rest(&subproblem, item);
        if self.fails(&rest) {
            return false;
        }
        if rest.from < rest.to && !self.decomposes(item) {
            self.open(rest, false);
            return false;
        }
        let mut next = subproblem.next;
        if rest.from < rest.to {
            next = self.decompose(&rest, choice as u32, item);
        }
        if next == NONE {
            return true;
        }
        self.open_subproblem(next);
        false
    }

    /// Lists the unplaced items after `item` is placed. Raises each listed item that shares a
    /// section with `item`.
    fn list_rest(&mut self, subproblem: &Subproblem, item: u32) {
        let placed = self.state.items[item as usize];
        let end = self.state.offsets[item as usize] + placed.size;
        self.raised.clear();
        let mut at = subproblem.from as usize;
        let to = subproblem.to as usize;
        while at < to {
            let other = self.lists[at];
            if self.state.lowest[other as usize] >= end {
                break;
            }
            at += 1;
            if other == item {
                continue;
            }
            if self.state.items[other as usize].meets(&placed) {
                self.raised.push(other);
                self.state.raise(other, end);
            } else {
                self.lists.push(other);
            }
        }
        // Merges the raised items with the items whose lowest offset already was `end`.
        self.raised.sort_unstable();
        let mut raised = 0;
        while at < to && self.state.lowest[self.lists[at] as usize] == end {
            let other = self.lists[at];
            while raised < self.raised.len() && self.raised[raised] < other {
                self.lists.push(self.raised[raised]);
                raised += 1;
            }
            self.lists.push(other);
            at += 1;
        }
        self.lists.extend_from_slice(&self.raised[raised..]);
        self.lists.extend_from_within(at..to);
    }

    /// Returns whether the unplaced items of a subproblem cannot be placed.
    fn fails(&mut self, subproblem: &Subproblem) -> bool {
        let rest = Unplaced {
            first: subproblem.first,
            end: subproblem.end,
            items: &self.lists[subproblem.from as usize..subproblem.to as usize],
            floor: subproblem.after.0,
        };
        self.bounds.fail(&self.state, &rest)
    }

    /// Returns whether the placement of `item` created a cut point: a border that no unplaced item
    /// crosses.
    fn decomposes(&self, item: u32) -> bool {
        let sections = self.state.items[item as usize].sections();
        let inner = &self.state.crossing[sections.start..sections.end - 1];
        inner.contains(&0)
    }

    /// Creates the subproblems between cut points. Returns the index of the first subproblem to
    /// solve.
    fn decompose(&mut self, rest: &Subproblem, parent: u32, item: u32) -> u32 {
        let sections = self.state.items[item as usize].sections();
        let mut next = rest.next;
        let mut end = rest.end;
        let inner = (sections.start..sections.end - 1).rev();
        let cut_points = inner.filter(|&section| self.state.crossing[section] == 0);
        let firsts: Vec<u32> = cut_points.map(|section| section as u32 + 1).collect();
        for first in firsts.into_iter().chain([rest.first]) {
            let from = self.lists.len() as u32;
            for at in rest.from..rest.to {
                let other = self.lists[at as usize];
                let Item { first: begin, .. } = self.state.items[other as usize];
                if begin >= first && begin < end {
                    self.lists.push(other);
                }
            }
            let to = self.lists.len() as u32;
            if from < to {
                self.subproblems.push(Subproblem {
                    first,
                    end,
                    from,
                    to,
                    parent,
                    next,
                    ..*rest
                });
                next = self.subproblems.len() as u32 - 1;
            }
            end = first;
        }
        next
    }

    /// Opens a subproblem. Copies its list to the end of `lists`, so that backtracking can truncate
    /// it.
    fn open_subproblem(&mut self, subproblem: u32) {
        let mut subproblem = self.subproblems[subproblem as usize];
        let from = self.lists.len() as u32;
        self.lists
            .extend_from_within(subproblem.from as usize..subproblem.to as usize);
        subproblem.from = from;
        subproblem.to = self.lists.len() as u32;
        self.open(subproblem, true);
    }
}
