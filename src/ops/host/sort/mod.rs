//! Sorting along an axis by the keys of the elements, and selection by rank.

use std::mem::MaybeUninit;

use cachescope_kernels::sort::digits::SHORT;
use cachescope_kernels::sort::lanes::Lanes;
use cachescope_kernels::sort::loops::{LaneKernel, Rows, SortLoops};
use cachescope_kernels::sort::{Direction, Task};

use super::launch::{Work, launch};
use super::memory::{Untyped, computed_any};
use super::pointers::{bytes_of, bytes_written};
use crate::array::{AnyArray, Buffer, DType, Layout, Shape, Walk};
use crate::context::Device;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::descriptors::pairs;
use crate::ops::order::HostOrder;

/// The maximum total memory of the rows of several lanes in one launch, in bytes.
const SPACE_BYTES: usize = 16 << 20;

/// The cost of sorting, in passes over the elements.
const ROUNDS: usize = 16;

/// Returns `array` with its elements sorted along the axis `at`. The sort is stable.
#[track_caller]
pub(in crate::ops) fn sorted(
    order: HostOrder<'_>,
    loops: &SortLoops,
    array: &AnyArray,
    at: usize,
) -> Result<AnyArray> {
    let length = array.dims()[at];
    let task = Task {
        direction: Direction::Ascending,
        nth: 0,
        rows: 2,
        slots: length,
    };
    let kernel = (loops.sort.for_length(length), loops.element);
    along(order, (loops, kernel), (array, at), array.shape(), task)
}

/// Returns the positions of the elements along the axis `at` of `array`, in sorted order. The sort
/// is stable. If `shape` is shorter along this axis, returns only the first positions.
#[track_caller]
pub(in crate::ops) fn ranked(
    order: HostOrder<'_>,
    loops: &SortLoops,
    (array, at): (&AnyArray, usize),
    direction: Direction,
    shape: &Shape,
) -> Result<AnyArray> {
    let (length, kept) = (array.dims()[at], shape.dims()[at]);
    let few = slots_for_few(kept);
    let (rows, slots) = match few < length {
        true => (1, few),
        false => (2, length),
    };
    let task = Task {
        direction,
        nth: 0,
        rows,
        slots,
    };
    let kernel = (loops.rank.for_length(length), DType::I64);
    along(order, (loops, kernel), (array, at), shape, task)
}

/// Returns two elements of each lane along the axis `at` of `array`. In the sorted lane, they have
/// the positions `nth` and `nth + 1`. If the lane has no position `nth + 1`, the second element
/// equals the first element. If an element of the lane is NaN, both results are NaN. The result has
/// `shape`, in which the axis `at` has length 2.
#[track_caller]
pub(in crate::ops) fn neighbours(
    order: HostOrder<'_>,
    loops: &SortLoops,
    (array, at): (&AnyArray, usize),
    nth: usize,
    shape: &Shape,
) -> Result<AnyArray> {
    let length = array.dims()[at];
    assert!(
        nth < length && shape.dims()[at] == 2,
        "the position is out of range, or the result does not have two elements"
    );
    let task = Task {
        direction: Direction::Ascending,
        nth,
        rows: 1,
        // The number of items, of type `u64`, that the keys of a lane occupy. A key has the size of
        // an element.
        slots: (length * array.dtype.size_bytes()).div_ceil(size_of::<u64>()),
    };
    let choose = loops.choose.expect("only floats have neighbours");
    let kernel = (LaneKernel::of::<u64>(choose), loops.element);
    along(order, (loops, kernel), (array, at), shape, task)
}

/// Returns, for each element of `sorted`, whether it is the first element or differs from the
/// previous element. The elements of `sorted` must be contiguous and sorted.
#[track_caller]
pub(in crate::ops) fn firsts(
    order: HostOrder<'_>,
    loops: &SortLoops,
    sorted: &AnyArray,
) -> Result<AnyArray> {
    assert_eq!(
        sorted.dtype, loops.element,
        "the array and the loops differ in type"
    );
    assert!(sorted.layout.is_contiguous());
    let offset_bytes = sorted.layout.offset() * sorted.dtype.size_bytes();
    let from = bytes_of(sorted.operand());
    let (count, run) = (sorted.len(), loops.firsts);
    let write = |output: Untyped| {
        let work = Work::of_bytes(count, 2 * sorted.dtype.size_bytes());
        let to = bytes_written(&output);
        launch(order, work, (&from, &to), move |from, to, range| {
            // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
            // overlap. The stream is ordered after the writes to the elements. The loop is for the
            // type of the elements.
            unsafe { run(from.at(offset_bytes), to.at(0).cast(), range) };
        });
    };
    // SAFETY: the ranges of a launch cover all flags, and the loop writes its whole range.
    unsafe { computed_any(order.device, sorted.shape(), DType::Bool, write) }
}

/// Returns the number of items that a row holds if only `kept` of many items are wanted. The number
/// is well above `kept`, so that the row is rarely reduced to `kept` items. Most items of a lane
/// are skipped: they are not stored in the row.
fn slots_for_few(kept: usize) -> usize {
    kept.saturating_mul(4).max(SHORT)
}

/// Memory for the rows of the lanes that one launch sorts.
struct Space {
    /// The number of lanes that one launch sorts.
    lanes: usize,
    slots: Slots,
    /// The handle that keeps the memory allocated. The next user of the memory is ordered after the
    /// launches.
    _memory: Option<Buffer>,
}

