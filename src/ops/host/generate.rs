//! Arrays that are computed only from the positions of their elements.

use std::marker::PhantomData;

use super::launch::{Work, launch};
use super::memory::{Untyped, computed_any};
use crate::array::{AnyArray, AnyElement, DType, Shape};
use crate::error::Result;
use crate::ops::order::HostOrder;
use cachescope_kernels::random::{Fill, FillLoop, fill_loop};

/// The cost of a random number, in bytes read or written.
const BYTES_OF_TIME: usize = 16;

/// A [`Fill`] of elements of one type, as a value.
pub(in crate::ops) trait AnyFill: Send + Sync + 'static {
    fn dtype(&self) -> DType;

    /// Launches the writes of all elements of a new array.
    ///
    /// # Safety
    ///
    /// The output must have elements of the type of this fill.
    unsafe fn launch(&self, order: HostOrder<'_>, output: Untyped);

    /// See [`Fill::operands`].
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    fn operands(&self, visit: &mut dyn FnMut(u64));

    fn boxed(&self) -> Box<dyn AnyFill>;
}

/// A function that uses a fill.
pub(in crate::ops) type TakeFill<'a> = &'a mut dyn FnMut(&dyn AnyFill);

/// A function that makes the fill for the given number of elements. It passes this fill to the
/// given [`TakeFill`].
pub(in crate::ops) type Draw<'a> = &'a mut dyn FnMut(usize, TakeFill<'_>);

pub(in crate::ops) struct TypedFill<T, F> {
    fill: F,
    /// The loop that writes elements of this fill.
    run: FillLoop,
    element: PhantomData<fn() -> T>,
}

impl<T: AnyElement, F: Fill<T>> TypedFill<T, F> {
    pub(in crate::ops) fn new(fill: F) -> Self {
        // SAFETY: the loop is for elements of `T` and fills of `F`.
        unsafe { Self::with_loop(fill, fill_loop::<T, F>) }
    }

    /// Returns a fill with the loop `run`.
    ///
    /// # Safety
    ///
    /// The loop must be for elements of `T` and fills of `F`.
    pub(in crate::ops) unsafe fn with_loop(fill: F, run: FillLoop) -> Self {
        let element = PhantomData;
        Self { fill, run, element }
    }
}

impl<T: AnyElement, F: Fill<T>> AnyFill for TypedFill<T, F> {
    fn dtype(&self) -> DType {
        T::DTYPE
    }

    unsafe fn launch(&self, order: HostOrder<'_>, output: Untyped) {
        launch(
            order,
            Work::of_bytes(output.count(), BYTES_OF_TIME),
            (&(self.fill, self.run), &output),
            |(fill, run), output, range| {
                let fill = std::ptr::from_ref(fill).cast();
                let to = output.part(T::DTYPE, range.start);
                // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
                // overlap. The loop is for the fill and for the type of its elements. By this
                // function's contract, the output has this type.
                unsafe { run(fill, range.start, to, range.len()) };
            },
        );
    }

    fn operands(&self, visit: &mut dyn FnMut(u64)) {
        self.fill.operands(visit);
    }

    fn boxed(&self) -> Box<dyn AnyFill> {
        Box::new(Self { ..*self })
    }
}

/// Returns a new array of `shape`. After its memory is allocated, calls `draw` with the number of
/// elements. `draw` passes on the fill that computes the elements. The elements have the type
/// `dtype`.
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
            assert_eq!(fill.dtype(), dtype, "the fill and the array differ in type");
            // SAFETY: the types are equal, as just checked.
            unsafe { fill.launch(order, output) };
        });
        assert!(is_filled, "the closure has not filled the array");
    };
    // SAFETY: a fill was launched, as just checked. `TypedFill` is the only implementation, and its
    // launch covers all elements.
    unsafe { computed_any(order.device, shape, dtype, write) }
}
