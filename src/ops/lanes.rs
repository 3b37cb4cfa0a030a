//! Lanes: the elements along one axis of a shape, one lane for each index of the other axes.
//! Elements are numbered in row-major order. (The text of kernels calls a lane a line, because
//! CUDA's lanes are the threads of a warp.)

use crate::array::Shape;

/// Lanes of equal length. A reduction reduces each to one output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes {
    /// The product of the lengths before the axis.
    pub(super) outer: usize,
    /// The length of the axis: the elements of a lane.
    pub(super) length: usize,
    /// The product of the lengths behind the axis: the stride within a lane.
    pub(super) inner: usize,
}

impl Lanes {
    /// Returns the lanes along `axis`.
    pub(super) fn along(axis: usize, shape: &Shape) -> Self {
        let dims = shape.dims();
        Self {
            outer: dims[..axis].iter().product(),
            length: dims[axis],
            inner: dims[axis + 1..].iter().product(),
        }
    }

    /// Returns the number of lanes.
    pub(super) fn count(&self) -> usize {
        self.outer * self.inner
    }
}
