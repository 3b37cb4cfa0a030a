//! Which element types device memory may hold as they are.

use half::{bf16, f16};

/// What makes a type safe to read from and write to device memory.
///
/// # Safety
///
/// Values have no padding bytes. `Raw` has the size and alignment of `Self`, has no padding
/// either, and every bit pattern is a valid `Raw`.
pub unsafe trait Plain: Sized {
    /// The bytes of a value as they stand in device memory, not yet checked.
    type Raw: Copy + Default + Send + Sync + 'static;

    /// The value that `raw` stands for.
    fn from_raw(raw: Self::Raw) -> Self;
}

macro_rules! number {
    ($($type:ident)+) => {
        $(
            // SAFETY: a primitive number, or a transparent wrapper of one, has no padding and no
            // invalid bit pattern, and `Raw` is the type itself.
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

number!(f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64);

// SAFETY: `bool` is one byte, aligned to one, without padding, as `u8` is.
unsafe impl Plain for bool {
    type Raw = u8;

    #[inline]
    fn from_raw(raw: u8) -> Self {
        raw != 0
    }
}

/// The bytes of `value` as the lowest ones of a number.
pub(crate) const fn bits_of<T: Plain + Copy>(value: T) -> u64 {
    const { assert!(size_of::<T>() <= 8) };
    let mut bytes = [0; 8];
    // SAFETY: an element is plain bytes without padding, by the contract of `Plain`, of which `value` has
    // `size_of::<T>()`; that is at most 8, as asserted above.
    unsafe {
        std::ptr::from_ref(&value)
            .cast::<u8>()
            .copy_to_nonoverlapping(bytes.as_mut_ptr(), size_of::<T>());
    }
    u64::from_le_bytes(bytes)
}
