//! Computing an array only from the positions of its elements.

use super::launch::{grid_of, launch};
use super::memory::computed;
use super::prelude::source;
use crate::array::{AnyElement, Array, Shape};
use crate::device::cuda::{Arguments, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::descriptors::Fill;
use crate::ops::order::CudaOrder;

/// The kernels that fill arrays with random numbers.
struct Generate;

const TEXT: &str = include_str!("generated.cuh");

/// The elements that a thread of most kernels computes at once.
const TOGETHER: usize = 4;

pub(in crate::ops) fn random_text<T: AnyElement, F: Fill<T>>() -> KernelSource {
    let text = format!(
        "\ntypedef {} I;\n{}{TEXT}",
        T::DTYPE.in_cuda(),
        F::CUDA.concat()
    );
    source(format!("{} of {}", F::NAME, T::DTYPE.in_cuda()), &text)
}

/// Returns a new array of `shape`. Once its memory is allocated, `draw` is called with the number
/// of elements, and returns how to fill them.
#[track_caller]
pub(in crate::ops) fn generate<T: AnyElement, F: Fill<T>>(
    order: CudaOrder<'_>,
    shape: &Shape,
    draw: impl FnOnce(usize) -> F,
) -> Result<Array<T>> {
    computed(order.device, shape, |output| {
        let mut operands = Vec::new();
        draw(output.count).operands(&mut |bits| operands.push(bits));
        let mut arguments = Arguments::default();
        arguments.push_all(operands);
        arguments.push(output.address.0);
        arguments.push(output.count as u64);
        let key = KernelKey::of::<(Generate, F, T)>(0);
        let grid = grid_of(output.count.div_ceil(TOGETHER));
        launch(order, key, &random_text::<T, F>, grid, &arguments)
    })
}
