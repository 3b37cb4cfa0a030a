//! The addresses that loops read from and write to.

use std::mem::MaybeUninit;

/// The memory of elements that a loop reads.
#[derive(Clone, Copy, Debug)]
pub struct ReadPtr<T>(*const T);

/// The memory of a new array that a loop writes, in any order.
#[derive(Clone, Copy, Debug)]
pub struct WritePtr<T>(*mut MaybeUninit<T>);

// SAFETY: an address of plain data; the code that reads the data ensures that nothing writes to it
// meanwhile.
unsafe impl<T: Sync> Send for ReadPtr<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for ReadPtr<T> {}
// SAFETY: an address of plain data; the code that writes the data ensures that nothing else does.
unsafe impl<T: Send> Send for WritePtr<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for WritePtr<T> {}

impl<T> ReadPtr<T> {
    /// Returns a pointer to the elements from `first` on.
    #[inline(always)]
    pub fn over(first: *const T) -> Self {
        Self(first)
    }

    /// Returns the address of the element at `index`.
    #[inline(always)]
    pub fn at(self, index: usize) -> *const T {
        self.0.wrapping_add(index)
    }
}

impl ReadPtr<u8> {
    /// Returns the pointer as a pointer to elements of `T`, which these bytes represent.
    #[inline(always)]
    pub fn cast<T>(self) -> ReadPtr<T> {
        ReadPtr(self.0.cast())
    }
}

impl<T> WritePtr<T> {
    /// Returns a pointer to the elements from `first` on.
    #[inline(always)]
    pub fn over(first: *mut MaybeUninit<T>) -> Self {
        Self(first)
    }

    /// Returns the address of the element at `index`.
    #[inline(always)]
    pub fn at(self, index: usize) -> *mut MaybeUninit<T> {
        self.0.wrapping_add(index)
    }
}

impl WritePtr<u8> {
    /// Returns the pointer as a pointer to elements of `T`, which these bytes represent.
    #[inline(always)]
    pub fn cast<T>(self) -> WritePtr<T> {
        WritePtr(self.0.cast())
    }
}
