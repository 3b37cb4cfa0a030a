//! Fourier transforms as plain data: the calls of cuFFT.

use crate::device::DevicePtr;

/// The key of a cuFFT plan. No transform is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FftPlan {
    pub kind: FftKind,
    /// The element type: `f64` if set, else `f32`.
    pub is_wide: bool,
    /// The number of rows of a matrix, and the length of a row in elements. If the input or the
    /// output is real, the length counts real elements. A single row is transformed along one axis,
    /// several rows along two axes.
    pub lengths: [i64; 2],
    /// The batch size: the number of rows, or of matrices.
    pub count: i64,
    pub from: FftPlaces,
    pub to: FftPlaces,
}

/// The types of the input and the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FftKind {
    /// A transform of complex numbers to complex numbers.
    Complex,
    /// A transform of rows of real numbers to the first halves of their spectra.
    Forward,
    /// A transform of the first halves of spectra to rows of real numbers. The spectra are
    /// overwritten.
    Inverse,
}

/// The layout of the input or of the output, in elements. Consecutive rows of a matrix begin
/// `stride` × (row length) elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FftPlaces {
    /// The distance between consecutive elements of a row.
    pub stride: i64,
    /// The distance between the first elements of consecutive rows, or of consecutive matrices.
    pub distance: i64,
}

/// A transform by a plan. If input and output have equal layouts, they may share one address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FftCall {
    pub plan: FftPlan,
    /// Set if the exponents of a complex transform are positive. For real transforms, the kind
    /// selects the direction.
    pub is_inverse: bool,
    pub from: DevicePtr,
    pub to: DevicePtr,
}
