//! Reductions of an expression without storing its elements.
//!
//! A kernel reduces an expression like the host. It reduces a few elements into a partial result,
//! merges partial results into a total, and merges the totals. The shape and the pack size
//! determine which thread reduces which elements. The size and the load of the device have no
//! influence. Therefore every run on every device returns equal results. Sums of floats are
//! compensated between totals (Knuth's TwoSum). If the accumulator is not wider than the elements,
//! the sums are compensated between elements, too. So sums on the device are at least as accurate
//! as sums on the host.

#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::marker::PhantomData;
use std::panic::Location;

use super::evaluate::evaluate;
use super::launch::THREADS;
use super::memory::allocate_for;
use super::prelude::source;
use super::program::Program;
use super::workspace::Workspace;
use crate::array::{AnyElement, Bits, Buffer, DType, Layout, bits_of};
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::descriptors::{Lanes, ReductionPlan};
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::order::CudaOrder;
use cachescope_kernels::reduce::{CudaReducer, Reducer};

/// The states of reductions and scans, and how threads merge them.
pub(super) const STATES: &str = include_str!("../states.cuh");
pub(super) const MERGE: &str = include_str!("../merge.cuh");
const REDUCE: &str = include_str!("../reduce.cuh");
const PARTS: &str = include_str!("../parts.cuh");

/// The maximum number of blocks of a reduction whose outputs are divided into parts. An H200 runs
/// about this number of blocks at once. With four times as many blocks, a reduction took an eighth
/// longer.
const MOST_BLOCKS: usize = 1024;

/// The maximum number of blocks along x. If there are more tiles, each block processes several.
const MOST_TILES: usize = 1 << 20;

struct ReductionKernel<F>(PhantomData<F>);

/// The elements that a thread reads at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    /// One element.
    Single,
    /// Several elements of one output.
    Along,
    /// An element of each of several adjacent outputs.
    Across,
}

/// The kernels that merge the parts of outputs, for each type of elements.
struct PartKernels<F>(PhantomData<F>);

/// The type-erased description of a reducer.
pub(in crate::ops) struct ReductionKernels {
    name: &'static str,
    cuda: CudaReducer,
    /// A function that returns the bits of the result of an empty lane. If an empty lane has no
    /// result, the function returns `None`.
    nothing: fn() -> Option<Bits>,
    /// The stored types of the elements and of the results.
    item: DType,
    output: DType,
    kernels: fn(u32) -> KernelKey,
    parts: fn(u32) -> KernelKey,
}

impl ReductionKernels {
    pub(in crate::ops) const fn of<F: Reducer<T>, T: AnyElement>() -> Self {
        Self {
            name: F::NAME,
            cuda: F::CUDA,
            nothing: || F::nothing().map(bits_of),
            item: T::DTYPE,
            output: <F::Output as AnyElement>::DTYPE,
            kernels: KernelKey::of::<ReductionKernel<F>>,
            parts: KernelKey::of::<PartKernels<F>>,
        }
    }

    /// Returns the bits of the result of an empty lane. Returns `None` if an empty lane has no
    /// result.
    pub(in crate::ops) fn nothing(&self) -> Option<Bits> {
        (self.nothing)()
    }

    /// Returns the size of a total in bytes. Each output, or each part of an output, has a total.
    pub(super) fn total_bytes(&self) -> usize {
        self.cuda.total_bytes
    }

    /// Appends the types and functions of the reducer to `text`, and the functions that merge
    /// totals. `text` must define the type `T`, in which elements are computed.
    fn write(&self, text: &mut String) {
        let Self { cuda, item, .. } = self;
        let sums = item.accumulator().in_cuda();
        let means = item.average().accumulator().in_cuda();
        let result = self.output.in_cuda();
        text.push_str(STATES);
        let _ = write!(
            text,
            "#define CS_THREADS {THREADS}
#define CS_TOTAL_BYTES {}
typedef {sums} A;
typedef {means} M;
typedef {result} R;
typedef {} Partial;
typedef {} Total;
CS_FN Partial cs_open(const T x, const index_t i) {{ return {}; }}
CS_FN Partial cs_step(const Partial a, const T x, const index_t i) {{ return {}; }}
CS_FN Total cs_total(const Partial a, const u32 n) {{ return {}; }}
CS_FN Total cs_join(const Total a, const Total b) {{ return {}; }}
CS_FN R cs_finish(const Total a, const u64 n) {{ return {}; }}
",
            cuda.total_bytes,
            cuda.partial,
            cuda.total,
            cuda.open,
            cuda.step,
            cuda.whole,
            cuda.join,
            cuda.finish,
        );
        text.push_str(MERGE);
    }
}

