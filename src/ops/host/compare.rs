//! Comparison of two arrays of one shape.

use crate::array::{AnyArray, HostView, Layout};
use crate::error::Result;
use cachescope_kernels::compare::{CloseLoops, EqualLoops, Tolerance};
use cachescope_kernels::walk::Walk;

/// Waits for both arrays, and returns whether they have equal elements.
#[track_caller]
pub(in crate::ops) fn are_equal(
    loops: &'static EqualLoops,
    arrays: [&AnyArray; 2],
) -> Result<bool> {
    assert_eq!(arrays.map(|array| array.dtype), [loops.element; 2]);
    let (views, walk) = pairs_of(arrays)?;
    // SAFETY: the loop is for the arrays' type, and a view's elements are readable.
    Ok(unsafe { (loops.equal)(views.each_ref().map(HostView::address), &walk) })
}

/// Waits for both arrays, and returns whether the elements of each pair are within a tolerance.
#[track_caller]
pub(in crate::ops) fn are_close(
    loops: &'static CloseLoops,
    arrays: [&AnyArray; 2],
    tolerance: Tolerance,
) -> Result<bool> {
    assert_eq!(arrays.map(|array| array.dtype), [loops.element; 2]);
    let (views, walk) = pairs_of(arrays)?;
    // SAFETY: the loop is for the arrays' type, and a view's elements are readable.
    Ok(unsafe { (loops.close)(views.each_ref().map(HostView::address), &walk, tolerance) })
}

/// Returns the elements of both arrays, and a walk over their pairs.
#[track_caller]
fn pairs_of([left, right]: [&AnyArray; 2]) -> Result<([HostView<'_>; 2], Walk<2>)> {
    assert_eq!(
        left.shape(),
        right.shape(),
        "the compared arrays differ in shape"
    );
    let views = [HostView::of(left)?, HostView::of(right)?];
    let walk = Layout::walk(views.each_ref().map(HostView::layout));
    Ok((views, walk))
}
