//! Launches of gathers, scatter-adds, scatters and one-hot encodings by the indices of an array.
//!
//! The indices are checked before anything is launched. The loops check the indices again, so that
//! memory safety does not depend on the first check.

use super::launch::{Work, launch};
use super::memory::{Untyped, computed_any};
use super::pointers::{ReadPtr, bytes_of, bytes_written};
use super::threads::threads;
use crate::array::{AnyArray, Bits, DType, Layout, Shape};
use crate::device::DevicePtr;
use crate::device::cuda::Indexing;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::descriptors::{Axis, Picking, reached};
use crate::ops::expression::tree::Operand;
use crate::ops::order::HostOrder;
use crate::ops::order::aliasing::Target;
use cachescope_kernels::moves::copies::SHORT_ROW;
use cachescope_kernels::moves::marks::{Marks, mark_rows};
use cachescope_kernels::moves::picks::{IndexedAxis, Pick, pick_elements, pick_rows};
use cachescope_kernels::moves::scatters::{
    ScatterLoop, Scattered, TargetPtr, adding_loop, writing_loop,
};

impl Axis {
    fn indexed(self) -> IndexedAxis {
        IndexedAxis {
            length: self.length,
            step: self.step,
        }
    }
}

/// Returns the elements that `indices` pick along the axis `at` of `array`, in a new array of
/// `shape`.
#[track_caller]
pub(in crate::ops) fn picked(
    order: HostOrder<'_>,
    array: Operand<'_>,
    indices: Operand<'_>,
    picking: Picking,
    at: usize,
    shape: &Shape,
) -> Result<AnyArray> {
    let (axis, walk) = picking.walk(array.layout, indices.layout, at, shape)?;
    let bytes = array.dtype.size_bytes();
    let pick = Pick {
        from: bytes_of(array),
        indices: indices_of(indices),
        axis: axis.indexed(),
    };
    let (firsts, row) = walk.by_rows();
    let write = |output: Untyped| {
        assert_eq!(
            output.count(),
            walk.count(),
            "the indices and the result differ in length"
        );
        let to = bytes_written(&output);
        if row.1[1] == 0 && row.0 <= SHORT_ROW {
            let work = Work::of_bytes(firsts.count(), row.0 * 2 * bytes);
            let reads = (pick, bytes, firsts, row);
            return launch(order, work, (&reads, &to), |reads, &to, range| {
                let (pick, bytes, firsts, row) = reads;
                // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
                // overlap. The stream is ordered after the writes to the operands.
                unsafe { pick_rows(*bytes, pick, firsts, *row, range, to) };
            });
        }
        let work = Work::of_bytes(output.count(), 2 * bytes + size_of::<i64>());
        let reads = (pick, bytes, walk);
        launch(order, work, (&reads, &to), |reads, &to, range| {
            let (pick, bytes, walk) = reads;
            // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
            // overlap. The stream is ordered after the writes to the operands.
            unsafe { pick_elements(*bytes, pick, walk, range, to) };
        });
    };
    // SAFETY: the ranges of a launch cover all elements or rows. Each loop writes its whole range.
    unsafe { computed_any(order.device, shape, array.dtype, write) }
}

fn indices_of(indices: Operand<'_>) -> ReadPtr<i64> {
    assert_eq!(indices.dtype, DType::I64, "the indices are not `i64`");
    bytes_of(indices).cast()
}

/// The size of a cache line. Threads that write to one line contend for it (false sharing).
const LINE_BYTES: usize = 64;

/// Adds each of `values`, in order, to the element of `target` that its index picks along the axis
/// `at`. Each position of `shape` is one addition. `shape` is not empty. `indices` and `values`
/// broadcast to `shape`. `target` broadcasts to `shape` along all axes except `at`.
#[track_caller]
pub(in crate::ops) fn add_at(
    order: HostOrder<'_>,
    target: Target<'_>,
    indices: Operand<'_>,
    values: Operand<'_>,
    along: (usize, Indexing),
    shape: &Shape,
) -> Result<()> {
    assert_eq!(
        target.dtype(),
        values.dtype,
        "the values and the target differ in type"
    );
    let run = adding_loop(values.dtype);
    scatter(order, target, indices, values, along, (shape, run))
}

