//! A good plan at once.

use super::clock::Clock;
use super::dive::dive;
use super::greedy;
use super::lessons::Lessons;
use super::order::{Key, Orders};
use super::sections::Problem;

/// How many descents learn from each other after those of fixed orders.
const LEARNING_DIVES: u32 = 6;

/// The best plan so far, which anything better replaces.
#[derive(Clone, Debug)]
pub(crate) struct Best {
    pub(crate) offsets: Vec<u64>,
    pub(crate) slab: u64,
}

impl Best {
    fn none() -> Self {
        Self {
            offsets: Vec::new(),
            slab: u64::MAX,
        }
    }

    /// The largest slab that would be better.
    fn bound(&self) -> u64 {
        self.slab - 1
    }

    pub(crate) fn replace(&mut self, problem: &Problem, offsets: Option<Vec<u64>>) {
        let Some(offsets) = offsets else {
            return;
        };
        let slab = problem.slab(&offsets);
        if slab < self.slab {
            *self = Self { offsets, slab };
        }
    }
}

/// A pass over the items.
#[derive(Clone, Copy, Debug)]
enum Pass {
    Dive([Key; 3]),
    Greedy(Key),
}

/// The passes that are always made, as long as the plan is above its capacity.
const ALWAYS: [Pass; 4] = [
    Pass::Dive([Key::Pressure, Key::Length, Key::Area]),
    Pass::Dive([Key::Area, Key::Length, Key::Size]),
    Pass::Greedy(Key::Size),
    Pass::Greedy(Key::Area),
];

/// Those that there must be time for.
const IN_TIME: [Pass; 2] = [
    Pass::Dive([Key::CoarsePressure, Key::Size, Key::Length]),
    Pass::Dive([Key::Pressure, Key::Area, Key::Length]),
];

/// A plan, as far as a few passes over the items bring it: never larger than placing them by falling
/// size, or by falling area, each at the lowest offset free. Ends at the first inside `capacity`.
pub(crate) fn plan(problem: &Problem, orders: &Orders<'_>, capacity: u64, clock: &Clock) -> Best {
    let mut best = Best::none();
    let passes = ALWAYS.iter().map(|pass| (pass, true));
    for (pass, always) in passes.chain(IN_TIME.iter().map(|pass| (pass, false))) {
        if best.slab <= capacity || (!always && clock.is_up()) {
            return best;
        }
        let offsets = pass.run(problem, orders, capacity, best.bound());
        best.replace(problem, offsets);
    }
    learn(problem, orders, capacity, LEARNING_DIVES, clock, &mut best);
    best
}

impl Pass {
    fn run(
        self,
        problem: &Problem,
        orders: &Orders<'_>,
        capacity: u64,
        bound: u64,
    ) -> Option<Vec<u64>> {
        match self {
            Self::Dive(keys) => dive(problem, &orders.by(keys), capacity, bound).plan,
            Self::Greedy(key) => greedy::place(problem, &orders.by([key]), bound),
        }
    }
}

/// Descents that learn from each other where the room was short, until one comes inside `capacity`.
pub(crate) fn learn(
    problem: &Problem,
    orders: &Orders<'_>,
    capacity: u64,
    dives: u32,
    clock: &Clock,
    best: &mut Best,
) {
    let mut lessons = Lessons::new(problem.load.len());
    while best.slab > capacity && lessons.tries() < dives && !clock.is_up() {
        let dive = dive(problem, &lessons.order(orders), capacity, best.bound());
        best.replace(problem, dive.plan);
        lessons.learn(&dive.excess);
    }
}
