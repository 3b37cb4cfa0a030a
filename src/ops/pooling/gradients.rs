//! The gradients of pooling.
//!
//! `f16` and `bf16` are computed in `f32` and rounded once: an element may be in many windows.

use super::{Windows, largest_each};
use crate::array::{AnyElement, Array, Float, Layout, Shape};
use crate::error::Result;
use crate::ops::derivatives::{
    AnyArray, DIFFERENTIABLE, SavedArray, by_float, is_tracked, store_parts, sum_of_windows,
    with_windows,
};
use crate::ops::expression::boxed::BoxedLazy;
use crate::ops::expression::elementwise::select;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Tree;

/// Returns the rule of the largest elements: each gets an equal part of the gradient if a window
/// has several.
pub(super) fn of_largest(
    [x, largest]: [SavedArray; 2],
    windows: Windows,
) -> impl FnOnce([Option<AnyArray>; 1]) -> Result<Vec<AnyArray>> + Clone {
    move |[gradient]| {
        let Some(gradient) = gradient else {
            return Ok(Vec::new());
        };
        let dtype = gradient.dtype;
        let gradient = gradient.converted(dtype.computed_in())?;
        let back = by_float!(dtype, T => {
            let (x, largest) = (x.fetch()?.into_array::<T>(), largest.fetch()?.into_array::<T>());
            let gradient = gradient.into_array::<<T as Float>::Computed>();
            AnyArray::of(&to_largest::<T, <T as Float>::Computed>([&x, &largest], &gradient, windows)?)
        });
        Ok(vec![back.expect(DIFFERENTIABLE).converted(dtype)?])
    }
}

/// Returns the rule of the mean of windows of an array of the shape `own`.
pub(super) fn of_mean(
    own: Shape,
    windows: Windows,
) -> impl FnOnce(AnyArray) -> Result<Vec<AnyArray>> + Clone {
    move |gradient| {
        let dtype = gradient.dtype;
        let gradient = gradient.converted(dtype.computed_in())?;
        let back = by_float!(gradient.dtype, T => {
            AnyArray::of(&to_windows(&gradient.into_array::<T>(), &own, windows)?)
        });
        Ok(vec![back.expect(DIFFERENTIABLE).converted(dtype)?])
    }
}

/// Passes the gradients of means back to the elements of an array of the shape `own`.
#[track_caller]
fn to_windows<T: Float>(gradient: &Array<T>, own: &Shape, windows: Windows) -> Result<Array<T>> {
    let share = (gradient / T::from_f64(windows.count())).eval_unfused()?;
    match windows.one_by_one() {
        Some([columns, rows]) => {
            let share = to_all(&share, &columns.shape_of(own)?, rows)?;
            to_all(&share, own, columns)
        }
        None => to_all(&share, own, windows),
    }
}

/// Gives each element of a window its share, and adds up the shares that an element of the shape
/// `own` gets from all windows.
#[track_caller]
fn to_all<T: Float>(share: &Array<T>, own: &Shape, windows: Windows) -> Result<Array<T>> {
    let whole = Layout::contiguous(own)?;
    let part = windows.first(&whole)?;
    let share = share.broadcast_to(*part.shape())?;
    Ok(sum_of_windows(AnyArray::of(&share), part, whole)?.into_array())
}

/// Passes the gradients of the largest elements back. For large windows that overlap, the gradients
/// pass through the largest elements of each of their columns, as the result was computed.
#[track_caller]
fn to_largest<T: Float, A: Float>(
    [x, largest]: [&Array<T>; 2],
    gradient: &Array<A>,
    windows: Windows,
) -> Result<Array<A>> {
    let inside = &inside::<T, A>(x, windows)?;
    let inside = inside.as_ref();
    let Some([columns, rows]) = windows.one_by_one() else {
        if windows.are_apart()
            && inside.is_none()
            && !(is_tracked(x)? || is_tracked(largest)? || is_tracked(gradient)?)
        {
            return to_ties_apart([x, largest], gradient, windows);
        }
        let share = share_of(gradient, [x, largest], inside, windows)?.eval_unfused()?;
        return to_ties([x, largest], &share, windows);
    };
    let tallest = &largest_each(x, columns)?;
    let ties = sum_of_ties([x, tallest], inside, columns)?.eval_unfused()?;
    let share = share_of(gradient, [tallest, largest], Some(&ties), rows)?.eval_unfused()?;
    let share = to_ties([tallest, largest], &share, rows)?;
    to_ties([x, tallest], &share, columns)
}

