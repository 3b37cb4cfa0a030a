//! The function through which every kernel of a CUDA device is launched.

use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::order::CudaOrder;

/// The default number of threads of a block.
pub(super) const THREADS: u32 = 256;

/// The maximum number of blocks along x that CUDA launches.
const MOST_BLOCKS: u32 = i32::MAX as u32;

/// Enqueues a kernel in `order`. If the kernel has not been compiled yet, calls `source`.
///
/// The arguments contain memory addresses, not handles. A handle would prevent the reuse of its
/// block until the kernel has run. The kernel may rely on three guarantees. First, the memory at
/// the addresses stays reserved. A segment is released only when the streams that used its blocks
/// are done. Second, the operands were written before, and nothing else writes to them while the
/// kernel runs. The stream of the kernel is ordered after the other streams that use its operands.
/// Third, the next use of the memory is ordered after the kernel.
///
/// Architecture invariant: each caller defines the source and the arguments together, so that they
/// agree in number, size and meaning. The caller takes the addresses from arrays. The layouts of
/// these arrays bound every index that the source computes.
#[track_caller]
pub(super) fn launch(
    order: CudaOrder<'_>,
    key: KernelKey,
    source: &dyn Fn() -> KernelSource,
    grid: Grid,
    arguments: &Arguments,
) -> Result<()> {
    let kernel = order.gpu.kernel(key, source)?;
    // SAFETY: by the invariant of this function, the arguments match the source, and all indices
    // are within the arrays. The memory is reserved, and `order` orders its uses.
    order.queue(|stream| unsafe { order.gpu.launch(stream, kernel, grid, arguments) })
}

/// Returns a one-dimensional grid for `count` items, with one thread per item. If CUDA cannot
/// launch this number of blocks, the threads run a grid-stride loop. On an H200, grid-stride loops
/// with 32 blocks per multiprocessor took 5 % longer than one thread per item. `count` must not be
/// 0.
pub(super) fn grid_of(count: usize) -> Grid {
    let wanted = count.div_ceil(THREADS as usize);
    Grid {
        blocks: [
            u32::try_from(wanted)
                .unwrap_or(MOST_BLOCKS)
                .clamp(1, MOST_BLOCKS),
            1,
        ],
        threads: THREADS,
        shared_bytes: 0,
    }
}
