//! Transforms of rows of real numbers. realfft overwrites its input, so it gets a copy of the input
//! in the scratch memory.

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use realfft::{ComplexToReal, RealToComplex};
use rustfft::FftNum;

use crate::Complex;

/// Implements [`Transformed::forward`](crate::Transformed::forward).
pub(crate) fn forward<T: FftNum + Pod>(
    plan: &dyn RealToComplex<T>,
    rows: &[T],
    spectra: &mut [Complex<T>],
    scratch: &mut [Complex<T>],
) where
    Complex<T>: Pod,
{
    let (length, width) = (plan.len(), plan.complex_len());
    assert_eq!(
        rows.len() / length,
        spectra.len() / width,
        "the numbers of rows and spectra differ"
    );
    if length == 1 {
        // A single number is its own transform, even if it is infinite.
        let pairs = spectra.iter_mut().zip(rows);
        return pairs.for_each(|(spectrum, &row)| *spectrum = Complex::new(row, T::zero()));
    }
    let (copy, scratch) = scratch.split_at_mut(length.div_ceil(2));
    let copy: &mut [T] = &mut cast_slice_mut(copy)[..length];
    for (row, spectrum) in rows
        .chunks_exact(length)
        .zip(spectra.chunks_exact_mut(width))
    {
        copy.copy_from_slice(row);
        let done = plan.process_with_scratch(copy, spectrum, scratch);
        done.expect("the lengths match the plan");
    }
}

/// Implements [`Transformed::inverse`](crate::Transformed::inverse).
pub(crate) fn inverse<T: FftNum + Pod>(
    plan: &dyn ComplexToReal<T>,
    (spectra, width): (&[Complex<T>], usize),
    rows: &mut [T],
    factor: T,
    scratch: &mut [Complex<T>],
) where
    Complex<T>: Pod,
{
    let length = plan.len();
    let count = rows.len() / length;
    assert_eq!(
        spectra.len(),
        count * width,
        "the numbers of rows and spectra differ"
    );
    if length == 1 {
        let pairs = rows.iter_mut().zip(spectra.chunks_exact(width));
        return pairs.for_each(|(row, spectrum)| *row = spectrum[0].re * factor);
    }
    let (copy, scratch) = scratch.split_at_mut(plan.complex_len());
    let there = width.min(copy.len());
    for (number, row) in rows.chunks_exact_mut(length).enumerate() {
        // The loop is over real and imaginary parts, so that the compiler vectorises it.
        let spectrum: &[T] = cast_slice(&spectra[number * width..][..there]);
        let parts: &mut [T] = cast_slice_mut(&mut copy[..there]);
        for (slot, &part) in parts.iter_mut().zip(spectrum) {
            *slot = part * factor;
        }
        copy[there..].fill(Complex::new(T::zero(), T::zero()));
        copy[0].im = T::zero();
        if length.is_multiple_of(2) {
            copy[length / 2].im = T::zero();
        }
        let done = plan.process_with_scratch(copy, row, scratch);
        done.expect("the lengths match the plan, and the outer numbers are real");
    }
}
