//! Which element types device memory may hold as they are.

use bytemuck::{NoUninit, Pod};
use half::{bf16, f16};

/// Elements whose bytes device memory holds as they are.
///
/// # Safety
///
/// `Raw` has the size and alignment of `Self`.
pub unsafe trait Plain: NoUninit {
    /// The bytes of a value in device memory, not yet checked: any bit pattern is valid.
    type Raw: Pod + Default + Send + Sync;

    /// The value that `raw` stands for.
    fn from_raw(raw: Self::Raw) -> Self;
}

macro_rules! number {
    ($($type:ident)+) => {
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

number!(f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64);

// SAFETY: both are one byte, aligned to one.
unsafe impl Plain for bool {
    type Raw = u8;

    #[inline]
    fn from_raw(raw: u8) -> Self {
        raw != 0
    }
}

/// The bytes of `value` as the lowest ones of a number.
pub(crate) const fn bits_of<T: Plain>(value: T) -> u64 {
    const { assert!(size_of::<T>() <= 8) };
    let mut bytes = [0; 8];
    // SAFETY: `NoUninit` says that each of the bytes of `value` is initialised; there are at most 8, as asserted above.
    // No function of bytemuck does this in a constant.
    unsafe {
        std::ptr::from_ref(&value)
            .cast::<u8>()
            .copy_to_nonoverlapping(bytes.as_mut_ptr(), size_of::<T>());
    }
    u64::from_le_bytes(bytes)
}
