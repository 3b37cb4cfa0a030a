//! Walks over the elements that a copy reads and writes, on the host and on CUDA devices.

use std::cmp::Ordering;

use super::{length_of, start_of};
use crate::array::{Layout, Shape, Walk};
use crate::error::Result;

/// The elements of an array that a copy reads.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) enum Copying {
    /// All elements, in row-major order.
    All,
    /// All elements, each repeated `times` times along the axis `at`.
    Repeated { at: usize, times: usize },
    /// The elements of diagonal `k` of a matrix.
    Diagonal { k: isize },
}

impl Copying {
    /// Returns a walk over the elements that `self` selects from `layout`, and over a new
    /// contiguous array of these elements.
    #[inline(always)]
    pub(in crate::ops) fn walk(self, layout: &Layout) -> Walk<2> {
        match self {
            Self::All => Layout::walk([layout, &layout.dense()]),
            Self::Repeated { at, times } => repeated(layout, at, times),
            Self::Diagonal { k } => of_diagonal(layout, k),
        }
    }
}

fn repeated(layout: &Layout, at: usize, times: usize) -> Walk<2> {
    let dense = layout.dense();
    let axes = pairs(layout, &dense).enumerate().flat_map(|(axis, pair)| {
        let (length, [from, to]) = pair;
        let spread = (length, [from, to.wrapping_mul(times as isize)]);
        let none = (1, [0, 0]);
        // The axis `at` becomes two axes: the elements, and the repetitions of each element.
        let axes = match axis.cmp(&at) {
            Ordering::Less => [spread, none],
            Ordering::Equal => [spread, (times, [0, to])],
            Ordering::Greater => [pair, none],
        };
        axes.into_iter()
    });
    Walk::over([layout.offset(), 0], axes)
}

fn of_diagonal(matrix: &Layout, k: isize) -> Walk<2> {
    let [down, along] = [0, 1].map(|axis| matrix.strides()[axis]);
    let count = length_of(matrix.shape(), k);
    let mut first = matrix.offset();
    if count > 0 {
        let (row, column) = start_of(k);
        first = first.wrapping_add_signed(row as isize * down + column as isize * along);
    }
    Walk::over([first, 0], [(count, [down.wrapping_add(along), 1])])
}

/// Returns a walk over a vector, and over diagonal `k` of a new matrix of `shape`. The diagonal has
/// the vector's length.
pub(in crate::ops) fn onto_diagonal(vector: &Layout, k: isize, shape: &Shape) -> Walk<2> {
    let (length, stride) = vector.row();
    let side = length + k.unsigned_abs();
    assert_eq!(
        shape.dims(),
        [side, side],
        "the shape is not a matrix of the vector"
    );
    let (row, column) = start_of(k);
    // If the product overflows, the size of the shape overflows, too.
    let first = row.wrapping_mul(side).wrapping_add(column);
    let step = [stride, (side as isize).wrapping_add(1)];
    Walk::over([vector.offset(), first], [(length, step)])
}

/// Returns one walk for each layout in `layouts`. A walk visits an array and its part of a new
/// array of `shape`. The parts are consecutive along the axis `at`. They do not overlap, and cover
/// the whole new array.
///
/// # Panics
///
/// Panics if an array differs from `shape` in another axis. Panics if the sum of the arrays'
/// lengths along `at` is not the shape's length.
#[inline]
#[track_caller]
pub(in crate::ops) fn joined_parts<'a>(
    layouts: impl Iterator<Item = &'a Layout> + Clone,
    at: usize,
    shape: &Shape,
) -> Result<impl Iterator<Item = Walk<2>>> {
    let length = shape.dims()[at];
    let mut left = length;
    for layout in layouts.clone() {
        let own = layout.shape();
        assert_eq!(
            own.with(at, length),
            *shape,
            "a joined array and the result differ in shape"
        );
        assert!(
            own.dims()[at] <= left,
            "the joined arrays are longer than the result"
        );
        left -= own.dims()[at];
    }
    assert_eq!(left, 0, "the joined arrays are shorter than the result");
    let whole = Layout::contiguous(shape)?;
    let mut start = 0;
    Ok(layouts.map(move |layout| {
        let first = start * whole.strides()[at].unsigned_abs();
        start += layout.dims()[at];
        Walk::over([layout.offset(), first], pairs(layout, &whole))
    }))
}

/// Returns the length of each axis of `layout`, with its strides in `layout` and in `other`.
pub(in crate::ops) fn pairs(
    layout: &Layout,
    other: &Layout,
) -> impl Iterator<Item = (usize, [isize; 2])> + use<> {
    let (layout, other) = (*layout, *other);
    let steps = move |axis| [layout.strides()[axis], other.strides()[axis]];
    (0..layout.ndim()).map(move |axis| (layout.dims()[axis], steps(axis)))
}
