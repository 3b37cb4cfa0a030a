//! The elements that a reduction reads, and their order.

use super::{IndexSpace, Lanes};
use crate::array::{AxisSet, MAX_RANK, Shape};
use crate::error::Result;
use crate::ops::expression::graph::ExpressionGraph;
use crate::sorting::sort_axes_descending;

/// The order in which a reduction reads its elements, and the lanes that it reduces.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct ReductionPlan {
    /// The elements are numbered along the outputs' slower axes, then along the reduction, then
    /// along the outputs' faster axes.
    pub(in crate::ops) space: IndexSpace,
    /// The lanes, one for each output.
    pub(in crate::ops) lanes: Lanes,
    /// The shape of all outputs.
    pub(in crate::ops) outputs: Shape,
}

impl ReductionPlan {
    /// Returns the plan that reduces all elements into one output, in memory order unless the
    /// reduction is positional.
    #[track_caller]
    pub(in crate::ops) fn all(graph: &ExpressionGraph<'_>, is_positional: bool) -> Result<Self> {
        let shape = graph.shape();
        let mut axes: [usize; MAX_RANK] = std::array::from_fn(|axis| axis);
        if !is_positional {
            let reach = graph.reach_of_axes(shape);
            sort_axes_descending(&mut axes[..shape.ndim()], |axis| reach[axis]);
        }
        Ok(Self {
            space: IndexSpace::reordered(shape, axes),
            lanes: Lanes {
                outer: 1,
                length: shape.checked_len()?,
                inner: 1,
            },
            outputs: Shape::SCALAR,
        })
    }

    /// Returns the plan with one output for each position on the axes that are not `reduced`. If
    /// `keeps` is set, the result has the reduced axes with length 1. Otherwise, the result lacks
    /// the reduced axes.
    ///
    /// If reduced elements are closer in memory than elements along the last kept axis, the reduced
    /// axes vary fastest. Otherwise, one reduced axis divides the kept axes. Kept axes before it
    /// vary slower than all reduced axes, and kept axes after it vary faster. If a kept axis longer
    /// than 1 is after the last reduced axis, the last reduced axis divides. Otherwise, the first
    /// reduced axis divides.
    pub(in crate::ops) fn along(
        graph: &ExpressionGraph<'_>,
        reduced: AxisSet,
        keeps: bool,
        is_positional: bool,
    ) -> Self {
        let shape = graph.shape();
        let (dims, reach) = (shape.dims(), graph.reach_of_axes(shape));
        let mut axes: [usize; MAX_RANK] = std::array::from_fn(|axis| axis);
        let order = &mut axes[..dims.len()];
        let kept = (0..dims.len()).filter(|&axis| !reduced.contains(axis));
        let own = (0..dims.len()).filter(|&axis| reduced.contains(axis));
        let mut count = 0;
        for axis in kept {
            order[count] = axis;
            count += 1;
        }
        order[count..]
            .iter_mut()
            .zip(own)
            .for_each(|(place, axis)| *place = axis);
        let (kept, own) = order.split_at_mut(count);
        let split = split_outputs(dims, &reach, kept, own);
        if !is_positional && own.len() > 1 {
            sort_axes_descending(own, |axis| reach[axis]);
        }
        let length = |axes: &[usize]| axes.iter().map(|&axis| dims[axis]).product();
        let lanes = Lanes {
            outer: length(&kept[..split]),
            length: length(own),
            inner: length(&kept[split..]),
        };
        if split < count {
            order[split..].rotate_left(count - split);
        }
        Self {
            space: IndexSpace::reordered(shape, axes),
            lanes,
            outputs: outputs_of(shape, reduced, keeps),
        }
    }
}

/// Returns the shape of the outputs of a reduction along the `reduced` axes of `shape`. If `keeps`
/// is set, the outputs have the reduced axes with length 1. Otherwise, the outputs lack the reduced
/// axes.
pub(in crate::ops) fn outputs_of(shape: &Shape, reduced: AxisSet, keeps: bool) -> Shape {
    let lengths = shape.dims().iter().enumerate();
    let lengths = lengths.filter_map(|(axis, &length)| match (reduced.contains(axis), keeps) {
        (false, _) => Some(length),
        (true, true) => Some(1),
        (true, false) => None,
    });
    lengths.collect()
}

/// Returns the number of `kept` axes that vary slower than the `reduced` axes. The outputs are in
/// the order of the kept axes, so this number determines the order of all axes.
fn split_outputs(
    dims: &[usize],
    reach: &[usize; MAX_RANK],
    kept: &[usize],
    reduced: &[usize],
) -> usize {
    let is_long = |axis: &&usize| dims[**axis] > 1;
    let last_kept = kept.iter().rfind(is_long);
    let reduced_reach = reduced
        .iter()
        .filter(is_long)
        .map(|&axis| reach[axis])
        .min();
    match (last_kept, reduced_reach, reduced) {
        (Some(&last_kept), Some(reduced_reach), &[first, .., last])
            if reduced_reach >= reach[last_kept] =>
        {
            let place = if last_kept > last { last } else { first };
            kept.partition_point(|&axis| axis < place)
        }
        (Some(&last_kept), Some(reduced_reach), &[axis]) if reduced_reach >= reach[last_kept] => {
            kept.partition_point(|&other| other < axis)
        }
        _ => kept.len(),
    }
}
