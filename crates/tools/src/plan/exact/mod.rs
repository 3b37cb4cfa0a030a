//! Complete branch-and-bound search for a plan within a capacity, with restarts.
//!
//! This is MiniMalloc's search (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
//! Hardware-Accelerated Machine Learning", ASPLOS 2023), described in [`search`]. This module adds
//! restarts, with a slowly growing node budget and learned weights.

mod bounds;
mod search;
mod state;

use cachescope_memory::internal::plan::Deadline;
use cachescope_memory::internal::plan::LearnedWeights;
use cachescope_memory::internal::plan::Orderings;
use cachescope_memory::internal::plan::Problem;
use search::Search;
pub(crate) use search::SearchOutcome;

/// The minimum node budget of the first run.
const FIRST_RUN_NODES: u64 = 2_000;
/// The node budget of the first run per item. A plan requires one node per item.
const FIRST_RUN_NODES_PER_ITEM: u64 = 4;
/// The growth factor of the node budget per run.
const GROWTH: f64 = 1.01;

/// The reciprocal of the fraction of all nodes that occasional long runs visit. Long runs exist,
/// because only a complete run proves infeasibility.
const LONG_RUN_DIVISOR: u64 = 4;

/// The maximum number of items. For more items, the lists of the search would use too much memory.
pub(crate) const MAX_ITEMS: usize = 6_000;

/// Searches for a plan within `capacity`. Stops when a plan is found or disproved, `nodes` are
/// spent, or the deadline has passed.
pub(crate) fn search(
    orderings: &Orderings<'_>,
    problem: &Problem,
    capacity: u64,
    nodes: u64,
    deadline: &Deadline,
) -> SearchOutcome {
    let mut weights = LearnedWeights::new(problem.load.len());
    let for_items = problem.items.len() as u64 * FIRST_RUN_NODES_PER_ITEM;
    let mut short = FIRST_RUN_NODES.max(for_items) as f64;
    let (mut spent, mut spent_long) = (0, 0);
    while spent < nodes && !deadline.has_passed() {
        let mut budget = short as u64;
        if budget < spent / LONG_RUN_DIVISOR && spent_long <= spent / LONG_RUN_DIVISOR {
            budget = spent / LONG_RUN_DIVISOR;
            spent_long += budget;
        } else {
            short *= GROWTH;
        }
        let mut search = Search::new(problem, weights.order(orderings), capacity);
        let outcome = search.run(budget.min(nodes - spent), deadline);
        if outcome != SearchOutcome::BudgetExhausted {
            return outcome;
        }
        weights.learn(search.failures());
        spent += budget;
    }
    SearchOutcome::BudgetExhausted
}
