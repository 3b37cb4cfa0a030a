//! From the bottom up: the buffer that can lie lowest comes next.
//!
//! This is how an exact search (Moffitt, "MiniMalloc", ASPLOS 2023) comes to its first plan, without
//! going back. Buffers are placed at offsets that never fall, each right above what it meets; among
//! those that can lie equally low the order decides.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::inside::{GONE, Inside};
use super::sections::{Item, Problem};

/// What a descent came to.
#[derive(Debug)]
pub(crate) struct Dive {
    /// The offsets; `None` where the slab came out larger than the bound.
    pub(crate) plan: Option<Vec<u64>>,
    /// By how much each section made the slab larger than the target.
    pub(crate) excess: Vec<u64>,
}

/// Places all items, in a slab of `target` bytes if it comes to that, or up to `bound`.
pub(crate) fn dive(problem: &Problem, order: &[u32], target: u64, bound: u64) -> Dive {
    let sections = problem.load.len();
    let mut skyline = Skyline::new(sections as u32);
    let mut left = Left::new(&problem.load);
    let mut inside = Inside::new(&problem.items, order);
    let mut offsets = vec![0; problem.items.len()];
    let mut excess = vec![0; sections];
    let mut reached = target;
    let mut placed = 0;
    while placed < order.len() && reached <= bound {
        let valley = skyline.lowest();
        let rank = inside.best(valley.first, valley.end);
        if rank == GONE {
            let floor = skyline.fill(valley);
            let (most, section) = left.max(valley.first, valley.end);
            if most > 0 && floor + most > reached {
                excess[section as usize] += floor + most - reached;
                reached = floor + most;
            }
            continue;
        }
        let index = order[rank as usize];
        let item = &problem.items[index as usize];
        offsets[index as usize] = valley.floor;
        inside.remove(rank);
        left.remove(item);
        skyline.raise(valley, item);
        placed += 1;
    }
    let plan = (reached <= bound).then_some(offsets);
    Dive { plan, excess }
}

/// A run of sections with the same floor, with higher ones to both sides.
#[derive(Clone, Copy, Debug)]
struct Valley {
    first: u32,
    end: u32,
    floor: u64,
}

/// The lowest free offset of each section above everything placed.
///
/// Invariants:
/// - the sections are cut into runs; `ends[f]` is the end of the run that begins with `f`, `firsts[e]`
///   the first of the one that ends with `e`, and `floors[f]` its floor;
/// - neighbouring runs have different floors;
/// - `queue` holds each run, and maybe runs that are no more.
#[derive(Debug)]
struct Skyline {
    ends: Vec<u32>,
    firsts: Vec<u32>,
    floors: Vec<u64>,
    queue: BinaryHeap<Reverse<(u64, u32, u32)>>,
}

impl Skyline {
    fn new(sections: u32) -> Self {
        let mut skyline = Self {
            ends: vec![0; sections as usize],
            firsts: vec![0; sections as usize + 1],
            floors: vec![u64::MAX; sections as usize],
            queue: BinaryHeap::new(),
        };
        skyline.add(Valley {
            first: 0,
            end: sections,
            floor: 0,
        });
        skyline
    }

    fn add(&mut self, run: Valley) {
        self.ends[run.first as usize] = run.end;
        self.firsts[run.end as usize] = run.first;
        self.floors[run.first as usize] = run.floor;
        self.queue.push(Reverse((run.floor, run.first, run.end)));
    }

    /// Takes the lowest run out of the queue.
    fn lowest(&mut self) -> Valley {
        loop {
            let Reverse((floor, first, end)) = self.queue.pop().expect("there is always a run");
            let known = self.ends[first as usize] == end && self.floors[first as usize] == floor;
            if known {
                return Valley { first, end, floor };
            }
        }
    }

    fn floor_before(&self, first: u32) -> u64 {
        if first == 0 {
            return u64::MAX;
        }
        self.floors[self.firsts[first as usize] as usize]
    }

