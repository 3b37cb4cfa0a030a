//! Reduction of an expression's elements without storing them.

mod columns;
mod rows;

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::blocked::{BlockProgram, BlockSource, Consecutive, Readable};
use super::evaluate::allocate_for;
use super::launch::{Work, launch, share};
use crate::array::{AnyElement, Buffer, DType, Shape};
use crate::context::Timed;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::descriptors::{Lanes, ReductionPlan};
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Operand;
use crate::ops::order::HostOrder;
use crate::ops::reducers::{
    All, Any, Argmax, Argmin, CrossEntropy, Logsumexp, Max, Mean, Min, Norm, Prod, Reducer, Std,
    Sum, Var,
};
use crate::ops::vector::{Loop, vectorised};

/// The most elements that are reduced one after another. Longer reductions are split into chunks,
/// whose totals are merged two by two, by several threads if there are several.
const CHUNK: usize = 1 << 16;

/// A loop that reduces elements of one type to a number of outputs. The arguments are the elements,
/// the lanes, the number of the first output, its address, and the count.
pub(in crate::ops) type ReductionLoop = unsafe fn(BlockSource<'_>, Lanes, usize, *mut u8, usize);

/// The loops of a reducer for the types that most programs reduce, by the number of `DType`. The
/// others are compiled where they are used.
pub(in crate::ops) type ReductionTable = [ReductionLoop; 2];

/// A reducer with loops that are compiled with the library.
pub(in crate::ops) trait Compiled {
    /// The loops.
    const LOOPS: &'static ReductionTable;
}

macro_rules! compiled {
    ($($reducer:ident)+) => {
        $(
            impl Compiled for $reducer {
                const LOOPS: &'static ReductionTable = {
                    static LOOPS: ReductionTable =
                        [reduction_loop::<$reducer, f32>, reduction_loop::<$reducer, f64>];
                    &LOOPS
                };
            }
        )+
    };
}

compiled!(Sum Mean Prod Max Min Argmax Argmin Var Std Norm All Any Logsumexp CrossEntropy);

/// Returns the loop of `F` for elements of `T`, as a reference, because a constant that has the
/// address of a function makes the compiler compile the function where the constant is.
pub(in crate::ops) const fn reduction_loop_of<F: Reducer<T> + Compiled, T: AnyElement>()
-> &'static ReductionLoop {
    // A constant, so that no loop is compiled where there is one in the table.
    if const { (T::DTYPE as usize) < size_of::<ReductionTable>() / size_of::<ReductionLoop>() } {
        &F::LOOPS[T::DTYPE as usize]
    } else {
        const { &(reduction_loop::<F, T> as ReductionLoop) }
    }
}

/// Reduces `graph` along the lanes of `plan`, by a loop for elements of its type. `reduction` also
/// has the type of the results.
#[track_caller]
pub(in crate::ops) fn reduce(
    order: HostOrder<'_>,
    reduction: (&ReductionLoop, DType),
    graph: &ExpressionGraph<'_>,
    plan: &ReductionPlan,
) -> Result<Buffer> {
    let program = BlockProgram::new(graph, &plan.space);
    let elements = (&program, graph.bytes_read());
    reduce_source(order, reduction, elements, (plan.lanes, &plan.outputs))
}

/// Like [`reduce`], for an array whose elements are contiguous, with the lanes in their order. It
/// needs no program.
#[inline]
#[track_caller]
pub(in crate::ops) fn reduce_contiguous(
    reduction: (&ReductionLoop, DType),
    operand: &Operand<'_>,
    (lanes, outputs): (Lanes, &Shape),
) -> Result<Buffer> {
    let device = operand.buffer.device();
    let _timed = Timed::begin(device);
    let order = HostOrder::new(device, operand.buffer)?;
    let elements = (&Consecutive::new(operand), operand.dtype.size_bytes());
    reduce_source(order, reduction, elements, (lanes, outputs))
}

/// Reduces the elements of a source, each of which reads as many bytes as given. Inlined, because
/// calls take 3 % of a small sum.
#[inline(always)]
#[track_caller]
fn reduce_source<R>(
    order: HostOrder<'_>,
    (run, output): (&ReductionLoop, DType),
    (elements, bytes_each): (&R, usize),
    (lanes, outputs): (Lanes, &Shape),
) -> Result<Buffer>
where
    R: Clone + Send + Sync + 'static,
    for<'a> BlockSource<'a>: From<&'a R>,
{
    let output_bytes = output.size_bytes();
    let buffer = allocate_for(order.device, outputs, output_bytes)?;
    let count = buffer.size_bytes() / output_bytes;
    let work = Work::of_reductions(bytes_each, count, lanes.length);
    let work = match lanes.inner {
        0 | 1 => work,
        inner => work.in_units_of(columns::together(inner)),
    };
    let to = FirstOutput(host_pointer(DevicePtr(buffer.address())));
    let writes = (*run, to, output_bytes, lanes);
    launch(
        order,
        work,
        (elements, &writes),
        |elements, &(run, FirstOutput(to), output_bytes, lanes), range| {
            let to = to.wrapping_add(range.start * output_bytes);
            // SAFETY: the loop is for elements of the source's type, which it was
            // made for. The memory is alive while a launch runs, and its ranges do not overlap. The
            // stream is ordered after what other streams wrote, so a launch on it may read the
            // operands; the output is no part of them, because it is new, and has room for the
            // results.
            unsafe { run(elements.into(), lanes, range.start, to, range.len()) };
        },
    );
    Ok(buffer)
}

