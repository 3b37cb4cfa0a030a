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

/// A function from positions to elements.
pub trait Fill<T>: Copy + Send + Sync + 'static {
    /// Writes the elements from position `start` on to `part`, whose length is at most [`RUN`].
    /// This function and all functions that it calls must be marked `#[inline(always)]`, so that
    /// they are compiled for vectors.
    fn fill(&self, start: usize, part: &mut [T]);

    /// The name in error messages.
    const NAME: &'static str;

    /// The function in CUDA C++, in parts. The first member of the structure `Operands` is `draws`.
    /// The function `fill` makes `CS_BLOCK` elements of the stored type `I` from a block of words.
    const CUDA: &'static [&'static str];

    /// Calls `visit` with the bits of every member of `Operands`, each of which takes eight bytes.
    fn operands(&self, visit: &mut dyn FnMut(u64));
}

/// A function that writes elements by a fill, from a position on.
///
/// The fill must be readable at its address and of the loop's type. The memory must be aligned and
/// writable for the elements, and nothing else may use it.
pub type FillLoop = unsafe fn(*const u8, usize, *mut u8, usize);

/// The loops that are compiled with the library, for `f32` and `f64`.
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

/// Writes `count` elements with a fill of type `F`, from the position `start` on.
///
/// # Safety
///
/// The contract of a [`FillLoop`].
pub unsafe fn fill_loop<T: AnyElement, F: Fill<T>>(
    fill: *const u8,
    start: usize,
    to: *mut u8,
    count: usize,
) {
    // SAFETY: by this function's contract.
    let (fill, out): (&F, &mut [MaybeUninit<T>]) = unsafe {
        (
            &*fill.cast(),
            std::slice::from_raw_parts_mut(to.cast(), count),
        )
    };
    vectorised(Filling { fill, start }, out);
}

/// Writes the elements from `start` on.
struct Filling<'a, F> {
    fill: &'a F,
    start: usize,
}

impl<T: AnyElement, F: Fill<T>> Loop<[MaybeUninit<T>]> for Filling<'_, F> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<T>]) {
        // Computed in a buffer, so that `fill` cannot read uninitialised memory.
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
