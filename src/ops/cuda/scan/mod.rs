//! Running sums and products. Their kernels read and write each element once.
//!
//! The sums are accumulated in the type that the host uses. The shape and the element type alone
//! determine which sums are merged. Long lanes may be cut into tiles. The sum of a tile is merged
//! with the sum of all earlier tiles. The sums of the earlier tiles are always merged in the order
//! of the tiles.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use super::launch::THREADS;
use super::memory::computed;
use super::prelude::source;
use super::program::Program;
use super::reduce::STATES;
use super::workspace::Workspace;
use crate::array::{AnyArray, Buffer, DType, Shape};
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::device::{Backend, DevicePtr};
use crate::error::Result;
use crate::ops::descriptors::Lanes;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::order::CudaOrder;
use cachescope_kernels::lanes::is_compensated;

const SCAN: &str = include_str!("../scan.cuh");
const LOOK_BACK: &str = include_str!("../look_back.cuh");
const TILES: &str = include_str!("../scan_tiles.cuh");

/// The maximum number of blocks. If there are more lanes or tiles, each block processes several.
const MOST_BLOCKS: usize = 1 << 20;

/// The number of elements of a tile of one lane.
const TILE: usize = 8 * THREADS as usize;

/// The kernels of running products if `PRODUCT`, otherwise the kernels of running sums.
struct Scan<const WAY: u8, const PRODUCT: bool>;

/// Returns the running sums of `graph` along `axis`. If `is_product`, returns the running products.
/// The results have the type of sums.
#[track_caller]
pub(in crate::ops) fn running(
    order: CudaOrder<'_>,
    graph: &ExpressionGraph<'_>,
    shape: &Shape,
    axis: usize,
    is_product: bool,
) -> Result<AnyArray> {
    let workspace = Workspace::new(order);
    let program = Program::row_major(graph, shape);
    let dtype = graph.first().dtype;
    computed(order.device, dtype.total(), shape, |output| {
        let sums = ScanOperation::of(dtype, is_product);
        scan_into(workspace, &program, sums, shape, axis, output.address.0)
    })
}

/// Enqueues the scan of `program` along `axis`, with results at the address `results`. The program
/// is in row-major order of `shape`. `shape` must have elements.
#[track_caller]
pub(super) fn scan_into(
    workspace: Workspace<'_>,
    program: &Program<'_>,
    sums: ScanOperation,
    shape: &Shape,
    axis: usize,
    results: u64,
) -> Result<()> {
    let lanes = Lanes::along(axis, shape.dims());
    let scan = Launch {
        workspace,
        program,
        sums,
        lanes,
        split: ScanSplit::new(lanes, sums.rows()),
    };
    scan.run(results)
}

/// The operation of a scan, sum or product, with the host's types of accumulation and results.
#[derive(Clone, Copy)]
pub(super) struct ScanOperation {
    /// The type of intermediate sums, and its size.
    state: &'static str,
    state_bytes: usize,
    is_product: bool,
    /// The type that an element is converted to before it is accumulated.
    wide: &'static str,
    /// The stored type of the results.
    result: &'static str,
    element_bytes: usize,
}

impl ScanOperation {
    /// Returns the operation for elements of `dtype`.
    pub(super) fn of(dtype: DType, is_product: bool) -> Self {
        let (state, numbers) = match is_product {
            true => ("cs_product", 1),
            false if is_compensated(dtype) => ("cs_compensated", 2),
            false => ("cs_plain", 1),
        };
        Self {
            state,
            state_bytes: numbers * dtype.wide().size_bytes(),
            is_product,
            wide: dtype.wide().in_cuda(),
            result: dtype.total().in_cuda(),
            element_bytes: dtype.size_bytes(),
        }
    }

    /// Returns the number of elements that a thread holds at a time if lanes are strided.
    fn rows(self) -> usize {
        // A short element occupies at least 4 bytes in registers.
        (128 / self.element_bytes.max(4)).min(MOST_ROWS)
    }

    /// Appends the definitions of the types to `text`.
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

struct Launch<'a> {
    workspace: Workspace<'a>,
    program: &'a Program<'a>,
    sums: ScanOperation,
    lanes: Lanes,
    split: ScanSplit,
}

