//! Choosing by order without sorting.

use std::mem::MaybeUninit;

use super::{Lane, Lanes, Rows};
use crate::array::{Element, Float};
use crate::ops::host::digits::{Rank, as_keys, initialised};

/// The ranks of the elements that come first, in order, where they are few of many: those that may be among them are held until there is no more room, and
/// then the first of these. So nearly all are passed by after one comparison, and in the worst order each is moved a few
/// times.
///
/// # Safety
///
/// As for [`rank_lane`](super::rank_lane).
pub(super) unsafe fn first_ranks<'a, T: Element, O: Element, R: Rank>(
    lane: Lane<'_, T, O>,
    turned: u64,
    items: &'a mut [MaybeUninit<R>],
) -> &'a [R] {
    let Lanes { length, kept, .. } = *lane.lanes;
    let (mut held, mut limit) = (0, None);
    for position in 0..length {
        // SAFETY: by this function's contract.
        let key: u64 = unsafe { lane.get(position) }.key().into();
        let rank = R::new(key ^ turned, position);
        if limit.is_some_and(|limit| rank > limit) {
            continue;
        }
        items[held].write(rank);
        held += 1;
        if held == items.len() {
            // SAFETY: all of them have been written.
            let items = unsafe { initialised(items) };
            limit = Some(*items.select_nth_unstable(kept - 1).1);
            held = kept;
        }
    }
    // SAFETY: so many have been written.
    let items = unsafe { initialised(&mut items[..held]) };
    items.select_nth_unstable(kept - 1);
    items[..kept].sort_unstable();
    &items[..kept]
}

/// Writes the element of a lane that is at its task's place in their order, and the next one; NaN where one is.
///
/// # Safety
///
/// As for [`rank_lane`](super::rank_lane); two elements are written.
pub(super) unsafe fn choose_lane<T: Float>(lane: Lane<'_, T, T>, (items, _): Rows<'_, u64>) {
    let Lanes { length, task, .. } = *lane.lanes;
    let keys = &mut as_keys::<T::Key, u64>(items)[..length];
    for (position, slot) in keys.iter_mut().enumerate() {
        // SAFETY: by this function's contract.
        slot.write(unsafe { lane.get(position) }.key());
    }
    // SAFETY: the loop has written all of them.
    let keys = unsafe { initialised(keys) };
    let (_, &mut first, above) = keys.select_nth_unstable(task.nth);
    let (next, last) =
        above
            .iter()
            .fold((None, first), |(next, last): (Option<T::Key>, _), &key| {
                (Some(next.map_or(key, |next| next.min(key))), last.max(key))
            });
    let nan = T::from_f64(f64::NAN).key();
    // NaN comes last.
    let [first, next] = match next {
        _ if last == nan => [nan; 2],
        Some(next) => [first, next],
        None => [first; 2],
    };
    // SAFETY: by this function's contract.
    unsafe {
        lane.set(0, T::from_key(first));
        lane.set(1, T::from_key(next));
    }
}
