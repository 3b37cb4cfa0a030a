//! The element types of Fourier transforms.

use crate::array::Float;

/// The bound of the generic implementations. Programs do not name the bound, so only the library
/// compiles the implementations.
pub(in crate::ops) trait Sample: Float + cachescope_fft::Transformed {}

impl Sample for f32 {}
impl Sample for f64 {}
