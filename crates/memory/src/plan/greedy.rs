//! First fit in a given order.

use super::occupancy::Occupancy;
use super::sections::Problem;

/// Places the items in order, each at the lowest offset that is free over its whole lifetime.
/// Returns `None` as soon as an item ends above `bound`.
pub fn first_fit(problem: &Problem, order: &[u32], bound: u64) -> Option<Vec<u64>> {
    let mut occupancy = Occupancy::new(problem.load.len());
    let mut offsets = vec![0; problem.items.len()];
    for &index in order {
        let item = &problem.items[index as usize];
        let offset = occupancy.lowest_fit(item);
        if offset + item.size > bound {
            return None;
        }
        occupancy.place(item, offset);
        offsets[index as usize] = offset;
    }
    Some(offsets)
}

/// Places the items in order, without a bound. The items of the first buffers keep their `fixed`
/// offsets, and the other items are placed around them.
pub(crate) fn first_fit_around(problem: &Problem, order: &[u32], fixed: &[u64]) -> Vec<u64> {
    let mut occupancy = Occupancy::new(problem.load.len());
    let fixed = |index: u32| fixed.get(problem.indices[index as usize] as usize).copied();
    let mut offsets = vec![0; problem.items.len()];
    let (first, rest): (Vec<u32>, Vec<u32>) =
        order.iter().partition(|index| fixed(**index).is_some());
    for index in first.into_iter().chain(rest) {
        let item = &problem.items[index as usize];
        let offset = fixed(index).unwrap_or_else(|| occupancy.lowest_fit(item));
        occupancy.place(item, offset);
        offsets[index as usize] = offset;
    }
    offsets
}
