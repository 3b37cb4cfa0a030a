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
