//! Where elements stand that indices pick, but for the indices themselves, at which only kernels
//! look: what the devices' picking and adding have in common.

use crate::array::{AnyElement, Array, Layout, Shape, Walk};
use crate::device::cuda::Indexing;
use crate::error::Result;
use crate::ops::aliasing::Target;

/// The axis that indices are of.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Axis {
    /// How many indices it has.
    pub(in crate::ops) length: usize,
    /// The step from one to the next.
    pub(in crate::ops) step: isize,
    /// What reports of other indices name.
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

/// What an index along an axis picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Picking {
    /// A part of the array: the axes of the indices stand for the axis.
    Parts,
    /// An element: array and indices broadcast to each other, but for the axis.
    Elements,
    /// The same, where the indices are classes, which do not count from the end.
    Classes,
}

impl Picking {
    /// The axis `at` of `layout`, and a walk over the elements at its index 0 and over `indices`,
    /// as many as a new array of `shape` has elements; who picks checks that.
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
                Ok((axis, Walk::new([&fixed, &picked])))
            }
        }
    }
}

/// For an operation that adds each of `values` to the element of `target` that its index picks
/// along the axis `at`, or writes it there, as all three broadcast to `shape` but for this axis: a
/// walk over the elements of the target at index 0, the indices and the values.
///
/// # Panics
///
/// Where another handle shares the target's memory, or the target reaches an element twice.
#[inline(always)]
#[track_caller]
pub(in crate::ops) fn reached<T: AnyElement>(
    target: &Target<'_>,
    indices: &Array<i64>,
    values: &Array<T>,
    at: usize,
    shape: &Shape,
) -> Result<Walk<3>> {
    let layouts = [
        &target.layout().fixed(at, shape)?,
        &indices.layout().broadcast_to(shape)?,
        &values.layout().broadcast_to(shape)?,
    ];
    let alone = target.buffer().holders() == 1 && !target.layout().repeats();
    assert!(alone, "scattered to memory that is not all ours");
    Ok(Walk::new(layouts))
}
