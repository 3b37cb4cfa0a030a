//! The best plan of one component so far.

use std::time::{Duration, Instant};

use super::deadline::Deadline;
use super::greedy;
use super::ordering::{Orderings, SortKey};
use super::sections::Problem;
use super::skyline;
use super::weights::LearnedWeights;

/// The maximum numbers of skyline passes: before first fit, and after first fit while time remains.
const FIRST_PASSES: u32 = 4;
const MORE_PASSES: u32 = 8;

/// The duration of first fit for many buffers, as a multiple of a skyline pass.
const FIRST_FIT_PASSES: u32 = 6;

/// The deadlines of the passes over a component.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimits {
    /// The end of the first heuristic passes.
    pub first_passes: Deadline,
    /// The end of the search.
    pub search: Deadline,
}

/// The best plan of a component so far, with the weights for the next pass.
#[derive(Debug)]
pub struct Incumbent<'a> {
    /// The items of the component.
    pub problem: &'a Problem,
    /// The orders in which passes place the items.
    pub orderings: Orderings<'a>,
    weights: LearnedWeights,
    offsets: Vec<u64>,
    slab: u64,
    /// The longest duration of a skyline pass so far.
    longest_pass: Duration,
}

impl<'a> Incumbent<'a> {
    /// Returns the best plan of a few heuristic passes, or the first plan within `capacity`. If no
    /// pass fits `capacity` and `limits` allow it, runs first fit by falling size and by falling
    /// area. The plan is then never larger than the plans of first fit.
    pub fn new(problem: &'a Problem, capacity: u64, limits: &TimeLimits) -> Self {
        let mut incumbent = Self {
            problem,
            orderings: Orderings::new(problem),
            weights: LearnedWeights::new(problem.load.len()),
            offsets: Vec::new(),
            slab: u64::MAX,
            longest_pass: Duration::ZERO,
        };
        // One pass runs in any case.
        incumbent.skyline_pass(capacity);
        incumbent.repeat_skyline(capacity, FIRST_PASSES - 1, &limits.first_passes);
        for key in [SortKey::Size, SortKey::Area] {
            let time = incumbent.first_fit_time();
            if incumbent.slab > capacity && limits.first_passes.allows(time) {
                let order = incumbent.orderings.by(key);
                if let Some(offsets) = greedy::first_fit(problem, &order, incumbent.slab - 1) {
                    incumbent.offer(offsets);
                }
            }
        }
        incumbent.repeat_skyline(capacity, MORE_PASSES, &limits.search);
        incumbent
    }

    /// Returns the offset of each item.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Returns the highest end of an item.
    pub fn slab(&self) -> u64 {
        self.slab
    }

    /// Returns an estimate of the time of first fit.
    pub fn first_fit_time(&self) -> Duration {
        self.longest_pass * FIRST_FIT_PASSES
    }

    /// If the plan is smaller, replaces the incumbent.
    pub fn offer(&mut self, offsets: Vec<u64>) {
        let slab = self.problem.slab(&offsets);
        if slab < self.slab {
            self.slab = slab;
            self.offsets = offsets;
        }
    }

    /// Runs skyline passes until one fits `capacity`. Each pass uses the weights learned from the
    /// previous passes.
    pub fn repeat_skyline(&mut self, capacity: u64, passes: u32, deadline: &Deadline) {
        for _ in 0..passes {
            if self.slab <= capacity || !deadline.allows(self.longest_pass) {
                return;
            }
            self.skyline_pass(capacity);
        }
    }

    fn skyline_pass(&mut self, capacity: u64) {
        let begin = Instant::now();
        let order = self.weights.order(&self.orderings);
        let fit = skyline::best_fit(self.problem, &order, capacity, self.slab - 1);
        if let Some(offsets) = fit.plan {
            self.offer(offsets);
        }
        self.weights.learn(&fit.overflow);
        self.longest_pass = self.longest_pass.max(begin.elapsed());
    }
}
