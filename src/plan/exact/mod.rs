//! Search for a plan inside a capacity, by trying and going back, until one is found or none can be.
//!
//! The search is that of MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
//! Hardware-Accelerated Machine Learning", ASPLOS 2023): see [`search`]. What is added is that it begins
//! anew after a number of nodes that grows slowly, with what it has learned.

mod bounds;
mod search;
mod state;

use super::clock::Clock;
use super::lessons::Lessons;
use super::order::Orders;
use super::sections::Problem;
pub(crate) use search::Outcome;
use search::Search;

/// Nodes of the first try at least, and for each item, because a plan takes one for each; and by how much
/// each next one may be longer.
const FIRST_TRY: u64 = 2_000;
const FIRST_TRY_OF_ITEM: u64 = 4;
const GROWTH: f64 = 1.01;

/// The part of all nodes that goes to one long try now and then: where there is no plan, only a try
/// that comes to its end can tell.
const LONG_TRIES: u64 = 4;

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
    let of_items = problem.items.len() as u64 * FIRST_TRY_OF_ITEM;
    let mut short = FIRST_TRY.max(of_items) as f64;
    let (mut spent, mut spent_long) = (0, 0);
    while spent < nodes && !clock.is_up() {
        let mut budget = short as u64;
        if budget < spent / LONG_TRIES && spent_long <= spent / LONG_TRIES {
            budget = spent / LONG_TRIES;
            spent_long += budget;
        } else {
            short *= GROWTH;
        }
        let mut search = Search::new(problem, lessons.order(orders), capacity);
        let outcome = search.run(budget.min(nodes - spent), clock);
        if outcome != Outcome::Spent {
            return outcome;
        }
        lessons.learn(search.failures());
        spent += budget;
    }
    Outcome::Spent
}
