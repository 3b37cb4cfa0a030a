//! The layouts of matrices in memory, and the cuBLAS calls that multiply them.

use crate::array::{Layout, Walk};
use crate::device::DevicePtr;
use crate::device::cuda::{Gemm, GemmOperand, GemmType};

/// The lengths and strides of a matrix in memory, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row_step: isize,
    pub(super) column_step: isize,
}

impl Matrix {
    /// Returns the matrix of the last two axes of `layout`.
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

    /// Returns the matrix with rows and columns exchanged.
    fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_step: self.column_step,
            column_step: self.row_step,
        }
    }

    /// Returns the step from one row to the next. Returns `None` if a row has gaps, or begins
    /// before the end of the previous row.
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

    /// Returns whether cuBLAS reads the matrix as its transpose, and the leading dimension. Returns
    /// `None` if both the rows and the columns have gaps or overlap.
    pub(super) fn blas_layout(self) -> Option<(bool, usize)> {
        let rows = self.leading().map(|leading| (false, leading));
        rows.or_else(|| self.transposed().leading().map(|leading| (true, leading)))
    }
}

/// The memory that products are written to, without gaps.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProductTarget {
    pub(super) address: DevicePtr,
    pub(super) element: GemmType,
    /// `true` if the products are added to the values in memory.
    pub(super) is_begun: bool,
}

/// Pairs of matrices to be multiplied.
///
/// Invariant: the inner lengths are equal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairs {
    pub(super) left: Matrix,
    pub(super) right: Matrix,
    /// The offsets of both matrices of each pair.
    pub(super) places: Walk<2>,
}

impl Pairs {
    /// Pairs the matrices of two layouts. The last two axes of a layout are a matrix. The other
    /// axes number the matrices, and must be equal in both layouts.
    pub(super) fn new(left: &Layout, right: &Layout) -> Self {
        let (places, others) = (places(left), places(right));
        let pairs = Self {
            left: Matrix::of(left),
            right: Matrix::of(right),
            places: Layout::walk([&places, &others]),
        };
        assert_eq!(
            pairs.left.columns, pairs.right.rows,
            "the inner lengths differ"
        );
        pairs
    }

    /// Returns the pairs with left and right exchanged, and each matrix transposed.
    pub(super) fn transposed(&self) -> Self {
        Self {
            left: self.right.transposed(),
            right: self.left.transposed(),
            places: self.places.swapped(),
        }
    }

    /// Returns the rows, the inner length and the columns of each pair.
    pub(super) fn lengths(&self) -> [usize; 3] {
        [self.left.rows, self.left.columns, self.right.columns]
    }

    /// Returns the number of cuBLAS calls that multiply all pairs. Returns `None` if an operand
    /// must be copied first.
    pub(super) fn calls(&self) -> Option<usize> {
        self.left.blas_layout()?;
        self.right.blas_layout()?;
        let (_, count, _) = self.longest();
        Some(self.places.count() / count.max(1))
    }

    /// Returns the longest axis of pairs that one batched cuBLAS call can step along. Also returns
    /// the length and the steps of this axis.
    fn longest(&self) -> (Option<usize>, usize, [isize; 2]) {
        let axes = self.places.axes().enumerate();
        let forwards = axes.filter(|(_, (_, steps))| steps.iter().all(|&step| step >= 0));
        let longest = forwards.max_by_key(|&(_, (length, _))| length);
        longest.map_or((None, 1, [0, 0]), |(axis, (length, steps))| {
            (Some(axis), length, steps)
        })
    }

    /// Returns the cuBLAS calls that multiply the operands at the addresses `left` and `right` into
    /// `target`. [`calls`](Self::calls) returns the number of calls. Returns `None` if an operand
    /// must be copied first.
    pub(super) fn gemms(
        &self,
        element: GemmType,
        [left, right]: [DevicePtr; 2],
        target: ProductTarget,
    ) -> Option<impl Iterator<Item = Gemm>> {
        let bytes = element.bytes();
        let target_bytes = target.element.bytes();
        let factor = |address: DevicePtr, matrix: Matrix, step: isize| {
            let (transposed, leading) = matrix.blas_layout()?;
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
        // The distance between products along an axis is the number of products along the axes
        // inside it.
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
        let product_at = move |index: usize| target.address.offset((index * target_bytes) as u64);
        Some(
            places
                .into_iter()
                .map(move |[left_at, right_at, at_target]| Gemm {
                    element,
                    product: target.element,
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
                    target: product_at(at_target),
                    is_begun: target.is_begun,
                    target_step: step,
                    count,
                }),
        )
    }
}

/// Returns the layout of the axes before the last two.
fn places(layout: &Layout) -> Layout {
    layout.split_at(layout.ndim() - 2).0
}

/// Returns the row-major stride of each axis of the walk.
fn numbers_of(walk: &Walk<2>) -> Vec<usize> {
    let mut steps: Vec<usize> = walk.axes().map(|(length, _)| length).collect();
    let mut product = 1;
    for step in steps.iter_mut().rev() {
        let length = std::mem::replace(step, product);
        product *= length;
    }
    steps
}
