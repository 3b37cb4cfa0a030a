//! Layouts: lengths, strides and an offset, all in elements.
//!
//! Architecture invariant: this module accesses no memory, so tests can compare a layout with a
//! plain list of indices.

mod slices;
mod views;

use super::shape::{MAX_RANK, Shape};
use crate::error::{Error, ErrorCode, Result};

pub(crate) use cachescope_kernels::walk::Walk;

/// The shape, the strides and the offset of an array. Together, they define the index of each
/// element.
///
/// Invariants:
///
/// - The rank is at most 8.
/// - The lengths that are not 0 multiply to at most `isize::MAX`.
/// - No length times its stride overflows.
/// - If the layout has elements, the index of each element is within `0..=isize::MAX`.
/// - The strides of unused axes are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    shape: Shape,
    strides: [isize; MAX_RANK],
    offset: usize,
}

impl Layout {
    /// Returns a walk over the elements of `layouts`. The layouts must have equal shapes.
    pub(crate) fn walk<const K: usize>(layouts: [&Self; K]) -> Walk<K> {
        let dims = layouts[0].dims();
        assert!(
            layouts.iter().all(|layout| layout.dims() == dims),
            "views of two shapes are iterated together"
        );
        let strides = (0..dims.len()).map(|axis| layouts.map(|layout| layout.strides()[axis]));
        Walk::over(layouts.map(Self::offset), dims.iter().copied().zip(strides))
    }

    /// Returns a row-major layout without gaps, from index 0.
    ///
    /// # Errors
    ///
    /// As for [`Shape::checked_len`].
    #[inline]
    #[track_caller]
    pub(crate) fn contiguous(shape: &Shape) -> Result<Self> {
        shape.checked_len()?;
        Ok(Self::row_major(shape))
    }

    /// Like [`contiguous`](Self::contiguous), for a shape whose length the caller has checked.
    #[inline]
    pub(crate) fn row_major(shape: &Shape) -> Self {
        Self {
            shape: *shape,
            strides: contiguous_strides(shape),
            offset: 0,
        }
    }

    /// Returns a layout with the strides `strides`, one for each axis, and the lowest index 0. The
    /// strides of axes with fewer than two elements are not used.
    ///
    /// # Errors
    ///
    /// As for [`Shape::checked_len`], and [`InvalidShape`](crate::ErrorKind::InvalidShape) if an
    /// index overflows.
    #[track_caller]
    pub(crate) fn strided(shape: &Shape, strides: &[isize]) -> Result<Self> {
        let mut strided = Self::contiguous(shape)?;
        if strided.len() == 0 {
            return Ok(strided);
        }
        let index = |steps: usize| isize::try_from(steps).ok();
        let (mut below, mut above) = (0usize, 0usize);
        for (axis, (&length, &stride)) in shape.dims().iter().zip(strides).enumerate() {
            if length == 1 {
                continue;
            }
            let step = stride.unsigned_abs();
            let reach = step.checked_mul(length).and_then(index);
            let side = if stride < 0 { &mut below } else { &mut above };
            let total = reach.and_then(|_| side.checked_add(step * (length - 1)));
            let Some(total) = total.filter(|&total| index(total).is_some()) else {
                return Err(too_far(shape, strides));
            };
            *side = total;
            strided.strides[axis] = stride;
        }
        if index(below + above).is_none() {
            return Err(too_far(shape, strides));
        }
        strided.offset = below;
        Ok(strided)
    }

    /// Returns the row-major layout of this shape without gaps, from index 0.
    #[inline]
    pub(crate) fn dense(&self) -> Self {
        Self::row_major(&self.shape)
    }

    #[inline]
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    #[inline]
    pub(crate) fn dims(&self) -> &[usize] {
        self.shape.dims()
    }

    #[inline]
    pub(crate) fn strides(&self) -> &[isize] {
        &self.strides[..self.ndim()]
    }

    /// Returns the index of the first element.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    #[inline]
    pub(crate) fn ndim(&self) -> usize {
        self.shape.ndim()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.dims().iter().product()
    }

    /// Returns the size in bytes of the layout's elements, of `element_bytes` each.
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if the size does not fit an address space.
    #[inline]
    #[track_caller]
    pub(crate) fn size_bytes(&self, element_bytes: usize) -> Result<usize> {
        match self.len().checked_mul(element_bytes) {
            Some(bytes) => Ok(bytes),
            None => Err(self.shape().overflow(element_bytes)),
        }
    }

