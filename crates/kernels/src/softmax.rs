//! Softmax and its logarithm. A loop writes the values of an expression to the output, lane by
//! lane. It normalizes each lane in place while the lane is in the cache.

use std::any::TypeId;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::blocks::RUN;
use crate::compiled::COMPILED_TYPES;
use crate::compiled_or;
use crate::element::scalar::pass::Fast;
use crate::element::scalar::{convert, math};
use crate::lanes::{Elements, Job, LaneLoops, Lanes, write};
use crate::output::{Output, Untyped};
use crate::reduce::{ACCUMULATORS, add_accumulators, largest};
use crate::vector::{Loop, rolled, vectorised};
use crate::{AnyElement, DType, Float};

/// The number of elements whose exponentials are summed in the type of the computation. The sum is
/// then added to a total in `f64`.
const BLOCK: usize = 1024;

/// The number of rows in a [block](BLOCK) of adjacent lanes. The elements of these lanes are not
/// contiguous.
const BLOCK_ROWS: usize = 32;

/// The loops of softmax and of log-softmax that are compiled with the library, by type.
static COMPILED: [[LaneLoops; COMPILED_TYPES]; 2] = [
    [loops::<f32, false>(), loops::<f64, false>()],
    [loops::<f32, true>(), loops::<f64, true>()],
];

/// Returns the loops of softmax of elements of `T`, or of log-softmax if `LOG`.
pub const fn softmax_loops_of<T: Float, const LOG: bool>() -> &'static LaneLoops {
    compiled_or!(T, COMPILED[LOG as usize], loops::<T, LOG>())
}

const fn loops<T: Float, const LOG: bool>() -> LaneLoops {
    LaneLoops {
        element: T::DTYPE,
        output: T::DTYPE,
        run: lane_loop::<T, LOG>,
        effort: 4,
    }
}

/// # Safety
///
/// The elements and the output must be of `T`. No other code may access the jobs' lanes of the
/// output.
unsafe fn lane_loop<T: Float, const LOG: bool>(
    elements: &mut dyn Elements,
    output: Untyped,
    lanes: &Lanes,
    jobs: Range<usize>,
) {
    assert_eq!(elements.element_bytes(), size_of::<T>());
    let softmax = Softmax::<T, LOG> {
        elements,
        // SAFETY: the caller upholds this function's contract.
        output: &unsafe { output.typed() },
        lanes,
        jobs,
    };
    vectorised(softmax, &mut ());
}

/// The loop over some jobs, for elements of `T`. Only [`lane_loop`] makes a value of this type. The
/// contract of `lane_loop` makes the loop sound.
struct Softmax<'a, T: Float, const LOG: bool> {
    elements: &'a mut dyn Elements,
    output: &'a Output<T>,
    lanes: &'a Lanes,
    jobs: Range<usize>,
}

type In<T> = <T as AnyElement>::Accumulator;

impl<T: Float, const LOG: bool> Loop<()> for Softmax<'_, T, LOG> {
    type Result = ();

    const WIDE: bool = matches!(T::DTYPE, DType::F32 | DType::F64);

    #[inline(always)]
    fn run<const FMA: bool>(mut self, _out: &mut ()) {
        for number in self.jobs.clone() {
            let job = self.lanes.job(number);
            match job.whole() {
                Some(lane) => {
                    // SAFETY: the elements are the lane of this job, and no earlier part is in use.
                    let lane = unsafe { self.evaluate(lane) };
                    normalize_lane::<_, LOG, FMA>(lane);
                }
                None => self.side_by_side::<FMA>(&job),
            }
        }
    }
}

