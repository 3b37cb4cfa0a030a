//! How matrices stand in memory, and how cuBLAS is asked to multiply them.

use crate::array::{Layout, Walk};
use crate::device::DevicePtr;
use crate::device::cuda::{Gemm, GemmOperand, GemmType};

/// A matrix, counted in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row_step: isize,
    pub(super) column_step: isize,
}

impl Matrix {
    /// That of the last two axes of `layout`.
    pub(super) fn of(layout: &Layout) -> Self {
        let (_, matrix) = layout.split_at(layout.ndim() - 2);
        let (dims, steps) = (matrix.dims(), matrix.strides());
        Self {
            rows: dims[0],
            columns: dims[1],
            row_step: steps[0],
            column_step: steps[1],
        }
    }

    /// Rows as columns and columns as rows.
    fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_step: self.column_step,
            column_step: self.row_step,
        }
    }

    /// The step from one row to the next where each row is without gaps and begins after the one
    /// before.
    fn leading(self) -> Option<usize> {
        let least = self.columns.max(1);
        let is_dense = self.columns <= 1 || self.column_step == 1;
        match usize::try_from(self.row_step) {
            _ if !is_dense => None,
            _ if self.rows <= 1 => Some(least),
            Ok(step) if step >= least => Some(step),
            _ => None,
        }
    }

    /// Whether the matrix is to be read as one whose rows are its columns, and the step between its
    /// rows or columns; `None` where neither of both are without gaps.
    pub(super) fn standing(self) -> Option<(bool, usize)> {
        let rows = self.leading().map(|leading| (false, leading));
        rows.or_else(|| self.transposed().leading().map(|leading| (true, leading)))
    }
}

/// Pairs of matrices to be multiplied.
///
/// Invariant: the inner lengths are equal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairs {
    pub(super) left: Matrix,
    pub(super) right: Matrix,
    /// Where both of each pair begin.
    pub(super) places: Walk<2>,
}

impl Pairs {
    /// The last two axes of the layouts are those of matrices, the others count them, and are
    /// equally long.
    pub(super) fn new(left: &Layout, right: &Layout) -> Self {
        let (places, others) = (places(left), places(right));
        let pairs = Self {
            left: Matrix::of(left),
            right: Matrix::of(right),
            places: Walk::new([&places, &others]),
        };
        assert_eq!(
            pairs.left.columns, pairs.right.rows,
            "the inner lengths differ"
        );
        pairs
    }

    /// Each with the right matrix on the left, and both with their rows as columns.
    pub(super) fn transposed(&self) -> Self {
        let swapped = |[left, right]: [isize; 2]| [right, left];
        let [left, right] = self.places.first();
        let axes = self.places.axes();
        Self {
            left: self.right.transposed(),
            right: self.left.transposed(),
            places: Walk::over(
                [right, left],
                axes.map(|(length, steps)| (length, swapped(steps))),
            ),
        }
    }

    /// Rows, inner length and columns of each.
    pub(super) fn lengths(&self) -> [usize; 3] {
        [self.left.rows, self.left.columns, self.right.columns]
    }

    /// How many calls multiply them all; `None` where an operand must be copied first.
    pub(super) fn calls(&self) -> Option<usize> {
        self.left.standing()?;
        self.right.standing()?;
        let (_, count, _) = self.longest();
        Some(self.places.count() / count.max(1))
    }

    /// The axis of most pairs among those along which cuBLAS can count: its place, its length and
    /// its steps.
    fn longest(&self) -> (Option<usize>, usize, [isize; 2]) {
        let axes = self.places.axes().enumerate();
        let forwards = axes.filter(|(_, (_, steps))| steps.iter().all(|&step| step >= 0));
        let longest = forwards.max_by_key(|&(_, (length, _))| length);
        longest.map_or((None, 1, [0, 0]), |(axis, (length, steps))| {
            (Some(axis), length, steps)
        })
    }

    /// What cuBLAS is to multiply, from operands that begin at these addresses to `target`, which
    /// each product follows the other in; in as many parts as [`calls`](Self::calls) says, to be
    /// called one after another.
    pub(super) fn gemms(
        &self,
        element: GemmType,
        [left, right]: [DevicePtr; 2],
        target: DevicePtr,
    ) -> Option<impl Iterator<Item = Gemm>> {
        let bytes = element.bytes();
        let factor = |address: DevicePtr, matrix: Matrix, step: isize| {
            let (transposed, leading) = matrix.standing()?;
            Some(GemmOperand {
                address,
                transposed,
                leading,
                step: step.unsigned_abs(),
            })
        };
        let (chosen, count, [left_step, right_step]) = self.longest();
        let (left, right) = (
            factor(left, self.left, left_step)?,
            factor(right, self.right, right_step)?,
        );
        let [rows, inner, columns] = self.lengths();
        // Along the chosen axis, products stand as far apart as those of the axes inside it are
        // many.
        let steps = numbers_of(&self.places);
        let size = rows * columns;
        let others = self.places.axes().enumerate().zip(steps);
        let others = others.filter(|&((axis, _), _)| Some(axis) != chosen);
        let others = others.map(|((_, (length, [left, right])), step)| {
            (length, [left, right, (step * size) as isize])
        });
        let step = chosen.map_or(size, |axis| numbers_of(&self.places)[axis] * size);
        let [first, other_first] = self.places.first();
        let parts = Walk::over([first, other_first, 0], others);
        let places: Vec<[usize; 3]> = parts.each(0..parts.count()).collect();
        let at = move |address: DevicePtr, index: usize| address.offset((index * bytes) as u64);
        Some(
            places
                .into_iter()
                .map(move |[left_at, right_at, at_target]| Gemm {
                    element,
                    rows,
                    inner,
                    columns,
                    left: GemmOperand {
                        address: at(left.address, left_at),
                        ..left
                    },
                    right: GemmOperand {
                        address: at(right.address, right_at),
                        ..right
                    },
                    target: at(target, at_target),
                    target_step: step,
                    count,
                }),
        )
    }
}

/// The axes before those of the matrices.
fn places(layout: &Layout) -> Layout {
    layout.split_at(layout.ndim() - 2).0
}

/// How many elements of the walk each axis steps over.
fn numbers_of(walk: &Walk<2>) -> Vec<usize> {
    let mut steps: Vec<usize> = walk.axes().map(|(length, _)| length).collect();
    let mut product = 1;
    for step in steps.iter_mut().rev() {
        let length = std::mem::replace(step, product);
        product *= length;
    }
    steps
}
