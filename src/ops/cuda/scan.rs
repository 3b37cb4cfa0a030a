//! Running sums and products, which read and write each element once. Each is added up in the type
//! that the host adds up in. Which sums are merged with which depends on the shape alone: where
//! long lanes are cut into tiles, a tile's sum is merged with that of all tiles before it, which
//! are merged in their order, whoever does it and when.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use super::fold::STATES;
use super::launch::THREADS;
use super::memory::computed;
use super::prelude::source;
use super::program::Program;
use super::workspace::Workspace;
use crate::array::{AnyElement, Array, Buffer, Shape};
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::device::{Backend, DevicePtr};
use crate::error::Result;
use crate::ops::formula::Formula;
use crate::ops::lanes::Lanes;
use crate::ops::order::CudaOrder;
use crate::ops::scan::sums_round;

const SCAN: &str = include_str!("scan.cuh");
const LOOK_BACK: &str = include_str!("look_back.cuh");
const TILES: &str = include_str!("scan_tiles.cuh");

/// The most blocks; where there are more lanes or tiles, blocks go on with the next.
const MOST_BLOCKS: usize = 1 << 20;

/// Elements of a tile that is a piece of one lane.
const TILE: usize = 8 * THREADS as usize;

/// The kernels that sum along lanes, and those that multiply.
struct Scan<const WAY: u8, const PRODUCT: bool>;

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

/// Launches the writing of the sums along `axis` of `program`, which is in row-major order of
/// `shape`, to the address `results`; there are some.
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
        split: Split::new(lanes, sums.rows()),
    };
    scan.run(results)
}

/// What elements of a type are summed in, as the host does it.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    /// The type of sums on the way, and its size.
    state: &'static str,
    state_bytes: usize,
    is_product: bool,
    /// The type of an element in a sum.
    wide: &'static str,
    /// The stored type of the results.
    result: &'static str,
    element_bytes: usize,
}

impl Sums {
    pub(super) fn of<T: AnyElement>() -> Self {
        match sums_round::<T>() {
            true => Self::new::<T>("cs_compensated", 2, false),
            false => Self::new::<T>("cs_plain", 1, false),
        }
    }

    /// Products in place of sums.
    fn products_of<T: AnyElement>() -> Self {
        Self::new::<T>("cs_product", 1, true)
    }

    /// In states of so many numbers.
    fn new<T: AnyElement>(state: &'static str, numbers: usize, is_product: bool) -> Self {
        Self {
            state,
            state_bytes: numbers * size_of::<T::Wide>(),
            is_product,
            wide: T::Wide::DTYPE.in_cuda(),
            result: T::Total::DTYPE.in_cuda(),
            element_bytes: size_of::<T>(),
        }
    }

    /// Elements that a thread keeps at a time, where they stand apart.
    fn rows(self) -> usize {
        // Those of 16 bits are computed in 32.
        (128 / self.element_bytes.max(4)).min(MOST_ROWS)
    }

    /// The types, in a text.
    fn write(self, text: &mut String) {
        text.push_str(STATES);
        let Self {
            state,
            state_bytes,
            wide,
            result,
            ..
        } = self;
        let nothing = if self.is_product { "S{(W)1}" } else { "S()" };
        let _ = write!(
            text,
            "#define CS_THREADS {THREADS}
typedef {state}<{wide}> S;
typedef {wide} W;
typedef {result} R;
CS_FN S cs_nothing() {{ return {nothing}; }}
static_assert(sizeof(S) == {state_bytes}, \"the room for sums\");
"
        );
    }
}

/// What is needed to launch the kernel of one scan.
struct Launch<'a> {
    workspace: Workspace<'a>,
    program: &'a Program<'a>,
    sums: Sums,
    lanes: Lanes,
    split: Split,
}

