//! Arrays computed only from the positions of their elements.

use std::marker::PhantomData;

use super::launch::{grid_of, launch};
use super::memory::computed;
use super::prelude::source;
use crate::array::{AnyArray, AnyElement, DType, Shape};
use crate::device::cuda::{Arguments, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::order::CudaOrder;
use cachescope_kernels::random::Fill;

/// The kernels that fill arrays by `F`, for each type of elements.
struct Generate<F>(PhantomData<F>);

const TEXT: &str = include_str!("generated.cuh");

/// The number of elements that a thread computes at once in most kernels.
const TOGETHER: usize = 4;

/// The type-erased description of a [`Fill`] of elements of one type.
#[derive(Debug)]
pub(in crate::ops) struct FillKernels {
    dtype: DType,
    /// See [`Fill::NAME`].
    name: &'static str,
    /// See [`Fill::CUDA`].
    text: &'static [&'static str],
    /// A function from the discriminant of an element type to the key.
    key: fn(u32) -> KernelKey,
}

impl FillKernels {
    pub(in crate::ops) const fn of<T: AnyElement, F: Fill<T>>() -> Self {
        Self {
            dtype: T::DTYPE,
            name: F::NAME,
            text: F::CUDA,
            key: KernelKey::of::<Generate<F>>,
        }
    }

    pub(in crate::ops) fn source(&self) -> KernelSource {
        let Self { name, text, .. } = self;
        let item = self.dtype.in_cuda();
        let text = format!("\ntypedef {item} I;\n{}{TEXT}", text.concat());
        source(format!("{name} of {item}"), &text)
    }
}

/// Returns a new array of `shape`. Once its memory is allocated, calls `draw` with the number of
/// elements. `draw` returns the members of `Operands`: see [`Fill::operands`].
#[track_caller]
pub(in crate::ops) fn generate(
    order: CudaOrder<'_>,
    fill: &FillKernels,
    shape: &Shape,
    draw: &mut dyn FnMut(usize) -> Vec<u64>,
) -> Result<AnyArray> {
    computed(order.device, fill.dtype, shape, |output| {
        let mut arguments = Arguments::default();
        arguments.push_all(draw(output.count));
        arguments.push(output.address.0);
        arguments.push(output.count as u64);
        let key = (fill.key)(fill.dtype as u32);
        let grid = grid_of(output.count.div_ceil(TOGETHER));
        launch(order, key, &|| fill.source(), grid, &arguments)
    })
}
