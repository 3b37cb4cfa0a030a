//! Running sums and products. Each is added up in the type that the host adds up in, as a tree over threads and blocks
//! whose form depends on the shape alone.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use super::fold::{MERGE, STATES};
use super::launch::THREADS;
use super::memory::computed;
use super::prelude::source;
use super::program::Program;
use super::workspace::Workspace;
use crate::array::{AnyElement, Array, Shape};
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::formula::Formula;
use crate::ops::lanes::Lanes;
use crate::ops::order::CudaOrder;
use crate::ops::scan::sums_round;

const SCAN: &str = include_str!("scan.cuh");
const BEFORE: &str = include_str!("before.cuh");

/// The room for a sum on the way.
const SUM_BYTES: usize = 32;

/// Blocks that several parts of lanes are worth.
const MOST_BLOCKS: usize = 2048;

/// The most blocks of lanes; where there are more lanes, blocks go on with the next.
const MOST_TILES: usize = 1 << 20;

/// The kernels that sum along lanes, and those that multiply.
struct Scan<const WAY: u8>;

/// The kernels that turn the sums of parts into those of all parts before.
struct Before;

/// The sums of all elements up to each of `formula`, along `axis`.
#[track_caller]
pub(in crate::ops) fn running_sums<T: AnyElement>(
    order: CudaOrder<'_>,
    formula: &Formula<'_>,
    shape: &Shape,
    axis: usize,
) -> Result<Array<T::Total>> {
    let workspace = Workspace::new(order);
    let program = Program::row_major(formula, shape);
    computed(order.device, shape, |output| {
        let sums = Sums::of::<T>();
        scan_into(workspace, &program, sums, shape, axis, output.address.0)
    })
}

/// The products of all elements up to each of `formula`, along `axis`.
#[track_caller]
pub(in crate::ops) fn running_products<T: AnyElement>(
    order: CudaOrder<'_>,
    formula: &Formula<'_>,
    shape: &Shape,
    axis: usize,
) -> Result<Array<T::Total>> {
    let workspace = Workspace::new(order);
    let program = Program::row_major(formula, shape);
    computed(order.device, shape, |output| {
        let products = Sums::products_of::<T>();
        scan_into(workspace, &program, products, shape, axis, output.address.0)
    })
}

/// Launches the writing of the sums along `axis` of `program`, which is in row-major order of `shape`, to the
/// address `results`; there are some.
#[track_caller]
pub(super) fn scan_into(
    workspace: Workspace<'_>,
    program: &Program<'_>,
    sums: Sums,
    shape: &Shape,
    axis: usize,
    results: u64,
) -> Result<()> {
    let lanes = Lanes::along(axis, shape);
    let scan = Launch {
        workspace,
        program,
        sums,
        lanes,
        split: Split::new(lanes),
    };
    scan.all(results)
}

/// What elements of a type are summed in, as the host does it.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    /// The type of sums on the way, which is a number below.
    state: &'static str,
    form: u32,
    /// The type of an element in a sum.
    wide: &'static str,
    /// The stored type of the results.
    result: &'static str,
}

impl Sums {
    pub(super) fn of<T: AnyElement>() -> Self {
        let state = match sums_round::<T>() {
            true => "cs_compensated",
            false => "cs_plain",
        };
        Self::new::<T>(state, 2 * u32::from(sums_round::<T>()))
    }

    /// Products in place of sums.
    fn products_of<T: AnyElement>() -> Self {
        Self::new::<T>("cs_product", 1)
    }

    fn new<T: AnyElement>(state: &'static str, form: u32) -> Self {
        Self {
            state,
            form: (T::Wide::DTYPE as u32) << 2 | form,
            wide: T::Wide::DTYPE.in_cuda(),
            result: T::Total::DTYPE.in_cuda(),
        }
    }

    fn is_product(self) -> bool {
        self.form & 1 == 1
    }

    /// The types, in a text.
    fn write(self, text: &mut String) {
        text.push_str(STATES);
        let Self { state, wide, .. } = self;
        let nothing = if self.is_product() { "S{(W)1}" } else { "S()" };
        let _ = write!(
            text,
            "#define CS_THREADS {THREADS}
typedef {state}<{wide}> S;
typedef {wide} W;
typedef S Total;
CS_FN Total cs_join(const Total a, const Total b) {{ return cs_merge(a, b); }}
CS_FN S cs_nothing() {{ return {nothing}; }}
static_assert(sizeof(S) <= {SUM_BYTES}, \"the room for sums\");
"
        );
        text.push_str(MERGE);
    }
}

/// What is needed to launch the kernels of one scan.
struct Launch<'a> {
    workspace: Workspace<'a>,
    program: &'a Program<'a>,
    sums: Sums,
    lanes: Lanes,
    split: Split,
}