/// Writes each of `values` to the element of `target` that its index picks, like [`add_at`]. The
/// last of several values for one element remains.
#[track_caller]
pub(in crate::ops) fn put_at(
    order: HostOrder<'_>,
    target: Target<'_>,
    indices: Operand<'_>,
    values: Operand<'_>,
    along: (usize, Indexing),
    shape: &Shape,
) -> Result<()> {
    assert_eq!(
        target.dtype(),
        values.dtype,
        "the values and the target differ in type"
    );
    let run = writing_loop(values.dtype.size_bytes());
    scatter(order, target, indices, values, along, (shape, run))
}

/// Launches the loop `run` for [`add_at`] or [`put_at`].
#[track_caller]
fn scatter(
    order: HostOrder<'_>,
    target: Target<'_>,
    indices: Operand<'_>,
    values: Operand<'_>,
    (at, operation): (usize, Indexing),
    (shape, run): (&Shape, ScatterLoop),
) -> Result<()> {
    let element_bytes = values.dtype.size_bytes();
    let walk = reached(&target, [indices.layout, values.layout], at, shape)?;
    // If the target has a stride along an axis, positions that differ on this axis select different
    // elements. So the axis may be divided among threads.
    let steps = walk.axes().enumerate();
    let steps = steps.filter(|(_, (_, [step, ..]))| *step != 0);
    let (divided, length) = steps
        .map(|(position, (length, _))| (position, length))
        .max_by_key(|&(_, length)| length)
        .unzip();
    let length = length.unwrap_or(1);
    // Each thread walks over all indices, so there are no more blocks than threads. A block has at
    // least as many elements as a cache line.
    let block = length.div_ceil(threads());
    let block = block.max(LINE_BYTES / element_bytes);
    let scattered = Scattered {
        indices: indices_of(indices),
        values: bytes_of(values),
        axis: Axis::of(target.layout(), at, operation).indexed(),
        walk,
        divided,
        block,
    };
    let blocks = length.div_ceil(block);
    let bytes = walk
        .count()
        .saturating_mul(2 * element_bytes + size_of::<i64>());
    let work = Work::of_bytes(blocks, bytes / blocks);
    let to = TargetPtr(host_pointer(DevicePtr(target.buffer().address())));
    let reads = (scattered, run);
    launch(order, work, (&reads, &to), |(scattered, run), to, range| {
        // SAFETY: the memory is alive during a launch. The stream is ordered after the earlier uses
        // of the memory. `reached` has checked that no other handle shares the target's memory, so
        // no operand is in it. `reached` has also checked that the target visits no element twice,
        // so that different ranges have different elements. The loop is for elements of the values'
        // size or type.
        unsafe { run(scattered, range, *to) };
    });
    Ok(())
}

/// Returns the one-hot encoding of the class indices in `array` (`i64`), in a new array of `shape`.
/// Each row is `one` at the position of its class, and 0 elsewhere. The last axis of `shape` has
/// one position for each of the `classes`.
#[track_caller]
pub(in crate::ops) fn marked(
    order: HostOrder<'_>,
    array: Operand<'_>,
    classes: usize,
    (dtype, one): (DType, Bits),
    shape: &Shape,
) -> Result<AnyArray> {
    assert_eq!(array.dtype, DType::I64, "the classes are not `i64`");
    let walk = Layout::walk([array.layout]);
    let size_bytes = dtype.size_bytes();
    let write = |output: Untyped| {
        let count = walk.count();
        assert_eq!(output.count(), count * classes);
        let marks = Marks {
            classes_of: bytes_of(array).cast(),
            walk,
            classes,
            one,
            bytes: size_bytes,
        };
        let work = Work::of_bytes(count, size_of::<i64>() + classes * size_bytes);
        launch(
            order,
            work,
            (&marks, &output),
            move |marks, output, range| {
                let row = output.part(dtype, range.start * marks.classes);
                // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
                // overlap.
                unsafe { mark_rows(marks, range, row) };
            },
        );
    };
    // SAFETY: the ranges of a launch cover all rows, and the loop writes its whole range.
    unsafe { computed_any(order.device, shape, dtype, write) }
}