impl<'a, T: Float, const LOG: bool> Softmax<'a, T, LOG> {
    /// Computes the elements with the row-major indices `range`, in the memory of the results.
    ///
    /// # Safety
    ///
    /// The elements must belong to one job. The previous part that the job borrowed must no longer
    /// be in use.
    #[inline(always)]
    unsafe fn evaluate(&mut self, range: Range<usize>) -> &'a mut [T] {
        // SAFETY: the memory is alive while a launch runs, and jobs do not overlap. By this
        // function's contract, the job uses no other part.
        let part = unsafe { self.output.part(range.clone()) };
        // SAFETY: `lane_loop` has elements of `T`, and `write` initialises all of `part`.
        unsafe {
            write(self.elements, range.start, part);
            written(part)
        }
    }

    /// Returns the elements that [`evaluate`](Self::evaluate) has computed.
    ///
    /// # Safety
    ///
    /// `evaluate` must have computed the elements, and its contract must hold.
    #[inline(always)]
    unsafe fn evaluated(&self, range: Range<usize>) -> &'a mut [T] {
        // SAFETY: by this function's contract, `evaluate` has written these elements, and its
        // contract holds.
        unsafe { written(self.output.part(range)) }
    }

    /// Normalizes the lanes of one job side by side: processes one element of each lane, then the
    /// next element of each lane.
    #[inline(always)]
    fn side_by_side<const FMA: bool>(&mut self, job: &Job) {
        let (length, width) = (self.lanes.length, job.width);
        let mut scales = [<In<T>>::default(); RUN];
        let scales = &mut scales[..width];
        for index in 0..length {
            // SAFETY: the elements belong to this job, and the previous elements are no longer in
            // use.
            let values = unsafe { self.evaluate(job.at(index)) };
            for (scale, &value) in scales.iter_mut().zip(&*values) {
                let value: In<T> = convert(value);
                let larger = if index == 0 {
                    value
                } else {
                    math::maximum(*scale, value)
                };
                *scale = larger;
            }
        }
        let mut totals = [0.0_f64; RUN];
        for first in (0..length).step_by(BLOCK_ROWS) {
            let mut sums = [<In<T>>::default(); RUN];
            for index in first..length.min(first + BLOCK_ROWS) {
                // SAFETY: the elements belong to this job and have been evaluated. The previous
                // elements are no longer in use.
                let values = unsafe { self.evaluated(job.at(index)) };
                for ((value, &scale), sum) in values.iter_mut().zip(&*scales).zip(&mut sums) {
                    *sum = *sum + exponential::<_, LOG, FMA>(value, scale);
                }
            }
            for (total, sum) in totals.iter_mut().zip(&sums) {
                *total += sum.to_f64();
            }
        }
        let mut divisors = [<In<T>>::default(); RUN];
        for (divisor, &total) in divisors.iter_mut().zip(&totals[..width]) {
            *divisor = divisor_of::<_, LOG, FMA>(total);
        }
        for index in 0..length {
            // SAFETY: the elements belong to this job and have been evaluated. The previous
            // elements are no longer in use.
            let values = unsafe { self.evaluated(job.at(index)) };
            for ((value, scale), divisor) in values.iter_mut().zip(&*scales).zip(&divisors) {
                *value = normal::<_, LOG, FMA>(*value, *scale, *divisor);
            }
        }
    }
}

/// Returns the divisor of the exponentials, or for log-softmax the subtrahend.
#[inline(always)]
fn divisor_of<A: AnyElement, const LOG: bool, const FMA: bool>(total: f64) -> A {
    let divisor = if LOG {
        math::ln(&mut Fast::<FMA>::default(), total)
    } else {
        total
    };
    <A as AnyElement>::from_f64(divisor)
}

/// Returns whether each exponential replaces its element while the exponentials are summed. This
/// requires elements of the type of the computation.
#[inline(always)]
fn keeps<T: Float, const LOG: bool>() -> bool {
    !LOG && TypeId::of::<T>() == TypeId::of::<In<T>>()
}

/// Returns the exponential of `value − scale`. If [`keeps`] returns `true`, stores the exponential
/// in `value`.
#[inline(always)]
fn exponential<T: Float, const LOG: bool, const FMA: bool>(value: &mut T, scale: In<T>) -> In<T> {
    let distance = convert::<In<T>, T>(*value) - scale;
    let exponential = math::exp(&mut Fast::<FMA>::default(), distance);
    if keeps::<T, LOG>() {
        *value = convert(exponential);
    }
    exponential
}

/// Returns one result, from the element that [`exponential`] has processed.
#[inline(always)]
fn normal<T: Float, const LOG: bool, const FMA: bool>(value: T, scale: In<T>, divisor: In<T>) -> T {
    let x: In<T> = convert(value);
    if LOG {
        convert(x - scale - divisor)
    } else if keeps::<T, LOG>() {
        convert(x / divisor)
    } else {
        convert(math::exp(&mut Fast::<FMA>::default(), x - scale) / divisor)
    }
}

#[inline(always)]
fn normalize_lane<T: Float, const LOG: bool, const FMA: bool>(lane: &mut [T]) {
    let scale: In<T> = convert(largest::<T, FMA>(lane));
    let mut total = 0.0;
    for block in lane.chunks_mut(BLOCK) {
        total += sum_block::<T, LOG, FMA>(block, scale).to_f64();
    }
    let divisor = divisor_of::<_, LOG, FMA>(total);
    for value in lane {
        *value = normal::<_, LOG, FMA>(*value, scale, divisor);
    }
}

#[inline(always)]
fn sum_block<T: Float, const LOG: bool, const FMA: bool>(values: &mut [T], scale: In<T>) -> In<T> {
    let zero = <In<T>>::default();
    let mut accumulators = [zero; ACCUMULATORS];
    let (chunks, rest) = values.as_chunks_mut::<ACCUMULATORS>();
    for chunk in &mut *chunks {
        for index in 0..ACCUMULATORS {
            let index = rolled::<FMA>(index);
            let exponential = exponential::<T, LOG, FMA>(&mut chunk[index], scale);
            accumulators[index] = accumulators[index] + exponential;
        }
    }
    let mut sum = if chunks.is_empty() {
        zero
    } else {
        add_accumulators::<_, FMA>(accumulators)
    };
    for value in rest {
        sum = sum + exponential::<T, LOG, FMA>(value, scale);
    }
    sum
}

/// # Safety
///
/// All values must have been written.
#[inline(always)]
unsafe fn written<T>(values: &mut [MaybeUninit<T>]) -> &mut [T] {
    // SAFETY: `MaybeUninit<T>` has the layout of `T`, and the values are initialised by this
    // function's contract.
    unsafe { &mut *(std::ptr::from_mut(values) as *mut [T]) }
}
