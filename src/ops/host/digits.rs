//! Sorting by digits, the lowest first, each time into the other of two rows (Knuth, "The Art of Computer
//! Programming", volume 3, section 5.2.5, algorithm R). Few items, and those of many digits, are
//! sorted by comparisons instead.

use std::mem::MaybeUninit;
use std::slice::from_raw_parts_mut;

use crate::array::scalar::Digits;

/// Up to so many, comparisons are faster, and no second row is needed.
pub(super) const SHORT: usize = 256;

/// Digits up to which sorting by them is faster than by comparisons.
const PASSES: usize = 4;

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
    (first, bits): (u32, u32),
) -> &'a mut [D] {
    let length = items.len();
    if length <= SHORT {
        // SAFETY: by this function's contract.
        return unsafe { compared(items) };
    }
    let mut counts = [[0usize; 256]; 8];
    let counts = &mut counts[..bits as usize / 8];
    // SAFETY: as above.
    for item in unsafe { initialised(items) } {
        for (index, counts) in counts.iter_mut().enumerate() {
            counts[item.digit(first + 8 * index as u32)] += 1;
        }
    }
    // Where all have the same digit, there is nothing to do.
    let differ = counts.iter().filter(|counts| !counts.contains(&length));
    if differ.count() > PASSES {
        // SAFETY: as above.
        return unsafe { compared(items) };
    }
    let (mut from, mut to) = (items, &mut spare[..length]);
    for (index, counts) in counts.iter_mut().enumerate() {
        if counts.contains(&length) {
            continue;
        }
        let mut next = 0;
        for count in counts.iter_mut() {
            next += std::mem::replace(count, next);
        }
        // SAFETY: `from` is what was given, or was written by the pass before.
        for &item in unsafe { &*initialised(from) } {
            let place = &mut counts[item.digit(first + 8 * index as u32)];
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
unsafe fn compared<D: Digits>(items: &mut [MaybeUninit<D>]) -> &mut [D] {
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

/// A row of ranks as one of as many keys.
pub(super) fn as_keys<K: Digits, R: Rank>(row: &mut [MaybeUninit<R>]) -> &mut [MaybeUninit<K>] {
    const { assert!(size_of::<K>() <= size_of::<R>() && align_of::<K>() <= align_of::<R>()) };
    // SAFETY: keys take no more room than ranks (checked), and the row need not have been written.
    unsafe { from_raw_parts_mut(row.as_mut_ptr().cast(), row.len()) }
}
