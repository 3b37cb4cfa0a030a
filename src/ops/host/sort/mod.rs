//! Sorting along an axis by the keys of the elements, and selection by rank.

mod choose;
mod lanes;

use std::mem::MaybeUninit;
use std::slice::from_raw_parts_mut;

use choose::{choose_lane, first_ranks};
use lanes::{Lane, Lanes, Values, write_keys};

use super::digits::{Rank, SHORT, as_keys, by_digits, initialised};
use super::launch::{Work, launch};
use super::memory::{Output, computed};
use super::pointers::{ReadPtr, WritePtr};
use crate::array::{AnyElement, Array, Buffer, Element, Float, Layout, Shape, Walk};
use crate::context::Device;
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::descriptors::{Direction, pairs};
use crate::ops::order::HostOrder;
use crate::ops::vector::vectorised;

/// The most memory that the rows of several lanes may take together in one launch.
const SPACE_BYTES: usize = 16 << 20;

/// The cost of sorting, in passes over the elements.
const ROUNDS: usize = 16;

/// Returns `array` with its elements sorted along the axis `at`. Equal elements keep their order.
#[track_caller]
pub(in crate::ops) fn sorted<T: Element>(
    order: HostOrder<'_>,
    array: &Array<T>,
    at: usize,
) -> Result<Array<T>> {
    let shape = array.layout().shape();
    let task = Task {
        direction: Direction::Ascending,
        nth: 0,
        rows: 2,
        slots: shape.dims()[at],
    };
    if is_narrow::<T>(shape.dims()[at]) {
        along::<T, T, u64>(order, array, at, shape, task, sort_lane)
    } else {
        along::<T, T, u128>(order, array, at, shape, task, sort_lane)
    }
}

/// Returns the positions of the elements along the axis `at` of `array` in sorted order; equal
/// elements keep their order. Only the first positions are returned, as many as this axis of
/// `shape` is long.
#[track_caller]
pub(in crate::ops) fn ranked<T: Element>(
    order: HostOrder<'_>,
    array: &Array<T>,
    at: usize,
    direction: Direction,
    shape: &Shape,
) -> Result<Array<i64>> {
    let (length, kept) = (array.layout().dims()[at], shape.dims()[at]);
    let few = slots_for_few(kept);
    let task = if few < length {
        Task {
            direction,
            nth: 0,
            rows: 1,
            slots: few,
        }
    } else {
        Task {
            direction,
            nth: 0,
            rows: 2,
            slots: length,
        }
    };
    if is_narrow::<T>(length) {
        along::<T, i64, u64>(order, array, at, shape, task, rank_lane)
    } else {
        along::<T, i64, u128>(order, array, at, shape, task, rank_lane)
    }
}

/// Returns two elements of each lane along the axis `at` of `array`: the one at position `nth` of
/// the sorted lane, and the one after it. If there is none after it, the second equals the first.
/// If an element of the lane is NaN, both are NaN. The result has `shape`, in which this axis has a
/// length of 2.
#[track_caller]
pub(in crate::ops) fn neighbours<T: Float>(
    order: HostOrder<'_>,
    array: &Array<T>,
    at: usize,
    nth: usize,
    shape: &Shape,
) -> Result<Array<T>> {
    let length = array.layout().dims()[at];
    assert!(
        nth < length && shape.dims()[at] == 2,
        "neighbours of nothing"
    );
    let task = Task {
        direction: Direction::Ascending,
        nth,
        rows: 1,
        // In items; a key takes half of an item or all of it.
        slots: (length * size_of::<T::Key>()).div_ceil(size_of::<u64>()),
    };
    along::<T, T, u64>(order, array, at, shape, task, choose_lane)
}

/// Returns the number of items that are held at once if only `kept` of many are wanted. It is well
/// above `kept`, so that most elements are skipped before the held ones are reduced to `kept`.
fn slots_for_few(kept: usize) -> usize {
    kept.saturating_mul(4).max(SHORT)
}

/// The task for each lane.
#[derive(Clone, Copy)]
struct Task {
    direction: Direction,
    /// The wanted position in sorted order.
    nth: usize,
    /// The rows of items that the task needs, one or two, and their length.
    rows: usize,
    slots: usize,
}

/// Returns whether a key and a position below `length` fit 64 bits.
fn is_narrow<T: Element>(length: usize) -> bool {
    size_of::<T>() <= 4 && u32::try_from(length).is_ok()
}

