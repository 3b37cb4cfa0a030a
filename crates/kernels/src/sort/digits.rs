//! Radix sort from the lowest digit on (Knuth, "The Art of Computer Programming", volume 3, section
//! 5.2.5, algorithm R). Each pass moves the items from one of two rows to the other row. If the
//! items are few or have many digits, they are sorted by comparisons instead.

use std::mem::MaybeUninit;
use std::slice::from_raw_parts_mut;

use crate::element::scalar::RadixDigits;

/// The maximum length of rows that are sorted by comparisons. Up to this length, comparisons are
/// faster, and need no second row.
pub const SHORT: usize = 256;

/// The minimum length of rows that are sorted by digits of more bits. From this length on, fewer
/// passes outweigh the larger tables.
const LONG: usize = 1 << 13;

/// The number of bits of a digit in a row of [`LONG`] items or more.
const LONG_BITS: u32 = 11;

/// The maximum size of a row that is sorted as a whole, in bytes. A larger row is first divided by
/// its keys' highest bits, so that each part fits into the cache.
const CACHED_BYTES: usize = 1 << 19;

/// The number of highest bits by which a row of more than [`CACHED_BYTES`] is divided.
const PART_BITS: u32 = 8;

/// The maximum number of bytes that all passes of a radix sort move per item. If they would move
/// more bytes, comparisons are faster.
const MOVED_BYTES: usize = 64;

/// The number of items whose digits are counted together, one digit after another.
const TOGETHER: usize = 4096;

/// A key, followed in lower bits by the position of its element. Therefore no two ranks are equal,
/// and every sort of ranks is stable.
pub trait Rank: RadixDigits + Send + Sync {
    /// The index of the key's lowest bit.
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

/// Sorts `items` by the bits of their keys from bit `first` on. The items must already be sorted by
/// the lower bits. Returns the row that holds the sorted items.
///
/// # Safety
///
/// All of `items` must have been written. If `items` has more than [`SHORT`] items, the length of
/// `spare` must be at least its length.
pub unsafe fn by_digits<'a, D: RadixDigits>(
    items: &'a mut [MaybeUninit<D>],
    spare: &'a mut [MaybeUninit<D>],
    first: u32,
) -> &'a mut [D] {
    let length = items.len();
    if length <= SHORT {
        // SAFETY: the caller upholds this function's contract.
        return unsafe { compared(items) };
    }
    // SAFETY: by this function's contract, all items have been written.
    let values = unsafe { initialised(items) };
    // If the keys are near each other, they have few digits relative to the least key.
    let ends = values
        .iter()
        .fold((values[0], values[0]), |(least, greatest), &value| {
            (least.min(value), greatest.max(value))
        });
    let (least, greatest) = (ends.0.without_below(first), ends.1);
    let bits = greatest.bits_above(least).saturating_sub(first);
    let keys = Keys { least, first, bits };
    if length * size_of::<D>() > CACHED_BYTES && bits > LONG_BITS {
        // SAFETY: all items have been written, and each row has `length` items.
        return unsafe { keys.sort_parts(items, &mut spare[..length]) };
    }
    let moved_bytes = bits.div_ceil(8) as usize * size_of::<D>();
    if moved_bytes > MOVED_BYTES || u32::try_from(length).is_err() {
        // SAFETY: by this function's contract, all items have been written.
        return unsafe { compared(items) };
    }
    // SAFETY: all items have been written, and each row has `length` items.
    unsafe {
        if length < LONG {
            keys.sort::<8, 256, 8>(items, &mut spare[..length])
        } else {
            keys.sort::<LONG_BITS, { 1 << LONG_BITS }, 6>(items, &mut spare[..length])
        }
    }
}

/// The keys of items. A key has `bits` bits, from bit `first` on, relative to the least item.
struct Keys<D> {
    least: D,
    first: u32,
    bits: u32,
}

