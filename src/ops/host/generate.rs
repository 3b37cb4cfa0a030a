//! Arrays computed from the positions of their elements alone.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice::from_raw_parts_mut;
use std::sync::Arc;

use super::blocked::RUN;
use super::launch::{Work, launch};
use super::memory::{Untyped, computed_any};
use crate::array::{AnyArray, AnyElement, DType, Shape};
use crate::error::Result;
use crate::ops::descriptors::Fill;
use crate::ops::order::HostOrder;
use crate::ops::vector::{Loop, vectorised};

/// The cost of a random number, in bytes read or written.
const BYTES_OF_TIME: usize = 16;

/// A [`Fill`] of elements of one type, as a value.
pub(in crate::ops) trait AnyFill: Send + Sync + 'static {
    /// Writes `count` elements from position `start` on to `to`.
    ///
    /// # Safety
    ///
    /// `to` must have room for the elements, aligned, that nobody else holds.
    unsafe fn write(&self, start: usize, to: *mut u8, count: usize);

    /// See [`Fill::operands`].
    fn operands(&self, visit: &mut dyn FnMut(u64));
}

struct TypedFill<T, F> {
    fill: F,
    element: PhantomData<fn() -> T>,
}

impl<T: AnyElement, F: Fill<T>> AnyFill for TypedFill<T, F> {
    unsafe fn write(&self, start: usize, to: *mut u8, count: usize) {
        // SAFETY: by this function's contract.
        let out: &mut [MaybeUninit<T>] = unsafe { from_raw_parts_mut(to.cast(), count) };
        let fill = &self.fill;
        vectorised(Filling { fill, start }, out);
    }

    fn operands(&self, visit: &mut dyn FnMut(u64)) {
        self.fill.operands(visit);
    }
}

/// Returns the fill of elements of `T` as a value.
pub(in crate::ops) fn filling<T: AnyElement, F: Fill<T>>(fill: F) -> Arc<dyn AnyFill> {
    let element = PhantomData::<fn() -> T>;
    Arc::new(TypedFill { fill, element })
}

/// Returns a new array of `shape`. After its memory is allocated, `draw` gets the number of
/// elements, and returns the fill that computes them, of elements of `dtype`.
#[track_caller]
pub(in crate::ops) fn generate(
    order: HostOrder<'_>,
    dtype: DType,
    shape: &Shape,
    draw: &mut dyn FnMut(usize) -> Arc<dyn AnyFill>,
) -> Result<AnyArray> {
    let write = |output: Untyped| {
        let fill = draw(output.count());
        launch(
            order,
            Work::of_bytes(output.count(), BYTES_OF_TIME),
            (&fill, &output),
            move |fill, output, range| {
                let to = output.part(dtype, range.start);
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                unsafe { fill.write(range.start, to, range.len()) };
            },
        );
    };
    // SAFETY: the ranges of a launch cover all elements, and a fill writes all of a range.
    unsafe { computed_any(order.device, shape, dtype, write) }
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