/// Returns the weights of the elements of `x`: 0 in its padding, and 1 elsewhere; `None` without
/// padding.
#[track_caller]
fn inside<T: Float, A: Float>(x: &Array<T>, windows: Windows) -> Result<Option<Array<A>>> {
    if windows.padding == [0, 0] {
        return Ok(None);
    }
    let shape = x.layout().shape();
    let first = shape.ndim() - 2;
    let [rows, columns] = [0, 1].map(|at| shape.dims()[first + at] - 2 * windows.padding[at]);
    let image = [rows, columns].into_iter().collect();
    let ones = AnyArray::full_beside(x, &image, 1.0)?;
    let margins = windows.padding.map(|own| (own, own));
    let weights = ones.pad(&margins, <T as AnyElement>::zero())?;
    let weights = weights.cast::<A>().eval_unfused()?;
    Ok(Some(weights.broadcast_to(*shape)?))
}

/// Passes the gradients of the largest elements back in one pass, for windows that have no element
/// in common.
#[track_caller]
fn to_ties_apart<T: Float, A: Float>(
    [x, largest]: [&Array<T>; 2],
    gradient: &Array<A>,
    windows: Windows,
) -> Result<Array<A>> {
    let share = share_of(gradient, [x, largest], None, windows)?;
    let (mut values, mut parts) = (Vec::new(), Vec::new());
    let whole = Layout::contiguous(x.layout().shape())?;
    for position in windows.positions() {
        let is_largest = x.viewed(windows.at(x.layout(), position)?).eq(largest);
        values.push(select(is_largest.or(share.is_nan()), share.clone(), A::zero()).boxed());
        parts.push(windows.at(&whole, position)?);
    }
    let sum = AnyArray::of(gradient).zeros(x.layout().shape())?;
    let trees: Vec<&dyn Tree> = values
        .iter()
        .map(|value| &value.expr as &dyn Tree)
        .collect();
    store_parts(&sum, &ExpressionGraph::of_all(&trees)?, &parts)?;
    Ok(sum.into_array())
}

/// Returns the share of the gradient that each of the largest elements of a window gets; NaN if the
/// largest is NaN.
#[track_caller]
fn share_of<T: Float, A: Float>(
    gradient: &Array<A>,
    [x, largest]: [&Array<T>; 2],
    weights: Option<&Array<A>>,
    windows: Windows,
) -> Result<BoxedLazy<A>> {
    let nan = A::from_f64(f64::NAN);
    let ties = sum_of_ties([x, largest], weights, windows)?;
    Ok(select(largest.is_nan(), nan, gradient / ties).boxed())
}

/// Sums the weights of the elements of each window that equal its largest: one for each, or the
/// element of `weights`.
#[track_caller]
fn sum_of_ties<T: Float, A: Float>(
    [x, largest]: [&Array<T>; 2],
    weights: Option<&Array<A>>,
    windows: Windows,
) -> Result<BoxedLazy<A>> {
    // The ties among the elements that `part` selects of `x` and of `weights`.
    let ties = |part: &dyn Fn(&Layout) -> Result<Layout>| -> Result<BoxedLazy<A>> {
        let is_largest = x.viewed(part(x.layout())?).eq(largest);
        Ok(match weights {
            Some(weights) => {
                let weights = weights.viewed(part(weights.layout())?);
                select(is_largest, weights, A::zero()).boxed()
            }
            None => select(is_largest, A::one(), A::zero()).boxed(),
        })
    };
    let mut positions = windows.positions().into_iter();
    let Some(first) = positions.next() else {
        let sums = ties(&|layout| windows.first(layout))?.sum_axis([0, 1])?;
        return Ok(sums.downcast().lazy().boxed());
    };
    let first = ties(&|layout| windows.at(layout, first));
    positions.try_fold(first?, |sum, position| {
        Ok((sum + ties(&|layout| windows.at(layout, position))?).boxed())
    })
}

/// Gives each element that equals the largest of its window the window's share, and every element a
/// share that is NaN. Then adds up the shares that an element gets from all windows.
#[track_caller]
fn to_ties<T: Float, A: Float>(
    [x, largest]: [&Array<T>; 2],
    share: &Array<A>,
    windows: Windows,
) -> Result<Array<A>> {
    let given = |elements: Layout| -> Result<AnyArray> {
        let is_given = x.viewed(elements).eq(largest).or(share.is_nan());
        Ok(AnyArray::of(
            &select(is_given, share, A::zero()).eval_unfused()?,
        ))
    };
    let whole = Layout::contiguous(x.layout().shape())?;
    let positions = windows.positions();
    if positions.is_empty() {
        let (elements, parts) = (windows.first(x.layout())?, windows.first(&whole)?);
        return Ok(sum_of_windows(given(elements)?, parts, whole)?.into_array());
    }
    // Position by position: the shares of a position take as much memory as a result of the pool.
    let mut sum = AnyArray::of(share).zeros(x.layout().shape())?;
    for position in positions {
        let given = given(windows.at(x.layout(), position)?)?;
        sum = with_windows(sum, given, windows.at(&whole, position)?, whole)?;
    }
    Ok(sum.into_array())
}