    fn floor_from(&self, end: u32) -> u64 {
        self.floors.get(end as usize).copied().unwrap_or(u64::MAX)
    }

    /// Raises a run to its lower neighbour, because nothing fits in there; answers the new floor.
    fn fill(&mut self, valley: Valley) -> u64 {
        let floor = self
            .floor_before(valley.first)
            .min(self.floor_from(valley.end));
        self.join(Valley { floor, ..valley });
        floor
    }

    /// Places an item in a run, on its floor.
    fn raise(&mut self, valley: Valley, item: &Item) {
        self.floors[valley.first as usize] = u64::MAX;
        if valley.first < item.first {
            self.add(Valley {
                end: item.first,
                ..valley
            });
        }
        if item.end < valley.end {
            self.add(Valley {
                first: item.end,
                ..valley
            });
        }
        self.join(Valley {
            first: item.first,
            end: item.end,
            floor: valley.floor + item.size,
        });
    }

    /// Adds a run, joined with the neighbours that have its floor.
    fn join(&mut self, mut run: Valley) {
        if self.floor_before(run.first) == run.floor {
            self.floors[run.first as usize] = u64::MAX;
            run.first = self.firsts[run.first as usize];
        }
        if self.floor_from(run.end) == run.floor {
            self.floors[run.end as usize] = u64::MAX;
            run.end = self.ends[run.end as usize];
        }
        self.add(run);
    }
}

/// What is still to be placed in each section, in a segment tree.
#[derive(Debug)]
struct Left {
    leaves: usize,
    /// Of each node: what was taken off all of it; the most that is left in it, not counting what was
    /// taken off its ancestors, and the section where.
    nodes: Vec<(u64, u64, u32)>,
}

impl Left {
    fn new(load: &[u64]) -> Self {
        let leaves = load.len().next_power_of_two();
        let mut nodes = vec![(0, 0, 0); leaves * 2];
        for (section, &load) in load.iter().enumerate() {
            nodes[leaves + section] = (0, load, section as u32);
        }
        let mut tree = Self { leaves, nodes };
        for node in (1..leaves).rev() {
            tree.update(node);
        }
        tree
    }

    fn update(&mut self, node: usize) {
        let (a, b) = (self.nodes[node * 2], self.nodes[node * 2 + 1]);
        let best = if a.1 >= b.1 { a } else { b };
        let off = self.nodes[node].0;
        self.nodes[node] = (off, best.1.wrapping_sub(off), best.2);
    }

    /// The most that is left in one of the sections `first..end`, and where.
    fn max(&self, first: u32, end: u32) -> (u64, u32) {
        self.max_from(1, 0, self.leaves, first as usize, end as usize)
    }

    fn max_from(
        &self,
        node: usize,
        from: usize,
        to: usize,
        first: usize,
        end: usize,
    ) -> (u64, u32) {
        let (off, most, section) = self.nodes[node];
        if first <= from && to <= end {
            return (most, section);
        }
        let middle = usize::midpoint(from, to);
        let mut best = (0, 0);
        if first < middle {
            best = self.max_from(node * 2, from, middle, first, end);
        }
        if middle < end {
            best = best.max(self.max_from(node * 2 + 1, middle, to, first, end));
        }
        (best.0 - off, best.1)
    }

    fn remove(&mut self, item: &Item) {
        let mut left = self.leaves + item.first as usize;
        let mut right = self.leaves + item.end as usize;
        let (mut low, mut high) = (left >> 1, (right - 1) >> 1);
        while left < right {
            if left & 1 == 1 {
                self.take_off(left, item.size);
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                self.take_off(right, item.size);
            }
            left >>= 1;
            right >>= 1;
        }
        while low > 0 {
            self.update(low);
            if high != low {
                self.update(high);
            }
            low >>= 1;
            high >>= 1;
        }
    }

    fn take_off(&mut self, node: usize, size: u64) {
        self.nodes[node].0 += size;
        self.nodes[node].1 -= size;
    }
}
