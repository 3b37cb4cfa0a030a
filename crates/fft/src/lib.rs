//! Fourier transforms of rows for `cachescope`: the crates [rustfft] and [realfft], compiled once
//! for `f32` and `f64`.
//!
//! rustfft and realfft are generic, and compiling them for a type takes long. Therefore this crate
//! compiles them once. The functions of [`Transformed`] take slices, and are not generic. No
//! signature names a type of rustfft or realfft. If `cachescope` or a program that uses it is
//! edited, nothing of rustfft or realfft is compiled again.
//!
//! Rows are adjacent, without gaps. No transform is scaled, so the inverse of a row's transform is
//! the row times its length. The caller passes all memory except a plan's tables, which the
//! system's allocator provides. A bounded number of plans is cached. No lock is held while a plan
//! is made or used.
//!
//! # Examples
//!
//! ```
//! use cachescope_fft::{Complex, Direction, Transformed};
//!
//! let plan = f64::plan(4, Direction::Forward)?;
//! let mut row = [1.0, 2.0, 3.0, 4.0].map(Complex::from);
//! let mut scratch = vec![Complex::ZERO; plan.scratch_length()];
//! f64::transform(&plan, &mut row, &mut scratch);
//! assert_eq!(row[0], Complex::new(10.0, 0.0));
//! assert_eq!(row[1], Complex::new(-2.0, 2.0));
//! # Ok::<(), cachescope_fft::OutOfMemory>(())
//! ```
//!
//! [rustfft]: https://docs.rs/rustfft
//! [realfft]: https://docs.rs/realfft

#![forbid(unsafe_code)]

mod plan_cache;
mod plans;
mod rows;

use std::fmt;

pub use num_complex::Complex;

pub use plans::{ComplexPlan, ForwardPlan, InversePlan};

/// The items that the tests of this crate use. They are not for users.
#[doc(hidden)]
pub mod internal {
    pub use crate::plan_cache::{MOST, MOST_NUMBERS, PlanCache};
}

/// The direction of a transform, which determines the sign of the exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The direction from a row to its spectrum, with a negative exponent.
    Forward,
    /// The direction from a spectrum to its row, with a positive exponent.
    Inverse,
}

/// The error that there is no memory for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no memory for the plan of a transform")
    }
}

impl std::error::Error for OutOfMemory {}

/// A plan, or [`OutOfMemory`].
pub type OrOutOfMemory<T> = Result<T, OutOfMemory>;

/// The types of the real and imaginary parts of transformed numbers: `f32` and `f64`.
///
/// # Panics
///
/// The functions panic if a slice does not consist of whole rows. They also panic if the scratch
/// memory is shorter than the plan requires.
pub trait Transformed: Copy + Send + Sync + sealed::Sealed + 'static {
    /// Returns a plan for transforms of rows of `length` complex numbers. `length` must be at least
    /// 1.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfMemory`].
    fn plan(length: usize, direction: Direction) -> OrOutOfMemory<ComplexPlan<Self>>;

    /// Returns a plan for forward transforms of rows of `length` real numbers. `length` must be at
    /// least 1.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfMemory`].
    fn plan_forward(length: usize) -> OrOutOfMemory<ForwardPlan<Self>>;

    /// Returns a plan for inverse transforms from spectra to rows of `length` real numbers.
    /// `length` must be at least 1.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfMemory`].
    fn plan_inverse(length: usize) -> OrOutOfMemory<InversePlan<Self>>;

    /// Overwrites rows with their transforms. In all functions, the initial contents of `scratch`
    /// do not matter.
    fn transform(
        plan: &ComplexPlan<Self>,
        rows: &mut [Complex<Self>],
        scratch: &mut [Complex<Self>],
    );

    /// Writes the first halves of the spectra of rows of `n` real numbers. Each half has
    /// `n / 2 + 1` numbers.
    fn forward(
        plan: &ForwardPlan<Self>,
        rows: &[Self],
        spectra: &mut [Complex<Self>],
        scratch: &mut [Complex<Self>],
    );

    /// Writes rows of `n` real numbers, multiplied by `factor`, from the first halves of their
    /// spectra. Each half has `width` numbers, of which the first `n / 2 + 1` are used. Missing
    /// numbers count as zero. The imaginary part of number 0 counts as zero. If `n` is even, the
    /// imaginary part of number `n / 2` also counts as zero.
    fn inverse(
        plan: &InversePlan<Self>,
        spectra: (&[Complex<Self>], usize),
        rows: &mut [Self],
        factor: Self,
        scratch: &mut [Complex<Self>],
    );

    /// Multiplies numbers by `factor`.
    fn scale(numbers: &mut [Complex<Self>], factor: Self);
}

mod sealed {
    pub trait Sealed {}
}

/// Implements [`Transformed`] for a type. The functions are neither generic nor inlined into
/// another crate.
macro_rules! real {
    ($($type:ident)+) => {
        $(
            impl sealed::Sealed for $type {}

            impl Transformed for $type {
                #[inline(never)]
                fn plan(length: usize, direction: Direction) -> OrOutOfMemory<ComplexPlan<Self>> {
                    static CACHE: plan_cache::PlanCache<dyn rustfft::Fft<$type>> = plan_cache::PlanCache::new();
                    plans::complex(&CACHE, length, direction)
                }

                #[inline(never)]
                fn plan_forward(length: usize) -> OrOutOfMemory<ForwardPlan<Self>> {
                    static CACHE: plan_cache::PlanCache<dyn realfft::RealToComplex<$type>> = plan_cache::PlanCache::new();
                    plans::forward(&CACHE, length)
                }

                #[inline(never)]
                fn plan_inverse(length: usize) -> OrOutOfMemory<InversePlan<Self>> {
                    static CACHE: plan_cache::PlanCache<dyn realfft::ComplexToReal<$type>> = plan_cache::PlanCache::new();
                    plans::inverse(&CACHE, length)
                }

                #[inline(never)]
                fn transform(
                    plan: &ComplexPlan<Self>,
                    rows: &mut [Complex<Self>],
                    scratch: &mut [Complex<Self>],
                ) {
                    // A single number is its own transform, even if it is infinite.
                    if plan.length() > 1 {
                        plan.rows.process_with_scratch(rows, scratch);
                    }
                }

                #[inline(never)]
                fn forward(
                    plan: &ForwardPlan<Self>,
                    rows: &[Self],
                    spectra: &mut [Complex<Self>],
                    scratch: &mut [Complex<Self>],
                ) {
                    rows::forward(&*plan.rows, rows, spectra, scratch);
                }

                #[inline(never)]
                fn inverse(
                    plan: &InversePlan<Self>,
                    spectra: (&[Complex<Self>], usize),
                    rows: &mut [Self],
                    factor: Self,
                    scratch: &mut [Complex<Self>],
                ) {
                    rows::inverse(&*plan.rows, spectra, rows, factor, scratch);
                }

                #[inline(never)]
                fn scale(numbers: &mut [Complex<Self>], factor: Self) {
                    let parts: &mut [Self] = bytemuck::cast_slice_mut(numbers);
                    parts.iter_mut().for_each(|part| *part *= factor);
                }
            }
        )+
    };
}

real!(f32 f64);
