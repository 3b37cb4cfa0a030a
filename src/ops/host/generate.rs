//! Arrays computed from the positions of their elements alone.

use std::mem::MaybeUninit;

use super::blocked::RUN;
use super::launch::{Work, launch};
use super::memory::{Output, computed};
use crate::array::{AnyElement, Array, Shape};
use crate::error::Result;
use crate::ops::order::HostOrder;
use crate::ops::vector::{Loop, vectorised};

/// The cost of a random number, in bytes read or written.
const BYTES_OF_TIME: usize = 16;

/// A function from positions to elements.
pub(in crate::ops) trait Fill<T>: Copy + Send + Sync + 'static {
    /// Writes the elements from position `start` on to `part`, of at most [`RUN`] of them. This
    /// function and all that it calls must be marked `#[inline(always)]`, so that they are compiled
    /// for vectors.
    fn fill(&self, start: usize, part: &mut [T]);

    /// The name in error messages.
    const NAME: &'static str;

    /// The function in CUDA C++, in parts: the structure `Operands`, whose first member is `draws`,
    /// and the function `fill`, which makes `CS_BLOCK` elements of the stored type `I` from a block
    /// of words.
    const CUDA: &'static [&'static str];

    /// Calls `visit` with the bits of every member of `Operands`, each of which takes eight bytes.
    fn operands(&self, visit: &mut dyn FnMut(u64));
}

/// Returns a new array of `shape`. After its memory is allocated, `draw` gets the number of
/// elements, and returns the function that computes them.
#[track_caller]
pub(in crate::ops) fn generate<T: AnyElement, F: Fill<T>>(
    order: HostOrder<'_>,
    shape: &Shape,
    draw: impl FnOnce(usize) -> F,
) -> Result<Array<T>> {
    let write = |output: Output<T>| {
        let fill = draw(output.count());
        launch(
            order,
            Work::of_bytes(output.count(), BYTES_OF_TIME),
            (&fill, &output),
            |fill, output, range| {
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                let part = unsafe { output.part(range.clone()) };
                let work = Filling {
                    fill,
                    start: range.start,
                };
                vectorised(work, part);
            },
        );
    };
    // SAFETY: the ranges of a launch cover all elements, and `Filling` writes all of a part.
    unsafe { computed(order.device, shape, write) }
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
        // Computed in a buffer, so that `fill` cannot read memory that was not written.
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