/// Two rows of the length that a task needs. The second is empty if the task needs one, or if the
/// rows are short.
type RowPair<'a, R> = (&'a mut [MaybeUninit<R>], &'a mut [MaybeUninit<R>]);

/// Memory for the rows of the lanes that one launch sorts.
struct Space<R> {
    /// The number of lanes.
    lanes: usize,
    slots: Slots<R>,
    /// Keeps the memory allocated. Its next user is ordered after the launches.
    _memory: Option<Buffer>,
}

/// The rows of all lanes, lane after lane; `None` if they are short.
#[derive(Clone, Copy)]
struct Slots<R>(Option<*mut MaybeUninit<R>>);

// SAFETY: an address of plain data; each slot is lent to one thread at a time, by the contract of
// `of`.
unsafe impl<R: Send> Send for Slots<R> {}
// SAFETY: as above.
unsafe impl<R: Send> Sync for Slots<R> {}

impl<R: Rank> Space<R> {
    /// Allocates rows for as many of the `count` lanes as one launch sorts.
    #[track_caller]
    fn new(device: &Device, count: usize, Task { rows, slots, .. }: Task) -> Result<Self> {
        if slots <= SHORT || count == 0 {
            return Ok(Self {
                lanes: count.max(1),
                slots: Slots(None),
                _memory: None,
            });
        }
        let rows_bytes = slots.saturating_mul(rows * size_of::<R>());
        let lanes = (SPACE_BYTES / rows_bytes).clamp(1, count);
        let size_bytes = Shape::from([lanes, rows, slots]).size_bytes(size_of::<R>())?;
        let memory = Buffer::new(device, size_bytes)?;
        Ok(Self {
            lanes,
            slots: Slots(Some(host_pointer(DevicePtr(memory.address())).cast())),
            _memory: Some(memory),
        })
    }
}

impl<R: Rank> Slots<R> {
    /// Returns the rows of a lane.
    ///
    /// # Safety
    ///
    /// The space must have this lane, and its memory must be alive and nobody else's.
    unsafe fn of<'a>(self, lane: usize, Task { rows, slots, .. }: Task) -> Option<RowPair<'a, R>> {
        let first = self.0?.wrapping_add(rows * lane * slots);
        // SAFETY: the rows of the lane, by this function's contract.
        unsafe {
            let second = from_raw_parts_mut(first.wrapping_add(slots), (rows - 1) * slots);
            Some((from_raw_parts_mut(first, slots), second))
        }
    }
}