    /// Returns whether the elements are contiguous in row-major order. The offset may have any
    /// value.
    #[inline]
    pub(crate) fn is_contiguous(&self) -> bool {
        let mut step = 1;
        for (&length, &stride) in self.dims().iter().zip(self.strides()).rev() {
            if length != 1 && stride != step {
                return self.len() == 0;
            }
            step *= length as isize;
        }
        true
    }

    /// Returns the lowest and the highest index of an element, or `None` if there are no elements.
    #[inline]
    pub(crate) fn bounds(&self) -> Option<(usize, usize)> {
        if self.len() == 0 {
            return None;
        }
        let (mut lowest, mut highest) = (self.offset, self.offset);
        for (&length, &stride) in self.dims().iter().zip(self.strides()) {
            let reach = (length - 1) * stride.unsigned_abs();
            if stride < 0 {
                lowest -= reach;
            } else {
                highest += reach;
            }
        }
        Some((lowest, highest))
    }

    /// Returns whether an element may have several positions in the shape, such as along broadcast
    /// axes or in overlapping windows. The result `false` is exact. For slices of windows, the
    /// result `true` may be wrong.
    #[inline]
    pub(crate) fn repeats(&self) -> bool {
        let axes = self.dims().iter().zip(self.strides()).rev();
        !are_nested(axes.map(|(&length, &stride)| (length, stride))) && self.repeats_in_any_order()
    }

    /// Computes [`repeats`](Self::repeats) with the axes sorted by their strides. If the strides do
    /// not grow from the last axis to the first, [`repeats`](Self::repeats) calls this function.
    fn repeats_in_any_order(&self) -> bool {
        let mut axes = [(0, 0); MAX_RANK];
        let axes = &mut axes[..self.ndim()];
        for (axis, own) in axes.iter_mut().zip(self.dims().iter().zip(self.strides())) {
            *axis = (*own.0, *own.1);
        }
        axes.sort_unstable_by_key(|&(_, stride)| stride.unsigned_abs());
        !are_nested(axes.iter().copied())
    }

    /// Returns the length and the stride of the last axis.
    #[inline]
    pub(crate) fn row(&self) -> (usize, isize) {
        let length = self.dims().last().copied().unwrap_or(1);
        (length, self.strides().last().copied().unwrap_or(0))
    }

    #[inline]
    pub(crate) fn split_at(&self, axis: usize) -> (Self, Self) {
        let (before, after) = self.dims().split_at(axis);
        let mut outer = self.strides;
        outer[axis..].fill(0);
        let mut inner = [0; MAX_RANK];
        inner[..MAX_RANK - axis].copy_from_slice(&self.strides[axis..]);
        let part = |dims: &[usize], strides| Self {
            shape: dims.into(),
            strides,
            offset: self.offset,
        };
        (part(before, outer), part(after, inner))
    }

    /// Returns a layout with one position for each element: axes of stride 0 get length 1.
    pub(crate) fn without_repeats(&self) -> Self {
        let axes = self.dims().iter().zip(self.strides());
        let lengths =
            axes.map(|(&length, &stride)| if stride == 0 { length.min(1) } else { length });
        Self {
            shape: lengths.collect(),
            ..*self
        }
    }

    /// Returns this layout with its first element at `offset`.
    #[inline]
    pub(crate) fn starting_at(&self, offset: usize) -> Self {
        Self { offset, ..*self }
    }
}

/// Returns the error for a layout whose indices do not fit an address space.
#[cold]
#[track_caller]
fn too_far(shape: &Shape, strides: &[isize]) -> Error {
    let text =
        format!("the shape {shape} with the strides {strides:?} overflows the size of memory");
    Error::new(ErrorCode::Size, text)
}

/// Returns whether the stride of each axis exceeds the reach of all earlier axes of the iterator.
/// If so, no element has two positions. Items are lengths and strides.
#[inline]
fn are_nested(axes: impl Iterator<Item = (usize, isize)>) -> bool {
    let mut reach = 0usize;
    for (length, stride) in axes {
        if length > 1 {
            let step = stride.unsigned_abs();
            if step <= reach {
                return false;
            }
            // If the array has elements, the sum does not saturate.
            reach = reach.saturating_add(step.saturating_mul(length - 1));
        }
    }
    true
}

/// Returns the strides of a row-major layout without gaps. The caller must have checked the length
/// of `shape`.
fn contiguous_strides(shape: &Shape) -> [isize; MAX_RANK] {
    let mut strides = [0; MAX_RANK];
    let mut step = 1isize;
    for (axis, &length) in shape.dims().iter().enumerate().rev() {
        strides[axis] = step;
        // Lengths of 0 count as 1, like in `checked_len`, so the product does not overflow.
        step *= length.max(1) as isize;
    }
    strides
}

#[cfg(test)]
mod tests;