impl<D: RadixDigits> Keys<D> {
    /// Divides the items into parts by their highest bits, and sorts each part. The sorted items
    /// are stored in `items`.
    ///
    /// # Safety
    ///
    /// All of `items` must have been written. `spare` must be as long as `items`.
    unsafe fn sort_parts<'a>(
        &self,
        items: &'a mut [MaybeUninit<D>],
        spare: &mut [MaybeUninit<D>],
    ) -> &'a mut [D] {
        let shift = self.first + self.bits - PART_BITS;
        let part = |item: D| item.digits(self.least, shift) & ((1 << PART_BITS) - 1);
        let mut ends = [0_usize; 1 << PART_BITS];
        // SAFETY: the caller upholds this function's contract.
        for &item in unsafe { &*initialised(items) } {
            ends[part(item)] += 1;
        }
        let mut next = 0;
        for end in &mut ends {
            next += std::mem::replace(end, next);
        }
        // SAFETY: by this function's contract, all items have been written.
        for &item in unsafe { &*initialised(items) } {
            let place = &mut ends[part(item)];
            // Every position is written once, because `ends` counted the items of each part. After
            // the loop, each entry of `ends` is the end of its part.
            spare[*place].write(item);
            *place += 1;
        }
        let mut start = 0;
        for end in ends {
            let (from, to) = (&mut spare[start..end], &mut items[start..end]);
            let first = from.as_ptr();
            // SAFETY: the loop has written all of `spare`.
            let sorted = unsafe { by_digits(from, to, self.first) };
            if sorted.as_ptr() == first.cast() {
                items[start..end].copy_from_slice(&spare[start..end]);
            }
            start = end;
        }
        // SAFETY: the sort has written each part in `items`, or the part was copied to `items`.
        unsafe { initialised(items) }
    }

    /// Sorts by at most `MOST` digits of `BITS` bits. A digit has one of `VALUES` values. Returns
    /// the row that holds the sorted items.
    ///
    /// # Safety
    ///
    /// All of `items` must have been written. `spare` must be as long as `items`.
    unsafe fn sort<'a, const BITS: u32, const VALUES: usize, const MOST: usize>(
        &self,
        items: &'a mut [MaybeUninit<D>],
        spare: &'a mut [MaybeUninit<D>],
    ) -> &'a mut [D] {
        const { assert!(VALUES == 1 << BITS && BITS as usize * MOST >= 64) };
        let length = items.len();
        let digit = |item: D, index: usize| {
            let shift = self.first + BITS * index as u32;
            item.digits(self.least, shift) & (VALUES - 1)
        };
        let mut counts = [[0_u32; VALUES]; MOST];
        let counts = &mut counts[..self.bits.div_ceil(BITS) as usize];
        // SAFETY: the caller upholds this function's contract.
        for items in unsafe { &*initialised(items) }.chunks(TOGETHER) {
            for (index, counts) in counts.iter_mut().enumerate() {
                for &item in items {
                    counts[digit(item, index)] += 1;
                }
            }
        }
        let (mut from, mut to) = (items, spare);
        for (index, counts) in counts.iter_mut().enumerate() {
            // If all items have the same digit, the pass would change nothing.
            if counts.contains(&(length as u32)) {
                continue;
            }
            let mut next = 0;
            for count in counts.iter_mut() {
                next += std::mem::replace(count, next);
            }
            // SAFETY: `from` is `items`, or the previous pass has written it.
            for &item in unsafe { &*initialised(from) } {
                let place = &mut counts[digit(item, index)];
                // Every position is written once, because `counts` has the number of items per
                // digit.
                to[*place as usize].write(item);
                *place += 1;
            }
            (from, to) = (to, from);
        }
        // SAFETY: `from` is `items`, or the last pass has written it.
        unsafe { initialised(from) }
    }
}

/// # Safety
///
/// All of `items` must have been written.
unsafe fn compared<D: Ord>(items: &mut [MaybeUninit<D>]) -> &mut [D] {
    // SAFETY: the caller upholds this function's contract.
    let items = unsafe { initialised(items) };
    items.sort_unstable();
    items
}

/// # Safety
///
/// All of `items` must have been written.
pub unsafe fn initialised<D>(items: &mut [MaybeUninit<D>]) -> &mut [D] {
    // SAFETY: `MaybeUninit<D>` has the layout of `D`, and the items are initialised by this
    // function's contract.
    unsafe { &mut *(std::ptr::from_mut(items) as *mut [D]) }
}

pub fn as_keys<K: RadixDigits, R: Rank>(row: &mut [MaybeUninit<R>]) -> &mut [MaybeUninit<K>] {
    const { assert!(size_of::<K>() <= size_of::<R>() && align_of::<K>() <= align_of::<R>()) };
    let count = row.len() * (size_of::<R>() / size_of::<K>());
    // SAFETY: as checked above, the keys take no more memory than the row, and need no larger
    // alignment. The keys need not have been written.
    unsafe { from_raw_parts_mut(row.as_mut_ptr().cast(), count) }
}
