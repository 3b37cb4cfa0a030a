//! Computing an array from the positions of its elements alone.

use std::mem::MaybeUninit;

use super::blocked::RUN;
use super::launch::{Work, launch};
use super::memory::{Output, computed};
use super::vector::{Loop, vectorised};
use crate::array::{AnyElement, Array, Shape};
use crate::error::Result;
use crate::ops::order::HostOrder;

/// A random number takes as long as so many bytes that are read or written.
const BYTES_OF_TIME: usize = 16;

/// A function from positions to elements.
pub(in crate::ops) trait Fill<T>: Copy + Send + Sync + 'static {
    /// Writes the elements from position `start` on to `part`, of at most [`RUN`] of them. To be
    /// marked `#[inline(always)]`, with all that it calls, so that it is compiled for vectors.
    fn fill(&self, start: usize, part: &mut [T]);

    /// What error messages call it.
    const NAME: &'static str;

    /// The same in CUDA C++, in parts: the structure `Operands`, of which `draws` is the first
    /// member, and the function `fill`, which makes `CS_BLOCK` elements of the stored type `I` of a
    /// block of words.
    const CUDA: &'static [&'static str];

    /// Shows the bits of every member of `Operands`, of which each takes eight bytes.
    fn operands(&self, visit: &mut dyn FnMut(u64));
}

/// A new array of `shape`. Once it has memory, `draw` is told the number of
/// elements, and says what they are.
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
        // Computed aside, so that `fill` cannot read what was not written.
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
