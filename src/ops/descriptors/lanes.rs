//! Lanes: the elements along one axis of a shape, one lane for each index of the other axes.
//! Elements are numbered in row-major order. (The text of kernels calls a lane a line, because
//! CUDA's lanes are the threads of a warp.)

use crate::array::{AxisSet, DType, Shape};

/// Lanes of equal length. A reduction reduces each to one output.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Lanes {
    /// The product of the lengths before the axis.
    pub(in crate::ops) outer: usize,
    /// The length of the axis: the elements of a lane.
    pub(in crate::ops) length: usize,
    /// The product of the lengths behind the axis: the stride within a lane.
    pub(in crate::ops) inner: usize,
}

impl Lanes {
    pub(in crate::ops) fn along(axis: usize, shape: &Shape) -> Self {
        let dims = shape.dims();
        Self {
            outer: dims[..axis].iter().product(),
            length: dims[axis],
            inner: dims[axis + 1..].iter().product(),
        }
    }

    /// Returns the lanes along the `reduced` axes, if there are such axes and no others are between
    /// them.
    pub(in crate::ops) fn along_all(reduced: AxisSet, shape: &Shape) -> Option<Self> {
        let dims = shape.dims();
        let is_reduced = |axis: &usize| reduced.contains(*axis);
        let first = (0..dims.len()).find(is_reduced)?;
        let end = (first..dims.len()).take_while(is_reduced).count() + first;
        if (end..dims.len()).any(|axis| reduced.contains(axis)) {
            return None;
        }
        Some(Self {
            outer: dims[..first].iter().product(),
            length: dims[first..end].iter().product(),
            inner: dims[end..].iter().product(),
        })
    }

    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    pub(in crate::ops) fn count(&self) -> usize {
        self.outer * self.inner
    }
}

/// Returns whether running sums of `dtype` carry a compensation for rounding: true if the kind has
/// no wider type.
pub(in crate::ops) const fn is_compensated(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::C64)
}
