//! Softmax and its logarithm. A lane that fits a block's own memory is read and written once; of others the
//! scale and the sum are folded first, and a second pass makes the results.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use super::fold::{Reduction, STATES, Target, fold_into};
use super::launch::{THREADS, grid_of};
use super::memory::{Output, computed};
use super::prelude::source;
use super::program::Program;
use super::workspace::Workspace;
use crate::array::{AnyElement, Array, Float, Shape};
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::formula::Formula;
use crate::ops::lanes::Lanes;
use crate::ops::order::CudaOrder;
use crate::ops::reductions::Logsumexp;

const LANES: &str = include_str!("softmax.cuh");
const NORMAL: &str = include_str!("normal.cuh");

/// The bytes of a block's own memory that lanes may take: so few that several blocks run side by side.
const ROOM_BYTES: usize = 32 << 10;

/// The most blocks of lanes; where there are more lanes, blocks go on with the next.
const MOST_TILES: usize = 1 << 20;

/// The kernels of lanes that fit.
struct Fitting<const LOG: bool>;

/// The kernels of lanes whose scale and sum are known.
struct Normal<const LOG: bool>;

/// exp(x) / Σ exp(x) along `axis`, or the logarithm of that.
#[track_caller]
pub(in crate::ops) fn normalized<T: Float, const LOG: bool>(
    order: CudaOrder<'_>,
    formula: &Formula<'_>,
    shape: &Shape,
    axis: usize,
) -> Result<Array<T>> {
    let workspace = Workspace::new(order);
    let program = Program::row_major(formula, shape);
    let lanes = Lanes::along(axis, shape);
    computed(order.device, shape, |output| {
        let kind = Kind::of::<T, LOG>();
        match Split::new(lanes, size_of::<T::Accumulator>()) {
            Some(split) => of_lanes(workspace, &program, kind, (lanes, split), output),
            None => of_folds(workspace, &program, kind, lanes, output),
        }
    })
}

/// What the type of the elements says, and whether logarithms are wanted.
#[derive(Clone, Copy)]
struct Kind {
    is_log: bool,
    /// The type that exponentials are added up in.
    sums: &'static str,
    logsumexp: Reduction,
    lanes: fn(u32) -> KernelKey,
    normal: fn(u32) -> KernelKey,
}

impl Kind {
    fn of<T: Float, const LOG: bool>() -> Self {
        Self {
            is_log: LOG,
            sums: T::Accumulator::DTYPE.in_cuda(),
            logsumexp: Reduction::of::<Logsumexp, T>(),
            lanes: KernelKey::of::<Fitting<LOG>>,
            normal: KernelKey::of::<Normal<LOG>>,
        }
    }
}

/// Lanes that fit.
#[track_caller]
fn of_lanes(
    workspace: Workspace<'_>,
    program: &Program<'_>,
    kind: Kind,
    (lanes, split): (Lanes, Split),
    output: Output,
) -> Result<()> {
    let mut arguments = Arguments::default();
    program.arguments(&mut arguments);
    arguments.push_all([lanes.length, lanes.count(), split.threads].map(|member| member as u64));
    arguments.push(output.address.0);
    let source = || text(program, kind, LANES);
    let key = program.key(kind.lanes);
    let grid = Grid {
        blocks: [split.tiles.min(MOST_TILES) as u32, 1],
        threads: THREADS,
        shared_bytes: split.room_bytes as u32,
    };
    workspace.launch(key, &source, grid, &arguments)
}

/// Other lanes.
#[track_caller]
fn of_folds(
    workspace: Workspace<'_>,
    program: &Program<'_>,
    kind: Kind,
    lanes: Lanes,
    output: Output,
) -> Result<()> {
    let totals = workspace.allocate(lanes.count(), kind.logsumexp.total_bytes())?;
    let target = Target::Totals(totals.address());
    fold_into(workspace, program, kind.logsumexp, lanes, target)?;
    let mut arguments = Arguments::default();
    program.arguments(&mut arguments);
    arguments.push(output.count as u64);
    arguments.push(lanes.length as u64);
    arguments.push(lanes.inner as u64);
    arguments.push(totals.address());
    arguments.push(output.address.0);
    let source = || text(program, kind, NORMAL);
    let key = program.key(kind.normal);
    let grid = grid_of(workspace.order.gpu, output.count);
    workspace.launch(key, &source, grid, &arguments)
}

/// The source of a kernel over the elements of `program`.
fn text(program: &Program<'_>, kind: Kind, kernel: &str) -> KernelSource {
    let mut text = String::new();
    program.text(&mut text);
    text.push_str(STATES);
    let _ = writeln!(
        text,
        "#define CS_THREADS {THREADS}\n#define CS_LOG {}\ntypedef {} A;",
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

/// How lanes that fit are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    /// Threads of a lane: up to a warp, or a block.
    threads: usize,
    tiles: usize,
    room_bytes: usize,
}

impl Split {
    /// Of elements that take `element_bytes` of a block's own memory; `None` where lanes do not fit.
    fn new(lanes: Lanes, element_bytes: usize) -> Option<Self> {
        const BLOCK: usize = THREADS as usize;
        /// Fewer lanes than this do not fill a device with a warp for each.
        const FEW: usize = 1024;
        let (length, outputs) = (lanes.length, lanes.count());
        let lane_bytes = length.saturating_mul(element_bytes);
        if lanes.inner > 1 || lane_bytes > ROOM_BYTES {
            return None;
        }
        let threads = length.div_ceil(4).next_power_of_two().min(32);
        let fits = BLOCK / threads * lane_bytes <= ROOM_BYTES && (length <= 256 || outputs >= FEW);
        let threads = if fits { threads } else { BLOCK };
        let side = BLOCK / threads;
        Some(Self {
            threads,
            tiles: outputs.div_ceil(side),
            room_bytes: side * lane_bytes,
        })
    }
}
