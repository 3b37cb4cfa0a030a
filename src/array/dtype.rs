//! AnyElement types as values.

/// The type of an array's elements, for code that is compiled once for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DType {
    /// `f32`
    F32,
    /// `f64`
    F64,
    /// `f16`
    F16,
    /// `bf16`
    Bf16,
    /// `i8`
    I8,
    /// `i16`
    I16,
    /// `i32`
    I32,
    /// `i64`
    I64,
    /// `u8`
    U8,
    /// `u16`
    U16,
    /// `u32`
    U32,
    /// `u64`
    U64,
    /// `bool`
    Bool,
    /// `Complex<f32>`
    C32,
    /// `Complex<f64>`
    C64,
}

impl DType {
    /// How many there are; each as a number is below.
    pub(crate) const COUNT: usize = 15;

    /// The size of an element.
    #[inline]
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 | Self::C32 => 8,
            Self::C64 => 16,
        }
    }

    /// The type's name as Rust spells it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::Bool => "bool",
            Self::C32 => "Complex<f32>",
            Self::C64 => "Complex<f64>",
        }
    }

    /// What kernels call the type.
    pub(crate) const fn in_cuda(self) -> &'static str {
        match self {
            Self::C32 => "c32",
            Self::C64 => "c64",
            real => real.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::any::type_name;

    use half::{bf16, f16};
    use num_complex::Complex;

    use super::DType;
    use crate::array::AnyElement;

    fn agrees<T: AnyElement>(number: usize) {
        assert_eq!(T::DTYPE as usize, number);
        let path = type_name::<T>();
        assert_eq!(T::NAME, &path[path.rfind("::").map_or(0, |at| at + 2)..]);
        assert_eq!(T::DTYPE.bytes(), size_of::<T>());
        assert!(number < DType::COUNT);
    }

    #[test]
    fn each_type_is_its_own() {
        agrees::<f32>(0);
        agrees::<f64>(1);
        agrees::<f16>(2);
        agrees::<bf16>(3);
        agrees::<i8>(4);
        agrees::<i16>(5);
        agrees::<i32>(6);
        agrees::<i64>(7);
        agrees::<u8>(8);
        agrees::<u16>(9);
        agrees::<u32>(10);
        agrees::<u64>(11);
        agrees::<bool>(12);
        agrees::<Complex<f32>>(13);
        agrees::<Complex<f64>>(14);
    }
}
