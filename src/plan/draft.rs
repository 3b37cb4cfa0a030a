//! A plan of one part that gets better.

use std::time::{Duration, Instant};

use super::clock::Clock;
use super::dive::dive;
use super::greedy;
use super::lessons::Lessons;
use super::order::{Key, Orders};
use super::sections::Problem;

/// How many descents come before greed, and how many after it where there is time.
const FIRST_DIVES: u32 = 4;
const MORE_DIVES: u32 = 8;

/// The best plan so far, and what was learned on the way to it.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) orders: Orders<'a>,
    lessons: Lessons,
    offsets: Vec<u64>,
    slab: u64,
    /// How long a descent takes.
    longest_dive: Duration,
}

impl<'a> Draft<'a> {
    /// A plan, as far as a few passes over the items bring it: never larger than placing them by falling
    /// size, or by falling area, each at the lowest offset free. Ends at the first inside `capacity`.
    pub(crate) fn new(problem: &'a Problem, capacity: u64, clock: &Clock) -> Self {
        let mut draft = Self {
            problem,
            orders: Orders::new(problem),
            lessons: Lessons::new(problem.load.len()),
            offsets: Vec::new(),
            slab: u64::MAX,
            longest_dive: Duration::ZERO,
        };
        while draft.slab > capacity && draft.lessons.tries() < FIRST_DIVES {
            draft.dive(capacity);
        }
        for key in [Key::Size, Key::Area] {
            if draft.slab > capacity {
                draft.greed(key);
            }
        }
        draft.keep_diving(capacity, MORE_DIVES, clock);
        draft
    }

    /// The offset of each item.
    pub(crate) fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The highest end of an item.
    pub(crate) fn slab(&self) -> u64 {
        self.slab
    }

    /// Takes another plan if it is better.
    pub(crate) fn offer(&mut self, offsets: Vec<u64>) {
        let slab = self.problem.slab(&offsets);
        if slab < self.slab {
            self.slab = slab;
            self.offsets = offsets;
        }
    }

    /// Descents that learn from each other where the room was short, until one comes inside `capacity`.
    pub(crate) fn keep_diving(&mut self, capacity: u64, dives: u32, clock: &Clock) {
        for _ in 0..dives {
            if self.slab <= capacity || !clock.leaves(self.longest_dive) {
                return;
            }
            self.dive(capacity);
        }
    }

    fn dive(&mut self, capacity: u64) {
        let begin = Instant::now();
        let order = self.lessons.order(&self.orders);
        let dive = dive(self.problem, &order, capacity, self.slab - 1);
        if let Some(offsets) = dive.plan {
            self.offer(offsets);
        }
        self.lessons.learn(&dive.excess);
        self.longest_dive = self.longest_dive.max(begin.elapsed());
    }

    fn greed(&mut self, key: Key) {
        let order = self.orders.by(key);
        if let Some(offsets) = greedy::place(self.problem, &order, self.slab - 1) {
            self.offer(offsets);
        }
    }
}
