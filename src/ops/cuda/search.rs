//! Binary search of values in a sorted array, with one thread for each value.

use super::copy::Words;
use super::launch::{grid_of, launch};
use super::memory::{address_of, computed};
use super::prelude::source;
use super::sort::{KEYS, keys};
use super::walk::Numbering;
use crate::array::{AnyArray, DType, Layout};
use crate::device::cuda::{Arguments, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::descriptors::Side;
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;

/// The kernels that search, for each element type, numbering and side.
struct SearchKernel;

/// Returns, for each of `values`, the number of elements of `array` that precede the value. `array`
/// has one axis and is sorted. Both arrays have one ordered element type.
#[track_caller]
pub(in crate::ops) fn search(
    order: CudaOrder<'_>,
    array: Operand<'_>,
    values: Operand<'_>,
    side: Side,
) -> Result<AnyArray> {
    assert_eq!(
        array.layout.ndim(),
        1,
        "the sorted array does not have one axis"
    );
    assert_eq!(
        array.dtype, values.dtype,
        "the sorted array and the values differ in type"
    );
    let (length, step) = array.layout.row();
    let walk = Layout::walk([values.layout]);
    computed(order.device, DType::I64, values.layout.shape(), |output| {
        let from = Words::of(values);
        let numbering = Numbering::of(&walk, from.limit.max(output.count));
        let mut arguments = Arguments::default();
        arguments.push(address_of(array).0);
        arguments.push(length as u64);
        arguments.push(step as u64);
        arguments.push(from.address.0);
        arguments.push(output.address.0);
        numbering.push(&mut arguments, &walk);
        arguments.push(output.count as u64);
        let is_after = side == Side::Right;
        let form = numbering.form() | u32::from(is_after) << 4 | (array.dtype as u32) << 5;
        let key = KernelKey::of::<SearchKernel>(form);
        let source = || search_source(array.dtype, numbering, is_after);
        let grid = grid_of(output.count);
        launch(order, key, &source, grid, &arguments)
    })
}

fn search_source(dtype: DType, numbering: Numbering, is_after: bool) -> KernelSource {
    let after = format!("#define CS_AFTER {}\n", u8::from(is_after));
    let text = include_str!("search.cuh");
    let text = [&numbering.text(), &keys(dtype), KEYS, &after, text].concat();
    source(format!("searchsorted in {}", dtype.in_cuda()), &text)
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::super::copy::tests::numberings;
    use super::super::tests::of_every_ordered;
    use super::*;
    use crate::array::Element;
    use crate::device::cuda::compile_for_all;

    fn sources<T: Element>() -> [KernelSource; 4] {
        let [one, other] = numberings();
        [(one, false), (one, true), (other, false), (other, true)]
            .map(|(numbering, is_after)| search_source(T::DTYPE, numbering, is_after))
    }

    #[test]
    fn searching_compiles() {
        compile_for_all(&of_every_ordered!(sources).concat());
    }
}
