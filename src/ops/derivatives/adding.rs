//! Addition of contributions to a gradient, or to a part of a gradient.

use super::backward::{BackwardStep, Gradients, Upstream};
use super::evaluation::evaluate;
use super::gradients::filled;
use super::reduction::sum_of;
use super::tape::Tracked;
use super::{Pause, record};
use crate::array::{AnyArray, AxisSet, Bits, DType, Layout, Shape};
use crate::error::Result;
use crate::ops::dispatch::store;
use crate::ops::expression::elementwise::arithmetic::Added;
use crate::ops::expression::elementwise::cast::cast;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Operand;
use crate::ops::order::aliasing::{Obstacle, Overwritable, Target};

/// Sums `contribution` over the axes that `layout` lacks or broadcasts. If `layout` repeats an
/// element along an axis, the axis is broadcast. If `layout` has one element along an axis, and
/// `contribution` has several, the axis is broadcast, too. A sum has the type of
/// [`DType::computed_in`].
#[track_caller]
pub(super) fn reduced(contribution: AnyArray, layout: &Layout) -> Result<AnyArray> {
    let lead = contribution.layout.ndim() - layout.ndim();
    let is_reduced = |axis: usize| {
        let Some(own) = axis.checked_sub(lead) else {
            return true;
        };
        let length = contribution.layout.dims()[axis];
        length != layout.dims()[own] || (length > 1 && layout.strides()[own] == 0)
    };
    let axes = AxisSet::of_each(contribution.layout.ndim(), is_reduced);
    if (0..contribution.layout.ndim()).all(|axis| !axes.contains(axis)) {
        return Ok(contribution);
    }
    let operand = contribution.operand();
    let graph = sum_graph(&[operand], operand.dtype.computed_in())?;
    let summed = sum_of(&graph, contribution.layout.shape(), axes)?;
    let dims: Shape = summed.layout.dims()[lead..].iter().collect();
    Ok(summed.seen(Layout::contiguous(&dims)?))
}

/// Returns the layout of a contribution to `part` with the axes of `whole`. Returns `None` if the
/// contribution does not have one element for each element of `whole`.
pub(super) fn as_whole(contribution: &AnyArray, part: &Layout, whole: &Layout) -> Option<Layout> {
    if contribution.layout.shape() != part.shape() {
        return None;
    }
    if part == whole {
        return Some(contribution.layout);
    }
    if part.is_contiguous() && part.offset() == 0 && part.len() == whole.len() {
        return contribution.layout.reshape(whole.shape()).ok().flatten();
    }
    let axes = permutation(part, whole)?;
    contribution.layout.permute(&axes).ok()
}

/// Returns the axes of `part` in the order of `whole`, if `part` is `whole` with permuted axes.
fn permutation(part: &Layout, whole: &Layout) -> Option<Vec<usize>> {
    if part.ndim() != whole.ndim() || part.offset() != 0 {
        return None;
    }
    let mut axes = Vec::new();
    for (length, stride) in whole.dims().iter().zip(whole.strides()) {
        let own = (0..part.ndim()).find(|&axis| {
            !axes.contains(&axis)
                && part.dims()[axis] == *length
                && (*length == 1 || part.strides()[axis] == *stride)
        });
        axes.push(own?);
    }
    Some(axes)
}

/// Adds the elements of `contribution` to `sum`, in `dtype`. If `sum` has the type `dtype` and does
/// not share its memory, adds in place.
#[track_caller]
pub(super) fn added(
    sum: AnyArray,
    contribution: &AnyArray,
    dtype: DType,
    whole: &Layout,
) -> Result<AnyArray> {
    if sum.dtype != dtype {
        return summed([&sum, contribution], dtype, whole);
    }
    let layout = sum.layout;
    let sum = store_sum(sum, contribution, &layout)?;
    match sum {
        Ok(sum) => Ok(sum),
        Err(sum) => summed([&sum, contribution], dtype, whole),
    }
}

/// Returns the sum of two arrays as a new array of `dtype`.
#[track_caller]
pub(super) fn summed(arrays: [&AnyArray; 2], dtype: DType, whole: &Layout) -> Result<AnyArray> {
    let operands = arrays.map(AnyArray::operand);
    let graph = sum_graph(&operands, dtype)?;
    let buffer = evaluate(&graph, arrays[0].device(), whole.shape())?;
    Ok(AnyArray::of_shape(buffer, whole.shape(), dtype))
}

