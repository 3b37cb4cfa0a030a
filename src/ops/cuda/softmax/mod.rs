//! Softmax and its logarithm.
//!
//! The threads of a contiguous lane of at most 8,192 elements hold the lane in registers. They read
//! and write the lane once. For other lanes, a first pass computes the scale and the sum of the
//! exponentials. The scale is the largest element. A second pass computes the results.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use half::{bf16, f16};

use super::launch::{THREADS, grid_of};
use super::memory::{Output, computed};
use super::prelude::source;
use super::program::Program;
use super::reduce::{MERGE, ReductionKernels, ReductionTarget, STATES, reduce_into};
use super::workspace::Workspace;
use crate::array::{AnyArray, DType, Shape};
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::descriptors::Lanes;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::order::CudaOrder;
use cachescope_kernels::reduce::Logsumexp;

const MERGED: &str = include_str!("../merged.cuh");
const LANES: &str = include_str!("../softmax.cuh");
const PARTS: &str = include_str!("../softmax_parts.cuh");
const NORMAL: &str = include_str!("../normal.cuh");

/// The maximum number of blocks along x. If there are more tiles or lanes, a block processes
/// several.
const MOST_TILES: usize = 1 << 20;

/// The kernels of lanes that fit registers. If `PACKED`, a lane consists of whole packs.
struct Fitting<const LOG: bool, const PACKED: bool>;

/// The kernels of long lanes. `SumKernels` compute the scales and the sums. `Written` write the
/// results.
struct SumKernels;
struct Written<const LOG: bool>;

/// The kernels that compute the results of strided lanes from their scales and sums.
struct Normal<const LOG: bool>;

/// Returns exp(x) / Σ exp(x) along `axis`, for a graph of floats. If `is_log`, returns the
/// logarithm of this quotient.
#[track_caller]
pub(in crate::ops) fn normalized(
    order: CudaOrder<'_>,
    graph: &ExpressionGraph<'_>,
    shape: &Shape,
    axis: usize,
    is_log: bool,
) -> Result<AnyArray> {
    let workspace = Workspace::new(order);
    let program = Program::row_major(graph, shape);
    let lanes = Lanes::along(axis, shape.dims());
    let dtype = graph.first().dtype;
    computed(order.device, dtype, shape, |output| {
        let kind = SoftmaxKind::of(dtype, is_log);
        // If a pack could have elements of two lanes, single elements are used.
        let width = match lanes.length.is_multiple_of(program.width()) {
            true => program.width(),
            false => 1,
        };
        match SoftmaxSplit::new(lanes, width) {
            Some(split) => of_lanes(workspace, &program, kind, (lanes, split, width > 1), output),
            None if lanes.inner == 1 => of_parts(workspace, &program, kind, lanes, output),
            None => of_reductions(workspace, &program, kind, lanes, output),
        }
    })
}

/// The kernels for an element type and for the softmax or its logarithm.
#[derive(Clone, Copy)]
struct SoftmaxKind {
    is_log: bool,
    /// The accumulator type of exponentials.
    sums: &'static str,
    logsumexp: &'static ReductionKernels,
    /// The kernels that read lanes one element at a time, and the kernels that read packs.
    lanes: [fn(u32) -> KernelKey; 2],
    written: fn(u32) -> KernelKey,
    normal: fn(u32) -> KernelKey,
}

impl SoftmaxKind {
    fn of(dtype: DType, is_log: bool) -> Self {
        match is_log {
            false => Self::with::<false>(dtype),
            true => Self::with::<true>(dtype),
        }
    }

    fn with<const LOG: bool>(dtype: DType) -> Self {
        Self {
            is_log: LOG,
            sums: dtype.accumulator().in_cuda(),
            logsumexp: logsumexp_of(dtype),
            lanes: [
                KernelKey::of::<Fitting<LOG, false>>,
                KernelKey::of::<Fitting<LOG, true>>,
            ],
            written: KernelKey::of::<Written<LOG>>,
            normal: KernelKey::of::<Normal<LOG>>,
        }
    }
}

