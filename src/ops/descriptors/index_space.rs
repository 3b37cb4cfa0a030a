//! The order in which elements are numbered.

use crate::array::{Layout, MAX_RANK, Shape};

/// The order in which a kernel numbers the elements of an expression.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexSpace {
    shape: Shape,
    // The axes of `shape`, slowest first; the first `shape.ndim()` of these.
    axes: [usize; MAX_RANK],
    is_row_major: bool,
}

impl IndexSpace {
    /// Returns the row-major order of `shape`.
    pub(crate) fn row_major(shape: &Shape) -> Self {
        Self {
            shape: *shape,
            axes: [0, 1, 2, 3, 4, 5, 6, 7],
            is_row_major: true,
        }
    }

    /// Returns the row-major order of `shape` with its axes in the order of `axes`, which names
    /// each once.
    pub(crate) fn reordered(shape: &Shape, axes: [usize; MAX_RANK]) -> Self {
        Self {
            shape: *shape,
            axes,
            is_row_major: axes[..shape.ndim()].is_sorted(),
        }
    }

    /// Returns the shape whose axes are ordered.
    pub(in crate::ops) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the axes of the shape, slowest first, and then entries without a meaning.
    pub(in crate::ops) fn axes(&self) -> [usize; MAX_RANK] {
        self.axes
    }

    /// Returns the number of elements.
    pub(in crate::ops) fn count(&self) -> usize {
        self.shape.dims().iter().product()
    }

    /// Returns the layout of an operand in the order of this index space, over the fewest axes.
    ///
    /// # Panics
    ///
    /// If the operand does not broadcast to the index space, which the expression's shape excludes.
    pub(in crate::ops) fn place(&self, operand: &Layout) -> Layout {
        operand.placed(&self.shape, &self.axes[..self.shape.ndim()])
    }

    /// Returns whether an operand's elements are consecutive in memory in the order of this index
    /// space.
    pub(in crate::ops) fn is_order_of(&self, operand: &Layout) -> bool {
        self.is_row_major && operand.is_contiguous() && operand.shape() == &self.shape
    }
}
