//! The division of lanes among threads.

use std::ops::Range;

use super::blocked::{BlockProgram, BlockSource, Blocks, RUN, Readable};
use super::launch::{Work, launch};
use super::memory::{Untyped, computed_any};
use crate::array::{AnyArray, DType, Shape};
use crate::error::Result;
use crate::ops::descriptors::{IndexSpace, Lanes};
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::order::HostOrder;

/// A job is one lane where its elements are contiguous, and up to [`RUN`] adjacent lanes otherwise.
impl Lanes {
    /// Returns the work of all jobs. Each element reads `bytes_read`, and makes an element of
    /// `bytes`. It takes `effort` times as long as to read and write the elements.
    fn work(&self, bytes_read: usize, bytes: usize, effort: usize) -> Work {
        if self.length == 0 {
            return Work::on_one_thread(0);
        }
        let elements = self.length * self.inner.min(RUN);
        let bytes_each = bytes + bytes_read;
        let job_bytes = elements.saturating_mul(bytes_each).saturating_mul(effort);
        Work::of_bytes(self.outer * self.inner.div_ceil(RUN), job_bytes)
    }

    #[inline(always)]
    pub(in crate::ops::host) fn job(&self, number: usize) -> Job {
        let blocks = self.inner.div_ceil(RUN);
        let (outer, block) = (number / blocks, number % blocks);
        Job {
            start: outer * self.length * self.inner + block * RUN,
            width: RUN.min(self.inner - block * RUN),
            lanes: *self,
        }
    }
}

/// Computes the lanes of some jobs from elements, in an output that is theirs.
pub(super) type LaneLoop = unsafe fn(&mut Blocks<'_, '_>, Untyped, &Lanes, Range<usize>);

/// A loop over lanes, with the types of the elements that it reads and writes.
#[derive(Debug)]
pub(in crate::ops) struct LaneLoops {
    pub(in crate::ops) element: DType,
    pub(in crate::ops) output: DType,
    /// Writes all of the jobs' lanes.
    pub(super) run: LaneLoop,
    /// See [`Lanes::work`].
    pub(super) effort: usize,
}

/// Returns the array of `shape` whose lanes along `axis` a loop computes from the elements of
/// `graph`.
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

/// Returns the array of `shape` whose lanes along `axis` a loop computes from the elements of a
/// source, each of which reads as many bytes as given.
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
    let lanes = Lanes::along(axis, shape);
    let work = lanes.work(bytes_each, output.size_bytes(), effort);
    let write = |output: Untyped| {
        let writes = (run, output, lanes);
        launch(
            order,
            work,
            (elements, &writes),
            |elements, writes, jobs| {
                // SAFETY: the stream of the launch is ordered after the writes of other streams, so
                // the operands may be read. The output is new, so it does not overlap the operands.
                // `run` is a loop for these types, by this function's contract.
                unsafe { run_lanes(elements.into(), writes, jobs) };
            },
        );
    };
    // SAFETY: the lanes of all jobs cover all elements, and each job writes all of its lanes.
    unsafe { computed_any(order.device, shape, output, write) }
}

/// Computes the lanes of some jobs by a loop.
///
/// # Safety
///
/// The operands of the source must be alive and not written to, for the time of the call. The rest
/// is the contract of the loop.
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

/// Adjacent lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    start: usize,
    /// The number of lanes.
    pub(super) width: usize,
    lanes: Lanes,
}

impl Job {
    /// Returns the numbers of all elements of the lane, if they are contiguous.
    #[inline(always)]
    pub(super) fn whole(&self) -> Option<Range<usize>> {
        (self.lanes.inner == 1).then(|| self.start..self.start + self.lanes.length)
    }

    /// Returns the numbers of the elements at `index` of each lane.
    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> Range<usize> {
        let start = self.start + index * self.lanes.inner;
        start..start + self.width
    }
}