#[derive(Clone, Copy)]
struct FirstOutput(*mut u8);

// SAFETY: an address, which only unsafe functions follow.
unsafe impl Send for FirstOutput {}
// SAFETY: as above.
unsafe impl Sync for FirstOutput {}

/// The [`ReductionLoop`] of `F` for elements of `T`.
///
/// # Safety
///
/// The source must be of elements of `T`, and its operands alive and not written to; there must be
/// room for `count` results from `to` on, which nobody else reads or writes.
unsafe fn reduction_loop<F: Reducer<T>, T: AnyElement>(
    source: BlockSource<'_>,
    lanes: Lanes,
    first: usize,
    to: *mut u8,
    count: usize,
) {
    // SAFETY: by this function's contract; blocks are aligned for every element.
    let (elements, out) = unsafe {
        let out = std::slice::from_raw_parts_mut(to.cast(), count);
        (Readable::new(source), out)
    };
    reduce_range::<F, T>(elements, lanes, first, out);
}

/// Writes all of `out`, the first of which has number `first`.
fn reduce_range<F: Reducer<T>, T: AnyElement>(
    elements: Readable<'_, T>,
    lanes: Lanes,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    match F::nothing() {
        Some(nothing) if lanes.length == 0 => out.fill(MaybeUninit::new(nothing)),
        _ if lanes.inner > 1 => columns::columns::<F, T>(elements, lanes, first, out),
        _ => rows::rows::<F, T>(elements, lanes.length, first, out),
    }
}

/// Writes the result for each total of `count` elements.
///
/// # Safety
///
/// The totals must have been written.
unsafe fn finish_all<F: Reducer<T>, T: AnyElement>(
    totals: &[MaybeUninit<F::Total>],
    count: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    let results = FinishedLanes {
        totals,
        count,
        reducer: PhantomData::<F>,
    };
    vectorised(results, out);
}

/// Totals of `count` elements each, which have been written: only `finish_all` creates them.
struct FinishedLanes<'a, F: Reducer<T>, T: AnyElement> {
    totals: &'a [MaybeUninit<F::Total>],
    count: usize,
    reducer: PhantomData<F>,
}

impl<F: Reducer<T>, T: AnyElement> Loop<[MaybeUninit<F::Output>]> for FinishedLanes<'_, F, T> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<F::Output>]) {
        for (slot, total) in out.iter_mut().zip(self.totals) {
            // SAFETY: by the contract of `finish_all`.
            let total = unsafe { total.assume_init() };
            slot.write(F::finish(total, self.count));
        }
    }
}

/// Returns the totals of parts of `0..length` of at most `chunk`, merged two by two. The ends of
/// the parts depend on the lengths alone. Each of the `length` reads as many bytes as given.
fn merged<R: Send>(
    (length, bytes_each): (usize, usize),
    chunk: usize,
    total: &(dyn Fn(Range<usize>) -> R + Sync),
    merge: &dyn Fn(R, R) -> R,
) -> R {
    let of_some = |parts: Range<usize>| {
        let totals: Vec<Mutex<Option<R>>> = parts.clone().map(|_| Mutex::new(None)).collect();
        let lock = |index: usize| totals[index].lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = chunk.saturating_mul(bytes_each);
        share(
            Work::of_bytes(parts.len(), bytes).in_units_of(1),
            &|indices| {
                for index in indices {
                    let start = (parts.start + index) * chunk;
                    let own = total(start..length.min(start + chunk));
                    *lock(index) = Some(own);
                }
            },
        );
        let one = |part: Range<usize>| lock(part.start - parts.start).take();
        let one = |part| one(part).expect("each part has a total");
        merged_parts(parts.clone(), 1, &one, merge)
    };
    merged_parts(0..length.div_ceil(chunk), PARTS, &of_some, merge)
}

/// The most parts whose totals are in memory at once.
const PARTS: usize = 1024;

/// Returns the totals of at most `most` parts, merged two by two.
fn merged_parts<R>(
    parts: Range<usize>,
    most: usize,
    total: &dyn Fn(Range<usize>) -> R,
    merge: &dyn Fn(R, R) -> R,
) -> R {
    if parts.len() <= most {
        return total(parts);
    }
    let middle = parts.start + parts.len().div_ceil(2);
    let left = merged_parts(parts.start..middle, most, total, merge);
    merge(left, merged_parts(middle..parts.end, most, total, merge))
}
