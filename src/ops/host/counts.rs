//! Counts of elements by number and by range, in one pass each.

use std::ops::Range;

use crate::array::{AnyArray, HostView, Layout};
use crate::error::Result;
use cachescope_kernels::counts::{BinLoops, IntegerLoops, tables_length};

/// Waits for the integers, and returns the first one outside of a range.
#[track_caller]
pub(in crate::ops) fn first_outside(
    loops: &'static IntegerLoops,
    integers: &AnyArray,
    range: Range<i64>,
) -> Result<Option<i128>> {
    assert_eq!(integers.dtype, loops.element);
    let view = HostView::of(integers)?;
    let walk = Layout::walk([view.layout()]);
    // SAFETY: the loop is for the array's type, and a view's elements are readable.
    Ok(unsafe { (loops.first_outside)(view.address(), &walk, range) })
}

/// Waits for the integers, and returns the number of occurrences of each integer below `length`. If
/// an integer is outside `0..length`, returns the first of these integers instead.
#[track_caller]
pub(in crate::ops) fn occurrences(
    loops: &'static IntegerLoops,
    integers: &AnyArray,
    length: usize,
) -> Result<std::result::Result<Vec<i64>, i128>> {
    assert_eq!(integers.dtype, loops.element);
    let view = HostView::of(integers)?;
    let walk = Layout::walk([view.layout()]);
    let mut counts = vec![0; tables_length(length)];
    // SAFETY: the loop is for the array's type, and a view's elements are readable.
    let refused = unsafe { (loops.count)(view.address(), &walk, &mut counts, length) };
    counts.truncate(length);
    Ok(refused.map_or(Ok(counts), Err))
}

/// Waits for the elements, and returns the number of elements between each of the edges and the
/// next. No element is beyond the edges.
#[track_caller]
pub(in crate::ops) fn binned(
    loops: &'static BinLoops,
    array: &AnyArray,
    edges: &[f64],
) -> Result<Vec<i64>> {
    assert_eq!(array.dtype, loops.element);
    let bins = edges.len() - 1;
    let view = HostView::of(array)?;
    let walk = Layout::walk([view.layout()]);
    let mut counts = vec![0; tables_length(bins)];
    // SAFETY: the loop is for the array's type, and a view's elements are readable.
    unsafe { (loops.count)(view.address(), &walk, &mut counts, edges) };
    counts.truncate(bins);
    Ok(counts)
}