/// Adds `contribution` to a part of `sum`, as one step of the tape. The gradient of the result
/// passes to `sum` unchanged. The gradient of the part passes to `contribution`.
#[track_caller]
pub(super) fn tracked_part(
    sum: AnyArray,
    contribution: AnyArray,
    part: Layout,
    whole: Layout,
) -> Result<AnyArray> {
    let of = |array: &AnyArray| Tracked::of(&array.buffer, &array.layout);
    let dtype = sum.dtype;
    let contribution = contribution.converted(dtype)?;
    let to = [of(&sum)?, of(&contribution)?];
    let result = {
        let _paused = Pause::begin();
        // `own` copies the array, because `sum` is another handle on the memory.
        added_to_part(own(sum.share(), &whole)?, &contribution, &part)?
    };
    if to == [None, None] {
        return Ok(result);
    }
    let backward = move |mut upstream: Upstream, gradients: &mut Gradients| {
        let Some(upstream) = upstream[0].take() else {
            return Ok(());
        };
        let upstream = own(upstream, &whole)?;
        if let Some(to_part) = to[1] {
            gradients.add(to_part, upstream.share().seen(part))?;
        }
        match to[0] {
            Some(to_sum) => gradients.add(to_sum, upstream),
            None => Ok(()),
        }
    };
    let buffer = record((result.buffer, &whole, dtype), None, |_| BackwardStep {
        backward: Box::new(backward),
        saved_bytes: 0,
        runs_again: false,
        takes_unrounded: false,
        only_once: None,
    });
    Ok(AnyArray {
        buffer,
        layout: whole,
        dtype,
    })
}

/// Returns an array of the layout `whole`, in which each element is the sum of its contributions.
/// `part` is a view of this array, with a position for each element of `contribution`. If an
/// element has several contributions, they are summed in the type of [`DType::computed_in`]. The
/// sum is rounded at the end.
#[track_caller]
pub(in crate::ops) fn sum_of_windows(
    contribution: AnyArray,
    part: Layout,
    whole: Layout,
) -> Result<AnyArray> {
    let dtype = contribution.dtype;
    let held_in = match part.repeats() {
        true => dtype.computed_in(),
        false => dtype,
    };
    let sum = filled(contribution.device(), &whole, (held_in, Bits::default()))?;
    with_windows(sum, contribution, part, whole)?.converted(dtype)
}

/// Adds contributions to `sum`, like [`sum_of_windows`]. The result has the type of `sum`.
#[track_caller]
pub(in crate::ops) fn with_windows(
    sum: AnyArray,
    contribution: AnyArray,
    part: Layout,
    whole: Layout,
) -> Result<AnyArray> {
    if part.len() == 0 {
        return Ok(sum);
    }
    let of = |array: &AnyArray| Tracked::of(&array.buffer, &array.layout);
    if of(&sum)?.is_some() || of(&contribution)?.is_some() {
        return tracked_part(sum, contribution, part, whole);
    }
    added_to_part(sum, &contribution, &part)
}

/// Adds `contribution` to a part of `sum` in place. `sum` must be the only handle on its memory.
/// Overlapping windows are added one position at a time.
#[track_caller]
pub(super) fn added_to_part(
    sum: AnyArray,
    contribution: &AnyArray,
    part: &Layout,
) -> Result<AnyArray> {
    if !part.repeats() {
        let sum = store_sum(sum, contribution, part)?;
        return Ok(
            sum.expect("the part has no repeated element, and no other handle shares the memory")
        );
    }
    let axis = overlapping_axis(part);
    (0..part.dims()[axis]).try_fold(sum, |sum, index| {
        let place = index..index + 1;
        let of_place = AnyArray {
            layout: contribution.layout.part(axis, place.clone(), 1)?,
            ..contribution.share()
        };
        added_to_part(sum, &of_place, &part.part(axis, place, 1)?)
    })
}

