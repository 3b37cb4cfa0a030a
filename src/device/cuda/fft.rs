//! Fourier transforms as plain data: the calls of cuFFT.

use crate::device::DevicePtr;

/// What a plan of cuFFT is made for. No transform is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FftPlan {
    pub(crate) kind: FftKind,
    /// Whether the numbers are of `f64`; else they are of `f32`.
    pub(crate) is_wide: bool,
    /// The rows of a matrix and the numbers of a row: real ones where either side is real. One row is transformed
    /// alone, several along both axes.
    pub(crate) lengths: [i64; 2],
    /// How many rows, or matrices, there are.
    pub(crate) count: i64,
    pub(crate) from: FftPlaces,
    pub(crate) to: FftPlaces,
}

/// What is transformed to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FftKind {
    /// Complex numbers to complex ones.
    Complex,
    /// Rows of real numbers to the first halves of their spectra.
    Forward,
    /// The first halves of spectra, which are overwritten, to rows of real numbers.
    Inverse,
}

/// Where the numbers of one side stand, in numbers of its type. The rows of a matrix are `stride` times as far apart as
/// they are long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FftPlaces {
    /// From one number of a row to the next.
    pub(crate) stride: i64,
    /// From the first number of a row, or matrix, to that of the next.
    pub(crate) distance: i64,
}

/// A transform by a plan. Both addresses may be the same one where both sides' places are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FftCall {
    pub(crate) plan: FftPlan,
    /// Whether the exponents of complex numbers are positive. Of real ones the kind says so.
    pub(crate) is_inverse: bool,
    pub(crate) from: DevicePtr,
    pub(crate) to: DevicePtr,
}
