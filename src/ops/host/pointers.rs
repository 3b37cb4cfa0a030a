//! The addresses that kernels read from and write to.

use std::mem::MaybeUninit;

use super::memory::{Output, Untyped};
use crate::array::{AnyElement, Array};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::ops::expression::tree::Operand;

/// The memory of an operand that a kernel reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadPtr<T>(*const T);

/// The memory of a new array that a kernel writes, in any order.
#[derive(Clone, Copy, Debug)]
pub(super) struct WritePtr<T>(*mut MaybeUninit<T>);

// SAFETY: an address of plain data; the code that reads there ensures that nobody writes meanwhile.
unsafe impl<T: Sync> Send for ReadPtr<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for ReadPtr<T> {}
// SAFETY: an address of plain data; the code that writes there ensures that nobody else does.
unsafe impl<T: Send> Send for WritePtr<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for WritePtr<T> {}

impl<T> ReadPtr<T> {
    pub(super) fn of(array: &Array<T>) -> Self
    where
        T: AnyElement,
    {
        Self(host_pointer(DevicePtr(array.buffer().address())).cast())
    }

    /// Returns a pointer to the elements from `first` on.
    pub(super) fn over(first: *const T) -> Self {
        Self(first)
    }

    /// Returns the address of the element at `index`.
    #[inline(always)]
    pub(super) fn at(self, index: usize) -> *const T {
        self.0.wrapping_add(index)
    }
}

impl ReadPtr<u8> {
    /// Returns a pointer to the bytes of an array.
    pub(super) fn bytes_of(operand: Operand<'_>) -> Self {
        Self(host_pointer(DevicePtr(operand.buffer.address())))
    }

    /// Returns the pointer to elements of `T`, of which these are the bytes.
    #[inline(always)]
    pub(super) fn cast<T>(self) -> ReadPtr<T> {
        ReadPtr(self.0.cast())
    }
}

impl<T> WritePtr<T> {
    pub(super) fn of(output: &Output<T>) -> Self
    where
        T: AnyElement,
    {
        // SAFETY: the output is new, so nobody else has a part of it, and this one is not used.
        Self(unsafe { output.part(0..output.count()) }.as_mut_ptr())
    }

    /// Returns a pointer to the elements from `first` on.
    #[cfg(feature = "fft")]
    pub(super) fn over(first: *mut MaybeUninit<T>) -> Self {
        Self(first)
    }

    /// Returns the address of the element at `index`.
    #[inline(always)]
    pub(super) fn at(self, index: usize) -> *mut MaybeUninit<T> {
        self.0.wrapping_add(index)
    }
}

impl WritePtr<u8> {
    /// Returns a pointer to the bytes of a new array.
    pub(super) fn bytes_of(output: &Untyped) -> Self {
        Self(output.address().cast())
    }

    /// Returns the pointer to elements of `T`, of which these are the bytes.
    #[inline(always)]
    pub(super) fn cast<T>(self) -> WritePtr<T> {
        WritePtr(self.0.cast())
    }
}
