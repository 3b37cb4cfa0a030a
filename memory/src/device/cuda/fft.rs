//! Fourier transforms as plain data: the calls of cuFFT.

use crate::device::DevicePtr;

/// What a plan of cuFFT is made for. No transform is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FftPlan {
    pub kind: FftKind,
    /// Whether the numbers are of `f64`; else they are of `f32`.
    pub is_wide: bool,
    /// The rows of a matrix and the numbers of a row: real ones where either side is real. One row
    /// is transformed alone, several along both axes.
    pub lengths: [i64; 2],
    /// How many rows, or matrices, there are.
    pub count: i64,
    pub from: FftPlaces,
    pub to: FftPlaces,
}

/// What is transformed to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FftKind {
    /// Complex numbers to complex ones.
    Complex,
    /// Rows of real numbers to the first halves of their spectra.
    Forward,
    /// The first halves of spectra, which are overwritten, to rows of real numbers.
    Inverse,
}

/// Where the numbers of one side stand, in numbers of its type. The rows of a matrix are `stride`
/// times as far apart as they are long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FftPlaces {
    /// From one number of a row to the next.
    pub stride: i64,
    /// From the first number of a row, or matrix, to that of the next.
    pub distance: i64,
}

/// A transform by a plan. Both addresses may be the same one where both sides' places are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FftCall {
    pub plan: FftPlan,
    /// Whether the exponents of complex numbers are positive. Of real ones the kind says so.
    pub is_inverse: bool,
    pub from: DevicePtr,
    pub to: DevicePtr,
}
