//! Copies of matrices with zeros outside a triangle.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice::from_raw_parts_mut;

use bytemuck::Pod;

use super::copies::copy_run;
use crate::pointers::{ReadPtr, WritePtr};
use crate::walk::Walk;

/// The triangle of a matrix that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triangle {
    /// The elements on the diagonal and below.
    Lower,
    /// The elements on the diagonal and above.
    Upper,
}

/// The rows of an array of matrices.
#[derive(Clone, Copy, Debug)]
pub struct MatrixRows {
    /// The memory of the matrices.
    pub from: ReadPtr<u8>,
    /// A walk over the first elements of all rows.
    pub firsts: Walk<1>,
    /// The number of rows of a matrix.
    pub height: usize,
    /// The number of elements of a row. `stride` is their stride.
    pub width: usize,
    pub stride: isize,
}

impl MatrixRows {
    fn bounded(&self, column: isize) -> usize {
        usize::try_from(column).unwrap_or(0).min(self.width)
    }
}

/// Writes the rows of index `range`, of elements of `bytes` bytes each. Elements outside the
/// triangle are zeros. Diagonal `k` bounds the triangle.
///
/// # Safety
///
/// The matrices must be alive and not written to. Only the caller may access the rows of `range` in
/// the memory from `to` on.
pub unsafe fn write_rows(
    bytes: usize,
    rows: &MatrixRows,
    (triangle, k): (Triangle, isize),
    range: Range<usize>,
    to: WritePtr<u8>,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { by_bytes!(bytes, write_rows_of::<Word>(rows, (triangle, k), range, to)) };
}

/// # Safety
///
/// The contract of [`write_rows`] must hold.
unsafe fn write_rows_of<T: Pod>(
    rows: &MatrixRows,
    (triangle, k): (Triangle, isize),
    range: Range<usize>,
    to: WritePtr<u8>,
) {
    let (from, to) = (rows.from.cast::<T>(), to.cast::<T>());
    let (_, [step]) = rows.firsts.row();
    let mut number = range.start;
    for ([at], count) in rows.firsts.runs(range) {
        for index in 0..count as isize {
            // SAFETY: by this function's contract, only the caller accesses this row.
            let out = unsafe { from_raw_parts_mut(to.at(number * rows.width), rows.width) };
            let first = at.wrapping_add_signed(index * step);
            let diagonal = (number % rows.height) as isize;
            let kept = match triangle {
                Triangle::Lower => 0..rows.bounded(diagonal.saturating_add(k).saturating_add(1)),
                Triangle::Upper => rows.bounded(diagonal.saturating_add(k))..rows.width,
            };
            out[..kept.start].fill(MaybeUninit::new(T::zeroed()));
            out[kept.end..].fill(MaybeUninit::new(T::zeroed()));
            let first = first.wrapping_add_signed(kept.start as isize * rows.stride);
            let target = out[kept.clone()].as_mut_ptr();
            // SAFETY: the row has the kept elements, and `out` has a slot for each of them.
            unsafe { copy_run(from.at(first), target, kept.len(), [rows.stride, 1]) };
            number += 1;
        }
    }
}