/// Returns the reduction of floats of `dtype` to a scale and a sum.
fn logsumexp_of(dtype: DType) -> &'static ReductionKernels {
    match dtype {
        DType::F32 => const { &ReductionKernels::of::<Logsumexp, f32>() },
        DType::F64 => const { &ReductionKernels::of::<Logsumexp, f64>() },
        DType::F16 => const { &ReductionKernels::of::<Logsumexp, f16>() },
        DType::Bf16 => const { &ReductionKernels::of::<Logsumexp, bf16>() },
        other => unreachable!("{other} is not a floating-point type"),
    }
}

/// Launches the kernel of lanes that fit registers.
#[track_caller]
fn of_lanes(
    workspace: Workspace<'_>,
    program: &Program<'_>,
    kind: SoftmaxKind,
    (lanes, split, is_packed): (Lanes, SoftmaxSplit, bool),
    output: Output,
) -> Result<()> {
    let mut arguments = Arguments::default();
    program.arguments(&mut arguments);
    arguments.push_all([lanes.length, lanes.count(), split.threads].map(|member| member as u64));
    arguments.push(output.address.0);
    let source = || lanes_text(program, kind, split, is_packed);
    let key = program.variant_key(kind.lanes[usize::from(is_packed)], split.variant());
    let grid = Grid {
        blocks: [split.tiles.min(MOST_TILES) as u32, 1],
        threads: split.block as u32,
        shared_bytes: 0,
    };
    workspace.launch(key, &source, grid, &arguments)
}

/// Launches the kernels of contiguous lanes that do not fit registers.
#[track_caller]
fn of_parts(
    workspace: Workspace<'_>,
    program: &Program<'_>,
    kind: SoftmaxKind,
    lanes: Lanes,
    output: Output,
) -> Result<()> {
    let parts = LaneParts::new(lanes);
    let count = parts.count.saturating_mul(lanes.count());
    let totals = workspace.allocate(count, TOTAL_BYTES)?;
    let mut arguments = Arguments::default();
    program.arguments(&mut arguments);
    let members = [lanes.length, lanes.count(), parts.count, parts.length];
    arguments.push_all(members.map(|member| member as u64));
    arguments.push(totals.address());
    let grid = Grid {
        blocks: [lanes.count().min(MOST_TILES) as u32, parts.count as u32],
        threads: THREADS,
        shared_bytes: 0,
    };
    let source = || parts_text(program, kind, false);
    let key = program.key(KernelKey::of::<SumKernels>);
    workspace.launch(key, &source, grid, &arguments)?;
    arguments.push(output.address.0);
    let source = || parts_text(program, kind, true);
    workspace.launch(program.key(kind.written), &source, grid, &arguments)
}

/// Launches the kernels of strided lanes.
#[track_caller]
fn of_reductions(
    workspace: Workspace<'_>,
    program: &Program<'_>,
    kind: SoftmaxKind,
    lanes: Lanes,
    output: Output,
) -> Result<()> {
    let totals = workspace.allocate(lanes.count(), kind.logsumexp.total_bytes())?;
    let target = ReductionTarget::Totals(totals.address());
    reduce_into(workspace, program, kind.logsumexp, lanes, target)?;
    let mut arguments = Arguments::default();
    program.arguments(&mut arguments);
    arguments.push(output.count as u64);
    arguments.push(lanes.length as u64);
    arguments.push(lanes.inner as u64);
    arguments.push(totals.address());
    arguments.push(output.address.0);
    let source = || text(program, kind, THREADS, NORMAL);
    let key = program.key(kind.normal);
    let grid = grid_of(output.count);
    workspace.launch(key, &source, grid, &arguments)
}

fn lanes_text(
    program: &Program<'_>,
    kind: SoftmaxKind,
    split: SoftmaxSplit,
    is_packed: bool,
) -> KernelSource {
    let packed = u8::from(is_packed);
    let before = format!(
        "#define CS_PACKED {packed}\n#define CS_HELD {}\n",
        split.held
    );
    text(
        program,
        kind,
        split.block as u32,
        &(before + MERGED + LANES),
    )
}

