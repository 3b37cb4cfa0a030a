//! Selection and one-hot encoding by indices from an array on the device.
//!
//! Only the kernel checks the indices. If an index is out of range, the kernel reports it, and the
//! result for the index is zero. The next call that synchronises returns the error. If indices are
//! drawn from a row that is not a distribution, the kernel reports the row.

use super::copy::{WordKernel, Words, form_of, source, widening};
use super::launch::{grid_of, launch};
use super::memory::{Output, address_of, computed};
use super::walk::{Numbering, grid};
use crate::array::{AnyArray, Bits, DType, Layout, Shape, Walk};
use crate::device::cuda::{Arguments, Cuda, Indexing, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::descriptors::{Axis, Picking};
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;

impl Axis {
    /// Appends the axis to the arguments of a kernel, as the kernel's `Picked`.
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

/// Returns a new array of `shape` with the elements of `array` that `indices` select along the axis
/// `at`. The indices are `i64`.
#[track_caller]
pub(in crate::ops) fn picked(
    order: CudaOrder<'_>,
    array: Operand<'_>,
    indices: Operand<'_>,
    picking: Picking,
    at: usize,
    shape: &Shape,
) -> Result<AnyArray> {
    assert_eq!(indices.dtype, DType::I64, "the indices are not `i64`");
    let (axis, walk) = picking.walk(array.layout, indices.layout, at, shape)?;
    let (from, indices) = (Words::of(array), Words::of(indices));
    computed(order.device, array.dtype, shape, |output: Output| {
        let output = Words::new(output, array.dtype);
        assert_eq!(
            output.limit,
            walk.count(),
            "the indices and the result differ in length"
        );
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
        // The walk visits index 0 of the indexed axis. The kernel adds the offset of each index.
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

/// Returns the number of elements of a word. Unless each index selects a whole row, this is 1.
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

/// Returns the one-hot encoding of the classes in `array`, as a new array of `shape`. The last axis
/// of `shape` has one element for each class. A row is zero, except for a one at the index of its
/// class. The row of an invalid class is zero. The elements have the type `dtype`. `one` has the
/// bits of 1 in this type.
#[track_caller]
pub(in crate::ops) fn marked(
    order: CudaOrder<'_>,
    array: Operand<'_>,
    classes: usize,
    (dtype, one): (DType, Bits),
    shape: &Shape,
) -> Result<AnyArray> {
    let walk = Layout::walk([array.layout]);
    let write = |output: Output| {
        let output = Words::new(output, dtype);
        assert_eq!(output.limit, walk.count() * classes);
        let from = Words::of(array);
        let numbering = Numbering::of(&walk, output.limit.max(from.limit));
        let mut arguments = Arguments::default();
        arguments.push(from.address.0);
        arguments.push(output.address.0);
        numbering.push(&mut arguments, &walk);
        numbering.push_numbers(&mut arguments, &numbering.axis(classes, [1]));
        arguments.push(one.low());
        let axis = Axis {
            length: classes,
            step: 1,
            operation: Indexing::OneHot,
        };
        axis.push(order.gpu, &mut arguments);
        arguments.push(output.limit as u64);
        // The bits of the class type are above the bits of the word size.
        let form = form_of(numbering, output.bytes) | (array.dtype as u32) << 7;
        let source = || mark_source(numbering, output.bytes, array.dtype);
        let key = KernelKey::of::<Marked>(form);
        launch(order, key, &source, grid_of(output.limit), &arguments)
    };
    computed(order.device, dtype, shape, write)
}

/// The kernels that mark classes, for each type of classes.
struct Marked;

fn mark_source(numbering: Numbering, bytes: usize, label: DType) -> KernelSource {
    let label = label.in_cuda();
    let text = [include_str!("picked.cuh"), include_str!("mark.cuh")].concat();
    let text = format!("typedef {label} label_t;\n{text}");
    source(&format!("one_hot of {label}"), numbering, bytes, &text)
}

/// Returns a copy of `drawn`, the indices that were drawn from rows. `drawn` has the shape [..,
/// number of draws]. `faults` has one number for each row. If the number is not 0, the kernel
/// reports the row, and the row's indices are 0 in the copy. Both arrays are contiguous, and of
/// `i64`.
#[track_caller]
pub(in crate::ops) fn reported(
    order: CudaOrder<'_>,
    drawn: Operand<'_>,
    faults: Operand<'_>,
    operation: Indexing,
) -> Result<AnyArray> {
    assert!(drawn.layout.is_contiguous() && faults.layout.is_contiguous());
    assert_eq!([drawn.dtype, faults.dtype], [DType::I64; 2]);
    let (shape, rows) = (drawn.layout.shape(), faults.layout.len());
    computed(order.device, DType::I64, shape, |output: Output| {
        let each = output.count / rows;
        assert_eq!(
            each * rows,
            output.count,
            "the results do not divide among the rows"
        );
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
        let kernel = WordKernel::of::<Drawn>(numbering, DType::I64.size_bytes(), drawn_source);
        kernel.launch(order, grid_of(output.count), &arguments)
    })
}

/// The kernels that report rows that are not a distribution.
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
            compile_for_all(&[1, 2, 4, 8].map(|bytes| mark_source(numbering, bytes, DType::I16)));
            compile_for_all(&[drawn_source(numbering, 8)]);
            let labels = [
                DType::I8,
                DType::U8,
                DType::U16,
                DType::I32,
                DType::U32,
                DType::I64,
                DType::U64,
            ];
            compile_for_all(&labels.map(|label| mark_source(numbering, 4, label)));
        }
    }
}
