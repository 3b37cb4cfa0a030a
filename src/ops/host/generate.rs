//! Arrays computed from the positions of their elements alone.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::blocked::RUN;
use super::launch::{Work, launch};
use super::memory::{Output, Untyped, computed_any};
use crate::array::{AnyArray, AnyElement, DType, Shape};
use crate::error::Result;
use crate::ops::descriptors::Fill;
use crate::ops::order::HostOrder;
use cachescope_kernels::vector::{Loop, vectorised};

/// The cost of a random number, in bytes read or written.
const BYTES_OF_TIME: usize = 16;

/// A [`Fill`] of elements of one type, as a value.
pub(in crate::ops) trait AnyFill: Send + Sync + 'static {
    /// Returns the type of the elements.
    fn dtype(&self) -> DType;

    /// Launches the writes of all elements of a new array.
    ///
    /// # Safety
    ///
    /// The output must be of elements of this type.
    unsafe fn launch(&self, order: HostOrder<'_>, output: Untyped);

    /// See [`Fill::operands`].
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    fn operands(&self, visit: &mut dyn FnMut(u64));

    fn boxed(&self) -> Box<dyn AnyFill>;
}

/// Takes a fill.
pub(in crate::ops) type TakeFill<'a> = &'a mut dyn FnMut(&dyn AnyFill);

/// Gives the fill of so many elements to a function.
pub(in crate::ops) type Draw<'a> = &'a mut dyn FnMut(usize, TakeFill<'_>);

/// A fill of elements of `T`.
pub(in crate::ops) struct TypedFill<T, F> {
    fill: F,
    element: PhantomData<fn() -> T>,
}

impl<T: AnyElement, F: Fill<T>> TypedFill<T, F> {
    pub(in crate::ops) fn new(fill: F) -> Self {
        let element = PhantomData;
        Self { fill, element }
    }
}

impl<T: AnyElement, F: Fill<T>> AnyFill for TypedFill<T, F> {
    fn dtype(&self) -> DType {
        T::DTYPE
    }

    unsafe fn launch(&self, order: HostOrder<'_>, output: Untyped) {
        // SAFETY: by this function's contract.
        let output: Output<T> = unsafe { output.typed() };
        launch(
            order,
            Work::of_bytes(output.count(), BYTES_OF_TIME),
            (&self.fill, &output),
            |fill, output, range| {
                let start = range.start;
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                let part = unsafe { output.part(range) };
                vectorised(Filling { fill, start }, part);
            },
        );
    }

    fn operands(&self, visit: &mut dyn FnMut(u64)) {
        self.fill.operands(visit);
    }

    fn boxed(&self) -> Box<dyn AnyFill> {
        Box::new(Self::new(self.fill))
    }
}

/// Returns a new array of `shape`. After its memory is allocated, `draw` gets the number of
/// elements, and gives the fill that computes them, of elements of `dtype`.
#[track_caller]
pub(in crate::ops) fn generate(
    order: HostOrder<'_>,
    dtype: DType,
    shape: &Shape,
    draw: Draw<'_>,
) -> Result<AnyArray> {
    let write = |output: Untyped| {
        let mut is_filled = false;
        draw(output.count(), &mut |fill| {
            is_filled = true;
            assert_eq!(fill.dtype(), dtype, "filled with another type");
            // SAFETY: the types are equal, as just checked.
            unsafe { fill.launch(order, output) };
        });
        assert!(is_filled, "nothing was given to fill the array");
    };
    // SAFETY: a fill was given, whose launch covers all elements: `TypedFill` alone is one.
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
