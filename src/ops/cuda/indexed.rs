//! Reading and marking at indices that stand in an array on the device.
//!
//! Nobody looks at the indices before a kernel does: it reports one that is out of range, for the next call
//! that synchronises to tell, and gives zero in its place.

use super::copy::{Words, form_of_bytes, source, widening};
use super::launch::{grid_of, launch};
use super::memory::{Output, computed};
use super::types::bits_of;
use super::walk::{Numbering, grid};
use crate::array::{Array, Element, Integer, Layout, Shape, Walk};
use crate::device::cuda::{Arguments, Cuda, Indexing, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::order::order_read;

/// The axis that indices are of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picked {
    pub(super) length: usize,
    pub(super) step: isize,
    /// What reports of indices name.
    pub(super) operation: Indexing,
}

impl Picked {
    pub(super) fn of(layout: &Layout, at: usize, operation: Indexing) -> Self {
        Self {
            length: layout.dims()[at],
            step: layout.strides()[at],
            operation,
        }
    }

    /// Adds it to the arguments of a kernel, as its `Picked`.
    pub(super) fn push(self, gpu: &Cuda, arguments: &mut Arguments) {
        let operation = self.operation.number();
        let report = gpu.bad_index_address().0;
        arguments.push_all([self.length as u64, self.step as u64, operation, report]);
    }
}

/// The parts of `array` that `indices` pick along the axis `at`, in a new array of `shape`: in it, the
/// axes of the indices stand for that axis.
#[track_caller]
pub(in crate::ops) fn taken<T: Element>(
    gpu: &Cuda,
    array: &Array<T>,
    indices: &Array<i64>,
    at: usize,
    shape: &Shape,
) -> Result<Array<T>> {
    let (layout, picked) = (array.layout(), indices.layout());
    let own = layout.dims().iter().zip(layout.strides());
    let own = own.map(|(&length, &stride)| (length, [stride, 0]));
    let picks = picked.dims().iter().zip(picked.strides());
    let picks = picks.map(|(&length, &stride)| (length, [0, stride]));
    let axes = own.clone().take(at).chain(picks).chain(own.skip(at + 1));
    let walk = Walk::over([layout.offset(), picked.offset()], axes);
    let axis = Picked::of(layout, at, Indexing::Take);
    pick(gpu, array, indices, axis, &walk, shape)
}

/// The elements of `array` that `indices` pick along the axis `at`, one for each element of `shape`,
/// which both broadcast to elsewhere.
#[track_caller]
pub(in crate::ops) fn gathered<T: Element>(
    gpu: &Cuda,
    array: &Array<T>,
    indices: &Array<i64>,
    at: usize,
    shape: &Shape,
) -> Result<Array<T>> {
    let picked = indices.layout().broadcast_to(shape)?;
    let fixed = array.layout().fixed(at, shape)?;
    let walk = Walk::new([&fixed, &picked]);
    let axis = Picked::of(array.layout(), at, Indexing::Gather);
    pick(gpu, array, indices, axis, &walk, shape)
}

/// The elements of `array` that `indices` pick along `axis`, in a new array of `shape`. The walk goes over the
/// array at index 0 of the axis, and over the indices.
#[track_caller]
fn pick<T: Element>(
    gpu: &Cuda,
    array: &Array<T>,
    indices: &Array<i64>,
    axis: Picked,
    walk: &Walk<2>,
    shape: &Shape,
) -> Result<Array<T>> {
    let device = array.device();
    order_read(indices.buffer(), device)?;
    let stream = order_read(array.buffer(), device)?;
    let (from, indices) = (Words::of(array), Words::of(indices));
    let write = |output: Output| {
        let output = Words::new::<T>(output);
        assert_eq!(output.limit, walk.count(), "picked another number");
        let times = whole_words(from, output, axis, walk);
        let (from, to) = (from.widened(times), output.widened(times));
        let (axis, walk) = in_words(axis, walk, times);
        let limit = from.limit.max(indices.limit);
        let numbering = Numbering::of(&walk, limit);
        let mut arguments = Arguments::default();
        for address in [from.address, indices.address, to.address] {
            arguments.push(address.0);
        }
        numbering.push(&mut arguments, &walk);
        axis.push(gpu, &mut arguments);
        arguments.push(walk.count() as u64);
        let source = || pick_source(numbering, from.bytes);
        let key = KernelKey::of::<Picked>(numbering.form() | form_of_bytes(from.bytes));
        // From index 0 of the axis the kernel goes on to indices that the axis has.
        launch(
            gpu,
            stream,
            key,
            &source,
            grid(gpu, walk.count()),
            &arguments,
        )
    };
    computed(device, shape, write)
}

