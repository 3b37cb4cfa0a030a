//! The addresses that loops read from and write to.

use std::mem::MaybeUninit;

/// The address of elements that a loop reads.
#[derive(Clone, Copy, Debug)]
pub struct ReadPtr<T>(*const T);

/// The address of a new array's elements, which a loop writes in any order.
#[derive(Clone, Copy, Debug)]
pub struct WritePtr<T>(*mut MaybeUninit<T>);

// SAFETY: the type is an address of plain data. The code that reads the data ensures that nothing
// writes to it meanwhile.
unsafe impl<T: Sync> Send for ReadPtr<T> {}
// SAFETY: the code that reads the data ensures that nothing writes to it meanwhile.
unsafe impl<T: Sync> Sync for ReadPtr<T> {}
// SAFETY: the type is an address of plain data. The code that writes the data ensures that no other
// code accesses it meanwhile.
unsafe impl<T: Send> Send for WritePtr<T> {}
// SAFETY: the code that writes the data ensures that no other code accesses it meanwhile.
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
    /// Returns the pointer as a pointer to elements of `T`. The bytes must represent elements of
    /// `T`.
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
    /// Returns the pointer as a pointer to elements of `T`. The bytes must represent elements of
    /// `T`.
    #[inline(always)]
    pub fn cast<T>(self) -> WritePtr<T> {
        WritePtr(self.0.cast())
    }
}
