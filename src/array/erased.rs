//! Type-erased arrays.

use super::{Array, Buffer, Layout, Shape};
use crate::context::Device;
use cachescope_kernels::AnyElement;
use cachescope_kernels::DType;

/// A type-erased array. An [`Array`] is a typed handle on it. Functions of type-erased arrays do
/// not depend on the element type, so they are compiled once.
///
/// The invariants of [`Array`] hold for arrays that [`new`](Self::new) and
/// [`of_shape`](Self::of_shape) return.
#[derive(Debug)]
pub(crate) struct AnyArray {
    pub(crate) buffer: Buffer,
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
}

impl AnyArray {
    /// Returns the array of the elements that `layout` selects from `buffer`.
    ///
    /// The caller ensures that these elements are written before they are read.
    ///
    /// # Panics
    ///
    /// Panics if the layout reaches beyond the buffer. Every kernel relies on this check.
    #[inline]
    pub(crate) fn new(buffer: Buffer, layout: Layout, dtype: DType) -> Self {
        check_within(&buffer, &layout, dtype);
        Self {
            buffer,
            layout,
            dtype,
        }
    }

    /// Returns the row-major array of shape `shape` without gaps, over the first elements of
    /// `buffer`. The caller must have checked the length of `shape`.
    ///
    /// The caller ensures that these elements are written before they are read.
    ///
    /// # Panics
    ///
    /// Panics if `buffer` has fewer elements than `shape`.
    pub(crate) fn of_shape(buffer: Buffer, shape: &Shape, dtype: DType) -> Self {
        check_room(&buffer, shape, dtype);
        Self {
            buffer,
            layout: Layout::row_major(shape),
            dtype,
        }
    }

    /// Like [`of_shape`](Self::of_shape), but with the shape of `layout`. `layout` must be
    /// contiguous.
    #[inline]
    pub(super) fn dense(buffer: Buffer, layout: &Layout, dtype: DType) -> Self {
        let capacity = buffer.size_bytes() / dtype.size_bytes();
        assert!(
            layout.len() <= capacity,
            "{layout:?} reaches beyond {capacity} elements"
        );
        Self {
            buffer,
            layout: layout.starting_at(0),
            dtype,
        }
    }

    /// Returns a type-erased handle that shares the memory of `array`.
    #[track_caller]
    pub(crate) fn of<T: AnyElement>(array: &Array<T>) -> Self {
        array.erased().share()
    }

    /// Returns this array as an array of `T`.
    ///
    /// # Panics
    ///
    /// Panics if the elements are not of type `T`, or the layout reaches beyond the buffer.
    pub(crate) fn into_array<T: AnyElement>(self) -> Array<T> {
        Array::from_erased(Self::new(self.buffer, self.layout, self.dtype))
    }

    #[inline]
    #[track_caller]
    pub(crate) fn share(&self) -> Self {
        Self {
            buffer: self.buffer.share(),
            ..*self
        }
    }

    /// Returns a view of this array's memory with the layout `layout`.
    #[inline]
    #[track_caller]
    pub(crate) fn view(&self, layout: Layout) -> Self {
        Self::new(self.buffer.share_as_view(), layout, self.dtype)
    }

    /// Returns the array without its value id, so that no tape tracks the array.
    pub(crate) fn untracked(self) -> Self {
        Self {
            buffer: self.buffer.with_value_id(None),
            ..self
        }
    }

    /// Returns a view with the layout `layout`, for internal use. Writes to the view are not
    /// reported as writes to views.
    #[track_caller]
    pub(crate) fn viewed(&self, layout: Layout) -> Self {
        Self::new(self.buffer.share(), layout, self.dtype)
    }

    pub(crate) fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    pub(crate) fn dims(&self) -> &[usize] {
        self.layout.dims()
    }

    pub(crate) fn len(&self) -> usize {
        self.layout.len()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.layout.len() * self.dtype.size_bytes()
    }

    pub(crate) fn device(&self) -> &Device {
        self.buffer.device()
    }

    pub(crate) fn seen(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }
}

/// Checks that `buffer` has as many elements as `shape`.
///
/// # Panics
///
/// Panics if `buffer` has fewer elements than `shape`.
fn check_room(buffer: &Buffer, shape: &Shape, dtype: DType) {
    let capacity = buffer.size_bytes() / dtype.size_bytes();
    let count: usize = shape.dims().iter().product();
    assert!(
        count <= capacity,
        "{shape} reaches beyond {capacity} elements"
    );
}

/// Checks that every element that `layout` selects is in `buffer`.
///
/// # Panics
///
/// Panics if an element is not in `buffer`.
pub(crate) fn check_within(buffer: &Buffer, layout: &Layout, dtype: DType) {
    let capacity = buffer.size_bytes() / dtype.size_bytes();
    let within = layout
        .bounds()
        .is_none_or(|(_, highest)| highest < capacity);
    assert!(within, "{layout:?} reaches beyond {capacity} elements");
}

impl Clone for AnyArray {
    fn clone(&self) -> Self {
        self.share()
    }
}
