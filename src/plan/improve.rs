//! A better plan, for as long as there is time.

use super::clock::Clock;
use super::exact::{self, Outcome};
use super::order::Orders;
use super::quick::{self, Best};
use super::sections::Problem;

/// Nodes of a search of the first round, and by how much those of each next one grow.
const FIRST_NODES: u64 = 50_000;
const GROWTH: u64 = 4;

/// Slabs closer together than this part of one are not told apart within a round.
const STEP: u64 = 4096;

/// Searches for a plan inside `capacity` as long as there is time. Answers the least slab that is not
/// known to be impossible.
pub(crate) fn fit(
    problem: &Problem,
    orders: &Orders<'_>,
    capacity: u64,
    clock: &Clock,
    best: &mut Best,
) -> u64 {
    if problem.items.len() > exact::MAX_ITEMS {
        quick::learn(problem, orders, capacity, u32::MAX, clock, best);
        return problem.max_load();
    }
    match exact::search(orders, problem, capacity, u64::MAX, clock) {
        Outcome::Found(offsets) => best.replace(problem, Some(offsets)),
        Outcome::Impossible => return capacity + 1,
        Outcome::Spent => {}
    }
    problem.max_load()
}

/// Improves a plan until its slab is at `least`, or the least possible above that, or the time is up.
///
/// Each round of searches begins at the least slab that may be possible, and halves what is between
/// the largest that it found no plan for and the best plan. The next round has more patience.
pub(crate) fn shrink(
    problem: &Problem,
    orders: &Orders<'_>,
    mut least: u64,
    clock: &Clock,
    best: &mut Best,
) -> u64 {
    let load = problem.max_load();
    if problem.items.len() > exact::MAX_ITEMS {
        quick::learn(problem, orders, least, u32::MAX, clock, best);
        return load;
    }
    let allowed = least;
    let mut nodes = FIRST_NODES;
    while best.slab > least && !clock.is_up() {
        least = shrink_round(problem, orders, least, nodes, clock, best);
        nodes = nodes.saturating_mul(GROWTH);
    }
    if least > allowed { least } else { load }
}

/// A round of searches of up to `nodes` nodes each; answers what is the least possible slab then.
fn shrink_round(
    problem: &Problem,
    orders: &Orders<'_>,
    mut least: u64,
    nodes: u64,
    clock: &Clock,
    best: &mut Best,
) -> u64 {
    // No plan was found that is this small; `least` itself comes first.
    let mut missed = least - 1;
    let mut capacity = least;
    loop {
        match exact::search(orders, problem, capacity, nodes, clock) {
            Outcome::Found(offsets) => best.replace(problem, Some(offsets)),
            Outcome::Impossible => {
                least = capacity + 1;
                missed = capacity;
            }
            Outcome::Spent => missed = capacity,
        }
        let between = best.slab - missed;
        if between <= 1 + best.slab / STEP || clock.is_up() {
            return least;
        }
        capacity = missed + between / 2;
    }
}
