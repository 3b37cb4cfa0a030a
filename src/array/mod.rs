//! Arrays: a layout over shared device memory.

mod access;
mod axes;
mod broadcast;
mod construct;
mod erased;
mod layout;
mod meshgrid;
mod ranges;
mod shape;
mod transfer;
mod views;
mod writer;

#[cfg(feature = "collective")]
use std::any::Any;
use std::marker::PhantomData;

pub(crate) use crate::buffer::{
    CaptureTracking, CapturedMemory, TapeId, ValueId, refuse_tracked, refuse_while_tracking,
    set_has_tape,
};
pub(crate) use access::{Elements, HostView};
pub use axes::Axes;
pub(crate) use axes::AxisSet;
pub(crate) use broadcast::{broadcast_pair, broadcast_shapes};
pub(crate) use cachescope_kernels::element::bits_of_number;
pub(crate) use cachescope_kernels::element::plain::{Bits, bits_of};
pub use cachescope_kernels::{
    AnyElement, Bitwise, DType, Element, Float, Integer, Number, Numeric,
};
pub(crate) use cachescope_memory::Buffer;
pub(crate) use erased::{AnyArray, check_within};
pub(crate) use layout::{Layout, Walk};
pub use meshgrid::meshgrid;
pub(crate) use shape::MAX_RANK;
pub use shape::{INFER, Shape};
#[cfg(any(feature = "npy", feature = "safetensors"))]
pub(crate) use writer::ByteWriter;
pub(crate) use writer::Writer;

use crate::context::Device;

/// An array of up to eight axes in a device's memory.
///
/// A clone shares the memory, and only increments a reference count. If arrays share memory, a
/// write to one of the arrays first copies its elements.
///
/// Invariants: every index of the layout lies in the buffer. Each element at these indices has been
/// written with a value of `T`.
///
#[doc = include_str!("../../docs/arrays-and-expressions.md")]
pub struct Array<T: AnyElement> {
    // The type-erased array of elements of type `T`.
    erased: AnyArray,
    element: PhantomData<T>,
}

impl<T: AnyElement> Array<T> {
    /// Returns `erased` as an array of `T`.
    ///
    /// # Panics
    ///
    /// Panics if the elements are not of type `T`.
    #[inline(always)]
    pub(crate) fn from_erased(erased: AnyArray) -> Self {
        assert!(erased.dtype == T::DTYPE, "the element types are equal");
        Self {
            erased,
            element: PhantomData,
        }
    }

    /// Like [`AnyArray::new`].
    #[inline]
    pub(crate) fn from_parts(buffer: Buffer, layout: Layout) -> Self {
        Self::from_erased(AnyArray::new(buffer, layout, T::DTYPE))
    }

    /// Like [`AnyArray::dense`].
    #[inline]
    pub(crate) fn dense(buffer: Buffer, layout: &Layout) -> Self {
        Self::from_erased(AnyArray::dense(buffer, layout, T::DTYPE))
    }

    /// Like [`AnyArray::of_shape`].
    #[inline]
    pub(crate) fn of_shape(buffer: Buffer, shape: &Shape) -> Self {
        Self::from_erased(AnyArray::of_shape(buffer, shape, T::DTYPE))
    }

    /// Returns this array as an array of `U`, which must be the type `T`.
    #[cfg(feature = "collective")]
    #[inline(always)]
    pub(crate) fn downcast_ref<U: AnyElement>(&self) -> &Array<U> {
        let array: &dyn Any = self;
        array.downcast_ref().expect("the element types are equal")
    }

    /// Like [`downcast_ref`](Self::downcast_ref), by value.
    #[inline(always)]
    pub(crate) fn downcast<U: AnyElement>(self) -> Array<U> {
        Array::from_erased(self.erased)
    }

    #[inline(always)]
    pub(crate) fn erased(&self) -> &AnyArray {
        &self.erased
    }

    /// Returns the type-erased array. The caller must not change its element type.
    #[inline(always)]
    pub(crate) fn erased_mut(&mut self) -> &mut AnyArray {
        &mut self.erased
    }

    pub(crate) fn into_erased(self) -> AnyArray {
        self.erased
    }

    pub(crate) fn buffer(&self) -> &Buffer {
        &self.erased.buffer
    }

    #[cfg(any(feature = "collective", feature = "cuda"))]
    pub(crate) fn buffer_to_write(&mut self) -> &Buffer {
        self.erased.buffer.forget_constant();
        &self.erased.buffer
    }

    pub(crate) fn into_buffer(self) -> Buffer {
        self.erased.buffer
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.erased.layout
    }

    /// Returns the lengths of the axes, outermost first.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::<f32>::zeros([2, 3])?;
    /// assert_eq!(array.shape(), [2, 3]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn shape(&self) -> &[usize] {
        self.layout().dims()
    }

    /// Returns the number of axes, which is 0 for a single value.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::<f32>::zeros([2, 3])?.ndim(), 2);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn ndim(&self) -> usize {
        self.layout().ndim()
    }

    /// Returns the stride of each axis, outermost first, in elements (not bytes).
    ///
    /// A stride is negative along a flipped axis, and 0 along a broadcast axis. For strides in
    /// bytes, multiply by [`dtype().size_bytes()`](DType::size_bytes).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::<f32>::zeros([2, 3])?;
    /// assert_eq!(array.strides(), [3, 1]);
    /// assert_eq!(array.t()?.strides(), [1, 3]);
    /// assert_eq!(array.broadcast_to([4, 2, 3])?.strides(), [0, 3, 1]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn strides(&self) -> &[isize] {
        self.layout().strides()
    }

    /// Returns whether the elements are contiguous in row-major order: the order of
    /// [`to_vec`](Self::to_vec), without gaps.
    ///
    /// A contiguous view may begin at any element of its memory. An array without elements is
    /// contiguous.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::ndarray::s;
    ///
    /// let array = Array::<f32>::zeros([2, 3])?;
    /// assert!(array.is_contiguous() && array.slice(s![1, ..])?.is_contiguous());
    /// assert!(!array.t()?.is_contiguous() && !array.slice(s![.., 1])?.is_contiguous());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn is_contiguous(&self) -> bool {
        self.layout().is_contiguous()
    }

    /// Returns the type of the elements as a value.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, DType};
    ///
    /// assert_eq!(Array::<f32>::zeros(3)?.dtype(), DType::F32);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn dtype(&self) -> DType {
        T::DTYPE
    }

    /// Returns the number of elements.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::<f32>::zeros([2, 3])?.len(), 6);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.layout().len()
    }

    /// Returns whether there are no elements.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert!(Array::<f32>::zeros([2, 0])?.is_empty());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the elements in bytes. For a view, this is not the size of the shared
    /// memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::<f32>::zeros([2, 3])?.size_bytes(), 24);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn size_bytes(&self) -> usize {
        self.len() * size_of::<T>()
    }

    /// Returns the device whose memory holds the elements.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Device};
    ///
    /// assert_eq!(*Array::<f32>::zeros(3)?.device(), Device::current());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        self.buffer().device()
    }

    /// Returns the device address of the first element.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::<f32>::zeros(3)?;
    /// assert_eq!(array.clone().address(), array.address());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn address(&self) -> u64 {
        let offset_bytes = self.layout().offset() * size_of::<T>();
        self.buffer().address() + offset_bytes as u64
    }
}

impl<T: AnyElement> Clone for Array<T> {
    #[inline]
    #[track_caller]
    fn clone(&self) -> Self {
        Self {
            erased: self.erased.share(),
            element: PhantomData,
        }
    }
}
