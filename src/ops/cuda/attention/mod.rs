//! Fused attention: scores are computed by tiles, and never stored (Dao, ["FlashAttention-2: Faster
//! Attention with Better Parallelism and Work Partitioning"](https://arxiv.org/abs/2307.08691),
//! 2023).
//!
//! Tensor cores multiply `f16` and `bf16`, and `f32` if the device allows TF32. Otherwise, `f32` is
//! multiplied by FMA. Sums and the softmax are in `f32`. No kernel uses atomics, so that two runs
//! have equal bits.
//!
//! The backward pass has two kernels. The first kernel computes the gradient of the queries, one
//! tile of queries per block. The second kernel computes the gradients of keys and values, one tile
//! of keys per block. Both compute the scores again.

mod layout;
mod obstacle;
mod table;
#[cfg(test)]
mod tests;
mod tiles;

use std::panic::Location;

use smallvec::SmallVec;

use super::memory::{address_of, allocated};
use super::workspace::Workspace;
use crate::array::{AnyArray, DType, Layout, MAX_RANK, Shape};
use crate::context::Device;
use crate::device::DevicePtr;
use crate::device::cuda::Cuda;
use crate::error::Result;
use crate::ops::descriptors::AttentionSizes;
use crate::ops::order::{CudaOrder, warn};
use layout::{AttentionArguments, HeadMatrices, SharingGroups};
use obstacle::{DeviceLimits, Obstacle};
use table::TileTable;
use tiles::{AttentionKernel, AttentionPass, TileProducts};

/// Returns whether kernels of this module compute attention with arrays of `dtype`, forward and
/// backward. Otherwise, writes a warning with the reason, in builds with debug assertions. No
/// kernel multiplies `f64`, and this type has no warning.
#[track_caller]
fn is_fused(gpu: &Cuda, dtype: DType, sizes: &AttentionSizes) -> Result<bool> {
    let limits = DeviceLimits {
        table: TileTable::of(gpu)?,
        shared_bytes: gpu.shared_bytes(),
    };
    let products = TileProducts::of(gpu, dtype);
    let obstacle = Obstacle::to(&limits, (products, dtype), sizes);
    if let Some(obstacle) = obstacle
        && dtype != DType::F64
    {
        let text = format_args!(
            "attention: no fused kernels for {obstacle}, so scores are stored in blocks"
        );
        warn::once(Location::caller(), text);
    }
    Ok(obstacle.is_none())
}

/// Returns the attention of `[q, k, v]`, and the softmax of each query as an array of shape
/// `[heads.., queries, 2]`: the largest score, and the inverse of the sum of exponentials. Returns
/// `None` if no kernels compute this attention. There is at least one head, query, key and column.
#[track_caller]
pub(in crate::ops) fn attended(
    order: CudaOrder<'_>,
    operands: [&AnyArray; 3],
    sizes: &AttentionSizes,
    is_causal: bool,
) -> Result<Option<[AnyArray; 2]>> {
    let workspace = Workspace::new(order);
    let [q, k, v] = operands;
    if !is_fused(order.gpu, q.dtype, sizes)? {
        return Ok(None);
    }
    let rows = Layout::contiguous(&sizes.shape(sizes.queries, 2))?;
    let result = allocated(order.device, q.dtype, result_layout(q, sizes)?)?;
    let softmax = allocated(order.device, DType::F32, rows)?;
    let read = [q, k, v].map(|array| HeadMatrices::of(array.operand(), &sizes.heads));
    let target = HeadMatrices::of(result.operand(), &sizes.heads);
    let [q, k, v] = &read;
    let mut arguments = AttentionArguments::new(sizes, is_causal);
    arguments.addresses(&[q.address, k.address, v.address, target.address]);
    arguments.addresses(&[address_of(softmax.operand())]);
    arguments.heads(&[q, k, v, &target]);
    arguments.steps(&[q, k, v, &target]);
    let heads = (sizes.head_count(), sizes);
    launch(workspace, AttentionPass::Forward, heads, &read, arguments)?;
    Ok(Some([result, softmax]))
}