/// Makes an array of `shape`: `write` computes each of its lanes from a lane along the axis `at` of
/// `array`. It must write as many elements as this axis of `shape` has.
#[track_caller]
fn along<T: Element, O: AnyElement, R: Rank>(
    order: HostOrder<'_>,
    array: &Array<T>,
    at: usize,
    shape: &Shape,
    task: Task,
    write: unsafe fn(Lane<'_, T, O>, RowPair<'_, R>),
) -> Result<Array<O>> {
    let layout = array.layout();
    let whole = Layout::contiguous(shape)?;
    let others = pairs(layout, &whole).enumerate();
    let others = others.filter(|&(axis, _)| axis != at).map(|(_, pair)| pair);
    let lanes = Lanes {
        from: ReadPtr::of(array),
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
    let space = Space::<R>::new(order.device, count, task)?;
    let start = |output: Output<O>| {
        assert_eq!(output.count(), count * lanes.kept);
        let most = if task.rows == 2 {
            lanes.length
        } else {
            lanes.length.max(2)
        };
        assert!(lanes.kept <= most, "sorted to a longer axis");
        let to = WritePtr::of(&output);
        for first in (0..count).step_by(space.lanes) {
            let together = space.lanes.min(count - first);
            let writes = (to, space.slots);
            let reads = (lanes, first, write);
            let rounds = if task.rows == 2 { ROUNDS } else { ROUNDS / 4 };
            let work = Work::of_bytes(together, rounds * lanes.length * size_of::<R>());
            launch(
                order,
                work,
                (&reads, &writes),
                |reads, &(to, slots), range| {
                    let (lanes, first, write) = reads;
                    let mut stack = [const { MaybeUninit::uninit() }; SHORT];
                    // SAFETY: the space is alive while a launch runs, and its ranges do not
                    // overlap; other launches that use it are on the same stream, so they run
                    // before or after.
                    let (items, spare) = match unsafe { slots.of(range.start, lanes.task) } {
                        Some(rows) => rows,
                        None => (&mut stack[..lanes.task.slots], &mut [][..]),
                    };
                    let (_, [step, to_step]) = lanes.firsts.row();
                    for ([at, target], count) in
                        lanes.firsts.runs(first + range.start..first + range.end)
                    {
                        for part in 0..count as isize {
                            let lane = Lane {
                                lanes,
                                from: lanes.from.at(at).wrapping_offset(part * step),
                                to: to.at(target).wrapping_offset(part * to_step),
                            };
                            // SAFETY: the walk goes over the lanes of both arrays; the stream is
                            // ordered after the writes to `array`, and the other one is new. The
                            // rows are long enough.
                            unsafe { write(lane, (items, spare)) };
                        }
                    }
                },
            );
        }
    };
    // SAFETY: the launches cover all lanes, and `write` writes the whole of each, by its contract.
    unsafe { computed(order.device, shape, start) }
}

/// Writes the sorted elements of a lane.
///
/// # Safety
///
/// The lane must be readable. The lane that is written must be the caller's to write to, and as
/// long. The rows must be as long as the lane.
unsafe fn sort_lane<T: Element, R: Rank>(lane: Lane<'_, T, T>, (items, spare): RowPair<'_, R>) {
    let keys = &mut as_keys::<T::Key, R>(items)[..lane.lanes.length];
    // SAFETY: by this function's contract.
    if !unsafe { write_keys(lane, keys) } {
        // SAFETY: all of them have been written.
        let keys = unsafe { by_digits(keys, as_keys(spare), 0) };
        // SAFETY: by this function's contract.
        match unsafe { lane.run_to_write() } {
            Some(values) => vectorised(Values { keys }, values),
            None => {
                for (position, &key) in keys.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { lane.set(position, T::from_key(key)) };
                }
            }
        }
        return;
    }
    // If one key belongs to several values, each value is read at the position in its rank.
    // SAFETY: by this function's contract.
    for (position, rank) in unsafe { ranks(lane, (items, spare)) }.iter().enumerate() {
        // SAFETY: as above, and the positions are of this lane.
        unsafe { lane.set(position, lane.get(rank.position())) };
    }
}

/// Writes the positions of the elements that come first in a lane, in sorted order.
///
/// # Safety
///
/// As for [`sort_lane`], except that the lane that is written may be shorter.
unsafe fn rank_lane<T: Element, R: Rank>(lane: Lane<'_, T, i64>, rows: RowPair<'_, R>) {
    // SAFETY: by this function's contract.
    for (position, rank) in unsafe { ranks(lane, rows) }.iter().enumerate() {
        // SAFETY: by this function's contract.
        unsafe { lane.set(position, rank.position() as i64) };
    }
}

/// Returns the ranks of the elements that come first, in order, in one of the two rows.
///
/// # Safety
///
/// As for [`rank_lane`].
unsafe fn ranks<'a, T: Element, O: AnyElement, R: Rank>(
    lane: Lane<'_, T, O>,
    (items, spare): RowPair<'a, R>,
) -> &'a [R] {
    let Lanes {
        length, kept, task, ..
    } = *lane.lanes;
    let bits = 8 * size_of::<T>() as u32;
    let turned = match task.direction {
        Direction::Ascending => 0,
        Direction::Descending => u64::MAX >> (64 - bits),
    };
    if task.slots < length {
        // SAFETY: by this function's contract.
        return unsafe { first_ranks(lane, turned, items) };
    }
    let items = &mut items[..length];
    for (position, slot) in items.iter_mut().enumerate() {
        // SAFETY: by this function's contract.
        let key: u64 = unsafe { lane.get(position) }.key().into();
        slot.write(R::new(key ^ turned, position));
    }
    // If many elements are wanted and the keys have few digits, a full sort is faster than a
    // partition.
    if kept == length || size_of::<R>() == size_of::<u64>() {
        // SAFETY: the loop has written all of them.
        return unsafe { &by_digits(items, spare, R::KEY)[..kept] };
    }
    // SAFETY: as above.
    let items = unsafe { initialised(items) };
    items.select_nth_unstable(kept - 1);
    items[..kept].sort_unstable();
    &items[..kept]
}
