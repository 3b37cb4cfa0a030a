//! Running sums and products.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use num_complex::Complex;

use crate::blocks::RUN;
use crate::element::scalar::convert;
use crate::lanes::{Elements, LaneLoop, LaneLoops, Lanes, is_compensated, values};
use crate::output::{Output, Untyped};
use crate::reduce::Compensated;
use crate::vector::{Loop, vectorised};
use crate::{AnyElement, DType, Number};

/// The number of elements of a lane that are summed separately, before the sum of all earlier
/// elements is added.
const BLOCK: usize = 8;

/// The loops of running sums and products that are compiled with the library, by type. The types
/// are `f32`, `f64` and, for gradients, `Complex<f64>`.
static COMPILED: [[LaneLoops; 2]; 3] = [
    [loops::<f32, false>(), loops::<f32, true>()],
    [loops::<f64, false>(), loops::<f64, true>()],
    [
        loops::<Complex<f64>, false>(),
        loops::<Complex<f64>, true>(),
    ],
];

/// Returns the loops of running sums of elements of `T`, or of running products if `PRODUCT`. The
/// result is a reference. A constant with a function's address would make the compiler compile the
/// function wherever the constant is used.
pub const fn scan_loops_of<T: AnyElement, const PRODUCT: bool>() -> &'static LaneLoops {
    // The condition is a constant, so that no loop is compiled if the table has an entry.
    match const { place_of(T::DTYPE) } {
        Some(place) => &COMPILED[place][PRODUCT as usize],
        None => const { &loops::<T, PRODUCT>() },
    }
}

const fn place_of(dtype: DType) -> Option<usize> {
    match dtype {
        DType::F32 => Some(0),
        DType::F64 => Some(1),
        DType::C64 => Some(2),
        _ => None,
    }
}

const fn loops<T: AnyElement, const PRODUCT: bool>() -> LaneLoops {
    // The condition is a constant, so that only one of the loops is compiled.
    let run: LaneLoop = if const { PRODUCT } {
        scan_loop::<T, Product<T::Wide>>
    } else if const { is_compensated(T::DTYPE) } {
        scan_loop::<T, Compensated<T::Wide>>
    } else {
        scan_loop::<T, Plain<T::Wide>>
    };
    LaneLoops {
        element: T::DTYPE,
        output: <T::Total as AnyElement>::DTYPE,
        run,
        effort: 1,
    }
}

/// Computes running totals with `S`, as a [`LaneLoop`].
///
/// # Safety
///
/// The elements must be of `T`, and the output must be of `T::Total`. No other code may access the
/// jobs' lanes of the output.
unsafe fn scan_loop<T: AnyElement, S: RunningTotal<T>>(
    elements: &mut dyn Elements,
    output: Untyped,
    lanes: &Lanes,
    jobs: Range<usize>,
) {
    assert_eq!(elements.element_bytes(), size_of::<T>());
    let sums = SumLoop::<T, S> {
        elements,
        // SAFETY: the caller upholds this function's contract.
        output: &unsafe { output.typed() },
        lanes,
        jobs,
        sum: PhantomData,
    };
    vectorised(sums, &mut ());
}

/// A running sum or product.
trait RunningTotal<T: AnyElement>: Copy {
    fn nothing() -> Self;
    fn and(self, value: T) -> Self;
    fn value(self) -> T::Total;

    /// Writes the running total at each of `values` to `out`, and returns the last total.
    #[inline(always)]
    fn scan(mut self, values: &[T], out: &mut [MaybeUninit<T::Total>]) -> Self {
        for (slot, &value) in out.iter_mut().zip(values) {
            self = self.and(value);
            slot.write(self.value());
        }
        self
    }
}

/// A running sum without compensation, in the type `A`.
#[derive(Clone, Copy)]
struct Plain<A>(A);

impl<T: AnyElement, A: Number> RunningTotal<T> for Plain<A> {
    #[inline(always)]
    fn nothing() -> Self {
        Self(A::zero())
    }

