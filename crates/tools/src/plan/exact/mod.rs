//! Branch and bound for a plan within a capacity: complete, with restarts.
//!
//! This is MiniMalloc's search (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
//! Hardware-Accelerated Machine Learning", ASPLOS 2023); see [`search`]. This module adds restarts,
//! with a slowly growing node budget and learned weights.

mod bounds;
mod search;
mod state;

use cachescope_memory::internal::plan::Deadline;
use cachescope_memory::internal::plan::LearnedWeights;
use cachescope_memory::internal::plan::Orderings;
use cachescope_memory::internal::plan::Problem;
use search::Search;
pub(crate) use search::SearchOutcome;

/// The minimum node budget of the first run, and the budget for each item, because a plan takes a
/// node for each item. The last constant is the factor of the budget from run to run.
const FIRST_RUN_NODES: u64 = 2_000;
const FIRST_RUN_NODES_PER_ITEM: u64 = 4;
const GROWTH: f64 = 1.01;

/// One of this many nodes is spent on occasional long runs, because only a complete run proves
/// infeasibility.
const LONG_RUN_DIVISOR: u64 = 4;

/// The maximum number of items. With more items, the search's lists would take too much memory.
pub(crate) const MAX_ITEMS: usize = 6_000;

/// Searches for a plan within `capacity` until one is found or disproved, `nodes` are spent, or the
/// deadline has passed.
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
