//! Fourier transforms as plain data: the calls of cuFFT.

use crate::device::DevicePtr;

/// The key of a cuFFT plan. No transform is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FftPlan {
    pub kind: FftKind,
    /// The element type: `f64` if set, else `f32`.
    pub is_wide: bool,
    /// The rows of a matrix and the numbers of a row. If either side is real, these are real
    /// numbers. A single row is transformed along one axis, several rows along both.
    pub lengths: [i64; 2],
    /// The batch size: the number of rows, or of matrices.
    pub count: i64,
    pub from: FftPlaces,
    pub to: FftPlaces,
}

/// The types of the input and the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FftKind {
    /// Complex numbers to complex numbers.
    Complex,
    /// Rows of real numbers to the first halves of their spectra.
    Forward,
    /// The first halves of spectra, which are overwritten, to rows of real numbers.
    Inverse,
}

/// The layout of one side, in numbers of its type. Consecutive rows of a matrix begin `stride` ×
/// (row length) numbers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FftPlaces {
    /// The distance from one number of a row to the next.
    pub stride: i64,
    /// The distance between the first numbers of consecutive rows, or of consecutive matrices.
    pub distance: i64,
}

/// A transform by a plan. The two addresses may be equal if the layouts of both sides are equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FftCall {
    pub plan: FftPlan,
    /// Set if the exponents of a complex transform are positive. For real transforms, the kind
    /// selects the direction.
    pub is_inverse: bool,
    pub from: DevicePtr,
    pub to: DevicePtr,
}
