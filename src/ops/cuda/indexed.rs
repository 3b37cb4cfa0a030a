//! Reading and marking at indices from an array on the device.
//!
//! Only the kernel checks the indices. It reports an index that is out of range, and the next call
//! that synchronises returns the error. In its place, the result has zero. Rows that are no
//! distribution to draw indices from are reported by the same words.

use super::copy::{WordKernel, Words, source, widening};
use super::launch::grid_of;
use super::memory::{Output, address_of, computed};
use super::walk::{Numbering, grid};
use crate::array::{AnyElement, Array, Integer, Shape, Walk, bits_of};
use crate::device::cuda::{Arguments, Cuda, Indexing, KernelSource};
use crate::error::Result;
use crate::ops::descriptors::{Axis, Picking};
use crate::ops::order::CudaOrder;

impl Axis {
    /// Adds the axis to the arguments of a kernel, as its `Picked`.
    pub(super) fn push(self, gpu: &Cuda, arguments: &mut Arguments) {
        let operation = self.operation.number();
        let report = gpu.bad_index_address().0;
        let length = self.length as u64;
        let backwards = if self.operation.counts_backwards() {
            length
        } else {
            0
        };
        arguments.push_all([length, self.step as u64, backwards, operation, report]);
    }
}

/// Returns the elements that `indices` select along the axis `at` of `array`, in a new array of
/// `shape`.
#[track_caller]
pub(in crate::ops) fn picked<T: AnyElement>(
    order: CudaOrder<'_>,
    array: &Array<T>,
    indices: &Array<i64>,
    picking: Picking,
    at: usize,
    shape: &Shape,
) -> Result<Array<T>> {
    let (axis, walk) = picking.walk(array.layout(), indices.layout(), at, shape)?;
    let (from, indices) = (Words::of(array), Words::of(indices));
    computed(order.device, shape, |output: Output| {
        let output = Words::new::<T>(output);
        assert_eq!(output.limit, walk.count(), "picked another number");
        let times = whole_words(from, output, axis, &walk);
        let (from, to) = (from.widened(times), output.widened(times));
        let (axis, walk) = in_words(axis, &walk, times);
        let limit = from.limit.max(indices.limit);
        let numbering = Numbering::of(&walk, limit);
        let mut arguments = Arguments::default();
        for address in [from.address, indices.address, to.address] {
            arguments.push(address.0);
        }
        numbering.push(&mut arguments, &walk);
        axis.push(order.gpu, &mut arguments);
        arguments.push(walk.count() as u64);
        // The walk reaches index 0 of the axis; the kernel adds the steps of the indices.
        let kernel = WordKernel::of::<Picked>(numbering, from.bytes, pick_source);
        kernel.launch(order, grid(walk.count()), &arguments)
    })
}

/// The kernels that select by indices.
struct Picked;

fn pick_source(numbering: Numbering, bytes: usize) -> KernelSource {
    let text = [include_str!("picked.cuh"), include_str!("pick.cuh")].concat();
    source("picking by indices", numbering, bytes, &text)
}

/// Returns the number of elements that make up a word, if rows with one index each are copied.
fn whole_words(from: Words, to: Words, axis: Axis, walk: &Walk<2>) -> usize {
    let (length, steps) = walk.row();
    if steps != [1, 0] {
        return 1;
    }
    let others = walk.axes().take(walk.axes().len() - 1);
    let steps = others.map(|(_, [step, _])| step.unsigned_abs());
    let numbers = [walk.first()[0], length, axis.step.unsigned_abs()];
    widening(&[from, to], steps.chain(numbers))
}

/// Returns the axis and the walk over words of `times` elements.
fn in_words(axis: Axis, walk: &Walk<2>, times: usize) -> (Axis, Walk<2>) {
    if times == 1 {
        return (axis, *walk);
    }
    let last = walk.axes().len() - 1;
    let axes = walk.axes().enumerate();
    let axes = axes.map(|(number, (length, [step, index_step]))| {
        if number == last {
            (length / times, [step, index_step])
        } else {
            (length, [step / times as isize, index_step])
        }
    });
    let [first, index_first] = walk.first();
    let axis = Axis {
        step: axis.step / times as isize,
        ..axis
    };
    (axis, Walk::over([first / times, index_first], axes))
}

