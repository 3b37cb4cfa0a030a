//! Anytime improvement of an incumbent.

use super::exact::{self, SearchOutcome};
use cachescope_memory::internal::plan::Deadline;
use cachescope_memory::internal::plan::Incumbent;

/// The node budget of a search in the first round.
const FIRST_NODES: u64 = 100_000;
/// The growth factor of the node budget per round.
const GROWTH: u64 = 4;

/// The number of skyline passes before each round.
const SKYLINE_PASSES: u32 = 100;

/// The reciprocal of a round's resolution: slabs that differ by a smaller fraction are equal.
const RESOLUTION: u64 = 4096;

/// Searches for a plan within `capacity` until the deadline. Returns the best known lower bound on
/// the slab.
pub(crate) fn fit_capacity(
    incumbent: &mut Incumbent<'_>,
    capacity: u64,
    deadline: &Deadline,
) -> u64 {
    let load = incumbent.problem.max_load();
    if incumbent.problem.items.len() > exact::MAX_ITEMS {
        incumbent.repeat_skyline(capacity, u32::MAX, deadline);
        return load;
    }
    match exact::search(
        &incumbent.orderings,
        incumbent.problem,
        capacity,
        u64::MAX,
        deadline,
    ) {
        SearchOutcome::Found(offsets) => incumbent.offer(offsets),
        SearchOutcome::Infeasible => return capacity + 1,
        SearchOutcome::BudgetExhausted => {}
    }
    load
}

/// Shrinks the incumbent until its slab reaches `goal` or the lower bound, or until the deadline.
/// Returns the best known lower bound on the slab.
///
/// Each round bisects the interval between the lower bound and the incumbent. The node budget grows
/// from round to round.
pub(crate) fn minimize(incumbent: &mut Incumbent<'_>, goal: u64, deadline: &Deadline) -> u64 {
    let load = incumbent.problem.max_load();
    if incumbent.problem.items.len() > exact::MAX_ITEMS {
        incumbent.repeat_skyline(goal, u32::MAX, deadline);
        return load;
    }
    let mut lower_bound = goal;
    let mut nodes = FIRST_NODES;
    while incumbent.slab() > lower_bound && !deadline.has_passed() {
        incumbent.repeat_skyline(lower_bound, SKYLINE_PASSES, deadline);
        lower_bound = minimize_round(incumbent, lower_bound, nodes, deadline);
        nodes = nodes.saturating_mul(GROWTH);
    }
    if lower_bound > goal {
        lower_bound
    } else {
        load
    }
}

/// Runs one round of searches of up to `nodes` nodes each. Returns the new lower bound.
fn minimize_round(
    incumbent: &mut Incumbent<'_>,
    mut lower_bound: u64,
    nodes: u64,
    deadline: &Deadline,
) -> u64 {
    // The largest capacity at which a search failed. The first search has the capacity
    // `lower_bound`.
    let mut failed = lower_bound - 1;
    let mut capacity = lower_bound;
    loop {
        match exact::search(
            &incumbent.orderings,
            incumbent.problem,
            capacity,
            nodes,
            deadline,
        ) {
            SearchOutcome::Found(offsets) => incumbent.offer(offsets),
            SearchOutcome::Infeasible => {
                lower_bound = capacity + 1;
                failed = capacity;
            }
            SearchOutcome::BudgetExhausted => failed = capacity,
        }
        let between = incumbent.slab() - failed;
        if between <= 1 + incumbent.slab() / RESOLUTION || deadline.has_passed() {
            return lower_bound;
        }
        capacity = failed + between / 2;
    }
}
