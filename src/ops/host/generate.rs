//! Arrays computed from the positions of their elements alone.

use crate::ops::descriptors::Fill;
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