impl Launch<'_> {
    /// Writes all sums.
    #[track_caller]
    fn all(&self, results: u64) -> Result<()> {
        if self.split.parts == 1 {
            return self.scan([results, 0]);
        }
        self.workspace.prepare(&[
            (self.key(), &|| self.source()),
            (self.key_before(), &|| before_source(self.sums)),
        ]);
        let sums = self.split.parts.saturating_mul(self.lanes.count());
        let totals = self.workspace.allocate(sums, SUM_BYTES)?;
        self.scan([0, totals.address()])?;
        self.before(totals.address())?;
        self.scan([results, totals.address()])
    }

    /// One launch over all elements, with the addresses of the results and of the parts' sums.
    #[track_caller]
    fn scan(&self, [results, totals]: [u64; 2]) -> Result<()> {
        let Self { lanes, split, .. } = self;
        let mut arguments = Arguments::default();
        self.program.arguments(&mut arguments);
        let members = [
            lanes.length,
            lanes.inner,
            lanes.count(),
            split.parts,
            split.part_length,
            split.group,
        ];
        arguments.push_all(members.map(|member| member as u64));
        arguments.push(results);
        arguments.push(totals);
        self.workspace
            .launch(self.key(), &|| self.source(), split.grid(), &arguments)
    }

    fn key(&self) -> KernelKey {
        match (self.split.way, self.sums.is_product()) {
            (Way::Groups, false) => self.program.key(KernelKey::of::<Scan<0>>),
            (Way::Block, false) => self.program.key(KernelKey::of::<Scan<1>>),
            (Way::Apart, false) => self.program.key(KernelKey::of::<Scan<2>>),
            (Way::Groups, true) => self.program.key(KernelKey::of::<Scan<3>>),
            (Way::Block, true) => self.program.key(KernelKey::of::<Scan<4>>),
            (Way::Apart, true) => self.program.key(KernelKey::of::<Scan<5>>),
        }
    }

    fn source(&self) -> KernelSource {
        scan_source(self.program, self.sums, self.split.way)
    }

    /// The key of the kernel between two launches of that.
    fn key_before(&self) -> KernelKey {
        KernelKey::of::<Before>(self.sums.form)
    }

    /// The launch between those two.
    #[track_caller]
    fn before(&self, totals: u64) -> Result<()> {
        let mut arguments = Arguments::default();
        arguments.push(totals);
        arguments.push(self.split.parts as u64);
        arguments.push(self.lanes.count() as u64);
        let grid = Grid {
            blocks: [self.lanes.count().min(MOST_TILES) as u32, 1],
            threads: THREADS,
            shared_bytes: 0,
        };
        let source = || before_source(self.sums);
        self.workspace
            .launch(self.key_before(), &source, grid, &arguments)
    }
}

/// The source of the kernel that sums along lanes of the elements of `program`.
fn scan_source(program: &Program<'_>, sums: Sums, way: Way) -> KernelSource {
    let mut text = String::new();
    program.text(&mut text);
    sums.write(&mut text);
    let way = way as u8;
    let _ = writeln!(text, "typedef {} R;\n#define CS_WAY {way}", sums.result);
    text.push_str(SCAN);
    let operation = if sums.is_product() {
        "cumprod"
    } else {
        "cumsum"
    };
    source(format!("{operation} of {}", program.name()), &text)
}

/// The source of the kernel that goes between two launches of it.
fn before_source(sums: Sums) -> KernelSource {
    let mut text = String::new();
    sums.write(&mut text);
    text.push_str(BEFORE);
    source(format!("parts of sums in {}", sums.wide), &text)
}

/// Who sums a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Threads of a warp.
    Groups,
    /// A block, or one for each part.
    Block,
    /// A thread, or one for each part.
    Apart,
}

/// How the work is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    way: Way,
    /// Threads of a lane, of a warp.
    group: usize,
    /// Blocks that have all lanes.
    tiles: usize,
    /// The parts of a lane, and their elements but for the last.
    parts: usize,
    part_length: usize,
}

impl Split {
    fn new(lanes: Lanes) -> Self {
        const BLOCK: usize = THREADS as usize;
        /// Fewer lanes than this do not fill a device with a warp for each.
        const FEW: usize = 1024;
        let (length, count) = (lanes.length, lanes.count());
        if lanes.inner > 1 {
            return Self::apart(lanes);
        }
        if length <= 256 || (length <= 2048 && count >= FEW) {
            let group = length.next_power_of_two().min(32);
            return Self {
                way: Way::Groups,
                group,
                tiles: count.div_ceil(BLOCK / group),
                parts: 1,
                part_length: length,
            };
        }
        let most = (length / (16 * BLOCK)).max(1);
        let parts = (MOST_BLOCKS / count.max(1)).clamp(1, most);
        let part_length = length.div_ceil(parts).next_multiple_of(8 * BLOCK);
        Self {
            way: Way::Block,
            group: BLOCK,
            tiles: count,
            parts: length.div_ceil(part_length),
            part_length,
        }
    }

    /// Elements of a lane stand apart: those of several lanes are read together.
    fn apart(lanes: Lanes) -> Self {
        /// So many threads fill a device.
        const MANY: usize = 1 << 16;
        let (length, count) = (lanes.length, lanes.count());
        let most = (length / 32).max(1);
        let parts = (MANY / count.max(1)).clamp(1, most);
        let part_length = length.div_ceil(parts).next_multiple_of(8);
        let parts = length.div_ceil(part_length);
        Self {
            way: Way::Apart,
            group: 1,
            tiles: count.saturating_mul(parts).div_ceil(THREADS as usize),
            parts,
            part_length,
        }
    }

    fn grid(&self) -> Grid {
        let along_y = match self.way {
            Way::Block => self.parts,
            Way::Groups | Way::Apart => 1,
        };
        Grid {
            blocks: [self.tiles.min(MOST_TILES) as u32, along_y as u32],
            threads: THREADS,
            shared_bytes: 0,
        }
    }
}