/// The address of the rows of all lanes. If rows are short and on the stack, this is `None`.
#[derive(Clone, Copy)]
struct Slots(Option<*mut u8>);

// SAFETY: the address is of plain data. A range of a launch uses the rows of its first lane only,
// so no two threads share rows.
unsafe impl Send for Slots {}
// SAFETY: no two threads share rows.
unsafe impl Sync for Slots {}

impl Space {
    /// Allocates rows of items for the lanes that one launch sorts, at most `count` lanes.
    #[track_caller]
    fn new(
        device: &Device,
        count: usize,
        Task { rows, slots, .. }: Task,
        item_bytes: usize,
    ) -> Result<Self> {
        if slots <= SHORT || count == 0 {
            return Ok(Self {
                lanes: count.max(1),
                slots: Slots(None),
                _memory: None,
            });
        }
        let rows_bytes = slots.saturating_mul(rows * item_bytes);
        let lanes = (SPACE_BYTES / rows_bytes).clamp(1, count);
        let size_bytes = Shape::from([lanes, rows, slots]).size_bytes(item_bytes)?;
        let memory = Buffer::new(device, size_bytes)?;
        Ok(Self {
            lanes,
            slots: Slots(Some(host_pointer(DevicePtr(memory.address())))),
            _memory: Some(memory),
        })
    }
}

impl Slots {
    /// Returns the rows of the lane `lane` in the space. Returns `None` if rows are short.
    fn of(self, lane: usize, Task { rows, slots, .. }: Task, item_bytes: usize) -> Option<Rows> {
        let row_bytes = slots * item_bytes;
        let first = self.0?.wrapping_add(rows * lane * row_bytes);
        Some(Rows {
            items: first,
            spare: first.wrapping_add(row_bytes),
            spare_slots: (rows - 1) * slots,
        })
    }
}

/// Returns an array of `shape`. A kernel computes each lane of this array from a lane of `array`
/// along the axis `at`.
#[track_caller]
fn along(
    order: HostOrder<'_>,
    (loops, (kernel, output)): (&SortLoops, (LaneKernel, DType)),
    (array, at): (&AnyArray, usize),
    shape: &Shape,
    task: Task,
) -> Result<AnyArray> {
    assert_eq!(
        array.dtype, loops.element,
        "the array and the loops differ in type"
    );
    let layout = &array.layout;
    let whole = Layout::contiguous(shape)?;
    let others = pairs(layout, &whole).enumerate();
    let others = others.filter(|&(axis, _)| axis != at).map(|(_, pair)| pair);
    let lanes = Lanes {
        firsts: Walk::over([layout.offset(), 0], others),
        length: layout.dims()[at],
        step: layout.strides()[at],
        kept: shape.dims()[at],
        kept_step: whole.strides()[at],
        task,
    };
    let count = if lanes.kept == 0 {
        0
    } else {
        lanes.firsts.count()
    };
    let space = Space::new(order.device, count, task, kernel.item_bytes)?;
    let bytes = [array.dtype, output].map(|dtype| dtype.size_bytes() as isize);
    let from = bytes_of(array.operand());
    let start = |output: Untyped| {
        assert_eq!(output.count(), count * lanes.kept);
        let most = if task.rows == 2 {
            lanes.length
        } else {
            lanes.length.max(2)
        };
        assert!(
            lanes.kept <= most,
            "the result is longer than the sorted axis"
        );
        let to = bytes_written(&output);
        for first in (0..count).step_by(space.lanes) {
            let together = space.lanes.min(count - first);
            let writes = (to, space.slots);
            let reads = (lanes, from, first, kernel);
            let rounds = if task.rows == 2 { ROUNDS } else { ROUNDS / 4 };
            let work = Work::of_bytes(together, rounds * lanes.length * kernel.item_bytes);
            launch(
                order,
                work,
                (&reads, &writes),
                move |&(ref lanes, from, first, kernel), &(to, slots), range| {
                    let mut stack = [const { MaybeUninit::<u128>::uninit() }; SHORT];
                    let rows = slots.of(range.start, lanes.task, kernel.item_bytes);
                    let short: *mut u8 = stack.as_mut_ptr().cast();
                    let rows = rows.unwrap_or(Rows {
                        items: short,
                        spare: short,
                        spare_slots: 0,
                    });
                    let (_, [step, to_step]) = lanes.firsts.row();
                    let runs = lanes.firsts.runs(first + range.start..first + range.end);
                    for ([at, target], count) in runs {
                        for part in 0..count as isize {
                            let at = (at as isize + part * step) * bytes[0];
                            let target = (target as isize + part * to_step) * bytes[1];
                            let from = from.at(0).wrapping_offset(at);
                            let to = to.at(0).wrapping_offset(target).cast();
                            // SAFETY: the walk visits the lanes of both arrays. The stream is
                            // ordered after the writes to `array`, and the output is new. The space
                            // is alive during a launch, and the ranges of a launch do not overlap.
                            // Other launches that use the space are on this stream, so they do not
                            // run concurrently. The rows are long enough.
                            unsafe { (kernel.run)(lanes, from, to, &rows) };
                        }
                    }
                },
            );
        }
    };
    // SAFETY: the launches cover all lanes, and a kernel writes its whole lane.
    unsafe { computed_any(order.device, shape, output, start) }
}
