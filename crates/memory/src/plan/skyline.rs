//! Skyline best fit (Burke, Kendall and Whitwell 2004). The algorithm always fills the lowest gap
//! first.
//!
//! The first plan of MiniMalloc's search (Moffitt, ASPLOS 2023) is a skyline plan, without
//! backtracking. Each step selects the first item, by the order, that fits the lowest gap. It
//! places the item there. Offsets never decrease.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::kd_tree::{KdTree, REMOVED};
use super::sections::{Item, Problem};

/// The result of a pass.
#[derive(Debug)]
pub struct SkylineFit {
    /// The offsets; `None` if the slab exceeded the bound.
    pub plan: Option<Vec<u64>>,
    /// The bytes by which each section raised the slab above the target.
    pub overflow: Vec<u64>,
}

/// Places all items. The slab should stay within `target` bytes, and may grow to `bound`.
pub fn best_fit(problem: &Problem, order: &[u32], target: u64, bound: u64) -> SkylineFit {
    let sections = problem.load.len();
    let mut skyline = Skyline::new(sections as u32);
    let mut residual = ResidualLoad::new(&problem.load);
    let mut tree = KdTree::new(&problem.items, order);
    let mut offsets = vec![0; problem.items.len()];
    let mut overflow = vec![0; sections];
    let mut reached = target;
    let mut placed = 0;
    while placed < order.len() && reached <= bound {
        let gap = skyline.lowest();
        let rank = tree.lowest_rank(gap.first, gap.end);
        if rank == REMOVED {
            let floor = skyline.fill(gap);
            let (max, section) = residual.max(gap.first, gap.end);
            if max > 0 && floor + max > reached {
                overflow[section as usize] += floor + max - reached;
                reached = floor + max;
            }
            continue;
        }
        let index = order[rank as usize];
        let item = &problem.items[index as usize];
        offsets[index as usize] = gap.floor;
        tree.remove(rank);
        residual.remove(item);
        skyline.raise(gap, item);
        placed += 1;
    }
    let plan = (reached <= bound).then_some(offsets);
    SkylineFit { plan, overflow }
}

/// The lowest gap of the skyline: a run of sections of one floor between higher neighbours.
#[derive(Clone, Copy, Debug)]
struct Gap {
    first: u32,
    end: u32,
    floor: u64,
}

/// The lowest free offset of each section above every placed item.
///
/// Invariants:
/// - the sections are cut into runs;
/// - `ends[f]` is the end of the run that begins at `f`, and `floors[f]` is its floor;
/// - `firsts[e]` is the first section of the run that ends at `e`;
/// - neighbouring runs have different floors;
/// - `queue` holds every run, and possibly stale runs.
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
        skyline.add(Gap {
            first: 0,
            end: sections,
            floor: 0,
        });
        skyline
    }

    fn add(&mut self, run: Gap) {
        self.ends[run.first as usize] = run.end;
        self.firsts[run.end as usize] = run.first;
        self.floors[run.first as usize] = run.floor;
        self.queue.push(Reverse((run.floor, run.first, run.end)));
    }

    /// Removes and returns the lowest run.
    fn lowest(&mut self) -> Gap {
        loop {
            let Reverse((floor, first, end)) =
                self.queue.pop().expect("the skyline has at least one run");
            let known = self.ends[first as usize] == end && self.floors[first as usize] == floor;
            if known {
                return Gap { first, end, floor };
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

    /// Raises a run, into which no item fits, to its lower neighbour. Returns the new floor.
    fn fill(&mut self, gap: Gap) -> u64 {
        let floor = self.floor_before(gap.first).min(self.floor_from(gap.end));
        self.join(Gap { floor, ..gap });
        floor
    }

    /// Places an item on the floor of a run.
    fn raise(&mut self, gap: Gap, item: &Item) {
        self.floors[gap.first as usize] = u64::MAX;
        if gap.first < item.first {
            self.add(Gap {
                end: item.first,
                ..gap
            });
        }
        if item.end < gap.end {
            self.add(Gap {
                first: item.end,
                ..gap
            });
        }
        self.join(Gap {
            first: item.first,
            end: item.end,
            floor: gap.floor + item.size,
        });
    }

    /// Adds a run, merged with neighbours that have its floor.
    fn join(&mut self, mut run: Gap) {
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

/// The unplaced bytes of each section, in a segment tree with range update and range maximum.
#[derive(Debug)]
struct ResidualLoad {
    leaves: usize,
    /// For each node: the bytes subtracted from all its sections, its maximum, and the section of
    /// the maximum. The maximum is without the subtractions of the node's ancestors.
    nodes: Vec<(u64, u64, u32)>,
}

impl ResidualLoad {
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

    /// Returns the maximum over the sections `first..end`, and its section.
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
        let (off, max, section) = self.nodes[node];
        if first <= from && to <= end {
            return (max, section);
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
        item.walk(self.leaves, |node, covers| match covers {
            true => self.subtract(node, item.size),
            false => self.update(node),
        });
    }

    fn subtract(&mut self, node: usize, size: u64) {
        self.nodes[node].0 += size;
        self.nodes[node].1 -= size;
    }
}
