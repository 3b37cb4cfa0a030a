//! Parts of an array that have no element in common.

use smallvec::SmallVec;

use crate::array::{Layout, MAX_RANK};

/// The maximum number of parts that are compared. Adjacent parts are joined, so that few remain.
const MOST: usize = 8;

/// Parts of one array that have no element in common. No part repeats an element.
#[derive(Clone, Debug, Default)]
pub(super) struct DistinctParts(SmallVec<[Layout; 1]>);

impl DistinctParts {
    /// Adds a part. The part must not repeat an element. Returns `None` if it may overlap another
    /// part, or if there are too many parts.
    pub(super) fn with(mut self, part: &Layout) -> Option<Self> {
        let mut joined = None;
        for (number, own) in self.0.iter().enumerate() {
            let (hull, are_neighbours) = hull_of(own, part)?;
            if are_neighbours {
                joined = Some((number, hull));
            }
        }
        match joined {
            Some((number, hull)) => self.0[number] = hull,
            None if self.0.len() == MOST => return None,
            None => self.0.push(*part),
        }
        Some(self)
    }
}

/// Returns the hull of two parts along one axis, and whether the parts are adjacent. Returns `None`
/// if the parts differ along other axes, or may overlap.
fn hull_of(one: &Layout, other: &Layout) -> Option<(Layout, bool)> {
    if one.ndim() != other.ndim() {
        return None;
    }
    // The stride of an axis of length 1 is not used.
    let are_long = |axis: usize| one.dims()[axis] > 1 && other.dims()[axis] > 1;
    let differs = |axis: usize| are_long(axis) && one.strides()[axis] != other.strides()[axis];
    if (0..one.ndim()).any(differs) {
        return None;
    }
    (0..one.ndim()).find_map(|axis| hull_along(axis, one, other))
}

fn hull_along(axis: usize, one: &Layout, other: &Layout) -> Option<(Layout, bool)> {
    let mut lengths = one.dims().iter().zip(other.dims()).enumerate();
    if !lengths.all(|(own, (one, other))| own == axis || one == other) {
        return None;
    }
    let apart = other.offset() as isize - one.offset() as isize;
    let long = [one, other].into_iter().find(|own| own.dims()[axis] > 1);
    let stride = long.map_or(apart.abs(), |own| own.strides()[axis]);
    if stride == 0 || apart % stride != 0 {
        return None;
    }
    let (first, last, steps) = match apart / stride {
        steps @ 0.. => (one, other, steps as usize),
        steps => (other, one, steps.unsigned_abs()),
    };
    let length = first.dims()[axis];
    if steps < length {
        return None;
    }
    let shape = first.shape().with(axis, steps + last.dims()[axis]);
    let mut strides = SmallVec::<[isize; MAX_RANK]>::from_slice(first.strides());
    strides[axis] = stride;
    let hull = Layout::strided(&shape, &strides).ok()?;
    let hull = hull.starting_at(first.offset());
    // If the hull repeats an element, the parts may overlap.
    (!hull.repeats()).then_some((hull, steps == length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Shape;

    fn whole(dims: &[usize]) -> Layout {
        Layout::row_major(&Shape::from(dims))
    }

    fn are_distinct(parts: &[Layout]) -> bool {
        let none = Some(DistinctParts::default());
        let all = parts.iter().fold(none, |all, part| all?.with(part));
        all.is_some()
    }

    #[test]
    fn pieces_along_any_axis_are_distinct() {
        let whole = whole(&[6, 4, 5]);
        for axis in 0..3 {
            let length = whole.dims()[axis];
            let pieces: Vec<Layout> = (0..length)
                .map(|at| whole.part(axis, at..at + 1, 1).unwrap())
                .collect();
            assert!(are_distinct(&pieces), "axis {axis}");
            let backwards: Vec<Layout> = pieces.iter().rev().copied().collect();
            assert!(are_distinct(&backwards), "axis {axis}");
            let again = [pieces.clone(), vec![pieces[1]]].concat();
            assert!(!are_distinct(&again), "axis {axis}");
            let without = |own: &Layout| own.squeeze(axis as isize).unwrap();
            let rows: Vec<Layout> = pieces.iter().map(without).collect();
            assert_eq!(are_distinct(&rows), axis < 2, "axis {axis}");
        }
    }

    #[test]
    fn parts_that_overlap_are_not_distinct() {
        let whole = whole(&[6, 5]);
        let rows = |from: usize, to: usize| whole.part(0, from..to, 1).unwrap();
        assert!(!are_distinct(&[rows(0, 3), rows(2, 5)]));
        assert!(are_distinct(&[rows(0, 2), rows(4, 6), rows(2, 4)]));
        assert!(!are_distinct(&[rows(0, 2), rows(4, 6), rows(3, 5)]));
        let columns = whole.part(1, 0..2, 1).unwrap();
        assert!(!are_distinct(&[rows(0, 2), columns]));
        assert!(!are_distinct(&[whole, rows(1, 2)]));
        assert!(!are_distinct(&[whole.transpose(), whole]));
    }
}
