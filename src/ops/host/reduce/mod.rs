//! Reduction of an expression's elements without storing them.

mod columns;
mod parts;
mod rows;

use std::ops::Range;

use super::blocked::{BlockProgram, BlockSource, Consecutive, Readable, repeat};
use super::evaluate::allocate_for;
use super::launch::{Work, launch};
use crate::array::{Buffer, Shape};
use crate::context::Timed;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::descriptors::{Lanes, ReductionPlan};
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Operand;
use crate::ops::order::HostOrder;
use cachescope_kernels::reduce::loops::{LeafLoops, ReductionLoops, Scratch};

/// The maximum number of elements that are reduced one after another. Longer reductions are split
/// into chunks. The totals of chunks are merged two by two. If the pool has several threads, they
/// share the chunks.
const CHUNK: usize = 1 << 16;

/// Reduces `graph` along the lanes of `plan`, by loops for elements of its type.
#[track_caller]
pub(in crate::ops) fn reduce(
    order: HostOrder<'_>,
    loops: &'static ReductionLoops,
    graph: &ExpressionGraph<'_>,
    plan: &ReductionPlan,
) -> Result<Buffer> {
    let program = BlockProgram::new(graph, &plan.space);
    let elements = (&program, graph.bytes_read());
    reduce_source(order, loops, elements, (plan.lanes, &plan.outputs))
}

/// Like [`reduce`], for an array whose elements are contiguous. The lanes are in the order of the
/// elements. The array needs no program.
#[inline]
#[track_caller]
pub(in crate::ops) fn reduce_contiguous(
    loops: &'static ReductionLoops,
    operand: &Operand<'_>,
    (lanes, outputs): (Lanes, &Shape),
) -> Result<Buffer> {
    let device = operand.buffer.device();
    let _timed = Timed::begin(device);
    let order = HostOrder::new(device, operand.buffer)?;
    let elements = (&Consecutive::new(operand), operand.dtype.size_bytes());
    reduce_source(order, loops, elements, (lanes, outputs))
}

/// Reduces the elements of a source. Each element reads `bytes_each` bytes. This function is
/// inlined, because a call would take 3 % of the time of a small sum.
#[inline(always)]
#[track_caller]
fn reduce_source<R>(
    order: HostOrder<'_>,
    loops: &'static ReductionLoops,
    (elements, bytes_each): (&R, usize),
    (lanes, outputs): (Lanes, &Shape),
) -> Result<Buffer>
where
    R: Clone + Send + Sync + 'static,
    for<'a> BlockSource<'a>: From<&'a R>,
{
    let output_bytes = loops.output_bytes;
    let buffer = allocate_for(order.device, outputs, output_bytes)?;
    let count = buffer.size_bytes() / output_bytes;
    let work = Work::of_reductions(bytes_each, count, lanes.length);
    let work = match lanes.inner {
        0 | 1 => work,
        inner => work.in_units_of(columns::together(inner)),
    };
    let to = FirstOutput(host_pointer(DevicePtr(buffer.address())));
    let writes = (loops, to, lanes);
    launch(
        order,
        work,
        (elements, &writes),
        |elements, &(loops, to, lanes), range| {
            // SAFETY: the loops are for elements of the source's type. The memory is alive during a
            // launch, and the ranges of a launch do not overlap. The stream is ordered after the
            // writes of other streams, so the operands may be read. The output is new, so it does
            // not overlap the operands. It has space for the results.
            unsafe { reduce_range(loops, elements.into(), lanes, to, range) };
        },
    );
    Ok(buffer)
}

#[derive(Clone, Copy)]
struct FirstOutput(*mut u8);

// SAFETY: only unsafe functions dereference the address.
unsafe impl Send for FirstOutput {}
// SAFETY: only unsafe functions dereference the address.
unsafe impl Sync for FirstOutput {}

/// The outputs that one thread computes, and the inputs of the computation.
///
/// Invariants: the loops are for elements of the source's type. From `to` on, there is space for
/// `count` results. Nothing else reads or writes this space.
struct ReductionJob<'a> {
    loops: &'a ReductionLoops,
    leaves: &'a LeafLoops,
    elements: Readable<'a>,
    lanes: Lanes,
    /// The index of the first output.
    first: usize,
    to: FirstOutput,
    count: usize,
}

/// Writes the outputs with the indices `range`. Output 0 is at `to`.
///
/// # Safety
///
/// The loops must be for elements of the source's type. The source's operands must be alive and not
/// written to. There must be space for the results. Nothing else may read or write this space.
unsafe fn reduce_range(
    loops: &ReductionLoops,
    source: BlockSource<'_>,
    lanes: Lanes,
    FirstOutput(to): FirstOutput,
    range: Range<usize>,
) {
    assert_eq!(source.element_bytes(), loops.element_bytes);
    let job = ReductionJob {
        loops,
        leaves: loops.leaves(),
        // SAFETY: by this function's contract.
        elements: unsafe { Readable::new(source) },
        lanes,
        first: range.start,
        to: FirstOutput(to.wrapping_add(range.start * loops.output_bytes)),
        count: range.len(),
    };
    match lanes.length {
        0 => job.nothing(),
        _ if lanes.inner > 1 => job.columns(),
        _ => job.rows(),
    }
}

impl ReductionJob<'_> {
    /// Writes the results of empty lanes.
    #[cold]
    fn nothing(&self) {
        let nothing = (self.loops.nothing)().expect("no elements to reduce");
        let bytes = self.loops.output_bytes;
        // SAFETY: by the invariant of `ReductionJob`, there is space for the results. Memory blocks
        // are aligned for every element type.
        unsafe { repeat(nothing, bytes, self.to.0, self.count) };
    }

    /// Writes the results of `count` totals to the outputs from the index `start` on.
    ///
    /// # Safety
    ///
    /// The totals must have been written.
    #[inline(always)]
    unsafe fn finish(&self, totals: &Scratch, start: usize, count: usize) {
        assert!(start + count <= self.count);
        let to = self.to.0.wrapping_add(start * self.loops.output_bytes);
        // SAFETY: by the invariant of `ReductionJob` and the assertion, there is space for the
        // results. By this function's contract, the totals were written.
        unsafe { (self.leaves.finish)(totals, self.lanes.length, to, count) };
    }
}
