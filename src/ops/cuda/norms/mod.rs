//! Layer norms and RMS norms of rows that fit the registers of a block: one launch forward, two
//! launches backward.
//!
//! The forward kernel scales each row by a power of two, so that no square leaves the range of the
//! type. The backward kernel reads each row and its gradient once. It writes the gradient of the
//! row, and one sum per block for each column of the gradients of weight and bias. The last kernel
//! adds these sums. No kernel uses atomics, so that two runs have equal bits.

mod split;
#[cfg(test)]
mod tests;

use super::copy::copied;
use super::memory::{address_of, allocated};
use super::workspace::Workspace;
use crate::array::{AnyArray, DType, Layout, Shape};
use crate::device::DevicePtr;
use crate::device::cuda::{Arguments, Grid, KernelKey};
use crate::error::Result;
use crate::ops::descriptors::Copying;
use crate::ops::order::CudaOrder;
use split::{NormKernel, NormPass};

/// Returns the norm of `[x, weight, bias]`, or of `[x, weight]` without means. Also returns the
/// mean of each row, if there is a bias, and the factor of each row. Returns `None` if no kernel
/// computes this norm.
#[track_caller]
pub(in crate::ops) fn norm_of_rows(
    order: CudaOrder<'_>,
    operands: &[&AnyArray],
    epsilon: f64,
) -> Result<Option<(AnyArray, Option<AnyArray>, AnyArray)>> {
    let (x, is_centred) = (operands[0], operands.len() > 2);
    let Some(kernel) = NormKernel::of(NormPass::Forward, operands, is_centred) else {
        return Ok(None);
    };
    let workspace = Workspace::new(order);
    let rows = NormRows::of(x);
    let factors = || {
        allocated(
            order.device,
            x.dtype.computed_in(),
            rows.layout_of_factors(),
        )
    };
    let result = allocated(order.device, x.dtype, Layout::row_major(x.shape()))?;
    let means = match is_centred {
        true => Some(factors()?),
        false => None,
    };
    let factors = factors()?;
    let mut arguments = Arguments::default();
    let bias = operands.get(2).copied();
    let all = [Some(x), Some(operands[1]), bias, Some(&result)];
    push_addresses(&mut arguments, &all);
    push_addresses(&mut arguments, &[means.as_ref(), Some(&factors)]);
    rows.push(&mut arguments, epsilon);
    let grid = kernel.grid(kernel.tiles(rows.count).min(MOST_BLOCKS));
    workspace.launch(kernel.key(), &|| kernel.source(), grid, &arguments)?;
    Ok(Some((result, means, factors)))
}

/// The maximum number of blocks of a forward pass. If there are more tiles, a block processes
/// several.
const MOST_BLOCKS: usize = 1 << 20;

/// Returns the gradients of x, the weight and, if there are means, the bias. `arrays` are x, the
/// weight and the gradient of the result. The gradients of weight and bias are in the accumulation
/// type. Returns `None` if no kernel computes the gradients.
#[track_caller]
pub(in crate::ops) fn gradients_of_norm(
    order: CudaOrder<'_>,
    arrays: [&AnyArray; 3],
    (means, factors): (Option<&AnyArray>, &AnyArray),
) -> Result<Option<Vec<AnyArray>>> {
    let [x, weight, gradient] = arrays;
    let is_centred = means.is_some();
    let kernel_of = |arrays: &[&AnyArray]| NormKernel::of(NormPass::Backward, arrays, is_centred);
    if kernel_of(&[x, weight]).is_none() {
        return Ok(None);
    }
    let copy = match gradient.layout.is_contiguous() {
        true => gradient.share(),
        false => copied(order, gradient.operand(), Copying::All, x.shape())?,
    };
    let gradient = &copy;
    let Some(kernel) = kernel_of(&[x, weight, gradient]) else {
        return Ok(None);
    };
    let workspace = Workspace::new(order);
    let (rows, wide) = (NormRows::of(x), x.dtype.computed_in());
    let of_x = allocated(order.device, x.dtype, Layout::row_major(x.shape()))?;
    let of_columns = || {
        let layout = Layout::row_major(&Shape::from(rows.width));
        allocated(order.device, wide, layout)
    };
    let mut gradients = vec![of_x, of_columns()?];
    if is_centred {
        gradients.push(of_columns()?);
    }
    let blocks = kernel.blocks_for_sums(rows.count, order.gpu.multiprocessors());
    let columns = rows.width * (gradients.len() - 1);
    let sums = workspace.allocate(blocks * columns, wide.size_bytes())?;
    let mut arguments = Arguments::default();
    let read = [Some(x), Some(gradient), Some(weight), means, Some(factors)];
    push_addresses(&mut arguments, &read);
    push_addresses(&mut arguments, &[Some(&gradients[0])]);
    arguments.push(sums.address());
    rows.push(&mut arguments, 0.0);
    let grid = kernel.grid(blocks);
    workspace.launch(kernel.key(), &|| kernel.source(), grid, &arguments)?;

    let mut arguments = Arguments::default();
    arguments.push(sums.address());
    push_addresses(&mut arguments, &[gradients.get(1), gradients.get(2)]);
    arguments.push_all([blocks, columns, rows.width].map(|number| number as u64));
    let grid = Grid {
        blocks: [columns.div_ceil(32) as u32, 1],
        threads: 256,
        shared_bytes: 0,
    };
    let key = KernelKey::of::<ColumnSums>(u32::from(wide == DType::F64));
    workspace.launch(key, &|| split::source_of_columns(wide), grid, &arguments)?;
    Ok(Some(gradients))
}

/// The kernels that add the sums of blocks.
struct ColumnSums;

/// The rows along the last axis of an array.
#[derive(Clone, Copy, Debug)]
struct NormRows {
    width: usize,
    count: usize,
    shape: Shape,
}

impl NormRows {
    fn of(x: &AnyArray) -> Self {
        let shape = *x.shape();
        let width = shape.dims()[shape.ndim() - 1];
        Self {
            width,
            count: x.len() / width,
            shape,
        }
    }

    /// Returns the layout of an array with one element for each row.
    fn layout_of_factors(&self) -> Layout {
        let (_, before) = self.shape.dims().split_last().expect("rows have an axis");
        Layout::row_major(&before.iter().copied().chain([1]).collect())
    }

    /// Adds the kernel's `cs_rows`.
    fn push(&self, arguments: &mut Arguments, epsilon: f64) {
        let numbers = [1.0 / self.width as f64, epsilon, epsilon.sqrt()].map(f64::to_bits);
        let lengths = [self.width, self.count].map(|length| length as u64);
        arguments.push_all(lengths.into_iter().chain(numbers));
    }
}

/// Adds the address of the first element of each array. Kernels do not read a missing array.
fn push_addresses(arguments: &mut Arguments, arrays: &[Option<&AnyArray>]) {
    for array in arrays {
        let address = array.map_or(DevicePtr(0), |array| address_of(array.operand()));
        arguments.push(address.0);
    }
}