impl Launch<'_> {
    /// Enqueues the kernel of the scan, with results at the address `results`.
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
        // The memory for the sums of tiles must live until the kernel is launched.
        let _told = match split.algorithm {
            ScanAlgorithm::Tiles | ScanAlgorithm::TilesApart => Some(self.tiles(&mut arguments)?),
            ScanAlgorithm::Groups | ScanAlgorithm::Block | ScanAlgorithm::Apart => None,
        };
        let source = || scan_source(self.program, self.sums, split.algorithm);
        let key = self.program.key(self.kernel());
        self.workspace
            .launch(key, &source, split.grid(), &arguments)
    }

    /// Allocates the memory in which tiles publish their sums, and appends it to the arguments.
    /// Sets every status to "nothing published".
    #[track_caller]
    fn tiles(&self, arguments: &mut Arguments) -> Result<Buffer> {
        let order = self.workspace.order;
        let tiles = self.split.blocks;
        let sums_bytes = (tiles * self.split.side()).saturating_mul(self.sums.state_bytes);
        // The first bytes are the ticket, and a status for each tile.
        let first_bytes = (8 + tiles.saturating_mul(4)).next_multiple_of(16);
        let size_bytes = sums_bytes.saturating_mul(2).saturating_add(first_bytes);
        let memory = self.workspace.allocate(size_bytes, 1)?;
        let address = memory.address();
        let first = DevicePtr(address);
        // SAFETY: the filled bytes are the first bytes of `memory`. `memory` is new, and has at
        // least `first_bytes` bytes.
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
        let of = match self.split.algorithm {
            ScanAlgorithm::Groups => of::<0>,
            ScanAlgorithm::Block => of::<1>,
            ScanAlgorithm::Apart => of::<2>,
            ScanAlgorithm::Tiles => of::<3>,
            ScanAlgorithm::TilesApart => of::<4>,
        };
        of(self.sums.is_product)
    }
}

/// Returns the source of the kernel that scans along lanes of the elements of `program`.
fn scan_source(
    program: &Program<'_>,
    sums: ScanOperation,
    algorithm: ScanAlgorithm,
) -> KernelSource {
    let mut text = String::new();
    program.text(&mut text);
    sums.write(&mut text);
    let (algorithm, rows) = (algorithm as u8, sums.rows());
    let _ = writeln!(text, "#define CS_WAY {algorithm}\n#define CS_ROWS {rows}");
    text.push_str(SCAN);
    if algorithm >= ScanAlgorithm::Tiles as u8 {
        text.push_str(LOOK_BACK);
        text.push_str(TILES);
    }
    let operation = if sums.is_product { "cumprod" } else { "cumsum" };
    source(format!("{operation} of {}", program.name()), &text)
}

/// The algorithm of a scan: the threads that sum a lane, or a tile of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanAlgorithm {
    /// Up to 32 threads of a warp for each lane.
    Groups,
    /// A block for each lane.
    Block,
    /// One thread for each strided lane.
    Apart,
    /// A block for each tile of a lane.
    Tiles,
    /// A block for each tile of several strided lanes.
    TilesApart,
}

/// The maximum number of elements of a strided lane that a thread holds.
const MOST_ROWS: usize = 32;

/// The division of a scan among blocks and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ScanSplit {
    algorithm: ScanAlgorithm,
    /// The number of threads of a lane, a power of two.
    threads: usize,
    /// The number of tiles of a lane, or 1 if a lane is summed at once.
    parts: usize,
    /// The number of blocks that have lanes or a tile to process.
    blocks: usize,
}

impl ScanSplit {
    /// Divides lanes. If the lanes are strided, a thread holds `rows` elements.
    fn new(lanes: Lanes, rows: usize) -> Self {
        const BLOCK: usize = THREADS as usize;
        /// The minimum number of lanes that fill a device with one warp per lane.
        const FEW: usize = 1024;
        let (length, count) = (lanes.length, lanes.count());
        if lanes.inner > 1 {
            return Self::apart(lanes, rows);
        }
        if length <= 256 || (length <= 2048 && count >= FEW) {
            let threads = length.next_power_of_two().min(32);
            return Self {
                algorithm: ScanAlgorithm::Groups,
                threads,
                parts: 1,
                blocks: count.div_ceil(BLOCK / threads),
            };
        }
        if length < 4 * TILE || count >= FEW {
            return Self {
                algorithm: ScanAlgorithm::Block,
                threads: BLOCK,
                parts: 1,
                blocks: count,
            };
        }
        let parts = length.div_ceil(TILE);
        Self {
            algorithm: ScanAlgorithm::Tiles,
            threads: BLOCK,
            parts,
            blocks: count.saturating_mul(parts),
        }
    }

    /// Divides strided lanes. Adjacent threads read adjacent lanes.
    fn apart(lanes: Lanes, rows: usize) -> Self {
        const BLOCK: usize = THREADS as usize;
        /// The maximum number of lanes that are cut into tiles. With one thread per lane, half this
        /// number of lanes fills a device.
        const MANY: usize = 1 << 15;
        let (length, count) = (lanes.length, lanes.count());
        if length < 2 * MOST_ROWS || count > MANY {
            return Self {
                algorithm: ScanAlgorithm::Apart,
                threads: 1,
                parts: 1,
                blocks: count.div_ceil(BLOCK),
            };
        }
        // A lane has at most one thread for each `rows` elements. The limit `most` ensures that the
        // threads of one row access contiguous elements.
        let most = BLOCK / lanes.inner.next_power_of_two().min(BLOCK);
        let threads = length.div_ceil(rows).next_power_of_two().min(most);
        let parts = length.div_ceil(threads * rows);
        Self {
            algorithm: ScanAlgorithm::TilesApart,
            threads,
            parts,
            blocks: count.div_ceil(BLOCK / threads).saturating_mul(parts),
        }
    }

    /// Returns the number of lanes of a block.
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
