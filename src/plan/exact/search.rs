//! One try: depth first, with a budget of nodes.
//!
//! Items are placed at offsets that never fall, of equal offsets in rising rank, so that each plan is
//! met by one way only. Each lies right above something that it meets: other plans can be pushed down.
//! A node is given up
//! - where an item that is left would fit below everything to come: then the plan could be pushed down;
//! - where in some section what is left stands above the capacity, even if it began at the lowest that
//!   any of it can begin.
//!
//! Where no item that is left crosses from one section into the next, both sides are searched apart: a
//! side without a plan ends both, whatever the other was tried with.

use super::bounds::{Bounds, Rest, ceiling};
use super::state::{NONE, State};
use crate::plan::clock::Clock;
use crate::plan::sections::{Item, Problem};

/// Nodes between two looks at the clock.
const CLOCK_NODES: u64 = 256;

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The offset of each item.
    Found(Vec<u64>),
    /// There is no plan inside the capacity.
    Impossible,
    /// The nodes or the time ran out.
    Spent,
}

/// Items to be placed by themselves, in sections that no other item left crosses into.
#[derive(Clone, Copy, Debug)]
struct Task {
    /// The sections.
    first: u32,
    end: u32,
    /// Where its list of items stands in [`Search::lists`], sorted by how low they can lie, then rank.
    from: u32,
    to: u32,
    /// What is placed from here on comes after this offset and rank.
    after: (u64, u32),
    /// The frame whose choice made this task; [`NONE`] for the whole problem.
    maker: u32,
    /// The task that follows once this one is done; [`NONE`] where that is all.
    next: u32,
}

/// A choice of the next item of a task.
#[derive(Clone, Copy, Debug)]
struct Frame {
    task: Task,
    /// Whether it is the first of its task.
    opens: bool,
    /// The next in the list to be tried.
    cursor: u32,
    /// Nothing may lie here or higher before something else did.
    ceiling: u64,
    /// What is being tried, and the mark from before it.
    item: u32,
    mark: u32,
    /// How many tasks there were.
    tasks: u32,
}

/// A try.
#[derive(Debug)]
pub(super) struct Search {
    order: Vec<u32>,
    state: State,
    bounds: Bounds,
    frames: Vec<Frame>,
    tasks: Vec<Task>,
    lists: Vec<u32>,
    lifted: Vec<u32>,
}

impl Search {
    pub(super) fn new(problem: &Problem, order: Vec<u32>, capacity: u64) -> Self {
        let state = State::new(problem, &order);
        Self {
            order,
            bounds: Bounds::new(problem, &state.items, capacity),
            state,
            frames: Vec::new(),
            tasks: Vec::new(),
            lists: Vec::new(),
            lifted: Vec::new(),
        }
    }

    /// How often each section was the reason to give up a node.
    pub(super) fn failures(&self) -> &[u64] {
        self.bounds.failures()
    }

    pub(super) fn run(&mut self, nodes: u64, clock: &Clock) -> Outcome {
        self.lists = (0..self.order.len() as u32).collect();
        let whole = Task {
            first: 0,
            end: self.state.left.len() as u32,
            from: 0,
            to: self.lists.len() as u32,
            after: (0, 0),
            maker: NONE,
            next: NONE,
        };
        if self.order.is_empty() {
            return Outcome::Found(Vec::new());
        }
        if self.fails(&whole) {
            return Outcome::Impossible;
        }
        self.open(whole, true);
        let mut node = 0;
        while let Some(frame) = self.frames.len().checked_sub(1) {
            self.retract(frame);
            let Some(item) = self.next_candidate(frame) else {
                self.give_up();
                continue;
            };
            node += 1;
            if node > nodes || (node.is_multiple_of(CLOCK_NODES) && clock.is_up()) {
                return Outcome::Spent;
            }
            if self.descend(frame, item) {
                return Outcome::Found(self.plan());
            }
        }
        Outcome::Impossible
    }

    fn plan(&self) -> Vec<u64> {
        let mut offsets = vec![0; self.order.len()];
        for (&item, &offset) in self.order.iter().zip(&self.state.offsets) {
            offsets[item as usize] = offset;
        }
        offsets
    }

    fn open(&mut self, task: Task, opens: bool) {
        self.frames.push(Frame {
            task,
            opens,
            cursor: task.from,
            ceiling: ceiling(&self.state, self.list(&task)).0,
            item: NONE,
            mark: self.state.mark(),
            tasks: self.tasks.len() as u32,
        });
    }

    /// The items left of a task.
    fn list(&self, task: &Task) -> &[u32] {
        &self.lists[task.from as usize..task.to as usize]
    }

    /// Takes back what a frame tried.
    fn retract(&mut self, frame: usize) {
        let Frame {
            item,
            mark,
            tasks,
            task,
            ..
        } = self.frames[frame];
        if item != NONE {
            self.state.undo(item, mark);
            self.frames[frame].item = NONE;
        }
        self.tasks.truncate(tasks as usize);
        self.lists.truncate(task.to as usize);
    }

