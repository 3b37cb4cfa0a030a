//! Branch and bound over the differences of offsets.
//!
//! A node is a set of lower bounds on differences, together with the least offsets that satisfy
//! these bounds. These offsets are computed as a fixed point. Each plan of the node has equal or
//! higher offsets. If no two buffers overlap at the least offsets, the least offsets are the
//! smallest plan of the node. Otherwise, the search branches on a pair that overlaps. In a plan,
//! the difference of the pair is in one of the allowed intervals. Each allowed interval adds a
//! bound that the least offsets of the node violate. If a buffer ends above the bound on the slab,
//! the node is pruned. If the live bytes of a moment, stacked from their least offsets, exceed this
//! bound, the node is also pruned.

use std::collections::VecDeque;

use super::pairs::{Conflicts, Pair};
use super::{ConstrainedBuffer, slab};
use cachescope_memory::internal::plan::Deadline;

/// The number of nodes between two checks of the deadline.
const DEADLINE_NODES: u64 = 64;

/// The maximum number of raised offsets in one propagation. Above it, the search abandons the
/// branch without a proof. Without alignments, the bounds form a cycle as soon as the offset of
/// `from` (in `restrict`) rises. Then the branch is ruled out.
const MAX_RISES: u64 = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// No proof, because the search is incomplete or `goal` was reached.
    None,
    /// A proof that no slab is smaller than this size.
    AtLeast(u64),
}

/// Improves `best` until its slab is at most `goal`, all plans are ruled out, or the deadline has
/// passed. On entry, the slab of `best` must exceed `goal`.
pub(super) fn search(
    buffers: &[ConstrainedBuffer],
    conflicts: &Conflicts,
    best: &mut Vec<u64>,
    goal: u64,
    deadline: &Deadline,
) -> Proof {
    let mut search = OffsetSearch::new(buffers, conflicts);
    let mut bound = slab(buffers, best) - 1;
    let mut open: Vec<Node> = Vec::new();
    if !search.order_identical(bound) {
        return search.proof(bound);
    }
    let mut is_entered = true;
    let mut nodes = 0_u64;
    loop {
        nodes += 1;
        if nodes.is_multiple_of(DEADLINE_NODES) && deadline.has_passed() {
            return Proof::None;
        }
        if is_entered && !search.overflows(bound) {
            match search.conflict() {
                Some(pair) => open.push(search.node(pair)),
                None => {
                    *best = search.offsets.clone();
                    let slab_bytes = slab(buffers, best);
                    if slab_bytes <= goal {
                        return Proof::None;
                    }
                    bound = slab_bytes - 1;
                }
            }
        }
        let Some(node) = open.last_mut() else {
            return search.proof(bound);
        };
        search.undo(node);
        let Some((low, high)) = node.choices.pop() else {
            open.pop();
            is_entered = false;
            continue;
        };
        let (first, second) = node.pair;
        is_entered = search.restrict(first, second, low, bound)
            && search.restrict(second, first, high.map(|high| -high), bound);
    }
}

/// A pair to branch on, with the trail lengths to restore.
#[derive(Debug)]
struct Node {
    pair: (u32, u32),
    /// The untried intervals, with the best interval last. Each interval has a minimum and a
    /// maximum difference.
    choices: Vec<(Option<i64>, Option<i64>)>,
    trail: usize,
    edges: usize,
}

struct OffsetSearch<'a> {
    buffers: &'a [ConstrainedBuffer],
    conflicts: &'a Conflicts,
    is_aligned: bool,
    offsets: Vec<u64>,
    /// For each buffer `a`: buffers `b`, each with the minimum of offset `b` minus offset `a`.
    edges: Vec<Vec<(u32, i64)>>,
    /// The first buffers of all edges, in the order of their insertion.
    added: Vec<u32>,
    /// The previous offsets of raised buffers.
    trail: Vec<(u32, u64)>,
    queue: VecDeque<u32>,
    is_queued: Vec<bool>,
    /// True if the search abandoned a branch without a proof.
    is_incomplete: bool,
}

impl<'a> OffsetSearch<'a> {
    fn new(buffers: &'a [ConstrainedBuffer], conflicts: &'a Conflicts) -> Self {
        Self {
            buffers,
            conflicts,
            is_aligned: buffers.iter().any(|buffer| buffer.alignment > 1),
            offsets: vec![0; buffers.len()],
            edges: vec![Vec::new(); buffers.len()],
            added: Vec::new(),
            trail: Vec::new(),
            queue: VecDeque::new(),
            is_queued: vec![false; buffers.len()],
            is_incomplete: false,
        }
    }

    /// Returns the proof of a search that has ended.
    fn proof(&self, bound: u64) -> Proof {
        match self.is_incomplete {
            true => Proof::None,
            false => Proof::AtLeast(bound + 1),
        }
    }