    #[inline(always)]
    fn and(self, value: T) -> Self {
        Self(self.0.plus(convert(value)))
    }

    #[inline(always)]
    fn value(self) -> T::Total {
        convert(self.0)
    }

    /// Sums each block separately. In a block, only one addition depends on the previous block.
    /// Therefore the processor overlaps the other additions of several blocks.
    #[inline(always)]
    fn scan(mut self, values: &[T], out: &mut [MaybeUninit<T::Total>]) -> Self {
        let (blocks, rest) = values.as_chunks::<BLOCK>();
        let (block_slots, rest_slots) = out.as_chunks_mut::<BLOCK>();
        for (slots, block) in block_slots.iter_mut().zip(blocks) {
            let mut sums: [A; BLOCK] = block.map(convert);
            for index in 1..BLOCK {
                sums[index] = sums[index - 1].plus(sums[index]);
            }
            for (slot, &sum) in slots.iter_mut().zip(&sums) {
                slot.write(convert(self.0.plus(sum)));
            }
            self = Self(self.0.plus(sums[BLOCK - 1]));
        }
        for (slot, &value) in rest_slots.iter_mut().zip(rest) {
            self = self.and(value);
            slot.write(convert(self.0));
        }
        self
    }
}

/// A running product in the type `A`.
#[derive(Clone, Copy)]
struct Product<A>(A);

impl<T: AnyElement, A: Number> RunningTotal<T> for Product<A> {
    #[inline(always)]
    fn nothing() -> Self {
        Self(A::one())
    }

    #[inline(always)]
    fn and(self, value: T) -> Self {
        Self(self.0.times(convert(value)))
    }

    #[inline(always)]
    fn value(self) -> T::Total {
        convert(self.0)
    }
}

impl<T: AnyElement, A: Number> RunningTotal<T> for Compensated<A> {
    #[inline(always)]
    fn nothing() -> Self {
        Self::new(A::zero())
    }

    #[inline(always)]
    fn and(self, value: T) -> Self {
        self.with(convert(value))
    }

    #[inline(always)]
    fn value(self) -> T::Total {
        convert(Self::value(self))
    }
}

/// The loop of [`scan_loop`] for elements of `T`. Only [`scan_loop`] makes a value of this type.
/// The contract of `scan_loop` makes the loop sound.
struct SumLoop<'a, T: AnyElement, S> {
    elements: &'a mut dyn Elements,
    output: &'a Output<T::Total>,
    lanes: &'a Lanes,
    jobs: Range<usize>,
    sum: PhantomData<S>,
}

impl<T: AnyElement, S: RunningTotal<T>> Loop<()> for SumLoop<'_, T, S> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, _out: &mut ()) {
        let Self {
            elements,
            output,
            lanes,
            ..
        } = self;
        for number in self.jobs {
            let job = lanes.job(number);
            if let Some(lane) = job.whole() {
                let mut sum = S::nothing();
                for start in lane.clone().step_by(RUN) {
                    let part = start..lane.end.min(start + RUN);
                    // SAFETY: the memory is alive while a launch runs, and jobs do not overlap.
                    let out = unsafe { output.part(part.clone()) };
                    // SAFETY: by the contract of `scan_loop`, the elements are of type `T`.
                    sum = sum.scan(unsafe { values(elements, part) }, out);
                }
                continue;
            }
            let mut sums = [S::nothing(); RUN];
            for index in 0..lanes.length {
                // SAFETY: the memory is alive while a launch runs, and jobs do not overlap.
                let out = unsafe { output.part(job.at(index)) };
                // SAFETY: by the contract of `scan_loop`, the elements are of type `T`.
                let values: &[T] = unsafe { values(elements, job.at(index)) };
                for ((slot, sum), &value) in out.iter_mut().zip(&mut sums).zip(values) {
                    *sum = sum.and(value);
                    slot.write(sum.value());
                }
            }
        }
    }
}