/// Returns the gradients of q, k and v. Their leading axes are the common axes that the operands
/// broadcast to. An axis along which neither k nor v has several heads has length 1 in the
/// gradients of k and v. `arrays` are these three arrays, the two results of [`attended`], and the
/// gradient of the first result.
#[track_caller]
pub(in crate::ops) fn gradients_of_attention(
    order: CudaOrder<'_>,
    arrays: [&AnyArray; 6],
    sizes: &AttentionSizes,
    is_causal: bool,
) -> Result<[AnyArray; 3]> {
    let workspace = Workspace::new(order);
    let [q, k, v, result, softmax, gradient] = arrays;
    let of = |array: &AnyArray| HeadMatrices::of(array.operand(), &sizes.heads);
    let softmax = address_of(softmax.operand());
    let (of_result, of_gradient) = (of(result), of(gradient));
    let [of_q, of_k, of_v] = [q, k, v].map(of);
    // The mean of the weights' gradient of each query, as two numbers of four bytes.
    let scratch = workspace.allocate(sizes.head_count() * sizes.queries, 8)?;
    let means = DevicePtr(scratch.address());
    let read = [of_q, of_k, of_v, of_gradient];
    let [q_address, k_address, v_address, of_gradient_address] = read.map(|own| own.address);

    let groups = SharingGroups::of(&of_k, &of_v);
    let targets = gradient_arrays(order.device, [q, k, v], sizes, &groups)?;
    let [q_target, k_target, v_target] =
        (targets.each_ref()).map(|target| HeadMatrices::new(target.operand()));

    let mut arguments = AttentionArguments::new(sizes, is_causal);
    arguments.addresses(&[q_address, k_address, v_address, of_result.address]);
    arguments.addresses(&[of_gradient_address, softmax, means, q_target.address]);
    let matrices = [&of_q, &of_k, &of_v, &of_result, &of_gradient, &q_target];
    arguments.heads(&matrices);
    arguments.steps(&matrices);
    let heads = sizes.head_count();
    launch(
        workspace,
        AttentionPass::OfQueries,
        (heads, sizes),
        &read,
        arguments,
    )?;

    let places = HeadMatrices::of_queries(sizes);
    for pass in AttentionPass::of_keys_and_values(sizes) {
        let mut arguments = AttentionArguments::new(sizes, is_causal);
        arguments.addresses(&read.map(|own| own.address));
        arguments.addresses(&[softmax, means, k_target.address, v_target.address]);
        let matrices = [&of_q, &of_k, &of_v, &of_gradient, &k_target, &v_target];
        let [q, k, v, gradient, of_k, of_v] = matrices;
        arguments.groups(
            &groups,
            &[q, k, v, gradient, of_k, of_v, &places],
            &[q, gradient, &places],
        );
        arguments.steps(&matrices);
        launch(workspace, *pass, (groups.count(), sizes), &read, arguments)?;
    }
    Ok(targets)
}

/// Allocates the gradients of `operands`. If the operands are parts of one array without gaps, so
/// are the gradients, and no copy has to join them.
#[track_caller]
fn gradient_arrays(
    device: &Device,
    operands: [&AnyArray; 3],
    sizes: &AttentionSizes,
    groups: &SharingGroups,
) -> Result<[AnyArray; 3]> {
    let dtype = operands[0].dtype;
    if let Some((whole, parts)) = parts_of_one(operands) {
        let whole = allocated(device, dtype, whole)?;
        return Ok(parts.map(|layout| whole.viewed(layout)));
    }
    let of = |heads: &Shape, rows: usize, columns: usize| {
        let lengths = heads.dims().iter().copied();
        let layout = Layout::contiguous(&lengths.chain([rows, columns]).collect())?;
        allocated(device, dtype, layout)
    };
    Ok([
        of(&sizes.heads, sizes.queries, sizes.depth)?,
        of(&groups.all, sizes.keys, sizes.depth)?,
        of(&groups.all, sizes.keys, sizes.width)?,
    ])
}

