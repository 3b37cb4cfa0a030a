//! The memory that loops write.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::{AnyElement, DType};

/// The memory of an array that is being computed. The threads of a launch borrow disjoint parts of
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Output<T> {
    base: *mut MaybeUninit<T>,
    count: usize,
}

// SAFETY: an output is plain memory that no other code used when the output was made. By its
// contract, `part` lends each element to one thread at a time.
unsafe impl<T: Send> Send for Output<T> {}
// SAFETY: by its contract, `part` lends each element to one thread at a time.
unsafe impl<T: Send> Sync for Output<T> {}

/// A type-erased [`Output`].
#[derive(Clone, Copy, Debug)]
pub struct Untyped {
    base: *mut u8,
    count: usize,
}

// SAFETY: the type is an address of plain data. Only an [`Output`] that is made from it writes the
// data.
unsafe impl Send for Untyped {}
// SAFETY: the type has no method that accesses the data.
unsafe impl Sync for Untyped {}

impl Untyped {
    /// Returns the memory of `count` elements from address `base` on. The caller ensures that the
    /// elements exist, and that no other code uses them.
    pub fn new(base: *mut u8, count: usize) -> Self {
        Self { base, count }
    }

    /// Returns the address of the first element.
    #[inline]
    pub fn address(&self) -> *mut u8 {
        self.base
    }

    /// Returns the number of elements.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the address of the element `index`, of type `dtype`. If `index` is the number of
    /// elements, returns the end of the memory.
    #[inline]
    pub fn part(&self, dtype: DType, index: usize) -> *mut u8 {
        assert!(index <= self.count);
        self.base.wrapping_add(index * dtype.size_bytes())
    }

    /// Returns the output of elements of `T`.
    ///
    /// # Safety
    ///
    /// The output must have been made from an output of elements of `T`.
    #[inline]
    pub unsafe fn typed<T: AnyElement>(self) -> Output<T> {
        Output {
            base: self.base.cast(),
            count: self.count,
        }
    }
}

impl<T: AnyElement> Output<T> {
    /// Returns the output without its element type.
    pub fn untyped(&self) -> Untyped {
        Untyped {
            base: self.base.cast(),
            count: self.count,
        }
    }

    /// Returns the number of elements.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the elements of `range`, which are not yet written.
    ///
    /// # Safety
    ///
    /// The memory must be alive, and must not be read before all elements are written. No other
    /// caller may hold a part that overlaps `range`.
    #[expect(
        clippy::mut_from_ref,
        reason = "the parts do not overlap, by the contract"
    )]
    #[inline]
    pub unsafe fn part(&self, range: Range<usize>) -> &mut [MaybeUninit<T>] {
        assert!(range.start <= range.end && range.end <= self.count);
        if range.is_empty() {
            return &mut [];
        }
        // SAFETY: by the contract, the memory is alive, and only this caller uses the range. The
        // range is within the memory. Blocks are aligned for every element type.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(range.start), range.len()) }
    }
}