    /// The next item of a frame that is worth a try.
    fn next_candidate(&mut self, frame: usize) -> Option<u32> {
        let Frame {
            task,
            mut cursor,
            ceiling,
            ..
        } = self.frames[frame];
        let mut found = None;
        while found.is_none() && cursor < task.to {
            let item = self.lists[cursor as usize];
            let lowest = self.state.lowest[item as usize];
            if lowest >= ceiling {
                cursor = task.to;
                break;
            }
            cursor += 1;
            if (lowest, item) >= task.after && !self.state.is_swapped(item) {
                found = Some(item);
            }
        }
        self.frames[frame].cursor = cursor;
        found
    }

    /// Leaves the last frame, which has nothing left to try. If it opened its task then the task cannot
    /// be done, and what made the task must be chosen otherwise: tasks done before it do not matter.
    fn give_up(&mut self) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        if !frame.opens {
            return;
        }
        if frame.task.maker == NONE {
            self.frames.clear();
            return;
        }
        while self.frames.len() - 1 > frame.task.maker as usize {
            self.retract(self.frames.len() - 1);
            self.frames.pop();
        }
    }

    /// Places an item and opens the frame that follows. True where everything is placed.
    fn descend(&mut self, frame: usize, item: u32) -> bool {
        let task = self.frames[frame].task;
        let Task { first, end, .. } = task;
        if self.bounds.fails_again(&self.state, first, end, item) {
            return false;
        }
        self.frames[frame].item = item;
        self.state.place(item);
        let offset = self.state.offsets[item as usize];
        let rest = Task {
            after: (offset, item),
            from: self.lists.len() as u32,
            to: self.lists.len() as u32 + (task.to - task.from) - 1,
            ..task
        };
        self.list_rest(&task, item);
        if self.fails(&rest) {
            return false;
        }
        if rest.from < rest.to && !self.is_cut(item) {
            self.open(rest, false);
            return false;
        }
        let mut next = task.next;
        if rest.from < rest.to {
            next = self.cut(&rest, frame as u32, item);
        }
        if next == NONE {
            return true;
        }
        self.open_task(next);
        false
    }

    /// Lists what is left of a task after `item` was placed, and lifts what meets it.
    fn list_rest(&mut self, task: &Task, item: u32) {
        let placed = self.state.items[item as usize];
        let end = self.state.offsets[item as usize] + placed.size;
        self.lifted.clear();
        let mut at = task.from as usize;
        let to = task.to as usize;
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
                self.lifted.push(other);
                self.state.lift(other, end);
            } else {
                self.lists.push(other);
            }
        }
        // Those that were lifted stand among those that could lie no lower before.
        self.lifted.sort_unstable();
        let mut lifted = 0;
        while at < to && self.state.lowest[self.lists[at] as usize] == end {
            let other = self.lists[at];
            while lifted < self.lifted.len() && self.lifted[lifted] < other {
                self.lists.push(self.lifted[lifted]);
                lifted += 1;
            }
            self.lists.push(other);
            at += 1;
        }
        self.lists.extend_from_slice(&self.lifted[lifted..]);
        self.lists.extend_from_within(at..to);
    }

    /// Whether what is left of a task cannot be placed.
    fn fails(&mut self, task: &Task) -> bool {
        let rest = Rest {
            first: task.first,
            end: task.end,
            items: &self.lists[task.from as usize..task.to as usize],
            floor: task.after.0,
        };
        self.bounds.fail(&self.state, &rest)
    }

    /// Whether placing `item` left sections that nothing crosses between.
    fn is_cut(&self, item: u32) -> bool {
        let sections = self.state.items[item as usize].sections();
        let inner = &self.state.crossing[sections.start..sections.end - 1];
        inner.contains(&0)
    }

    /// Makes a task of each side of such places, and answers the first of them.
    fn cut(&mut self, rest: &Task, maker: u32, item: u32) -> u32 {
        let sections = self.state.items[item as usize].sections();
        let mut next = rest.next;
        let mut end = rest.end;
        let inner = (sections.start..sections.end - 1).rev();
        let cuts = inner.filter(|&section| self.state.crossing[section] == 0);
        let firsts: Vec<u32> = cuts.map(|section| section as u32 + 1).collect();
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
                self.tasks.push(Task {
                    first,
                    end,
                    from,
                    to,
                    maker,
                    next,
                    ..*rest
                });
                next = self.tasks.len() as u32 - 1;
            }
            end = first;
        }
        next
    }

    /// Begins with a task, whose list is copied to the end, where it can be cut off.
    fn open_task(&mut self, task: u32) {
        let mut task = self.tasks[task as usize];
        let from = self.lists.len() as u32;
        self.lists
            .extend_from_within(task.from as usize..task.to as usize);
        task.from = from;
        task.to = self.lists.len() as u32;
        self.open(task, true);
    }
}
