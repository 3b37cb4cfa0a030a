//! Type-erased fills of arrays with random numbers, and the fills without parameters: uniform and
//! normal numbers.

use super::generator::{UNIFORM, normal_sequence};
use crate::array::{AnyElement, DType, Float};
#[cfg(feature = "cuda")]
use crate::ops::cuda::FillKernels;
use crate::ops::host::{TakeFill, TypedFill};
use cachescope_kernels::compiled::COMPILED_TYPES;
use cachescope_kernels::compiled_or;
use cachescope_kernels::random::fill::{Normal, Uniform, words_of};
use cachescope_kernels::random::philox::Draws;
use cachescope_kernels::random::{Fill, normal_loop, uniform_loop};

/// The type of the elements that a fill computes, and its kernels.
pub(super) struct FillOf {
    pub(super) dtype: DType,
    #[cfg(feature = "cuda")]
    pub(super) kernels: FillKernels,
}

impl FillOf {
    #[cfg_attr(
        not(feature = "cuda"),
        expect(
            clippy::extra_unused_type_parameters,
            reason = "kernels of CUDA devices use it"
        )
    )]
    pub(super) const fn new<T: AnyElement, F: Fill<T>>() -> Self {
        Self {
            dtype: T::DTYPE,
            #[cfg(feature = "cuda")]
            kernels: FillKernels::of::<T, F>(),
        }
    }
}

/// A fill without parameters, for arrays of one type: the numbers are functions of the draws alone.
pub(super) struct DrawnFill {
    /// The sequence of the generator, and the number of words of a draw.
    pub(super) draws: (u32, usize),
    pub(super) fill: FillOf,
    /// The function that constructs the fill from draws, and passes the fill to its second
    /// argument.
    pub(super) make: fn(Draws, TakeFill<'_>),
}

impl DrawnFill {
    pub(super) const fn uniform<T: Float>() -> Self {
        Self {
            draws: (UNIFORM, words_of::<T>()),
            fill: FillOf::new::<T, Uniform>(),
            make: |draws, give| {
                // SAFETY: `uniform_loop` is the loop for uniform numbers of `T`.
                give(&unsafe {
                    TypedFill::<T, _>::with_loop(Uniform(draws), *uniform_loop::<T>())
                });
            },
        }
    }

    pub(super) const fn normal<T: Float>() -> Self {
        let words = words_of::<T>();
        Self {
            draws: (normal_sequence(words), words),
            fill: FillOf::new::<T, Normal>(),
            make: |draws, give| {
                // SAFETY: `normal_loop` is the loop for normal numbers of `T`.
                give(&unsafe { TypedFill::<T, _>::with_loop(Normal(draws), *normal_loop::<T>()) });
            },
        }
    }
}

/// The fills of `f32` and `f64`, which are compiled with the library.
static UNIFORM_FILLS: [DrawnFill; COMPILED_TYPES] =
    [DrawnFill::uniform::<f32>(), DrawnFill::uniform::<f64>()];
static NORMAL_FILLS: [DrawnFill; COMPILED_TYPES] =
    [DrawnFill::normal::<f32>(), DrawnFill::normal::<f64>()];

/// Returns the fill of arrays of `T` with uniform numbers.
pub(super) const fn uniform_fill<T: Float>() -> &'static DrawnFill {
    compiled_or!(T, UNIFORM_FILLS, DrawnFill::uniform::<T>())
}

/// Like [`uniform_fill`], for normal numbers.
pub(super) const fn normal_fill<T: Float>() -> &'static DrawnFill {
    compiled_or!(T, NORMAL_FILLS, DrawnFill::normal::<T>())
}
