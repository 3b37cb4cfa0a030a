//! Matrices in the last two axes of an array, and their diagonals.

use crate::array::{Layout, Shape};
use crate::error::Result;
pub(in crate::ops) use cachescope_kernels::moves::triangles::Triangle;

/// Returns the row and the column of the first element of diagonal `k`.
pub(in crate::ops) fn start_of(k: isize) -> (usize, usize) {
    match k.unsigned_abs() {
        rows if k < 0 => (rows, 0),
        columns => (0, columns),
    }
}

/// Returns the number of elements of diagonal `k` of a matrix.
pub(in crate::ops) fn length_of(matrix: &Shape, k: isize) -> usize {
    let (row, column) = start_of(k);
    let (rows, columns) = (matrix.dims()[0], matrix.dims()[1]);
    rows.saturating_sub(row).min(columns.saturating_sub(column))
}

/// Returns `layout` with at least two axes. The layout of a vector gets a new axis of length 1 at
/// the position `axis`.
#[track_caller]
pub(in crate::ops) fn as_matrices(layout: &Layout, axis: isize) -> Result<Layout> {
    match layout.ndim() {
        1 => layout.unsqueeze(axis),
        _ => Ok(*layout),
    }
}
