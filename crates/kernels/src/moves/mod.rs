//! Loops that move elements. They depend only on the size of an element, not on its type.

/// Calls a function with a type of `$bytes` bytes in place of `$bits`. The alignment of this
/// replacement type never exceeds the alignment of an element type of `$bytes` bytes.
macro_rules! by_bytes {
    ($bytes:expr, $name:ident::<$bits:ident>($($argument:expr),*)) => {
        match $bytes {
            1 => { type $bits = u8; $name::<$bits>($($argument),*) }
            2 => { type $bits = u16; $name::<$bits>($($argument),*) }
            4 => { type $bits = u32; $name::<$bits>($($argument),*) }
            8 => { type $bits = [u32; 2]; $name::<$bits>($($argument),*) }
            16 => { type $bits = [u64; 2]; $name::<$bits>($($argument),*) }
            other => unreachable!("elements of {other} bytes"),
        }
    };
}

pub mod compaction;
pub mod copies;
pub mod marks;
pub mod picks;
pub mod scatters;
pub mod triangles;
pub mod views;
