//! Sorts of lanes by the keys of their elements, and selection by rank.

mod choose;
pub mod digits;
pub mod lanes;
pub mod loops;
mod order;

use std::mem::MaybeUninit;

use choose::first_ranks;
use digits::{Rank, as_keys, by_digits, initialised};
use lanes::{Lane, Lanes, Values, write_keys};
pub use order::{Direction, Side};

use crate::vector::vectorised;
use crate::{AnyElement, Element};

/// The task for each lane.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The order of the sort.
    pub direction: Direction,
    /// The position in sorted order of the element that is selected.
    pub nth: usize,
    /// The number of rows of items that the task needs: one or two.
    pub rows: usize,
    /// The length of the rows.
    pub slots: usize,
}

/// Two rows of items. If the task needs only one row, or if the rows are short, the second row is
/// empty.
type RowPair<'a, R> = (&'a mut [MaybeUninit<R>], &'a mut [MaybeUninit<R>]);

/// Writes the sorted elements of a lane.
///
/// # Safety
///
/// The lane must be readable. Only the caller may access the written lane. The written lane and the
/// rows must be as long as the lane.
unsafe fn sort_lane<T: Element, R: Rank>(lane: Lane<'_, T, T>, (items, spare): RowPair<'_, R>) {
    let keys = &mut as_keys::<T::Key, R>(items)[..lane.lanes.length];
    // SAFETY: the caller upholds this function's contract.
    if !unsafe { write_keys(lane, keys) } {
        // SAFETY: all keys have been written.
        let keys = unsafe { by_digits(keys, as_keys(spare), 0) };
        // SAFETY: the caller upholds this function's contract.
        match unsafe { lane.run_to_write() } {
            Some(values) => vectorised(Values { keys }, values),
            None => {
                for (position, &key) in keys.iter().enumerate() {
                    // SAFETY: by this function's contract, the written lane has these positions.
                    unsafe { lane.set(position, T::from_key(key)) };
                }
            }
        }
        return;
    }
    // If a key represents several values, each value is read at the position in its rank. SAFETY:
    // the caller upholds this function's contract.
    for (position, rank) in unsafe { ranks(lane, (items, spare)) }.iter().enumerate() {
        // SAFETY: the caller upholds this function's contract. The positions are within the lane.
        unsafe { lane.set(position, lane.get(rank.position())) };
    }
}

/// Writes the positions of the first elements in sorted order to the written lane.
///
/// # Safety
///
/// The contract of [`sort_lane`] must hold, except that the written lane may be shorter.
unsafe fn rank_lane<T: Element, R: Rank>(lane: Lane<'_, T, i64>, rows: RowPair<'_, R>) {
    // SAFETY: the caller upholds this function's contract.
    for (position, rank) in unsafe { ranks(lane, rows) }.iter().enumerate() {
        // SAFETY: by this function's contract, the written lane has this position.
        unsafe { lane.set(position, rank.position() as i64) };
    }
}

/// Returns the ranks of the first `kept` elements in sorted order, in one of the two rows.
///
/// # Safety
///
/// The contract of [`rank_lane`] must hold.
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
        // SAFETY: the caller upholds this function's contract.
        return unsafe { first_ranks(lane, turned, items) };
    }
    let items = &mut items[..length];
    for (position, slot) in items.iter_mut().enumerate() {
        // SAFETY: by this function's contract, the lane is readable, and the position is within it.
        let key: u64 = unsafe { lane.get(position) }.key().into();
        slot.write(R::new(key ^ turned, position));
    }
    // If `kept` is the length of the lane, all elements must be sorted. If the keys have few
    // digits, a full sort is faster than a partition.
    if kept == length || size_of::<R>() == size_of::<u64>() {
        // SAFETY: the loop has written all items.
        return unsafe { &by_digits(items, spare, R::KEY)[..kept] };
    }
    // SAFETY: the loop has written all items.
    let items = unsafe { initialised(items) };
    items.select_nth_unstable(kept - 1);
    items[..kept].sort_unstable();
    &items[..kept]
}
