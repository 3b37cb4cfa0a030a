//! Random numbers: functions from the positions of elements to their values.

pub mod fill;
mod normal;
pub mod philox;
mod single;

use std::mem::MaybeUninit;

use crate::blocks::RUN;
use crate::compiled::COMPILED_TYPES;
use crate::compiled_or;
use crate::vector::{Loop, vectorised};
use crate::{AnyElement, Float};

/// A function from positions to random elements.
pub trait Fill<T>: Copy + Send + Sync + 'static {
    /// Fills `part` with the elements from position `start` on. The length of `part` is at most
    /// [`RUN`]. This function and all functions that it calls must be marked `#[inline(always)]`.
    /// Otherwise, they are not compiled for vectors.
    fn fill(&self, start: usize, part: &mut [T]);

    /// The name of the fill in error messages.
    const NAME: &'static str;

    /// The fill in CUDA C++, as parts of a source. The first member of the structure `Operands` is
    /// `draws`. The function `fill` computes `CS_BLOCK` elements of the stored type `I` from a
    /// block of random words.
    const CUDA: &'static [&'static str];

    /// Calls `visit` with the bits of each member of `Operands`. A member has eight bytes.
    fn operands(&self, visit: &mut dyn FnMut(u64));
}

/// A function that writes elements with a fill, from a position on.
///
/// The fill must be readable at its address, and have the loop's type. The memory must be aligned
/// and writable for the elements. No other code may access it during the call.
pub type FillLoop = unsafe fn(*const u8, usize, *mut u8, usize);

/// The loops that are compiled with the library: uniform numbers of `f32` and `f64`.
static UNIFORM: [FillLoop; COMPILED_TYPES] = [
    fill_loop::<f32, fill::Uniform>,
    fill_loop::<f64, fill::Uniform>,
];
static NORMAL: [FillLoop; COMPILED_TYPES] = [
    fill_loop::<f32, fill::Normal>,
    fill_loop::<f64, fill::Normal>,
];

/// Returns the loop of [`Uniform`](fill::Uniform) numbers of `T`.
pub const fn uniform_loop<T: Float>() -> &'static FillLoop {
    compiled_or!(T, UNIFORM, fill_loop::<T, fill::Uniform> as FillLoop)
}

/// Returns the loop of [`Normal`](fill::Normal) numbers of `T`.
pub const fn normal_loop<T: Float>() -> &'static FillLoop {
    compiled_or!(T, NORMAL, fill_loop::<T, fill::Normal> as FillLoop)
}

/// Writes `count` elements with a fill of type `F`, from position `start` on.
///
/// # Safety
///
/// The contract of a [`FillLoop`] must hold.
pub unsafe fn fill_loop<T: AnyElement, F: Fill<T>>(
    fill: *const u8,
    start: usize,
    to: *mut u8,
    count: usize,
) {
    // SAFETY: the caller upholds this function's contract.
    let (fill, out): (&F, &mut [MaybeUninit<T>]) = unsafe {
        (
            &*fill.cast(),
            std::slice::from_raw_parts_mut(to.cast(), count),
        )
    };
    vectorised(Filling { fill, start }, out);
}

/// A fill, and the position of the first element that the loop writes.
struct Filling<'a, F> {
    fill: &'a F,
    start: usize,
}

impl<T: AnyElement, F: Fill<T>> Loop<[MaybeUninit<T>]> for Filling<'_, F> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<T>]) {
        // The elements are computed in a buffer, so that `fill` cannot read uninitialised memory.
        let mut stage = [T::zero(); RUN];
        let mut start = self.start;
        for part in out.chunks_mut(RUN) {
            let stage = &mut stage[..part.len()];
            self.fill.fill(start, stage);
            for (slot, value) in part.iter_mut().zip(stage) {
                slot.write(*value);
            }
            start += part.len();
        }
    }
}