/// Returns the layout of a tracked array, and the layouts of the operands in it. Returns `None`
/// unless the array consists of the operands, which lie at equal distances.
fn parts_of_one(operands: [&AnyArray; 3]) -> Option<(Layout, [Layout; 3])> {
    let [q, k, v] = operands;
    let (shape, strides) = (q.shape(), q.layout.strides());
    // Gradients of separate variables must not share memory.
    let value_id = q.buffer.value_id();
    let is_like_q = |other: &AnyArray| {
        let (buffer, layout) = (&other.buffer, &other.layout);
        buffer.is_same(&q.buffer)
            && buffer.value_id() == value_id
            && layout.shape() == shape
            && layout.strides() == strides
    };
    if value_id.is_none() || !is_like_q(k) || !is_like_q(v) || shape.ndim() == MAX_RANK {
        return None;
    }
    let offsets = operands.map(|operand| operand.layout.offset());
    let step = offsets[1].checked_sub(offsets[0])?;
    if offsets[2].checked_sub(offsets[1])? != step || strides.iter().any(|&stride| stride < 0) {
        return None;
    }
    let lengths: Shape = shape.dims().iter().copied().chain([3]).collect();
    let strides: SmallVec<[isize; MAX_RANK]> =
        strides.iter().copied().chain([step as isize]).collect();
    let joint = Layout::strided(&lengths, &strides).ok()?;
    let (_, highest) = joint.bounds()?;
    if joint.repeats() || highest + 1 != joint.len() {
        return None;
    }
    let whole = Layout::row_major(&Shape::from(joint.len()));
    let parts = operands.map(|operand| {
        let layout = &operand.layout;
        layout.starting_at(layout.offset() - offsets[0])
    });
    Some((whole, parts))
}

/// Launches the kernel of a pass over `heads`. The kernel reads the matrices `read` by tiles.
#[track_caller]
fn launch(
    workspace: Workspace<'_>,
    pass: AttentionPass,
    (heads, sizes): (usize, &AttentionSizes),
    read: &[HeadMatrices],
    arguments: AttentionArguments,
) -> Result<()> {
    let dtype = read[0].dtype;
    let products = TileProducts::of(workspace.order.gpu, dtype);
    let products = products.expect("the kernels multiply elements of this type");
    let table = TileTable::of(workspace.order.gpu)?;
    let kernel = AttentionKernel::new(&table, pass, products, sizes);
    let kernel = kernel.expect("the kernels have tiles of this width");
    let is_aligned = read.iter().all(HeadMatrices::is_aligned);
    let numbering = arguments.numbering();
    let source = || kernel.source(numbering, is_aligned);
    let blocks = kernel.blocks(heads, sizes);
    let grid = kernel.grid(blocks.expect("the number of blocks was checked"));
    let key = kernel.key(numbering, is_aligned);
    workspace.launch(key, &source, grid, &arguments.finish())
}

/// Returns the layout of the result: row-major, or with heads inside of queries, if the queries of
/// `q` have such a layout. In the second case, a layer joins the heads of the result without a
/// copy.
fn result_layout(q: &AnyArray, sizes: &AttentionSizes) -> Result<Layout> {
    let shape = sizes.shape(sizes.queries, sizes.width);
    let Some(axis) = q.layout.ndim().checked_sub(3) else {
        return Layout::contiguous(&shape);
    };
    let (dims, strides) = (q.dims(), q.layout.strides());
    let is_inside = dims[axis] > 1 && dims[axis + 1] > 1 && strides[axis] < strides[axis + 1];
    if !is_inside || strides[axis] == 0 {
        return Layout::contiguous(&shape);
    }
    let mut dims: SmallVec<[usize; MAX_RANK]> = shape.dims().into();
    dims.swap(shape.ndim() - 2, shape.ndim() - 3);
    Layout::contiguous(&Shape::from(&dims[..]))?.swap_axes(-2, -3)
}
