//! The division of lanes among threads.

use std::ops::Range;

use super::blocked::{BlockProgram, BlockSource, Consecutive, RUN, Readable};
use super::launch::{Work, launch};
use super::memory::{Untyped, computed_any};
use crate::array::{AnyArray, Shape};
use crate::context::Timed;
use crate::error::Result;
use crate::ops::descriptors::IndexSpace;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Operand;
use crate::ops::order::HostOrder;
use cachescope_kernels::lanes::{LaneLoop, LaneLoops, Lanes};

/// Returns the work of all jobs of `lanes`. Each element reads `bytes_read` bytes, and writes
/// `bytes` bytes. The computation takes `effort` times as long as reading and writing the elements.
fn work_of(lanes: &Lanes, bytes_read: usize, bytes: usize, effort: usize) -> Work {
    if lanes.length == 0 {
        return Work::on_one_thread(0);
    }
    let elements = lanes.length * lanes.inner.min(RUN);
    let bytes_each = bytes + bytes_read;
    let job_bytes = elements.saturating_mul(bytes_each).saturating_mul(effort);
    Work::of_bytes(lanes.jobs(), job_bytes)
}

/// Returns an array of `shape`. A loop computes the lanes of the array along `axis` from the
/// elements of `graph`.
#[track_caller]
pub(in crate::ops) fn along_axis(
    order: HostOrder<'_>,
    loops: &LaneLoops,
    graph: &ExpressionGraph<'_>,
    (shape, axis): (&Shape, usize),
) -> Result<AnyArray> {
    assert_eq!(graph.first().dtype, loops.element);
    let program = BlockProgram::new(graph, &IndexSpace::row_major(shape));
    let elements = (&program, graph.bytes_read());
    // SAFETY: the loop is for the elements, as just checked.
    unsafe { along_lanes(order, elements, (shape, axis), loops) }
}

/// Returns an array of `shape`. A loop computes the lanes of the array along `axis` from the
/// elements of a source. Each element reads `bytes_each` bytes.
///
/// # Safety
///
/// The loop must be for elements of the source.
#[track_caller]
pub(super) unsafe fn along_lanes<R>(
    order: HostOrder<'_>,
    (elements, bytes_each): (&R, usize),
    (shape, axis): (&Shape, usize),
    &LaneLoops {
        run,
        output,
        effort,
        ..
    }: &LaneLoops,
) -> Result<AnyArray>
where
    R: Clone + Send + Sync + 'static,
    for<'a> BlockSource<'a>: From<&'a R>,
{
    let lanes = Lanes::along(axis, shape.dims());
    let work = work_of(&lanes, bytes_each, output.size_bytes(), effort);
    let write = |output: Untyped| {
        let writes = (run, output, lanes);
        launch(
            order,
            work,
            (elements, &writes),
            |elements, writes, jobs| {
                // SAFETY: the stream is ordered after the writes of other streams, so the operands
                // may be read. The output is new, so it does not overlap the operands. By this
                // function's contract, `run` is a loop for these types.
                unsafe { run_lanes(elements.into(), writes, jobs) };
            },
        );
    };
    // SAFETY: the lanes of all jobs cover all elements, and each job writes its whole lanes.
    unsafe { computed_any(order.device, shape, output, write) }
}

/// Computes the lanes of some jobs by a loop.
///
/// # Safety
///
/// During the call, the operands of the source must be alive and not written to. The contract of
/// the loop applies, too.
unsafe fn run_lanes(
    source: BlockSource<'_>,
    &(run, output, lanes): &(LaneLoop, Untyped, Lanes),
    jobs: Range<usize>,
) {
    // SAFETY: by this function's contract.
    let elements = unsafe { Readable::new(source) };
    elements.read(&mut |elements| {
        // SAFETY: by this function's contract.
        unsafe { run(elements, output, &lanes, jobs.clone()) };
    });
}

/// Returns the elements of an array, normalized along `axis`. The elements are contiguous, so that
/// they are read in place.
#[track_caller]
pub(in crate::ops) fn normalized_contiguous(
    loops: &LaneLoops,
    operand: &Operand<'_>,
    axis: usize,
) -> Result<AnyArray> {
    assert_eq!(operand.dtype, loops.element);
    let device = operand.buffer.device();
    let _timed = Timed::begin(device);
    let order = HostOrder::new(device, operand.buffer)?;
    let elements = (&Consecutive::new(operand), operand.dtype.size_bytes());
    // SAFETY: the loop is for the elements, as just checked.
    unsafe { along_lanes(order, elements, (operand.layout.shape(), axis), loops) }
}