/// Returns the results of the reduction of `graph` by `plan`. The elements of `graph` must have the
/// element type of `reduction`.
#[track_caller]
pub(in crate::ops) fn reduce(
    order: CudaOrder<'_>,
    reduction: &ReductionKernels,
    graph: &ExpressionGraph<'_>,
    plan: &ReductionPlan,
) -> Result<Buffer> {
    if plan.lanes.length == 0
        && let Some(bits) = reduction.nothing()
    {
        let nothing = ExpressionGraph::of_value(reduction.output, bits);
        let results = evaluate(order.touching(&()), &nothing, &plan.outputs)?;
        return Ok(results.into_iter().next().expect("one result"));
    }
    let workspace = Workspace::new(order);
    let program = Program::new(graph, plan.space.shape(), plan.space.axes());
    let (buffer, output) = allocate_for(
        order.device,
        &Layout::row_major(&plan.outputs),
        reduction.output.size_bytes(),
        Location::caller(),
    )?;
    if output.count > 0 {
        let target = ReductionTarget::Results(output.address.0);
        reduce_into(workspace, &program, reduction, plan.lanes, target)?;
    }
    Ok(buffer)
}

/// The destination of a reduction, with one result or total for each output.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReductionTarget {
    /// The address of the results that the reducer computes from totals.
    Results(u64),
    /// The address of totals, in the type that they have in CUDA C++.
    Totals(u64),
}

impl ReductionTarget {
    /// Appends the address of results and the address of totals. One of the addresses is 0.
    fn push(self, arguments: &mut Arguments) {
        let (results, totals) = match self {
            Self::Results(address) => (address, 0),
            Self::Totals(address) => (0, address),
        };
        arguments.push(results);
        arguments.push(totals);
    }
}

/// Enqueues the reduction of the elements of `program` along `lanes`, with one output for each
/// lane. The program has the elements of all lanes. No lane is empty.
#[track_caller]
pub(super) fn reduce_into(
    workspace: Workspace<'_>,
    program: &Program<'_>,
    reduction: &ReductionKernels,
    lanes: Lanes,
    target: ReductionTarget,
) -> Result<()> {
    let (packing, width) = match program.width() {
        1 => (Packing::Single, 1),
        width if lanes.inner == 1 && lanes.length.is_multiple_of(width) => (Packing::Along, width),
        width if lanes.inner > 1 && lanes.inner.is_multiple_of(width) => (Packing::Across, width),
        _ => (Packing::Single, 1),
    };
    let split = ReductionSplit::new(lanes, width);
    if split.parts == 1 {
        return launch_reduction(
            workspace,
            program,
            reduction,
            (lanes, split, packing),
            target,
        );
    }
    let count = split.parts.saturating_mul(lanes.count());
    let totals = workspace.allocate(count, reduction.total_bytes())?;
    let parts = ReductionTarget::Totals(totals.address());
    launch_reduction(
        workspace,
        program,
        reduction,
        (lanes, split, packing),
        parts,
    )?;
    let mut arguments = Arguments::default();
    arguments.push(totals.address());
    arguments.push(split.parts as u64);
    arguments.push(lanes.count() as u64);
    arguments.push(lanes.length as u64);
    target.push(&mut arguments);
    let source = || parts_source(reduction);
    let outputs_of_block = match split.parts {
        parts @ ..=32 => THREADS as usize / parts.next_power_of_two(),
        _ => 1,
    };
    let grid = grid([lanes.count().div_ceil(outputs_of_block), 1]);
    let key = (reduction.parts)(reduction.item as u32);
    workspace.launch(key, &source, grid, &arguments)
}

#[track_caller]
fn launch_reduction(
    workspace: Workspace<'_>,
    program: &Program<'_>,
    reduction: &ReductionKernels,
    (lanes, split, packing): (Lanes, ReductionSplit, Packing),
    target: ReductionTarget,
) -> Result<()> {
    let mut arguments = Arguments::default();
    program.arguments(&mut arguments);
    let members = [
        lanes.length,
        lanes.inner,
        lanes.count(),
        split.parts,
        split.part_length,
        split.threads,
        usize::from(split.is_beside),
    ];
    arguments.push_all(members.map(|member| member as u64));
    target.push(&mut arguments);
    let source = || lanes_source(program, reduction, packing);
    let key = program.variant_key(reduction.kernels, packing as u32);
    let grid = grid([split.tiles, split.parts]);
    workspace.launch(key, &source, grid, &arguments)
}