/// Returns the source of a kernel over long lanes. If `writes`, the kernel writes the results.
/// Otherwise, the kernel computes the scales and the sums.
fn parts_text(program: &Program<'_>, kind: SoftmaxKind, writes: bool) -> KernelSource {
    let mut before = format!(
        "#define CS_WRITES {}
typedef cs_exponents<f64> Total;
static_assert(sizeof(Total) == {TOTAL_BYTES}, \"the room for totals\");
CS_FN Total cs_join(const Total a, const Total b) {{ return cs_merge(a, b); }}
",
        u8::from(writes)
    );
    before.push_str(MERGE);
    text(program, kind, THREADS, &(before + PARTS))
}

/// Returns the source of a kernel over the elements of `program`, for blocks of `threads`.
fn text(program: &Program<'_>, kind: SoftmaxKind, threads: u32, kernel: &str) -> KernelSource {
    let mut text = String::new();
    program.text(&mut text);
    text.push_str(STATES);
    let _ = writeln!(
        text,
        "#define CS_THREADS {threads}\n#define CS_LOG {}\ntypedef {} A;",
        u8::from(kind.is_log),
        kind.sums
    );
    text.push_str(kernel);
    let name = if kind.is_log {
        "log_softmax"
    } else {
        "softmax"
    };
    source(format!("{name} of {}", program.name()), &text)
}

/// The size of a scale and a sum together, in bytes.
const TOTAL_BYTES: usize = 16;

/// The division of long lanes into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LaneParts {
    count: usize,
    /// The number of elements of each part except the last.
    length: usize,
}

impl LaneParts {
    fn new(lanes: Lanes) -> Self {
        /// The number of blocks that occupies a device for several waves.
        const MANY: usize = 2048;
        /// The minimum number of elements per thread. With this number, the cost of merging the
        /// sums of threads is negligible.
        const LEAST: usize = 16;
        // A block merges the parts of a lane, with one thread per part.
        let most = (lanes.length / (LEAST * THREADS as usize)).clamp(1, THREADS as usize);
        let count = (MANY / lanes.count().max(1)).clamp(1, most);
        // A part consists of whole packs. The longest pack has 16 elements.
        let length = lanes.length.div_ceil(count).next_multiple_of(16);
        Self {
            count: lanes.length.div_ceil(length),
            length,
        }
    }
}

/// The division of lanes that fit registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SoftmaxSplit {
    /// The number of threads of a lane, a power of two.
    threads: usize,
    /// The number of threads of a block. A block processes one lane or several.
    block: usize,
    tiles: usize,
    /// The number of packs or single elements that a thread holds. It is rounded up to a power of
    /// two, so that there are few kernels.
    held: usize,
}

impl SoftmaxSplit {
    /// Divides lanes. A thread reads `width` elements at once. Returns `None` if the lanes do not
    /// fit registers.
    fn new(lanes: Lanes, width: usize) -> Option<Self> {
        /// The number of elements that a thread of a long lane holds. On an H200, 8 or 32 elements
        /// take a third longer than 16.
        const ELEMENTS: usize = 16;
        /// The maximum number of threads of a lane.
        const MOST: usize = 512;
        let (length, outputs) = (lanes.length, lanes.count());
        if lanes.inner > 1 || length > MOST * ELEMENTS {
            return None;
        }
        let short = length.div_ceil(width.max(4)).next_power_of_two().min(32);
        let threads = length.div_ceil(ELEMENTS).next_power_of_two().max(short);
        let block = if threads > 32 {
            threads
        } else {
            THREADS as usize
        };
        Some(Self {
            threads,
            block,
            tiles: outputs.div_ceil(block / threads),
            held: length.div_ceil(width * threads).next_power_of_two(),
        })
    }

    /// Returns the index of the kernel's variant, for `held` from 1 to 16 and `block` from 64 to
    /// 512.
    fn variant(&self) -> u32 {
        self.held.ilog2() * 4 + self.block.ilog2() - 6
    }
}
