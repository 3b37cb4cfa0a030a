//! Lines of elements along one axis of a shape, in row-major order of which the elements are numbered.

use crate::array::Shape;

/// Lines of equal length; what is folded to an output each is such, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    /// How often there are `inner` of them, side by side.
    pub(super) outer: usize,
    /// The elements of a line.
    pub(super) length: usize,
    /// How far apart these are.
    pub(super) inner: usize,
}

impl Lines {
    /// All along `axis`.
    pub(super) fn along(axis: usize, shape: &Shape) -> Self {
        let dims = shape.dims();
        Self {
            outer: dims[..axis].iter().product(),
            length: dims[axis],
            inner: dims[axis + 1..].iter().product(),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.outer * self.inner
    }
}
