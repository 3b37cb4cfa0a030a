//! Fourier transforms of rows for `cachescope`: the crates [rustfft] and [realfft], compiled once
//! for `f32` and `f64`.
//!
//! Both are generic, and take long to compile for a type. Here that happens once: [`Transformed`]
//! is a table of plain functions over slices, none of which is generic. No signature names a type
//! of the two crates. So an edit of `cachescope`, or of a program that uses it, recompiles nothing
//! of them.
//!
//! Rows are adjacent, without gaps. No transform is scaled: the inverse of the transform of a row
//! is the row times its length. The caller passes all memory, except the table of roots of unity of
//! a plan, which is from the system's allocator. A bounded number of plans is kept. No lock is held
//! while a plan is made or used.
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

/// The items that the tests of this crate use; not for users.
#[doc(hidden)]
pub mod internal {
    pub use crate::plan_cache::{MOST, MOST_NUMBERS, PlanCache};
}

/// The sign of the exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From a row to its spectrum: negative.
    Forward,
    /// From a spectrum to its row: positive.
    Inverse,
}

/// There is no memory for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no memory for the plan of a transform")
    }
}

impl std::error::Error for OutOfMemory {}

/// A plan, or the lack of memory for it.
pub type OrOutOfMemory<T> = Result<T, OutOfMemory>;

/// The real numbers whose complex ones are transformed: `f32` and `f64`.
///
/// # Panics
///
/// The functions panic if the slices are not of whole rows, or if the scratch memory is shorter
/// than the plan requires.
pub trait Transformed: Copy + Send + Sync + sealed::Sealed + 'static {
    /// Returns a plan for transforms of rows of `length` complex numbers; at least one.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    fn plan(length: usize, direction: Direction) -> OrOutOfMemory<ComplexPlan<Self>>;

    /// Returns a plan for forward transforms of rows of `length` real numbers; at least one.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    fn plan_forward(length: usize) -> OrOutOfMemory<ForwardPlan<Self>>;

    /// Returns a plan for inverse transforms, from spectra to rows of `length` real numbers; at
    /// least one.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    fn plan_inverse(length: usize) -> OrOutOfMemory<InversePlan<Self>>;

    /// Overwrites rows with their transforms. The contents of `scratch` do not matter, here and
    /// below.
    fn transform(
        plan: &ComplexPlan<Self>,
        rows: &mut [Complex<Self>],
        scratch: &mut [Complex<Self>],
    );

    /// Writes the first halves of the spectra of rows of `n` real numbers: `n / 2 + 1` numbers
    /// each.
    fn forward(
        plan: &ForwardPlan<Self>,
        rows: &[Self],
        spectra: &mut [Complex<Self>],
        scratch: &mut [Complex<Self>],
    );

    /// Writes rows of `n` real numbers, times `factor`, given the first halves of their spectra.
    /// Each half has `width` numbers, of which the first `n / 2 + 1` are used; missing ones count
    /// as zero. The imaginary part of number 0 counts as zero. If `n` is even, the imaginary part
    /// of number `n / 2`, the last one, does too.
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

/// Compiles the functions for a type: none is generic, and none is inlined into another crate.
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
                    // One number is its own transform, even where it is infinite.
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
