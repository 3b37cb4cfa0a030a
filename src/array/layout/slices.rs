//! Slices of layouts: ranges and indices along axes.

use std::ops::Range;

use ndarray::SliceInfoElem;

use super::views::invalid;
use super::{Layout, contiguous_strides};
use crate::array::shape::{MAX_RANK, Shape};
use crate::error::{AtCaller, Error, ErrorCode, Result};

impl Layout {
    /// Returns the layout of the selection `parts`, with the meaning of ndarray's `s![…]`. A
    /// negative step iterates over its range from the end.
    ///
    /// # Errors
    ///
    /// The errors name `operation` and the shape.
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `parts` does not name every axis,
    /// or if a step is 0. [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if an index or a
    /// bound lies outside its axis. [`InvalidShape`](crate::ErrorKind::InvalidShape) if new axes
    /// raise the rank above 8.
    #[track_caller]
    pub(crate) fn slice(&self, operation: &str, parts: &[SliceInfoElem]) -> Result<Self> {
        let named = parts.iter().filter(|part| !part.is_new_axis()).count();
        if named != self.ndim() {
            let axes = if named == 1 { "axis" } else { "axes" };
            let cure = match named < self.ndim() {
                true => "write `..` for each axis to keep whole",
                false => "write one selection for each axis",
            };
            return Err(invalid(format!(
                "{operation}: the selection names {named} {axes}, the shape {} has {}: {cure}",
                self.shape,
                self.ndim()
            )));
        }
        let of = (operation, &self.shape);
        // Indexed axes are removed after all ranges are selected, and new axes are inserted last.
        // So if the result has at most the maximum rank, every intermediate layout does, too.
        let mut sliced = *self;
        let (mut axis, mut dropped) = (0, [false; MAX_RANK]);
        for part in parts {
            match *part {
                SliceInfoElem::Slice { start, end, step } => {
                    sliced.select_range(of, axis, (start, end, step))?;
                }
                SliceInfoElem::Index(index) => {
                    sliced.select_index(of, axis, index)?;
                    dropped[axis] = true;
                }
                SliceInfoElem::NewAxis => continue,
            }
            axis += 1;
        }
        for axis in (0..self.ndim()).rev().filter(|&axis| dropped[axis]) {
            sliced = sliced.removed(axis);
        }
        let remaining = parts.iter().filter(|part| !part.is_index());
        for (at, _) in remaining.enumerate().filter(|(_, part)| part.is_new_axis()) {
            sliced = sliced.inserted(at).map_err(|error| error.of(operation))?;
        }
        Ok(sliced)
    }

    /// Returns the layout of the elements of `range` along `axis`, with the step `step`. The range
    /// must lie within the axis.
    #[track_caller]
    pub(crate) fn part(&self, axis: usize, range: Range<usize>, step: usize) -> Result<Self> {
        let (start, end) = (range.start as isize, range.end as isize);
        let of = ("slice", &self.shape);
        let mut part = *self;
        part.select_range(of, axis, (start, Some(end), step as isize))?;
        Ok(part)
    }

    /// Restricts an axis to `start..end;step`. An error names the operation and the operand's
    /// shape. Both are in `of`.
    #[track_caller]
    pub(super) fn select_range(
        &mut self,
        of: (&str, &Shape),
        axis: usize,
        (start, end, step): (isize, Option<isize>, isize),
    ) -> Result<()> {
        let length = self.dims()[axis];
        let bound = |bound: isize| {
            count_from(bound, length)
                .filter(|&bound| bound <= length)
                .ok_or_else(|| outside(of, "bound", bound, (axis, length)))
        };
        let first = bound(start).at_caller()?;
        let last = end.map_or(Ok(length), bound).at_caller()?.max(first);
        if step == 0 {
            let (operation, shape) = of;
            return Err(invalid(format!(
                "{operation}: the step of axis {axis} of the shape {shape} is 0, expected another number"
            )));
        }
        let count = (last - first).div_ceil(step.unsigned_abs());
        self.shape.set(axis, count);
        if self.len() == 0 {
            // Without elements, strides may be arbitrary, so a length times a stride might
            // overflow.
            self.strides = contiguous_strides(&self.shape);
            return Ok(());
        }
        let begin = if step < 0 { last - 1 } else { first };
        let reach = begin as isize * self.strides[axis];
        self.offset = self.offset.wrapping_add_signed(reach);
        // If the product overflows, the axis has at most one element, and the stride is not used.
        self.strides[axis] = if count <= 1 {
            0
        } else {
            self.strides[axis] * step
        };
        Ok(())
    }

    /// Restricts an axis to one index. The length of the axis becomes 1. An error names the
    /// operation and the operand's shape. Both are in `of`.
    #[track_caller]
    fn select_index(&mut self, of: (&str, &Shape), axis: usize, index: isize) -> Result<()> {
        let length = self.dims()[axis];
        let at = count_from(index, length)
            .filter(|&at| at < length)
            .ok_or_else(|| outside(of, "index", index, (axis, length)))
            .at_caller()?;
        let at = at as isize;
        self.select_range(of, axis, (at, Some(at + 1), 1))
    }
}

#[cold]
#[track_caller]
fn outside(
    (operation, shape): (&str, &Shape),
    what: &str,
    number: isize,
    (axis, length): (usize, usize),
) -> Error {
    let text = format!(
        "{operation}: the {what} {number} is out of range for axis {axis} of length {length} of the shape {shape}"
    );
    Error::new(ErrorCode::Index, text)
}

/// Returns `index` counted from the beginning of an axis. A negative `index` counts from the end.
pub(super) fn count_from(index: isize, length: usize) -> Option<usize> {
    if index < 0 {
        length.checked_sub(index.unsigned_abs())
    } else {
        Some(index.unsigned_abs())
    }
}
