//! Arrays that copy an operand in one region, and have a constant value elsewhere.

use super::copy::{WordKernel, Words, copy, source};
use super::memory::{Output, computed};
use super::walk::{Numbering, grid};
use crate::array::{AnyArray, Bits, Layout, MAX_RANK, Shape};
use crate::device::Backend;
use crate::device::cuda::{Arguments, KernelSource};
use crate::error::Result;
use crate::ops::descriptors::{Triangle, onto_diagonal};
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;

#[track_caller]
pub(in crate::ops) fn padded(
    order: CudaOrder<'_>,
    array: Operand<'_>,
    before: &Shape,
    value: Bits,
    shape: &Shape,
) -> Result<AnyArray> {
    let layout = array.layout;
    let write = |output: Output| {
        let output = Words::new(output, array.dtype);
        let from = Words::of(array);
        let padding = Padding::new(layout, before, shape);
        let numbering = Numbering::new(padding.ndim, from.limit.max(output.limit));
        let mut arguments = Arguments::default();
        arguments.push(from.address.0);
        arguments.push(output.address.0);
        padding.push(numbering, &mut arguments);
        arguments.push_bytes(value.bytes(output.bytes));
        arguments.push(output.limit as u64);
        let kernel = WordKernel::of::<Padding>(numbering, output.bytes, pad_source);
        kernel.launch(order, grid(output.limit), &arguments)
    };
    computed(order.device, array.dtype, shape, write)
}

fn pad_source(numbering: Numbering, bytes: usize) -> KernelSource {
    source("pad", numbering, bytes, include_str!("pad.cuh"))
}

/// The position of an array in a padded array, over as few axes as possible.
#[derive(Debug)]
struct Padding {
    first: usize,
    axes: [Padded; MAX_RANK],
    ndim: usize,
}

/// An axis of a [`Padding`].
#[derive(Clone, Copy, Debug, Default)]
struct Padded {
    /// The length of the result.
    length: usize,
    before: usize,
    /// The length of the array, and its stride.
    inside: usize,
    step: isize,
}

impl Padding {
    fn new(layout: &Layout, before: &Shape, shape: &Shape) -> Self {
        let mut padding = Self {
            first: layout.offset(),
            axes: [Padded::default(); MAX_RANK],
            ndim: 0,
        };
        for (axis, &length) in shape.dims().iter().enumerate() {
            let padded = Padded {
                length,
                before: before.dims()[axis],
                inside: layout.dims()[axis],
                step: layout.strides()[axis],
            };
            let fits = padded.before <= length && padded.inside <= length - padded.before;
            assert!(fits, "the padded axis is longer than the result");
            padding.append(padded);
        }
        padding
    }

    /// Appends an innermost axis. If the axis has no margins and the strides fit, merges it with
    /// the axis outside it.
    fn append(&mut self, axis: Padded) {
        if axis.length == 1 && axis.inside == 1 {
            return;
        }
        if let Some(outer) = self.axes[..self.ndim].last_mut()
            && axis.inside == axis.length
            && outer.step == axis.step.wrapping_mul(axis.length as isize)
        {
            *outer = Padded {
                length: outer.length * axis.length,
                before: outer.before * axis.length,
                inside: outer.inside * axis.length,
                step: axis.step,
            };
            return;
        }
        self.axes[self.ndim] = axis;
        self.ndim += 1;
    }

    /// Appends the padding to the arguments of a kernel, as the kernel's `Frame`.
    fn push(&self, numbering: Numbering, arguments: &mut Arguments) {
        let none = Padded {
            length: 1,
            before: 0,
            inside: 1,
            step: 0,
        };
        let fill = std::iter::repeat_n(&none, numbering.rank() - self.ndim);
        let mut numbers = vec![self.first as u64];
        for padded in fill.chain(&self.axes[..self.ndim]) {
            numbers.extend(numbering.axis(padded.length, [padded.step]));
            numbers.extend([padded.before as u64, padded.inside as u64]);
        }
        numbering.push_numbers(arguments, &numbers);
    }
}

/// Returns the square matrix of `shape` with the vector `array` on its diagonal `k`, and zeros
/// elsewhere.
#[track_caller]
pub(in crate::ops) fn on_diagonal(
    order: CudaOrder<'_>,
    array: Operand<'_>,
    k: isize,
    shape: &Shape,
) -> Result<AnyArray> {
    let layout = array.layout;
    let diagonal = onto_diagonal(layout, k, shape);
    let write = |output: Output| {
        let output = Words::new(output, array.dtype);
        let bytes = (output.limit * output.bytes) as u64;
        // SAFETY: `output` is a new array of `bytes` bytes. Nothing else uses this array.
        order.queue(|stream| unsafe { order.gpu.fill(stream, output.address, bytes, &[0]) })?;
        // SAFETY: the walk visits the elements of `array`, and as many elements of a diagonal of
        // `output`. `output` is new, and `queue` orders this copy after the fill.
        unsafe { copy(order, Words::of(array), output, &diagonal) }
    };
    computed(order.device, array.dtype, shape, write)
}

/// Returns a copy of `array` with zeros outside a triangle of its last two axes. Diagonal `k`
/// bounds the triangle. `array` has at least two axes.
#[track_caller]
pub(in crate::ops) fn triangular(
    order: CudaOrder<'_>,
    array: Operand<'_>,
    triangle: Triangle,
    k: isize,
) -> Result<AnyArray> {
    let layout = array.layout;
    let (outer, matrix) = layout.split_at(layout.ndim() - 2);
    let matrices = Layout::walk([&outer]);
    let write = |output: Output| {
        let output = Words::new(output, array.dtype);
        let from = Words::of(array);
        let numbering = Numbering::of(&matrices, from.limit.max(output.limit));
        let mut arguments = Arguments::default();
        arguments.push(from.address.0);
        arguments.push(output.address.0);
        numbering.push(&mut arguments, &matrices);
        for (&length, &step) in matrix.dims().iter().zip(matrix.strides()) {
            numbering.push_numbers(&mut arguments, &numbering.axis(length, [step]));
        }
        arguments.push(k as u64);
        arguments.push(u64::from(triangle == Triangle::Lower));
        arguments.push(output.limit as u64);
        let kernel = WordKernel::of::<Triangle>(numbering, output.bytes, triangle_source);
        kernel.launch(order, grid(output.limit), &arguments)
    };
    computed(order.device, array.dtype, layout.shape(), write)
}

fn triangle_source(numbering: Numbering, bytes: usize) -> KernelSource {
    source("a triangle", numbering, bytes, include_str!("triangle.cuh"))
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::super::copy::tests::numberings;
    use super::*;
    use crate::device::cuda::compile_for_all;

    #[test]
    fn regions_compile() {
        for numbering in numberings() {
            compile_for_all(&[1, 2, 4, 8].map(|bytes| pad_source(numbering, bytes)));
            compile_for_all(&[1, 2, 4, 8].map(|bytes| triangle_source(numbering, bytes)));
        }
    }
}
