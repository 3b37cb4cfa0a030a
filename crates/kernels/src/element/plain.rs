//! Element types whose bytes device memory may hold unchanged.

use bytemuck::{NoUninit, Pod};
use half::{bf16, f16};
use num_complex::Complex;

/// Elements whose bytes device memory holds unchanged.
///
/// # Safety
///
/// `Raw` has the size and alignment of `Self`.
pub unsafe trait Plain: NoUninit {
    /// The type of a value's bytes in device memory before they are checked. Any bit pattern is
    /// valid.
    type Raw: Pod + Default + Send + Sync;

    /// Returns the value that `raw` represents.
    fn from_raw(raw: Self::Raw) -> Self;
}

macro_rules! number {
    ($($type:ty),+) => {
        $(
            // SAFETY: `Raw` is the type itself.
            unsafe impl Plain for $type {
                type Raw = Self;

                #[inline]
                fn from_raw(raw: Self) -> Self {
                    raw
                }
            }
        )+
    };
}

number!(
    f32,
    f64,
    f16,
    bf16,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
    Complex<f32>,
    Complex<f64>
);

// SAFETY: `bool` and `u8` have size 1 and alignment 1.
unsafe impl Plain for bool {
    type Raw = u8;

    #[inline]
    fn from_raw(raw: u8) -> Self {
        raw != 0
    }
}

/// The bytes of an element of any type, padded with zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits([u64; 2]);

impl Bits {
    /// Returns the first eight bytes as an integer. Only a `Complex<f64>` has more bytes.
    pub const fn low(self) -> u64 {
        self.0[0]
    }

    /// Returns the 64-bit words that an element of `size_bytes` bytes occupies. The element begins
    /// with the first word.
    pub fn words(&self, size_bytes: usize) -> &[u64] {
        &self.0[..size_bytes.div_ceil(8)]
    }

    /// Returns the first `size_bytes` bytes, in the order of memory.
    pub fn bytes(&self, size_bytes: usize) -> &[u8] {
        &bytemuck::bytes_of(&self.0)[..size_bytes]
    }
}

/// Returns the bytes of `value`.
pub const fn bits_of<T: Plain>(value: T) -> Bits {
    const { assert!(size_of::<T>() <= 16) };
    let mut words = [0u64; 2];
    // SAFETY: by `NoUninit`, all bytes of `value` are initialised. There are at most 16 bytes, as
    // asserted above. No function of `bytemuck` copies bytes in a constant.
    unsafe {
        std::ptr::from_ref(&value)
            .cast::<u8>()
            .copy_to_nonoverlapping(words.as_mut_ptr().cast(), size_of::<T>());
    }
    Bits([u64::from_le(words[0]), u64::from_le(words[1])])
}
