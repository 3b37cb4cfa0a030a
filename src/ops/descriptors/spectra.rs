//! The element types of Fourier transforms.

use crate::array::DType;

/// Returns the type of the spectra of real numbers of `dtype`.
pub(in crate::ops) fn spectrum_of(dtype: DType) -> DType {
    match dtype {
        DType::F32 => DType::C32,
        DType::F64 => DType::C64,
        other => unreachable!("{other} has no Fourier transforms"),
    }
}

/// Returns the type of the real and imaginary parts of complex numbers of `dtype`.
pub(in crate::ops) fn part_of(dtype: DType) -> DType {
    match dtype {
        DType::C32 => DType::F32,
        DType::C64 => DType::F64,
        other => unreachable!("{other} is not a complex type"),
    }
}
