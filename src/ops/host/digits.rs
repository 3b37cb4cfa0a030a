//! Sorting by digits, the lowest first, each time into the other of two rows (Knuth, "The Art of Computer
//! Programming", volume 3, section 5.2.5, algorithm R). Few items, and those of many digits, are
//! sorted by comparisons instead.

use std::mem::MaybeUninit;
use std::slice::from_raw_parts_mut;

use crate::array::scalar::Digits;

/// Up to so many, comparisons are faster, and no second row is needed.
pub(super) const SHORT: usize = 256;

/// Bytes of an item that sorting by digits moves in all; where there are more, comparisons are faster.
const MOVED_BYTES: usize = 64;

/// The most digits of a key.
const DIGITS: usize = 8;

/// A key, and below it the position that it comes from: so that no two are equal, and whatever sorts
/// them is stable.
pub(super) trait Rank: Digits + Send + Sync {
    /// Where the key begins.
    const KEY: u32;

    fn new(key: u64, position: usize) -> Self;

    fn position(self) -> usize;
}

impl Rank for u64 {
    const KEY: u32 = 32;

    #[inline(always)]
    fn new(key: u64, position: usize) -> Self {
        key << Self::KEY | position as Self
    }

    #[inline(always)]
    fn position(self) -> usize {
        self as u32 as usize
    }
}

impl Rank for u128 {
    const KEY: u32 = 64;

    #[inline(always)]
    fn new(key: u64, position: usize) -> Self {
        Self::from(key) << Self::KEY | position as Self
    }

    #[inline(always)]
    fn position(self) -> usize {
        self as u64 as usize
    }
}

/// Sorts `items`, in whose bits there is a key from `first` on; by what is below it they must be in
/// order already. Answers the row that they are in then.
///
/// # Safety
///
/// All of `items` must have been written; `spare` must be as long, or the items few.
pub(super) unsafe fn by_digits<'a, D: Digits>(
    items: &'a mut [MaybeUninit<D>],
    spare: &'a mut [MaybeUninit<D>],
    first: u32,
) -> &'a mut [D] {
    let length = items.len();
    if length <= SHORT {
        // SAFETY: by this function's contract.
        return unsafe { compared(items) };
    }
    // SAFETY: as above.
    let values = unsafe { initialised(items) };
    // Keys that are near each other have few digits, counted from the least one.
    let ends = values
        .iter()
        .fold((values[0], values[0]), |(least, greatest), &value| {
            (least.min(value), greatest.max(value))
        });
    let (least, greatest) = (ends.0.without_below(first), ends.1);
    let digits = greatest.bits_above(least).saturating_sub(first).div_ceil(8) as usize;
    if digits * size_of::<D>() > MOVED_BYTES {
        // SAFETY: as above.
        return unsafe { compared(items) };
    }
    let mut counts = [[0usize; 256]; DIGITS];
    let counts = &mut counts[..digits];
    let digit = |item: D, index: usize| item.digit(least, first + 8 * index as u32);
    // SAFETY: as above.
    for &item in unsafe { &*initialised(items) } {
        for (index, counts) in counts.iter_mut().enumerate() {
            counts[digit(item, index)] += 1;
        }
    }
    let (mut from, mut to) = (items, &mut spare[..length]);
    for (index, counts) in counts.iter_mut().enumerate() {
        // Where all have the same digit, there is nothing to do.
        if counts.contains(&length) {
            continue;
        }
        let mut next = 0;
        for count in counts.iter_mut() {
            next += std::mem::replace(count, next);
        }
        // SAFETY: `from` is what was given, or was written by the pass before.
        for &item in unsafe { &*initialised(from) } {
            let place = &mut counts[digit(item, index)];
            // Every place is written once, because the digits were counted.
            to[*place].write(item);
            *place += 1;
        }
        (from, to) = (to, from);
    }
    // SAFETY: as above.
    unsafe { initialised(from) }
}

/// Sorts `items` by comparisons.
///
/// # Safety
///
/// All of `items` must have been written.
unsafe fn compared<D: Ord>(items: &mut [MaybeUninit<D>]) -> &mut [D] {
    // SAFETY: by this function's contract.
    let items = unsafe { initialised(items) };
    items.sort_unstable();
    items
}

/// # Safety
///
/// All of `items` must have been written.
pub(super) unsafe fn initialised<D>(items: &mut [MaybeUninit<D>]) -> &mut [D] {
    // SAFETY: the layout is the same, and by this function's contract.
    unsafe { &mut *(std::ptr::from_mut(items) as *mut [D]) }
}

/// A row of ranks as one of as many keys as have room there.
pub(super) fn as_keys<K: Digits, R: Rank>(row: &mut [MaybeUninit<R>]) -> &mut [MaybeUninit<K>] {
    const { assert!(size_of::<K>() <= size_of::<R>() && align_of::<K>() <= align_of::<R>()) };
    let count = row.len() * (size_of::<R>() / size_of::<K>());
    // SAFETY: they take no more room than the row, whose beginning suits them (checked), and it need not have been
    // written.
    unsafe { from_raw_parts_mut(row.as_mut_ptr().cast(), count) }
}
