//! The order in which elements are numbered.

use crate::array::{Layout, MAX_RANK, Shape, Walk};

/// The order in which a kernel numbers the elements of an expression.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexSpace {
    shape: Shape,
    // The axes of `shape`, slowest first. Only the first `shape.ndim()` entries are used.
    axes: [usize; MAX_RANK],
    is_row_major: bool,
}

impl IndexSpace {
    pub(crate) fn row_major(shape: &Shape) -> Self {
        Self {
            shape: *shape,
            axes: [0, 1, 2, 3, 4, 5, 6, 7],
            is_row_major: true,
        }
    }

    /// Returns the row-major order of `shape` with permuted axes. `axes` names each axis once,
    /// slowest first.
    pub(crate) fn reordered(shape: &Shape, axes: [usize; MAX_RANK]) -> Self {
        Self {
            shape: *shape,
            axes,
            is_row_major: axes[..shape.ndim()].is_sorted(),
        }
    }

    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    pub(in crate::ops) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the axes of the shape, slowest first, followed by unused entries.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    pub(in crate::ops) fn axes(&self) -> [usize; MAX_RANK] {
        self.axes
    }

    pub(in crate::ops) fn count(&self) -> usize {
        self.shape.dims().iter().product()
    }

    /// Returns the walk over an operand's elements in the order of this index space.
    ///
    /// # Panics
    ///
    /// Panics if the operand does not broadcast to the index space. The check of the expression's
    /// shape excludes this case.
    #[inline]
    pub(in crate::ops) fn place(&self, operand: &Layout) -> Walk<1> {
        let lead = self.shape.ndim() - operand.ndim();
        let axes = self.axes[..self.shape.ndim()].iter().map(|&axis| {
            let length = self.shape.dims()[axis];
            match axis.checked_sub(lead) {
                Some(own) if operand.dims()[own] == length => (length, [operand.strides()[own]]),
                own => {
                    let is_repeated = own.is_none_or(|own| operand.dims()[own] == 1);
                    assert!(is_repeated, "{operand:?} in {}", self.shape);
                    (length, [0])
                }
            }
        });
        Walk::over([operand.offset()], axes)
    }

    /// Returns whether an operand's elements are consecutive in memory in the order of this index
    /// space.
    pub(in crate::ops) fn is_order_of(&self, operand: &Layout) -> bool {
        self.is_row_major && operand.is_contiguous() && operand.shape() == &self.shape
    }
}
