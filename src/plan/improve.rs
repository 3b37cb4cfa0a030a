//! A better plan, for as long as there is time.

use super::clock::Clock;
use super::draft::Draft;
use super::exact::{self, Outcome};

/// Nodes of a search of the first round, and by how much those of each next one grow.
const FIRST_NODES: u64 = 100_000;
const GROWTH: u64 = 4;

/// Descents before each round.
const DIVES: u32 = 100;

/// Slabs closer together than this part of one are not told apart within a round.
const STEP: u64 = 4096;

/// Searches for a plan inside `capacity` as long as there is time. Answers the least slab that is not
/// known to be impossible.
pub(crate) fn fit(draft: &mut Draft<'_>, capacity: u64, clock: &Clock) -> u64 {
    let load = draft.problem.max_load();
    if draft.problem.items.len() > exact::MAX_ITEMS {
        draft.keep_diving(capacity, u32::MAX, clock);
        return load;
    }
    match exact::search(&draft.orders, draft.problem, capacity, u64::MAX, clock) {
        Outcome::Found(offsets) => draft.offer(offsets),
        Outcome::Impossible => return capacity + 1,
        Outcome::Spent => {}
    }
    load
}

/// Improves a plan until its slab is at `goal`, or the least possible above that, or the time is up.
/// Answers the least slab that is not known to be impossible.
///
/// Each round of searches begins at the least slab that may be possible, and halves what is between
/// the largest that it found no plan for and the best plan. The next round has more patience.
pub(crate) fn shrink(draft: &mut Draft<'_>, goal: u64, clock: &Clock) -> u64 {
    let load = draft.problem.max_load();
    if draft.problem.items.len() > exact::MAX_ITEMS {
        draft.keep_diving(goal, u32::MAX, clock);
        return load;
    }
    let mut least = goal;
    let mut nodes = FIRST_NODES;
    while draft.slab() > least && !clock.is_up() {
        draft.keep_diving(least, DIVES, clock);
        least = shrink_round(draft, least, nodes, clock);
        nodes = nodes.saturating_mul(GROWTH);
    }
    if least > goal { least } else { load }
}

/// A round of searches of up to `nodes` nodes each; answers what is the least possible slab then.
fn shrink_round(draft: &mut Draft<'_>, mut least: u64, nodes: u64, clock: &Clock) -> u64 {
    // The largest slab that no plan was found for; `least` itself is tried first.
    let mut missed = least - 1;
    let mut capacity = least;
    loop {
        match exact::search(&draft.orders, draft.problem, capacity, nodes, clock) {
            Outcome::Found(offsets) => draft.offer(offsets),
            Outcome::Impossible => {
                least = capacity + 1;
                missed = capacity;
            }
            Outcome::Spent => missed = capacity,
        }
        let between = draft.slab() - missed;
        if between <= 1 + draft.slab() / STEP || clock.is_up() {
            return least;
        }
        capacity = missed + between / 2;
    }
}
