//! The function through which every kernel of a CUDA device is launched.

use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::order::CudaOrder;

/// The default number of threads of a block.
pub(super) const THREADS: u32 = 256;

/// The maximum number of blocks along x that CUDA launches.
const MOST_BLOCKS: u32 = i32::MAX as u32;

/// Enqueues a kernel in `order`. `source` is called only if the kernel has not been compiled yet.
///
/// The arguments are plain data with memory addresses, not handles. No kernel stores handles,
/// because a handle would keep the block from being reused. The kernel may rely on three things.
/// First, the memory under the addresses stays reserved. A segment is released only when the
/// streams that used its blocks are done. Second, the operands were written before, and nothing
/// else writes to them meanwhile. The stream of the kernel is ordered after the other streams that
/// use its operands. Third, the next use of the memory is ordered after the kernel.
///
/// Architecture invariant: each caller writes the source and the arguments side by side. So the
/// source and the arguments agree in number, size and meaning. The caller takes the addresses from
/// arrays whose layouts bound every index that the source computes.
#[track_caller]
pub(super) fn launch(
    order: CudaOrder<'_>,
    key: KernelKey,
    source: &dyn Fn() -> KernelSource,
    grid: Grid,
    arguments: &Arguments,
) -> Result<()> {
    let kernel = order.gpu.kernel(key, source)?;
    // SAFETY: by the invariant above, the arguments are the ones that the source expects. By the
    // invariant, too, the source's indices are within the arrays that the addresses belong to. The
    // memory is alive, and used in the order of the stream.
    order.queue(|stream| unsafe { order.gpu.launch(stream, kernel, grid, arguments) })
}

/// Returns a grid of one dimension for `count` items, with a thread for each item. If a grid has
/// too few threads, they loop over the items, with the size of the grid as the stride. On an H200,
/// loops of 32 blocks for each multiprocessor took 5 % longer. `count` must not be 0.
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
