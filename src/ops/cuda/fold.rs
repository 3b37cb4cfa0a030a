//! Folding the elements of an expression without storing them.
//!
//! A kernel does with an expression what the host does: it folds a few elements into a partial
//! result, takes that into a total, and merges the totals. Who folds what depends on the shape and
//! on how many elements are read at once, not on how much of the device is free or how large it is,
//! so that a result is the same on every run and device. Sums lose no more than the host's: they
//! carry what rounding took, from element to element and from total to total.

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
use super::types::computed_in;
use super::workspace::Workspace;
use crate::array::{AnyElement, Buffer, Layout};
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::formula::Formula;
use crate::ops::lanes::Lanes;
use crate::ops::order::CudaOrder;
use crate::ops::reductions::{CudaFold, Fold, Plan, Reducer};
use crate::ops::tree::Value;

/// The states of folds and scans, and how threads merge them.
pub(super) const STATES: &str = include_str!("states.cuh");
pub(super) const MERGE: &str = include_str!("merge.cuh");
const FOLD: &str = include_str!("fold.cuh");
const PARTS: &str = include_str!("parts.cuh");

/// Blocks that several parts of outputs are worth, so that even the largest device has work for
/// some rounds.
const MOST_BLOCKS: usize = 4096;

/// The most blocks along x; where there is more to do, blocks go on with the next.
const MOST_TILES: usize = 1 << 20;

/// The kernels that fold by `F`; of several elements at once, where `PACKED`.
struct FoldKernel<F, const PACKED: bool>(PhantomData<F>);

/// The kernels that merge the parts of outputs.
struct Parts<F, T>(PhantomData<(F, T)>);

/// What the type of a reducer says, which is all that a fold needs to know of it.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Reduction {
    name: &'static str,
    cuda: CudaFold,
    /// The stored type of the elements, of what they and their means are added up in, and of the
    /// results.
    item: &'static str,
    sums: &'static str,
    means: &'static str,
    result: &'static str,
    /// The keys of the kernels that fold elements of a program one by one, and several at once.
    kernels: [fn(u32) -> KernelKey; 2],
    parts: KernelKey,
}

impl Reduction {
    pub(in crate::ops) fn of<F: Reducer<T>, T: AnyElement>() -> Self {
        Self {
            name: F::NAME,
            cuda: F::CUDA,
            item: T::DTYPE.in_cuda(),
            sums: T::Accumulator::DTYPE.in_cuda(),
            means: <T::Average as AnyElement>::Accumulator::DTYPE.in_cuda(),
            result: F::Output::DTYPE.in_cuda(),
            kernels: [
                KernelKey::of::<FoldKernel<F, false>>,
                KernelKey::of::<FoldKernel<F, true>>,
            ],
            parts: KernelKey::of::<Parts<F, T>>(0),
        }
    }

    /// The room for the total of an output or of a part of one.
    pub(super) fn total_bytes(&self) -> usize {
        self.cuda.total_bytes
    }

