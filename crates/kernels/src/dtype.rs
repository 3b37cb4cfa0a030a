//! Element types as values.

use std::fmt;

/// The type of an array's elements, as a value.
/// An array's method `dtype` returns it. `Display` writes the type as Rust spells it.
///
/// # Examples
///
/// ```
/// use cachescope_kernels::DType;
///
/// assert_eq!(DType::F32.size_bytes(), 4);
/// assert_eq!(DType::F32.to_string(), "f32");
/// assert_eq!(DType::F32.numpy_name(), "float32");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum DType {
    /// `f32`.
    F32,
    /// `f64`.
    F64,
    /// `half::f16`.
    F16,
    /// `half::bf16`.
    Bf16,
    /// `i8`.
    I8,
    /// `i16`.
    I16,
    /// `i32`.
    I32,
    /// `i64`.
    I64,
    /// `u8`.
    U8,
    /// `u16`.
    U16,
    /// `u32`.
    U32,
    /// `u64`.
    U64,
    /// `bool`.
    Bool,
    /// `Complex<f32>`, of 8 bytes.
    C32,
    /// `Complex<f64>`, of 16 bytes.
    C64,
}

impl DType {
    /// The number of element types: an exclusive bound of `dtype as usize`.
    #[doc(hidden)]
    pub const COUNT: usize = 15;

    /// Returns the size of an element in bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope_kernels::DType;
    ///
    /// assert_eq!(DType::Bool.size_bytes(), 1);
    /// assert_eq!(DType::C64.size_bytes(), 16);
    /// ```
    #[inline]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 | Self::C32 => 8,
            Self::C64 => 16,
        }
    }

    /// Returns the name of the corresponding NumPy type, as `np.dtype` accepts it.
    ///
    /// NumPy has no type for [`Bf16`](Self::Bf16). The package `ml_dtypes` adds this type as
    /// `bfloat16`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope_kernels::DType;
    ///
    /// assert_eq!(DType::I64.numpy_name(), "int64");
    /// assert_eq!(DType::C32.numpy_name(), "complex64");
    /// ```
    pub const fn numpy_name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::Bool => "bool",
            Self::C32 => "complex64",
            Self::C64 => "complex128",
        }
    }

    /// Returns the Rust name of the type.
    #[doc(hidden)]
    pub const fn name(self) -> &'static str {
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

    #[doc(hidden)]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::Bf16)
    }

    #[doc(hidden)]
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::C32 | Self::C64)
    }

    /// Returns the type in which functions and gradients are computed before they are rounded once.
    /// For `f16` and `bf16`, returns `f32`, because their range and precision are too small for
    /// counts and small factors.
    #[doc(hidden)]
    pub const fn computed_in(self) -> Self {
        match self {
            Self::F16 | Self::Bf16 => Self::F32,
            own => own,
        }
    }

    /// Returns the type of sums, [`AnyElement::Total`](crate::AnyElement::Total).
    #[doc(hidden)]
    pub const fn total(self) -> Self {
        match self {
            Self::I8 | Self::I16 | Self::I32 | Self::I64 | Self::Bool => Self::I64,
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => Self::U64,
            own => own,
        }
    }

    /// Returns the type of means, [`AnyElement::Average`](crate::AnyElement::Average).
    #[doc(hidden)]
    pub const fn average(self) -> Self {
        if self.is_float() || self.is_complex() {
            self
        } else {
            Self::F64
        }
    }

    /// Returns the type in which sums are computed: `f32` for `f16` and `bf16`, and the type of
    /// sums for the other types.
    #[doc(hidden)]
    pub const fn accumulator(self) -> Self {
        self.total().computed_in()
    }

    /// Returns the type in which running sums and products are computed: `f64` for floats,
    /// `Complex<f64>` for complex numbers, and the type of sums for other types.
    #[doc(hidden)]
    pub const fn wide(self) -> Self {
        match self {
            Self::F32 | Self::F64 | Self::F16 | Self::Bf16 => Self::F64,
            Self::C32 | Self::C64 => Self::C64,
            whole => whole.total(),
        }
    }

    /// Returns the name of the type in the CUDA source of kernels.
    #[doc(hidden)]
    pub const fn in_cuda(self) -> &'static str {
        match self {
            Self::C32 => "c32",
            Self::C64 => "c64",
            real => real.name(),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::any::type_name;

    use half::{bf16, f16};
    use num_complex::Complex;

    use super::DType;
    use crate::AnyElement;

    fn agrees<T: AnyElement>(number: usize) {
        assert_eq!(T::DTYPE as usize, number);
        let path = type_name::<T>();
        assert_eq!(T::NAME, &path[path.rfind("::").map_or(0, |at| at + 2)..]);
        assert_eq!(T::DTYPE.to_string(), T::NAME);
        assert_eq!(T::DTYPE.size_bytes(), size_of::<T>());
        let numpy_bits = T::DTYPE
            .numpy_name()
            .trim_start_matches(char::is_alphabetic);
        let bits = numpy_bits.parse().unwrap_or(8); // `bool` has 8 bits.
        assert_eq!(bits, 8 * size_of::<T>());
        assert!(number < DType::COUNT);
        assert_eq!(T::DTYPE.total(), T::Total::DTYPE);
        assert_eq!(T::DTYPE.average(), T::Average::DTYPE);
        assert_eq!(T::DTYPE.accumulator(), T::Accumulator::DTYPE);
        assert_eq!(T::DTYPE.wide(), T::Wide::DTYPE);
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
