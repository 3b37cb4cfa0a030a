//! What the element types are called in a kernel's text, and how values of them are passed.

use crate::array::Element;

/// What values of the stored type `name` are computed in.
pub(super) fn computed_in(name: &'static str) -> &'static str {
    match name {
        "f16" | "bf16" => "f32",
        same => same,
    }
}

/// The bytes of `value` as the lowest ones of a number.
pub(crate) const fn bits_of<T: Element>(value: T) -> u64 {
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