/// Returns a new array of `shape`, whose last axis has `classes` elements. Each class in `array`
/// has a row of zeros with a one at its index. The row of an invalid class is zeros.
#[track_caller]
pub(in crate::ops) fn marked<T: Integer, U: AnyElement>(
    order: CudaOrder<'_>,
    array: &Array<T>,
    classes: usize,
    shape: &Shape,
) -> Result<Array<U>> {
    let walk = Walk::new([array.layout()]);
    let write = |output: Output| {
        let output = Words::new::<U>(output);
        assert_eq!(output.limit, walk.count() * classes);
        let from = Words::of(array);
        let numbering = Numbering::of(&walk, output.limit.max(from.limit));
        let mut arguments = Arguments::default();
        arguments.push(from.address.0);
        arguments.push(output.address.0);
        numbering.push(&mut arguments, &walk);
        numbering.push_numbers(&mut arguments, &numbering.axis(classes, [1]));
        arguments.push(bits_of(U::one()).low());
        let axis = Axis {
            length: classes,
            step: 1,
            operation: Indexing::OneHot,
        };
        axis.push(order.gpu, &mut arguments);
        arguments.push(output.limit as u64);
        let kernel = WordKernel::of::<Marked<T>>(numbering, output.bytes, mark_source::<T>);
        kernel.launch(order, grid_of(output.limit), &arguments)
    };
    computed(order.device, shape, write)
}

/// The kernels that mark classes of type `T`.
struct Marked<T>(std::marker::PhantomData<T>);

fn mark_source<T: AnyElement>(numbering: Numbering, bytes: usize) -> KernelSource {
    let label = T::DTYPE.in_cuda();
    let text = [include_str!("picked.cuh"), include_str!("mark.cuh")].concat();
    let text = format!("typedef {label} label_t;\n{text}");
    source(&format!("one_hot of {label}"), numbering, bytes, &text)
}

/// Returns indices that were drawn from rows, `drawn` of [.., number of draws], in a new array. If
/// `faults`, one number for each row, has one that is not 0, the kernel reports the row, and its
/// indices are 0. Both arrays are contiguous.
#[track_caller]
pub(in crate::ops) fn reported(
    order: CudaOrder<'_>,
    drawn: &Array<i64>,
    faults: &Array<i64>,
    operation: Indexing,
) -> Result<Array<i64>> {
    assert!(drawn.layout().is_contiguous() && faults.layout().is_contiguous());
    computed(order.device, drawn.layout().shape(), |output: Output| {
        let each = output.count / faults.len();
        assert_eq!(each * faults.len(), output.count, "drawn from other rows");
        let numbering = Numbering::new(1, output.count);
        let mut arguments = Arguments::default();
        for address in [address_of(drawn), address_of(faults), output.address] {
            arguments.push(address.0);
        }
        let axis = Axis {
            length: each,
            step: 1,
            operation,
        };
        axis.push(order.gpu, &mut arguments);
        arguments.push(each as u64);
        arguments.push(output.count as u64);
        let kernel = WordKernel::of::<Drawn>(numbering, size_of::<i64>(), drawn_source);
        kernel.launch(order, grid_of(output.count), &arguments)
    })
}

/// The kernels that report rows which are no distribution.
struct Drawn;

fn drawn_source(numbering: Numbering, bytes: usize) -> KernelSource {
    let text = [include_str!("picked.cuh"), include_str!("drawn.cuh")].concat();
    source("drawing from rows", numbering, bytes, &text)
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::super::copy::tests::numberings;
    use super::*;
    use crate::device::cuda::compile_for_all;

    #[test]
    fn kernels_with_indices_compile() {
        for numbering in numberings() {
            compile_for_all(&[1, 2, 4, 8, 16].map(|bytes| pick_source(numbering, bytes)));
            compile_for_all(&[1, 2, 4, 8].map(|bytes| mark_source::<i16>(numbering, bytes)));
            compile_for_all(&[drawn_source(numbering, 8)]);
            compile_for_all(&[
                mark_source::<i8>(numbering, 4),
                mark_source::<u8>(numbering, 4),
                mark_source::<u16>(numbering, 4),
                mark_source::<i32>(numbering, 4),
                mark_source::<u32>(numbering, 4),
                mark_source::<i64>(numbering, 4),
                mark_source::<u64>(numbering, 4),
            ]);
        }
    }
}