impl Launch<'_> {
    /// Writes all sums to the address `results`.
    #[track_caller]
    fn run(&self, results: u64) -> Result<()> {
        let Self { lanes, split, .. } = self;
        let mut arguments = Arguments::default();
        self.program.arguments(&mut arguments);
        let members = [
            lanes.length,
            lanes.inner,
            lanes.count(),
            split.threads,
            split.parts,
        ];
        arguments.push_all(members.map(|member| member as u64));
        arguments.push(results);
        // Lives until the kernel is launched.
        let _told = match split.way {
            Way::Tiles | Way::TilesApart => Some(self.tiles(&mut arguments)?),
            Way::Groups | Way::Block | Way::Apart => None,
        };
        let source = || scan_source(self.program, self.sums, split.way);
        let key = self.program.key(self.kernel());
        self.workspace
            .launch(key, &source, split.grid(), &arguments)
    }

    /// Memory for what the tiles tell each other, which has been told of none, as an argument.
    #[track_caller]
    fn tiles(&self, arguments: &mut Arguments) -> Result<Buffer> {
        let order = self.workspace.order;
        let tiles = self.split.blocks;
        let sums_bytes = (tiles * self.split.side()).saturating_mul(self.sums.state_bytes);
        // The ticket, and a number for each tile.
        let first_bytes = (8 + tiles.saturating_mul(4)).next_multiple_of(16);
        let size_bytes = sums_bytes.saturating_mul(2).saturating_add(first_bytes);
        let memory = self.workspace.allocate(size_bytes, 1)?;
        let address = memory.address();
        let first = DevicePtr(address);
        // SAFETY: these are the first bytes of new memory, which nobody else has.
        order.queue(|stream| unsafe { order.gpu.fill(stream, first, first_bytes as u64, &[0]) })?;
        let sums = address + first_bytes as u64;
        arguments.push_all([address, address + 8, sums, sums + sums_bytes as u64]);
        Ok(memory)
    }

    fn kernel(&self) -> fn(u32) -> KernelKey {
        fn of<const WAY: u8>(is_product: bool) -> fn(u32) -> KernelKey {
            match is_product {
                false => KernelKey::of::<Scan<WAY, false>>,
                true => KernelKey::of::<Scan<WAY, true>>,
            }
        }
        let of = match self.split.way {
            Way::Groups => of::<0>,
            Way::Block => of::<1>,
            Way::Apart => of::<2>,
            Way::Tiles => of::<3>,
            Way::TilesApart => of::<4>,
        };
        of(self.sums.is_product)
    }
}

/// The source of the kernel that sums along lanes of the elements of `program`.
fn scan_source(program: &Program<'_>, sums: Sums, way: Way) -> KernelSource {
    let mut text = String::new();
    program.text(&mut text);
    sums.write(&mut text);
    let (way, rows) = (way as u8, sums.rows());
    let _ = writeln!(text, "#define CS_WAY {way}\n#define CS_ROWS {rows}");
    text.push_str(SCAN);
    if way >= Way::Tiles as u8 {
        text.push_str(LOOK_BACK);
        text.push_str(TILES);
    }
    let operation = if sums.is_product { "cumprod" } else { "cumsum" };
    source(format!("{operation} of {}", program.name()), &text)
}

/// Who sums a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Threads of a warp.
    Groups,
    /// A block.
    Block,
    /// A thread, where elements stand apart.
    Apart,
    /// A block for each tile.
    Tiles,
    /// A block for each tile, which is of several lanes whose elements stand apart.
    TilesApart,
}

/// Elements that a thread keeps where they stand apart, at most.
const MOST_ROWS: usize = 32;

/// How the work is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    way: Way,
    /// Threads of a lane, which are a power of two.
    threads: usize,
    /// The tiles of a lane; 1 where it is summed at once.
    parts: usize,
    /// Blocks that have work, each of a tile or of some lanes.
    blocks: usize,
}

impl Split {
    /// Of elements of which a thread keeps `rows`, where they stand apart.
    fn new(lanes: Lanes, rows: usize) -> Self {
        const BLOCK: usize = THREADS as usize;
        /// Fewer lanes than this do not fill a device with a warp for each.
        const FEW: usize = 1024;
        let (length, count) = (lanes.length, lanes.count());
        if lanes.inner > 1 {
            return Self::apart(lanes, rows);
        }
        if length <= 256 || (length <= 2048 && count >= FEW) {
            let threads = length.next_power_of_two().min(32);
            return Self {
                way: Way::Groups,
                threads,
                parts: 1,
                blocks: count.div_ceil(BLOCK / threads),
            };
        }
        if length < 4 * TILE || count >= FEW {
            return Self {
                way: Way::Block,
                threads: BLOCK,
                parts: 1,
                blocks: count,
            };
        }
        let parts = length.div_ceil(TILE);
        Self {
            way: Way::Tiles,
            threads: BLOCK,
            parts,
            blocks: count.saturating_mul(parts),
        }
    }

    /// Elements of a lane stand apart: those of several lanes are read together.
    fn apart(lanes: Lanes, rows: usize) -> Self {
        const BLOCK: usize = THREADS as usize;
        /// Half as many threads fill a device.
        const MANY: usize = 1 << 15;
        let (length, count) = (lanes.length, lanes.count());
        if length < 2 * MOST_ROWS || count > MANY {
            return Self {
                way: Way::Apart,
                threads: 1,
                parts: 1,
                blocks: count.div_ceil(BLOCK),
            };
        }
        // No more threads than a lane has work for, nor so many that those of one row do not stand
        // together.
        let most = BLOCK / lanes.inner.next_power_of_two().min(BLOCK);
        let threads = length.div_ceil(rows).next_power_of_two().min(most);
        let parts = length.div_ceil(threads * rows);
        Self {
            way: Way::TilesApart,
            threads,
            parts,
            blocks: count.div_ceil(BLOCK / threads).saturating_mul(parts),
        }
    }

    /// The lanes of a tile.
    fn side(&self) -> usize {
        THREADS as usize / self.threads
    }

    fn grid(&self) -> Grid {
        Grid {
            blocks: [self.blocks.min(MOST_BLOCKS) as u32, 1],
            threads: THREADS,
            shared_bytes: 0,
        }
    }
}
