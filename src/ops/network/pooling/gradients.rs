//! The gradients of pooling.
//!
//! `f16` and `bf16` are computed in `f32` and rounded once, because an element may be in many
//! windows.

use super::{Windows, largest_each};
use crate::array::{AnyArray, Bits, DType, Layout, Shape};
use crate::error::Result;
use crate::ops::derivatives::{
    SavedArray, is_any_tracked, store_parts, sum_of_windows, with_windows,
};
use crate::ops::dispatch::Reduction;
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Tree;

/// Returns the rule of max pooling. If a window has several largest elements, each of them gets an
/// equal part of the gradient.
pub(super) fn of_largest(
    [x, largest]: [SavedArray; 2],
    windows: Windows,
    max: &'static Reduction,
) -> impl FnOnce([Option<AnyArray>; 1]) -> Result<Vec<AnyArray>> + Clone {
    move |[gradient]| {
        let Some(gradient) = gradient else {
            return Ok(Vec::new());
        };
        let dtype = gradient.dtype;
        let gradient = gradient.converted(dtype.computed_in())?;
        let (x, largest) = (x.fetch()?, largest.fetch()?);
        let back = to_largest([&x, &largest], &gradient, windows, max)?;
        Ok(vec![back.converted(dtype)?])
    }
}

/// Returns the rule of average pooling of an array of shape `own`.
pub(super) fn of_mean(
    own: Shape,
    windows: Windows,
) -> impl FnOnce(AnyArray) -> Result<Vec<AnyArray>> + Clone {
    move |gradient| {
        let dtype = gradient.dtype;
        let gradient = gradient.converted(dtype.computed_in())?;
        let back = to_windows(&gradient, &own, windows)?;
        Ok(vec![back.converted(dtype)?])
    }
}

/// Returns the gradient of an array of shape `own` from the gradients of the means.
#[track_caller]
fn to_windows(gradient: &AnyArray, own: &Shape, windows: Windows) -> Result<AnyArray> {
    let share = (gradient.lazy() / windows.count()).eval()?;
    match windows.one_by_one() {
        Some([columns, rows]) => {
            let share = to_all(&share, &columns.shape_of(own)?, rows)?;
            to_all(&share, own, columns)
        }
        None => to_all(&share, own, windows),
    }
}

/// Returns the gradient of an array of shape `own`. The gradient of an element is the sum of the
/// shares of all windows that have the element.
#[track_caller]
fn to_all(share: &AnyArray, own: &Shape, windows: Windows) -> Result<AnyArray> {
    let whole = Layout::contiguous(own)?;
    let part = windows.first(&whole)?;
    let share = share.broadcast_to(part.shape())?;
    sum_of_windows(share, part, whole)
}

/// Returns the gradient of `x` from the gradients of the largest elements. If large windows
/// overlap, the gradients pass through the largest elements of each window's columns, like in the
/// forward pass.
#[track_caller]
fn to_largest(
    [x, largest]: [&AnyArray; 2],
    gradient: &AnyArray,
    windows: Windows,
    max: &'static Reduction,
) -> Result<AnyArray> {
    let wide = gradient.dtype;
    let inside = inside(x.shape(), gradient, windows)?;
    let inside = inside.as_ref();
    let Some([columns, rows]) = windows.one_by_one() else {
        if windows.are_apart() && inside.is_none() && !is_any_tracked(&[x, largest, gradient])? {
            return to_ties_apart([x, largest], gradient, windows);
        }
        let share = share_of(gradient, [x, largest], inside, windows)?.eval()?;
        return to_ties([x, largest], &share, windows);
    };
    let tallest = &largest_each(x, columns, max)?;
    let ties = sum_of_ties([x, tallest], wide, inside, columns)?.eval()?;
    let share = share_of(gradient, [tallest, largest], Some(&ties), rows)?.eval()?;
    let share = to_ties([tallest, largest], &share, rows)?;
    to_ties([x, tallest], &share, columns)
}

/// Returns the weights of the elements of an array of shape `own`, in the type of the gradient. A
/// weight is 0 in the padding, and 1 elsewhere. Returns `None` if there is no padding.
#[track_caller]
fn inside(own: &Shape, gradient: &AnyArray, windows: Windows) -> Result<Option<AnyArray>> {
    let [rows, columns] = windows.padding;
    if [rows, columns] == [0, 0] {
        return Ok(None);
    }
    let [.., height, width] = own.dims() else {
        unreachable!("the shape was checked");
    };
    let image = [height - 2 * rows, width - 2 * columns].into();
    let ones = gradient.full(&image, 1.0)?;
    let margins = [(rows, rows), (columns, columns)];
    let weights = ones.framed("max_pool2d", &margins, Bits::default())?;
    Ok(Some(weights.broadcast_to(own)?))
}

