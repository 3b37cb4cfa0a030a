//! The one door through which every kernel of a CUDA device runs.

use crate::device::cuda::{Arguments, Cuda, Grid, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::order::CudaOrder;

/// The threads of a block, where a kernel has no reason for another number.
pub(super) const THREADS: u32 = 256;

/// Blocks for each multiprocessor, of which at least eight run at a time.
const BLOCKS_EACH: u32 = 32;

/// Runs a kernel in `order`; its source is asked for where it has not been compiled yet.
///
/// So the arguments are plain data, of memory addresses, not handles: a handle would keep the block
/// from being reused, which no kernel does. The kernel may rely on three things. The memory under
/// the addresses stays reserved, because segments are released only once the streams are done that
/// used their blocks. What it reads was written before, and nothing else writes there meanwhile,
/// because its stream is ordered after the other streams that use its operands, and whoever gets
/// the memory next is ordered after that.
///
/// Architecture invariant: whoever calls this writes the text and the arguments side by side, so
/// that they agree in number, size and meaning, and takes the addresses from arrays whose layouts
/// bound every index that the text computes.
#[track_caller]
pub(super) fn launch(
    order: CudaOrder<'_>,
    key: KernelKey,
    source: &dyn Fn() -> KernelSource,
    grid: Grid,
    arguments: &Arguments,
) -> Result<()> {
    let kernel = order.gpu.kernel(key, source)?;
    // SAFETY: the arguments are those of the text, whose indices lie in the arrays that the
    // addresses belong to, by the invariant above; the memory is alive, and used in the order of
    // the stream.
    order.queue(|stream| unsafe { order.gpu.launch(stream, kernel, grid, arguments) })
}

/// A grid of one dimension in which each of `count` things finds a thread that comes by, in steps
/// of the whole grid; `count` must not be 0.
pub(super) fn grid_of(gpu: &Cuda, count: usize) -> Grid {
    let most = gpu.multiprocessors().max(1).saturating_mul(BLOCKS_EACH);
    let wanted = count.div_ceil(THREADS as usize);
    Grid {
        blocks: [u32::try_from(wanted).unwrap_or(most).clamp(1, most), 1],
        threads: THREADS,
        shared_bytes: 0,
    }
}