/// Returns a grid of `along_x` by `along_y` blocks, with at most [`MOST_TILES`] blocks along x.
fn grid([along_x, along_y]: [usize; 2]) -> Grid {
    Grid {
        blocks: [along_x.min(MOST_TILES) as u32, along_y as u32],
        threads: THREADS,
        shared_bytes: 0,
    }
}

fn lanes_source(
    program: &Program<'_>,
    reduction: &ReductionKernels,
    packing: Packing,
) -> KernelSource {
    let mut text = String::new();
    program.text(&mut text);
    let [along, across] = [Packing::Along, Packing::Across].map(|own| u8::from(own == packing));
    let _ = writeln!(
        text,
        "#define CS_PACKED {along}\n#define CS_ACROSS {across}"
    );
    reduction.write(&mut text);
    text.push_str(REDUCE);
    source(format!("{} of {}", reduction.name, program.name()), &text)
}

fn parts_source(reduction: &ReductionKernels) -> KernelSource {
    let &ReductionKernels { name, item, .. } = reduction;
    let wide = item.computed_in().in_cuda();
    let mut text = format!("typedef {wide} T;\ntypedef u64 index_t;\n");
    reduction.write(&mut text);
    text.push_str(PARTS);
    source(format!("{name} of parts of {}", item.in_cuda()), &text)
}

/// The division of a reduction among blocks and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReductionSplit {
    /// The number of threads that reduce an output or a part of an output, a power of two.
    threads: usize,
    /// `true` if the threads of an output are adjacent. Otherwise, adjacent threads belong to
    /// different outputs.
    is_beside: bool,
    /// The number of blocks that cover all outputs.
    tiles: usize,
    /// The number of parts of an output, and the number of elements of each part except the last.
    parts: usize,
    part_length: usize,
}

impl ReductionSplit {
    /// Divides lanes. A thread reads `width` elements at once. If lanes are contiguous, these
    /// elements are in one lane. Otherwise, they are in adjacent lanes.
    fn new(lanes: Lanes, width: usize) -> Self {
        if lanes.inner == 1 {
            Self::beside(lanes, width)
        } else {
            Self::apart(lanes, width)
        }
    }

    /// Divides contiguous lanes. A warp reads adjacent elements of one output.
    fn beside(lanes: Lanes, width: usize) -> Self {
        const BLOCK: usize = THREADS as usize;
        /// The minimum number of outputs that fill a device with one warp per output.
        const FEW: usize = 1024;
        let (length, outputs) = (lanes.length, lanes.count());
        let each = width.max(4);
        let is_long = length > BLOCK * each || (length > 64 * each && outputs < FEW);
        if !is_long {
            let threads = length.div_ceil(each).next_power_of_two().min(32);
            return Self {
                threads,
                is_beside: true,
                tiles: outputs.div_ceil(BLOCK / threads),
                parts: 1,
                part_length: length,
            };
        }
        let most = (length / (4 * BLOCK * each)).max(1);
        let parts = (MOST_BLOCKS / outputs.max(1)).clamp(1, most);
        let part_length = length.div_ceil(parts).next_multiple_of(2 * BLOCK * each);
        Self {
            threads: BLOCK,
            is_beside: true,
            tiles: outputs,
            parts: length.div_ceil(part_length),
            part_length,
        }
    }

    /// Divides strided lanes. Adjacent threads read elements of adjacent outputs. A thread reads
    /// `width` adjacent elements at once.
    fn apart(lanes: Lanes, width: usize) -> Self {
        const BLOCK: usize = THREADS as usize;
        let (length, outputs) = (lanes.length, lanes.count() / width);
        let least_side = (lanes.inner / width).next_power_of_two().min(32);
        let threads = length
            .div_ceil(8)
            .next_power_of_two()
            .min(BLOCK / least_side);
        let tiles = outputs.div_ceil(BLOCK / threads);
        let most = (length / (32 * threads)).max(1);
        let parts = (MOST_BLOCKS / 2 / tiles.max(1)).clamp(1, most);
        let part_length = length.div_ceil(parts).next_multiple_of(8 * threads);
        Self {
            threads,
            is_beside: false,
            tiles,
            parts: length.div_ceil(part_length),
            part_length,
        }
    }
}
