//! Compaction: the elements that flags select, or their positions. The running sums of the flags
//! determine the target positions. The host reads the last sum, which is the number of selected
//! elements.

use super::copy::word_of;
use super::launch::{grid_of, launch};
use super::memory::{address_of, computed};
use super::prelude::source;
use super::scan::running;
use crate::array::{AnyArray, DType, MAX_RANK, Shape};
use crate::device::cuda::{Arguments, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;

const TEXT: &str = include_str!("compact.cuh");

/// The kernels that copy selected elements, for each word size.
struct Compact;

/// The kernel that writes indices.
struct Positions;

/// Returns the elements of `array` at which `flags` are true. Both arrays are contiguous and
/// equally long.
#[track_caller]
pub(in crate::ops) fn compacted(
    order: CudaOrder<'_>,
    array: Operand<'_>,
    flags: Operand<'_>,
) -> Result<AnyArray> {
    let dense = array.layout.is_contiguous() && array.layout.len() == flags.layout.len();
    assert!(
        dense,
        "the array and the flags differ in length, or the array has gaps"
    );
    let Some((sums, kept)) = count(order, flags)? else {
        return computed(order.device, array.dtype, &Shape::from(0), |_| Ok(()));
    };
    let shape = Shape::from(kept);
    computed(order.device, array.dtype, &shape, |output| {
        let mut arguments = Arguments::default();
        for address in [
            address_of(flags),
            address_of(sums.operand()),
            address_of(array),
            output.address,
        ] {
            arguments.push(address.0);
        }
        arguments.push(flags.layout.len() as u64);
        let operands = [array.buffer, flags.buffer, &sums.buffer];
        let bytes = array.dtype.size_bytes();
        let key = KernelKey::of::<Compact>(bytes as u32);
        let source = || words_source(bytes);
        let grid = grid_of(flags.layout.len());
        launch(order.touching(&operands), key, &source, grid, &arguments)
    })
}

/// Returns the positions of the true flags in an array of `shape`. Each position is a row of
/// indices along the axes of `shape`. `flags` is contiguous, with one flag for each element of
/// `shape`.
#[track_caller]
pub(in crate::ops) fn positions(
    order: CudaOrder<'_>,
    flags: Operand<'_>,
    shape: &Shape,
) -> Result<AnyArray> {
    let flag_count = flags.layout.len();
    assert_eq!(
        shape.checked_len()?,
        flag_count,
        "the shape and the flags differ in length"
    );
    let Some((sums, kept)) = count(order, flags)? else {
        let shape = Shape::from([0, shape.ndim()]);
        return computed(order.device, DType::I64, &shape, |_| Ok(()));
    };
    let rows = Shape::from([kept, shape.ndim()]);
    computed(order.device, DType::I64, &rows, |output| {
        let mut arguments = Arguments::default();
        for address in [
            address_of(flags),
            address_of(sums.operand()),
            output.address,
        ] {
            arguments.push(address.0);
        }
        // The kernel's `cs_shape` has the rank, and a length for each of the maximum number of
        // axes.
        let mut dims = [1; MAX_RANK];
        dims[..shape.ndim()].copy_from_slice(shape.dims());
        let rank = shape.ndim() as u64;
        arguments.push_all([rank].into_iter().chain(dims.map(|length| length as u64)));
        arguments.push(flag_count as u64);
        let operands = [flags.buffer, &sums.buffer];
        let key = KernelKey::of::<Positions>(0);
        let grid = grid_of(flag_count);
        launch(
            order.touching(&operands),
            key,
            &rows_source,
            grid,
            &arguments,
        )
    })
}

/// Returns the running sums of the flags, and the number of true flags. Returns `None` if there are
/// no flags. On a device without data, the number of true flags is assumed.
#[track_caller]
fn count(order: CudaOrder<'_>, flags: Operand<'_>) -> Result<Option<(AnyArray, usize)>> {
    assert_eq!(flags.dtype, DType::Bool, "the flags are not `bool`");
    assert!(flags.layout.is_contiguous(), "the flags are not contiguous");
    let Some(last) = flags.layout.len().checked_sub(1) else {
        return Ok(None);
    };
    let graph = ExpressionGraph::of(&flags)?;
    let shape = Shape::from(flags.layout.len());
    let sums = running(order, &graph, &shape, 0, false)?;
    let all = sums
        .share()
        .seen(sums.layout.slice("slice", &[(last as isize).into()])?);
    let all = all.into_array::<i64>().item()? as usize;
    let assumed = order.device.backend().assumed_count(flags.layout.len());
    Ok(Some((sums, assumed.unwrap_or(all))))
}

fn words_source(bytes: usize) -> KernelSource {
    let text = format!(
        "#define CS_ROWS 0\ntypedef {} word_t;\n{TEXT}",
        word_of(bytes)
    );
    source(format!("compaction of {bytes}-byte words"), &text)
}

fn rows_source() -> KernelSource {
    source("positions".into(), &format!("#define CS_ROWS 1\n{TEXT}"))
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;
    use crate::device::cuda::compile_for_all;

    #[test]
    fn compaction_compiles() {
        compile_for_all(&[1, 2, 4, 8, 16].map(words_source));
        compile_for_all(&[rows_source()]);
    }
}