/// Computes [`to_largest`] in one pass, for windows that have no element in common.
#[track_caller]
fn to_ties_apart(
    [x, largest]: [&AnyArray; 2],
    gradient: &AnyArray,
    windows: Windows,
) -> Result<AnyArray> {
    let share = share_of(gradient, [x, largest], None, windows)?;
    let (mut values, mut parts) = (Vec::new(), Vec::new());
    let whole = Layout::contiguous(x.shape())?;
    for position in windows.positions() {
        let elements = x.viewed(windows.at(&x.layout, position)?);
        values.push(given(elements.lazy(), largest, share.clone()));
        parts.push(windows.at(&whole, position)?);
    }
    let sum = gradient.zeros(x.shape())?;
    let trees: Vec<&dyn Tree> = values.iter().map(|value| value as &dyn Tree).collect();
    store_parts(&sum, &ExpressionGraph::of_all(&trees)?, &parts)?;
    Ok(sum)
}

/// Returns the part of the gradient that each of `elements` gets. If the element equals the largest
/// element, or `share` is NaN, the element gets `share`. Otherwise, the element gets 0.
fn given(elements: AnyLazy, largest: &AnyArray, share: AnyLazy) -> AnyLazy {
    let is_given = elements.eq(largest.lazy()).or(share.clone().is_nan());
    let nothing = AnyLazy::number(share.dtype(), 0.0);
    AnyLazy::select(is_given, share, nothing)
}

/// Returns the share of the gradient that each of the largest elements of a window gets. If the
/// largest element is NaN, the share is NaN.
#[track_caller]
fn share_of(
    gradient: &AnyArray,
    [x, largest]: [&AnyArray; 2],
    weights: Option<&AnyArray>,
    windows: Windows,
) -> Result<AnyLazy> {
    let wide = gradient.dtype;
    let nan = AnyLazy::number(wide, f64::NAN);
    let share = gradient.lazy() / sum_of_ties([x, largest], wide, weights, windows)?;
    Ok(AnyLazy::select(largest.lazy().is_nan(), nan, share))
}

/// Sums the weights of the elements of each window that equal the window's largest element, in the
/// type `wide`. A weight is 1, or the element of `weights`.
#[track_caller]
fn sum_of_ties(
    [x, largest]: [&AnyArray; 2],
    wide: DType,
    weights: Option<&AnyArray>,
    windows: Windows,
) -> Result<AnyLazy> {
    let number = |value| AnyLazy::number(wide, value);
    // Returns the weights of the ties among the elements that `part` selects.
    let ties = |part: &dyn Fn(&Layout) -> Result<Layout>| -> Result<AnyLazy> {
        let is_largest = x.viewed(part(&x.layout)?).lazy().eq(largest.lazy());
        let weight = match weights {
            Some(weights) => weights.viewed(part(&weights.layout)?).lazy(),
            None => number(1.0),
        };
        Ok(AnyLazy::select(is_largest, weight, number(0.0)))
    };
    let mut positions = windows.positions().into_iter();
    let Some(first) = positions.next() else {
        let sums = ties(&|layout| windows.first(layout))?.sum_axis([0, 1])?;
        return Ok(sums.lazy());
    };
    let first = ties(&|layout| windows.at(layout, first));
    positions.try_fold(first?, |sum, position| {
        Ok(sum + ties(&|layout| windows.at(layout, position))?)
    })
}

/// Returns the gradient of `x`: the sum of the shares that each element gets from all windows. If
/// an element equals a window's largest element, it gets the window's share. If a share is NaN,
/// every element of the window gets it.
#[track_caller]
fn to_ties([x, largest]: [&AnyArray; 2], share: &AnyArray, windows: Windows) -> Result<AnyArray> {
    let given = |elements: Layout| given(x.viewed(elements).lazy(), largest, share.lazy()).eval();
    let whole = Layout::contiguous(x.shape())?;
    let positions = windows.positions();
    if positions.is_empty() {
        let (elements, parts) = (windows.first(&x.layout)?, windows.first(&whole)?);
        return sum_of_windows(given(elements)?, parts, whole);
    }
    // The loop handles one position at a time, because the shares of one position are as large as
    // the result.
    let mut sum = share.zeros(x.shape())?;
    for position in positions {
        let given = given(windows.at(&x.layout, position)?)?;
        sum = with_windows(sum, given, windows.at(&whole, position)?, whole)?;
    }
    Ok(sum)
}