/// Returns the shortest of the axes along which windows overlap.
fn overlapping_axis(part: &Layout) -> usize {
    let axis = |axis: usize| (part.strides()[axis].unsigned_abs(), part.dims()[axis]);
    let overlap = |one: usize, other: usize| {
        let (shorter, longer) = (axis(one).min(axis(other)), axis(one).max(axis(other)));
        longer.0 <= shorter.0 * (shorter.1 - 1)
    };
    let long: AxisSet = AxisSet::of_each(part.ndim(), |own| part.dims()[own] > 1);
    let all = (0..part.ndim()).filter(|&own| long.contains(own));
    let overlaps = |own: &usize| {
        all.clone()
            .any(|other| other != *own && overlap(*own, other))
    };
    let shortest = |axes: &mut dyn Iterator<Item = usize>| axes.min_by_key(|&own| part.dims()[own]);
    // Three axes may overlap even if no two of them overlap.
    let axis = shortest(&mut all.clone().filter(overlaps)).or_else(|| shortest(&mut all.clone()));
    axis.expect("an array of several elements has an axis")
}

/// Writes each result of `graph` to a part of `sum`, the only handle on its memory. The parts are
/// disjoint. No tape tracks an operand.
#[track_caller]
pub(in crate::ops) fn store_parts(
    sum: &AnyArray,
    graph: &ExpressionGraph<'_>,
    parts: &[Layout],
) -> Result<()> {
    let (buffer, dtype) = (&sum.buffer, sum.dtype);
    let most = sum.layout.bounds().map_or(0, |(_, highest)| highest + 1);
    let is_within = |part: &Layout| part.bounds().is_none_or(|(_, highest)| highest < most);
    assert!(
        parts.iter().all(is_within),
        "a part reaches beyond {most} elements"
    );
    let parts = parts.iter().map(|layout| Operand {
        buffer,
        layout,
        dtype,
    });
    let targets: Vec<Target<'_>> = parts.map(|part| Target::of(&part)).collect();
    match Overwritable::new(&targets, &[], &[]) {
        Ok(targets) => store(graph, targets),
        Err(obstacle) => unreachable!("no other handle shares the memory: {obstacle:?}"),
    }
}

/// Adds `contribution` to the part of `sum` that `layout` selects. Returns the unchanged `sum` as
/// an error if it shares its memory, or if `layout` repeats an element.
#[track_caller]
fn store_sum(
    sum: AnyArray,
    contribution: &AnyArray,
    layout: &Layout,
) -> Result<Result<AnyArray, AnyArray>> {
    let own = Operand {
        buffer: &sum.buffer,
        layout,
        dtype: sum.dtype,
    };
    let operands = [own, contribution.operand()];
    let graph = sum_graph(&operands, sum.dtype)?;
    let targets = [Target::of(&own)];
    match Overwritable::new(&targets, &[], &[]) {
        Ok(targets) => store(&graph, targets)?,
        Err(Obstacle::Shared | Obstacle::Reordered) => return Ok(Err(sum)),
    }
    Ok(Ok(sum))
}

/// Returns `sum` if it has the layout `whole`, and no other handle shares its memory. Otherwise,
/// returns a copy.
#[track_caller]
pub(super) fn own(sum: AnyArray, whole: &Layout) -> Result<AnyArray> {
    if sum.layout == *whole && sum.buffer.holders() == 1 {
        return Ok(sum);
    }
    copied(&sum, whole)
}

/// Copies the elements of `sum` to new memory.
#[track_caller]
pub(super) fn copied(sum: &AnyArray, whole: &Layout) -> Result<AnyArray> {
    let operand = sum.operand();
    let graph = ExpressionGraph::of(&operand)?;
    let buffer = evaluate(&graph, sum.device(), whole.shape())?;
    Ok(AnyArray::of_shape(buffer, whole.shape(), sum.dtype))
}

/// Returns the expression of the sum of one or two operands. The operands are converted to `dtype`.
#[track_caller]
fn sum_graph<'a>(operands: &[Operand<'a>], dtype: DType) -> Result<ExpressionGraph<'a>> {
    let mut graph = ExpressionGraph::empty();
    let mut result = None;
    for operand in operands {
        let own = graph.append_array(*operand);
        let own = match operand.dtype == dtype {
            true => own,
            false => graph.append_call(cast(operand.dtype, dtype), &[own])?,
        };
        result = Some(match result {
            Some(sum) => graph.append_call(Added::CALLS.at(dtype), &[sum, own])?,
            None => own,
        });
    }
    graph.set_results(result.map(|result| result as usize).into_iter());
    Ok(graph)
}
