//! Transforms of contiguous rows.

use std::mem::MaybeUninit;

use cachescope_fft::{ComplexPlan, ForwardPlan, InversePlan};
use num_complex::Complex;

use crate::array::{AnyElement, Number};
use crate::ops::descriptors::Sample;
use cachescope_kernels::moves::copies::copy_run;
use cachescope_kernels::sort::digits::initialised;

/// A transform of rows.
pub(super) trait RowTransform: Clone + Send + Sync + 'static {
    type From: AnyElement;
    type To: AnyElement;
    type Sample: Sample;

    fn lengths(&self) -> [usize; 2];

    /// Returns the length of a thread's scratch memory, in complex numbers.
    fn scratch_length(&self) -> usize;

    /// Writes the transforms of the rows in `from` to the rows in `to`. The rows follow each other
    /// without gaps.
    fn transform(
        &self,
        from: &[Self::From],
        to: &mut [MaybeUninit<Self::To>],
        scratch: &mut [Complex<Self::Sample>],
    );
}

/// Transforms from complex to complex numbers, times `factor`.
#[derive(Clone)]
pub(super) struct ComplexRows<T> {
    pub(super) plan: ComplexPlan<T>,
    pub(super) factor: Option<T>,
}

/// The maximum number of numbers that are copied and scaled at once. They fit the first-level
/// cache.
pub(super) const PIECE: usize = 1 << 10;

impl<T: Sample> RowTransform for ComplexRows<T>
where
    Complex<T>: Number<Part = T>,
{
    type From = Complex<T>;
    type To = Complex<T>;
    type Sample = T;

    fn lengths(&self) -> [usize; 2] {
        [self.plan.length(); 2]
    }

    fn scratch_length(&self) -> usize {
        self.plan.scratch_length()
    }

    fn transform(
        &self,
        from: &[Complex<T>],
        to: &mut [MaybeUninit<Complex<T>>],
        scratch: &mut [Complex<T>],
    ) {
        assert_eq!(from.len(), to.len(), "as many numbers as there were");
        for (from, to) in from.chunks(PIECE).zip(to.chunks_mut(PIECE)) {
            // SAFETY: both pieces have equal lengths. A mutable slice overlaps no other, and the
            // copy writes all of it.
            let piece = unsafe {
                copy_run(from.as_ptr(), to.as_mut_ptr(), from.len(), [1, 1]);
                initialised(to)
            };
            if let Some(factor) = self.factor {
                T::scale(piece, factor);
            }
        }
        // SAFETY: the pieces cover all of `to`.
        T::transform(&self.plan, unsafe { initialised(to) }, scratch);
    }
}

/// Transforms from real numbers to the first halves of their spectra.
#[derive(Clone)]
pub(super) struct ForwardRows<T> {
    pub(super) plan: ForwardPlan<T>,
}

impl<T: Sample> RowTransform for ForwardRows<T>
where
    Complex<T>: Number<Part = T>,
{
    type From = T;
    type To = Complex<T>;
    type Sample = T;

    fn lengths(&self) -> [usize; 2] {
        [self.plan.length(), self.plan.length() / 2 + 1]
    }

    fn scratch_length(&self) -> usize {
        self.plan.scratch_length()
    }

    fn transform(
        &self,
        from: &[T],
        to: &mut [MaybeUninit<Complex<T>>],
        scratch: &mut [Complex<T>],
    ) {
        T::forward(&self.plan, from, zeroed(to), scratch);
    }
}

/// Transforms from the first `width` numbers of spectra to real numbers, times `factor`.
#[derive(Clone)]
pub(super) struct InverseRows<T> {
    pub(super) plan: InversePlan<T>,
    pub(super) width: usize,
    pub(super) factor: T,
}

impl<T: Sample> RowTransform for InverseRows<T>
where
    Complex<T>: Number<Part = T>,
{
    type From = Complex<T>;
    type To = T;
    type Sample = T;

    fn lengths(&self) -> [usize; 2] {
        [self.width, self.plan.length()]
    }

    fn scratch_length(&self) -> usize {
        self.plan.scratch_length()
    }

    fn transform(
        &self,
        from: &[Complex<T>],
        to: &mut [MaybeUninit<T>],
        scratch: &mut [Complex<T>],
    ) {
        let spectra = (from, self.width);
        T::inverse(&self.plan, spectra, zeroed(to), self.factor, scratch);
    }
}

pub(super) fn zeroed<T: AnyElement>(numbers: &mut [MaybeUninit<T>]) -> &mut [T] {
    numbers.fill(MaybeUninit::new(T::zero()));
    // SAFETY: all of them have been written.
    unsafe { initialised(numbers) }
}