fn pick_source(numbering: Numbering, bytes: usize) -> KernelSource {
    let text = [include_str!("picked.cuh"), include_str!("pick.cuh")].concat();
    source("picking by indices", numbering, bytes, &text)
}

/// How many elements make up a word where rows are copied that have one index each.
fn whole_words(from: Words, to: Words, axis: Picked, walk: &Walk<2>) -> usize {
    let (length, steps) = walk.row();
    if steps != [1, 0] {
        return 1;
    }
    let others = walk.axes().take(walk.axes().len() - 1);
    let steps = others.map(|(_, [step, _])| step.unsigned_abs());
    let numbers = [walk.first()[0], length, axis.step.unsigned_abs()];
    widening(&[from, to], steps.chain(numbers))
}

/// The same axis and walk over words of `times` elements.
fn in_words(axis: Picked, walk: &Walk<2>, times: usize) -> (Picked, Walk<2>) {
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
    let axis = Picked {
        step: axis.step / times as isize,
        ..axis
    };
    (axis, Walk::over([first / times, index_first], axes))
}

/// For each of the classes in `array` a row of zeros with a one at its place, in a new array of
/// `shape`, whose last axis is that of the `classes`. The row of what is no class is zeros.
#[track_caller]
pub(in crate::ops) fn marked<T: Integer, U: Element>(
    gpu: &Cuda,
    array: &Array<T>,
    classes: usize,
    shape: &Shape,
) -> Result<Array<U>> {
    let device = array.device();
    let stream = order_read(array.buffer(), device)?;
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
        arguments.push(bits_of(U::one()));
        let axis = Picked {
            length: classes,
            step: 1,
            operation: Indexing::OneHot,
        };
        axis.push(gpu, &mut arguments);
        arguments.push(output.limit as u64);
        let source = || mark_source(numbering, output.bytes, T::NAME);
        let key = KernelKey::of::<Marked<T>>(numbering.form() | form_of_bytes(output.bytes));
        let grid = grid_of(gpu, output.limit);
        launch(gpu, stream, key, &source, grid, &arguments)
    };
    computed(device, shape, write)
}

/// For each type of classes a kernel.
struct Marked<T>(std::marker::PhantomData<T>);

fn mark_source(numbering: Numbering, bytes: usize, label: &str) -> KernelSource {
    let text = [include_str!("picked.cuh"), include_str!("mark.cuh")].concat();
    let text = format!("typedef {label} label_t;\n{text}");
    source(&format!("one_hot of {label}"), numbering, bytes, &text)
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::super::copy::tests::numberings;
    use super::*;
    use crate::device::cuda::compile_for_all;

    #[test]
    fn picking_and_marking_compile() {
        for numbering in numberings() {
            compile_for_all(&[1, 2, 4, 8, 16].map(|bytes| pick_source(numbering, bytes)));
            compile_for_all(&[1, 2, 4, 8].map(|bytes| mark_source(numbering, bytes, "i16")));
            let labels = ["i8", "u8", "u16", "i32", "u32", "i64", "u64"];
            compile_for_all(&labels.map(|label| mark_source(numbering, 4, label)));
        }
    }
}
