//! Search for a plan inside a capacity, by trying and going back, until one is found or none can be.
//!
//! The search is that of MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
//! Hardware-Accelerated Machine Learning", ASPLOS 2023): see [`search`]. What is added is that it begins
//! anew after a number of nodes that grows slowly, with what it has learned.

mod search;
mod state;

use super::clock::Clock;
use super::lessons::Lessons;
use super::order::Orders;
use super::sections::Problem;
pub(crate) use search::Outcome;
use search::Search;

/// Nodes of the first try, and how many more each next one may have.
const FIRST_TRY: u64 = 2_000;
const GROWTH: f64 = 1.1;

/// Above that many items the lists of the search would take too much memory.
pub(crate) const MAX_ITEMS: usize = 6_000;

/// Searches for a plan inside `capacity` until one is found, none can be, `nodes` are spent, or the
/// time is up.
pub(crate) fn search(
    orders: &Orders<'_>,
    problem: &Problem,
    capacity: u64,
    nodes: u64,
    clock: &Clock,
) -> Outcome {
    let mut lessons = Lessons::new(problem.load.len());
    let mut left = nodes;
    let mut budget = FIRST_TRY;
    while left > 0 && !clock.is_up() {
        let mut search = Search::new(problem, lessons.order(orders), capacity);
        budget = budget.min(left);
        let outcome = search.run(budget, clock);
        if outcome != Outcome::Spent {
            return outcome;
        }
        lessons.learn(search.failures());
        left -= budget;
        budget = (budget as f64 * GROWTH) as u64;
    }
    Outcome::Spent
}
