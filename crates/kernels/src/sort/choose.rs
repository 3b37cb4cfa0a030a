//! Selection by rank without sorting.

use std::mem::MaybeUninit;

use super::{Direction, Lane, Lanes, RowPair, write_keys};
use crate::sort::digits::{Rank, as_keys, initialised};
use crate::vector::{Loop, vectorised};
use crate::{AnyElement, Element, Float};

/// The number of elements that one test compares with the limit. If no element precedes the limit,
/// all of them are skipped.
const TOGETHER: usize = 128;

/// Returns the ranks of the first `kept` elements in sorted order. `kept` should be far below the
/// length.
///
/// Elements that may be among the first `kept` are stored in `items`. When `items` is full, it is
/// reduced to its first `kept` items. Later elements must precede the last of these items.
/// Therefore nearly all elements are skipped after one comparison. In the worst order, each element
/// is moved a few times.
///
/// # Safety
///
/// The contract of [`rank_lane`](super::rank_lane) must hold.
pub(super) unsafe fn first_ranks<'a, T: Element, O: AnyElement, R: Rank>(
    lane: Lane<'_, T, O>,
    turned: u64,
    items: &'a mut [MaybeUninit<R>],
) -> &'a [R] {
    let Lanes {
        length, kept, task, ..
    } = *lane.lanes;
    // SAFETY: the caller upholds this function's contract.
    let run = unsafe { lane.run_to_read() };
    let (mut held, mut limit) = (0, None::<R>);
    for start in (0..length).step_by(TOGETHER) {
        let end = length.min(start + TOGETHER);
        if let (Some(run), Some(limit)) = (run, limit) {
            let before = AnyBefore {
                values: &run[start..end],
                direction: task.direction,
                limit: run[limit.position()],
            };
            if !vectorised(before, &mut ()) {
                continue;
            }
        }
        for position in start..end {
            // SAFETY: by this function's contract, the lane is readable, and the position is within
            // it.
            let key: u64 = unsafe { lane.get(position) }.key().into();
            let rank = R::new(key ^ turned, position);
            if limit.is_some_and(|limit| rank > limit) {
                continue;
            }
            items[held].write(rank);
            held += 1;
            if held == items.len() {
                // SAFETY: all items have been written.
                let items = unsafe { initialised(items) };
                limit = Some(*items.select_nth_unstable(kept - 1).1);
                held = kept;
            }
        }
    }
    // SAFETY: the first `held` items have been written.
    let items = unsafe { initialised(&mut items[..held]) };
    items.select_nth_unstable(kept - 1);
    items[..kept].sort_unstable();
    &items[..kept]
}

/// A loop that returns whether any of `values` precedes `limit`. An element that equals `limit`
/// does not precede it, because the element's position is later.
struct AnyBefore<'a, T> {
    values: &'a [T],
    direction: Direction,
    limit: T,
}

impl<T: Element> Loop<()> for AnyBefore<'_, T> {
    type Result = bool;

    #[inline(always)]
    fn run<const FMA: bool>(self, (): &mut ()) -> bool {
        let (keys, limit) = (
            self.values.iter().map(|value| value.key()),
            self.limit.key(),
        );
        match self.direction {
            Direction::Ascending => keys.fold(false, |any, key| any | (key < limit)),
            Direction::Descending => keys.fold(false, |any, key| any | (key > limit)),
        }
    }
}

/// Writes two elements of a lane: the element at position `nth` in sorted order, and the next
/// element. If an element of the lane is NaN, writes NaN twice.
///
/// # Safety
///
/// The contract of [`rank_lane`](super::rank_lane) must hold, except that two elements are written.
pub(super) unsafe fn choose_lane<T: Float>(lane: Lane<'_, T, T>, (items, _): RowPair<'_, u64>) {
    let Lanes { length, task, .. } = *lane.lanes;
    let keys = &mut as_keys::<T::Key, u64>(items)[..length];
    // SAFETY: the caller upholds this function's contract.
    unsafe { write_keys(lane, keys) };
    // SAFETY: all keys have been written.
    let keys = unsafe { initialised(keys) };
    let (_, &mut first, above) = keys.select_nth_unstable(task.nth);
    let (next, last) =
        above
            .iter()
            .fold((None, first), |(next, last): (Option<T::Key>, _), &key| {
                (Some(next.map_or(key, |next| next.min(key))), last.max(key))
            });
    let nan = T::from_f64(f64::NAN).key();
    // NaN is last in sorted order, so a NaN in the lane is the last element.
    let [first, next] = match next {
        _ if last == nan => [nan; 2],
        Some(next) => [first, next],
        None => [first; 2],
    };
    // SAFETY: by this function's contract, the written lane has two elements.
    unsafe {
        lane.set(0, T::from_key(first));
        lane.set(1, T::from_key(next));
    }
}
