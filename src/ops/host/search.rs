//! Binary search for the positions of values among sorted elements (Knuth, "The Art of Computer
//! Programming", volume 3, section 6.2.1).

use super::launch::{Work, launch};
use super::memory::{Output, Untyped, computed_any};
use super::pointers::bytes_of;
use crate::array::{AnyArray, DType, Layout};
use crate::error::Result;
use crate::ops::descriptors::Side;
use crate::ops::order::HostOrder;
use cachescope_kernels::search::{SearchLoops, Sorted};

/// Returns, for each of `values`, the number of elements of `array` that precede the value. `array`
/// has one axis and is sorted.
#[track_caller]
pub(in crate::ops) fn search(
    order: HostOrder<'_>,
    loops: &'static SearchLoops,
    [array, values]: [&AnyArray; 2],
    side: Side,
) -> Result<AnyArray> {
    let element = loops.element;
    assert_eq!([array.dtype, values.dtype], [element; 2]);
    let (length, step) = array.layout.row();
    assert_eq!(
        array.layout.ndim(),
        1,
        "the sorted array does not have one axis"
    );
    let sorted = Sorted {
        elements: bytes_of(array.operand()).at(0),
        first: array.layout.offset(),
        step,
        length,
    };
    let walk = Layout::walk([&values.layout]);
    let write = |output: Untyped| {
        assert_eq!(
            output.count(),
            walk.count(),
            "the values and the result differ in length"
        );
        let steps = (usize::BITS - length.leading_zeros()) as usize + 1;
        let work = Work::of_bytes(walk.count(), 2 * element.size_bytes() * steps);
        let run = match side {
            Side::Left => loops.by_side[0],
            Side::Right => loops.by_side[1],
        };
        let reads = (sorted, bytes_of(values.operand()), walk, run);
        // SAFETY: the output has elements of the type `i64`.
        let output: Output<i64> = unsafe { output.typed() };
        launch(order, work, (&reads, &output), |reads, output, range| {
            let &(sorted, from, walk, run) = reads;
            // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
            // overlap.
            let out = unsafe { output.part(range.clone()) };
            // SAFETY: the walk visits the values. The stream is ordered after the writes to both
            // arrays. The loop is for the type of the arrays.
            unsafe { run(&sorted, from.at(0), &walk, range, out) };
        });
    };
    // SAFETY: the ranges of a launch cover all values, and the loop writes its whole range.
    unsafe { computed_any(order.device, values.shape(), DType::I64, write) }
}