    /// Writes its types and functions, of elements that are computed in the type `T`, and how
    /// threads merge its totals.
    fn write(&self, text: &mut String) {
        let Self {
            cuda,
            sums,
            means,
            result,
            ..
        } = self;
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

/// The results of folding `formula`, whose elements are of the type that `fold` is for, as `plan`
/// says; they have `layout`, which is dense from index 0.
#[track_caller]
pub(in crate::ops) fn fold(
    order: CudaOrder<'_>,
    fold: &Fold,
    formula: &Formula<'_>,
    (plan, layout): (&Plan, &Layout),
) -> Result<Buffer> {
    if let (Some(bits), 0) = ((fold.nothing)(), plan.lanes.length) {
        let nothing = Value(fold.output, bits);
        let results = evaluate(order.touching(&()), &Formula::of(&nothing)?, layout)?;
        return Ok(results.into_iter().next().expect("one result"));
    }
    let workspace = Workspace::new(order);
    let program = Program::new(formula, plan.frame.shape(), plan.frame.axes());
    let (buffer, output) = allocate_for(
        order.device,
        layout,
        fold.output.size_bytes(),
        Location::caller(),
    )?;
    if output.count > 0 {
        let target = Target::Results(output.address.0);
        fold_into(workspace, &program, (fold.cuda)(), plan.lanes, target)?;
    }
    Ok(buffer)
}

/// The address that one result for each output is written to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// What the reducer makes of a total.
    Results(u64),
    /// The total itself, in the type that it has in CUDA C++.
    Totals(u64),
}

impl Target {
    /// Adds the addresses of results and of totals, one of which is 0.
    fn push(self, arguments: &mut Arguments) {
        let (results, totals) = match self {
            Self::Results(address) => (address, 0),
            Self::Totals(address) => (0, address),
        };
        arguments.push(results);
        arguments.push(totals);
    }
}

/// Launches the folding of the elements of `program`, which are those of `lanes`, to an output
/// each; no lane is empty.
#[track_caller]
pub(super) fn fold_into(
    workspace: Workspace<'_>,
    program: &Program<'_>,
    reduction: Reduction,
    lanes: Lanes,
    target: Target,
) -> Result<()> {
    let is_packed = lanes.inner == 1 && lanes.length.is_multiple_of(program.width());
    let width = if is_packed { program.width() } else { 1 };
    let split = Split::new(lanes, width);
    if split.parts == 1 {
        return launch_fold(workspace, program, reduction, (lanes, split, width), target);
    }
    let count = split.parts.saturating_mul(lanes.count());
    let totals = workspace.allocate(count, reduction.total_bytes())?;
    let parts = Target::Totals(totals.address());
    launch_fold(workspace, program, reduction, (lanes, split, width), parts)?;
    let mut arguments = Arguments::default();
    arguments.push(totals.address());
    arguments.push(split.parts as u64);
    arguments.push(lanes.count() as u64);
    arguments.push(lanes.length as u64);
    target.push(&mut arguments);
    let source = || parts_source(reduction);
    let grid = grid([lanes.count(), 1]);
    workspace.launch(reduction.parts, &source, grid, &arguments)
}

/// The launch that folds each output, or each part of one.
#[track_caller]
fn launch_fold(
    workspace: Workspace<'_>,
    program: &Program<'_>,
    reduction: Reduction,
    (lanes, split, width): (Lanes, Split, usize),
    target: Target,
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
    let is_packed = width > 1;
    let source = || lanes_source(program, reduction, is_packed);
    let key = program.key(reduction.kernels[usize::from(is_packed)]);
    let grid = grid([split.tiles, split.parts]);
    workspace.launch(key, &source, grid, &arguments)
}

/// A grid of so many blocks along x and y, as far as there may be.
fn grid([along_x, along_y]: [usize; 2]) -> Grid {
    Grid {
        blocks: [along_x.min(MOST_TILES) as u32, along_y as u32],
        threads: THREADS,
        shared_bytes: 0,
    }
}

/// The source of the kernel that folds the elements of `program`.
fn lanes_source(program: &Program<'_>, reduction: Reduction, is_packed: bool) -> KernelSource {
    let mut text = String::new();
    program.text(&mut text);
    let _ = writeln!(text, "#define CS_PACKED {}", u8::from(is_packed));
    reduction.write(&mut text);
    text.push_str(FOLD);
    source(format!("{} of {}", reduction.name, program.name()), &text)
}

/// The source of the kernel that merges the parts of outputs.
fn parts_source(reduction: Reduction) -> KernelSource {
    let Reduction { name, item, .. } = reduction;
    let wide = computed_in(item);
    let mut text = format!("typedef {wide} T;\ntypedef u64 index_t;\n");
    reduction.write(&mut text);
    text.push_str(PARTS);
    source(format!("{name} of parts of {item}"), &text)
}

/// How the work of folds is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    /// Threads of an output, or of a part of one: a power of two.
    threads: usize,
    /// Whether they stand side by side; else those of one place of each of several outputs do.
    is_beside: bool,
    /// Blocks that have all outputs.
    tiles: usize,
    /// The parts of an output, and their elements but for the last.
    parts: usize,
    part_length: usize,
}

impl Split {
    /// Of elements that are read `width` at once.
    fn new(lanes: Lanes, width: usize) -> Self {
        if lanes.inner == 1 {
            Self::beside(lanes, width)
        } else {
            Self::apart(lanes)
        }
    }

    /// Elements of an output stand together: those of a warp are read together.
    fn beside(lanes: Lanes, width: usize) -> Self {
        const BLOCK: usize = THREADS as usize;
        /// Fewer outputs than this do not fill a device with a warp for each.
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

    /// Elements of an output stand apart: those of several outputs are read together.
    fn apart(lanes: Lanes) -> Self {
        const BLOCK: usize = THREADS as usize;
        let (length, outputs) = (lanes.length, lanes.count());
        let least_side = lanes.inner.next_power_of_two().min(32);
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
