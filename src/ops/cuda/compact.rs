//! Elements that flags select, contiguous, and their positions. The running sums of the flags are
//! the target positions. The last sum, which the host reads, is the number of selected elements.

use super::copy::word_of;
use super::launch::{grid_of, launch};
use super::memory::{address_of, computed};
use super::prelude::source;
use super::scan::running;
use crate::array::{AnyElement, Array, DType, MAX_RANK, Shape};
use crate::device::cuda::{Arguments, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;

const TEXT: &str = include_str!("compact.cuh");

/// The kernels that copy selected elements, by the bytes of a word.
struct Compact;

/// The kernel that writes indices.
struct Positions;

/// Returns the elements of `array` at which `flags` hold. Both are contiguous and equally long.
#[track_caller]
pub(in crate::ops) fn compacted<T: AnyElement>(
    order: CudaOrder<'_>,
    array: &Array<T>,
    flags: &Array<bool>,
) -> Result<Array<T>> {
    let dense = array.layout().is_contiguous() && array.len() == flags.len();
    assert!(dense, "compacted what has other flags");
    let Some((sums, kept)) = count(order, flags)? else {
        return computed(order.device, &Shape::from(0), |_| Ok(()));
    };
    computed(order.device, &Shape::from(kept), |output| {
        let mut arguments = Arguments::default();
        for address in [
            address_of(flags),
            address_of(&sums),
            address_of(array),
            output.address,
        ] {
            arguments.push(address.0);
        }
        arguments.push(flags.len() as u64);
        let operands = [array.buffer(), flags.buffer(), sums.buffer()];
        let key = KernelKey::of::<Compact>(size_of::<T>() as u32);
        let source = || words_source(size_of::<T>());
        let grid = grid_of(flags.len());
        launch(order.touching(&operands), key, &source, grid, &arguments)
    })
}

/// Returns the positions at which the flags hold in an array of `shape`, each as a row of indices
/// along the axes. The flags are contiguous, and as many as the shape has elements.
#[track_caller]
pub(in crate::ops) fn positions(
    order: CudaOrder<'_>,
    flags: &Array<bool>,
    shape: &Shape,
) -> Result<Array<i64>> {
    assert_eq!(shape.checked_len()?, flags.len(), "flags of another shape");
    let Some((sums, kept)) = count(order, flags)? else {
        return computed(order.device, &Shape::from([0, shape.ndim()]), |_| Ok(()));
    };
    computed(order.device, &Shape::from([kept, shape.ndim()]), |output| {
        let mut arguments = Arguments::default();
        for address in [address_of(flags), address_of(&sums), output.address] {
            arguments.push(address.0);
        }
        // The kernel's `cs_shape`: the rank, and a length for each of the maximum number of axes.
        let mut dims = [1; MAX_RANK];
        dims[..shape.ndim()].copy_from_slice(shape.dims());
        let rank = shape.ndim() as u64;
        arguments.push_all([rank].into_iter().chain(dims.map(|length| length as u64)));
        arguments.push(flags.len() as u64);
        let operands = [flags.buffer(), sums.buffer()];
        let key = KernelKey::of::<Positions>(0);
        let grid = grid_of(flags.len());
        launch(
            order.touching(&operands),
            key,
            &rows_source,
            grid,
            &arguments,
        )
    })
}

/// Returns the running sums of the flags, and the last of them; `None` if there are no flags.
#[track_caller]
fn count(order: CudaOrder<'_>, flags: &Array<bool>) -> Result<Option<(Array<i64>, usize)>> {
    assert!(flags.layout().is_contiguous(), "flags that stand apart");
    let Some(last) = flags.len().checked_sub(1) else {
        return Ok(None);
    };
    let operand = Operand {
        buffer: flags.buffer(),
        layout: flags.layout(),
        dtype: DType::Bool,
    };
    let graph = ExpressionGraph::of(&operand)?;
    let sums: Array<i64> = running::<bool, false>(order, &graph, &Shape::from(flags.len()), 0)?;
    let all = sums.viewed(sums.layout().slice("slice", &[(last as isize).into()])?);
    let all = all.item()? as usize;
    let assumed = order.device.backend().assumed_count(flags.len());
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
