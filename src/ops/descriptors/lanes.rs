//! The lanes of a shape along several axes.

use cachescope_kernels::lanes::Lanes;

use crate::array::{AxisSet, Shape};

/// Returns the lanes along the `reduced` axes. Returns `None` if the set is empty, or if other axes
/// are between the reduced axes.
pub(in crate::ops) fn lanes_along_all(reduced: AxisSet, shape: &Shape) -> Option<Lanes> {
    let dims = shape.dims();
    let is_reduced = |axis: &usize| reduced.contains(*axis);
    let first = (0..dims.len()).find(is_reduced)?;
    let end = (first..dims.len()).take_while(is_reduced).count() + first;
    if (end..dims.len()).any(|axis| reduced.contains(axis)) {
        return None;
    }
    Some(Lanes {
        outer: dims[..first].iter().product(),
        length: dims[first..end].iter().product(),
        inner: dims[end..].iter().product(),
    })
}
