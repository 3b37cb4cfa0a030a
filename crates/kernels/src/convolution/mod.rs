//! Direct convolutions of `f32` and `f64`, and their gradients. No matrix of image columns (im2col)
//! is stored.
//!
//! A job packs a piece of an image into planes with zeros around them ([`pack`], [`plan`]). The
//! planes are in scratch memory that fits into the second-level cache. Then the job sums products
//! of the planes with the kernel ([`gather`]) or with the gradient of the result ([`correlate`]).

pub mod correlate;
pub mod gather;
mod lengths;
pub mod pack;
pub mod plan;

use std::mem::MaybeUninit;
use std::ops::Range;

use self::correlate::Correlation;
use self::gather::{Gather, HEIGHT};
pub use self::lengths::ConvLengths;
use crate::pointers::WritePtr;
use crate::registers::{RegisterFloat, RegisterLoop, VectorOf, with_longest_registers};

/// Writes `height` elements with stride `step` to `line`, followed by zeros.
///
/// # Safety
///
/// All `height` elements must be readable.
#[inline(always)]
pub unsafe fn pack_line<T: RegisterFloat>(
    from: *const T,
    step: isize,
    height: usize,
    line: &mut [MaybeUninit<T>; HEIGHT],
) {
    // SAFETY: the caller upholds this function's contract.
    let at = |next: usize| unsafe { from.wrapping_offset(next as isize * step).read() };
    if height == HEIGHT {
        *line = std::array::from_fn(|next| MaybeUninit::new(at(next)));
        return;
    }
    *line = [MaybeUninit::new(T::zero()); HEIGHT];
    for (next, slot) in line.iter_mut().enumerate().take(height) {
        slot.write(at(next));
    }
}

/// The loops of convolutions of a type.
pub trait ConvFloat: RegisterFloat {
    /// Runs some jobs of a convolution or of the gradient of its images.
    ///
    /// # Safety
    ///
    /// The operands must be alive and not written to. No other code may write the results of the
    /// jobs.
    unsafe fn gather(task: &Gather<Self>, to: WritePtr<Self>, jobs: Range<usize>);

    /// Runs some jobs of the gradient of a kernel.
    ///
    /// # Safety
    ///
    /// The contract of [`gather`](Self::gather) must hold.
    unsafe fn correlate(task: &Correlation<Self>, to: WritePtr<Self>, jobs: Range<usize>);
}

macro_rules! conv_float {
    ($($type:ty)+) => {
        $(
            impl ConvFloat for $type {
                unsafe fn gather(task: &Gather<Self>, to: WritePtr<Self>, jobs: Range<usize>) {
                    // By this function's contract, the invariant of `Jobs` holds.
                    with_longest_registers::<Self>(Jobs(task, to, jobs));
                }

                unsafe fn correlate(
                    task: &Correlation<Self>,
                    to: WritePtr<Self>,
                    jobs: Range<usize>,
                ) {
                    // By this function's contract, the invariant of `Jobs` holds.
                    with_longest_registers::<Self>(Jobs(task, to, jobs));
                }
            }
        )+
    };
}

conv_float!(f32 f64);

/// Some jobs of a task, as a loop over registers.
///
/// Invariant: The operands of the task are alive and not written to. No other code writes the
/// results of the jobs.
struct Jobs<'a, Task, T>(&'a Task, WritePtr<T>, Range<usize>);

impl<T: RegisterFloat> RegisterLoop<T> for Jobs<'_, Gather<T>, T> {
    #[inline(always)]
    unsafe fn run<V: VectorOf<T>>(self) {
        // SAFETY: the caller upholds this function's contract, and the invariant of [`Jobs`] holds.
        unsafe { gather::run::<T, V>(self.0, self.1, self.2) };
    }
}

impl<T: RegisterFloat> RegisterLoop<T> for Jobs<'_, Correlation<T>, T> {
    #[inline(always)]
    unsafe fn run<V: VectorOf<T>>(self) {
        // SAFETY: the caller upholds this function's contract, and the invariant of [`Jobs`] holds.
        unsafe { correlate::run::<T, V>(self.0, self.1, self.2) };
    }
}
