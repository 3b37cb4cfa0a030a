//! One buffer after the other, each where it fits.

use super::occupied::Occupied;
use super::sections::Problem;

/// Places the items in the given order, each at the lowest offset where it fits among those before it.
/// `None` as soon as one ends above `bound`.
pub(crate) fn place(problem: &Problem, order: &[u32], bound: u64) -> Option<Vec<u64>> {
    let mut occupied = Occupied::new(problem.load.len());
    let mut offsets = vec![0; problem.items.len()];
    for &index in order {
        let item = &problem.items[index as usize];
        let offset = occupied.lowest(item);
        if offset + item.size > bound {
            return None;
        }
        occupied.take(item, offset);
        offsets[index as usize] = offset;
    }
    Some(offsets)
}

/// The same without a bound, around the items of the first buffers, which are where `fixed` says.
pub(crate) fn place_around(problem: &Problem, order: &[u32], fixed: &[u64]) -> Vec<u64> {
    let mut occupied = Occupied::new(problem.load.len());
    let fixed = |index: u32| fixed.get(problem.sources[index as usize] as usize).copied();
    let mut offsets = vec![0; problem.items.len()];
    let (first, rest): (Vec<u32>, Vec<u32>) =
        order.iter().partition(|index| fixed(**index).is_some());
    for index in first.into_iter().chain(rest) {
        let item = &problem.items[index as usize];
        let offset = fixed(index).unwrap_or_else(|| occupied.lowest(item));
        occupied.take(item, offset);
        offsets[index as usize] = offset;
    }
    offsets
}
