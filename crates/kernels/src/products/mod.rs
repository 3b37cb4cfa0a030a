//! Products of matrices.

pub mod blocks;
pub mod complex;
pub mod dots;
pub mod loops;
pub mod matrix;
pub mod packed;
pub mod tiny;
pub mod vectors;
pub mod widened;

use std::any::TypeId;
use std::mem::MaybeUninit;

/// The memory of a product of matrices.
#[derive(Clone, Copy, Debug)]
pub struct ProductPlace<T> {
    /// The address of the first element.
    pub first: *mut MaybeUninit<T>,
    /// The stride between rows, in elements. The elements of a row are contiguous.
    pub row_stride: usize,
}

/// The memory of some rows of a product, without gaps.
#[derive(Clone, Copy, Debug)]
pub struct ProductRows {
    /// The address of the first element.
    pub first: *mut u8,
    /// `true` if the elements are `f32` and the operands are narrower.
    pub is_wide: bool,
    /// `true` if the product is added to the values in memory. Otherwise, the values are not read.
    pub is_begun: bool,
}

impl ProductPlace<u8> {
    /// Returns the place with element type `T`. The elements must be of `T`.
    pub fn typed<T>(self) -> ProductPlace<T> {
        ProductPlace {
            first: self.first.cast(),
            row_stride: self.row_stride,
        }
    }
}

#[inline(always)]
fn is<T: 'static, U: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<U>()
}
