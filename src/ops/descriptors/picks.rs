//! Layouts and walks of gathers and scatters, for the host and for CUDA devices. Only kernels read
//! the indices themselves.

use crate::array::{Layout, Shape, Walk};
use crate::device::cuda::Indexing;
use crate::error::Result;
use crate::ops::order::aliasing::Target;

/// The axis along which indices select elements.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Axis {
    /// The length of the axis, which bounds the indices.
    pub(in crate::ops) length: usize,
    pub(in crate::ops) step: isize,
    /// The operation that error messages about invalid indices name.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    pub(in crate::ops) operation: Indexing,
}

impl Axis {
    pub(in crate::ops) fn of(layout: &Layout, at: usize, operation: Indexing) -> Self {
        Self {
            length: layout.dims()[at],
            step: layout.strides()[at],
            operation,
        }
    }
}

/// The elements that an index along an axis selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Picking {
    /// Each index selects a part of the array. The axes of the indices replace the indexed axis.
    Parts,
    /// Each index selects an element. The array and the indices broadcast to each other, except
    /// along the indexed axis.
    Elements,
    /// Like `Elements`, but the indices are class labels, so a negative index is an error.
    Classes,
}

impl Picking {
    /// Returns the axis `at` of `layout`, and a walk. The walk visits the elements at index 0 of
    /// this axis, and `indices`. The walk has one position for each element of a new array of
    /// `shape`. The caller must check the length of `shape`.
    #[inline(always)]
    #[track_caller]
    pub(in crate::ops) fn walk(
        self,
        layout: &Layout,
        indices: &Layout,
        at: usize,
        shape: &Shape,
    ) -> Result<(Axis, Walk<2>)> {
        match self {
            Self::Parts => {
                let own = layout.dims().iter().zip(layout.strides());
                let own = own.map(|(&length, &stride)| (length, [stride, 0]));
                let picks = indices.dims().iter().zip(indices.strides());
                let picks = picks.map(|(&length, &stride)| (length, [0, stride]));
                let axes = own.clone().take(at).chain(picks).chain(own.skip(at + 1));
                let walk = Walk::over([layout.offset(), indices.offset()], axes);
                Ok((Axis::of(layout, at, Indexing::Take), walk))
            }
            Self::Elements | Self::Classes => {
                let operation = match self {
                    Self::Classes => Indexing::CrossEntropy,
                    _ => Indexing::Gather,
                };
                let picked = indices.broadcast_to(shape)?;
                let fixed = layout.fixed(at, shape)?;
                let axis = Axis::of(layout, at, operation);
                Ok((axis, Layout::walk([&fixed, &picked])))
            }
        }
    }
}

/// Returns the walk of a scatter. The walk visits the elements of `target` at index 0 of the axis
/// `at`, `indices`, and `values`. A scatter adds or writes each value to the element of `target`
/// that the value's index selects along this axis. `indices` and `values` broadcast to `shape`.
/// `target` broadcasts to `shape` except along this axis.
///
/// # Panics
///
/// Panics if another handle shares the target's memory, or if the target repeats an element.
#[inline(always)]
#[track_caller]
pub(in crate::ops) fn reached(
    target: &Target<'_>,
    [indices, values]: [&Layout; 2],
    at: usize,
    shape: &Shape,
) -> Result<Walk<3>> {
    let layouts = [
        &target.layout().fixed(at, shape)?,
        &indices.broadcast_to(shape)?,
        &values.broadcast_to(shape)?,
    ];
    let alone = target.buffer().holders() == 1 && !target.layout().repeats();
    assert!(alone, "the target is shared, or repeats elements");
    Ok(Layout::walk(layouts))
}