    /// Requires that identical buffers have ascending offsets. Returns false if no plan satisfies
    /// this condition.
    fn order_identical(&mut self, bound: u64) -> bool {
        let mut last = std::collections::HashMap::new();
        for (index, buffer) in (0_u32..).zip(self.buffers) {
            let own = &buffer.interval;
            let gaps: Vec<_> = buffer
                .gaps
                .iter()
                .map(|gap| (gap.lower, gap.upper, gap.used.start, gap.used.end))
                .collect();
            let key = (own.lower, own.upper, own.size_bytes, buffer.alignment, gaps);
            if let Some(before) = last.insert(key, index)
                && !self.restrict(before, index, Some(0), bound)
            {
                return false;
            }
        }
        true
    }

    /// Returns a pair of buffers that overlap at the least offsets.
    fn conflict(&self) -> Option<&'a Pair> {
        let mut pairs = self.conflicts.pairs.iter();
        pairs.find(|pair| pair.overlaps(self.difference(pair)))
    }

    fn difference(&self, pair: &Pair) -> i64 {
        let [first, second] = [pair.first, pair.second].map(|own| self.offsets[own as usize]);
        second as i64 - first as i64
    }

    /// Creates the node of a pair. The interval nearest to the current difference is tried first.
    fn node(&self, pair: &Pair) -> Node {
        let at = self.difference(pair);
        let count = pair.forbidden.len();
        let mut choices: Vec<_> = (0..=count)
            .map(|index| {
                let low = index.checked_sub(1).map(|before| pair.forbidden[before].1);
                let high = pair.forbidden.get(index).map(|after| after.0);
                (low, high)
            })
            .filter(|(low, high)| low.is_none_or(|low| high.is_none_or(|high| low <= high)))
            .collect();
        choices.sort_by_key(|(low, high)| {
            let above = low.map_or(0, |low| low.saturating_sub(at).max(0));
            let below = high.map_or(0, |high| at.saturating_sub(high).max(0));
            std::cmp::Reverse(above.max(below))
        });
        Node {
            pair: (pair.first, pair.second),
            choices,
            trail: self.trail.len(),
            edges: self.added.len(),
        }
    }

    /// Restores the state from before the node's last choice.
    fn undo(&mut self, node: &Node) {
        for (buffer, offset) in self.trail.drain(node.trail..).rev() {
            self.offsets[buffer as usize] = offset;
        }
        for buffer in self.added.drain(node.edges..) {
            self.edges[buffer as usize].pop();
        }
    }

    /// Requires that the offset of `to` exceeds the offset of `from` by at least `least`. Returns
    /// false if no plan satisfies the bound.
    fn restrict(&mut self, from: u32, to: u32, least: Option<i64>, bound: u64) -> bool {
        let Some(least) = least else {
            return true;
        };
        self.edges[from as usize].push((to, least));
        self.added.push(from);
        self.queue.push_back(from);
        self.is_queued[from as usize] = true;
        let before = self.offsets[from as usize];
        let mut rises = 0;
        let mut holds = true;
        while let Some(own) = self.queue.pop_front() {
            self.is_queued[own as usize] = false;
            for edge in 0..self.edges[own as usize].len() {
                let (other, least) = self.edges[own as usize][edge];
                let lowest = (self.offsets[own as usize] as i64)
                    .saturating_add(least)
                    .max(0) as u64;
                if lowest <= self.offsets[other as usize] {
                    continue;
                }
                let buffer = &self.buffers[other as usize];
                let offset = lowest.checked_next_multiple_of(buffer.alignment.max(1));
                let end = offset.and_then(|own| own.checked_add(buffer.interval.size_bytes));
                let (Some(offset), true) = (offset, end.is_some_and(|end| end <= bound)) else {
                    holds = false;
                    break;
                };
                let old = std::mem::replace(&mut self.offsets[other as usize], offset);
                self.trail.push((other, old));
                rises += 1;
                if !std::mem::replace(&mut self.is_queued[other as usize], true) {
                    self.queue.push_back(other);
                }
            }
            let is_cycle = self.offsets[from as usize] > before;
            if !holds || (is_cycle && !self.is_aligned) {
                holds = false;
                break;
            }
            if rises > MAX_RISES {
                self.is_incomplete = true;
                holds = false;
                break;
            }
        }
        for own in self.queue.drain(..) {
            self.is_queued[own as usize] = false;
        }
        holds
    }

    /// Returns whether the live pieces of some moment end above the bound when stacked from their
    /// least offsets.
    fn overflows(&self, bound: u64) -> bool {
        let mut stack: Vec<(u64, u64)> = Vec::new();
        self.conflicts.moments.iter().any(|live| {
            stack.clear();
            stack.extend(live.iter().map(|piece| {
                let offset = self.offsets[piece.buffer as usize];
                (offset + piece.start, piece.interval.size_bytes)
            }));
            stack.sort_unstable();
            let mut above = 0;
            stack.iter().rev().any(|&(start, bytes)| {
                above += bytes;
                start + above > bound
            })
        })
    }
}
