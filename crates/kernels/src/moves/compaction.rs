//! Stream compaction: the elements whose flags are `true`, and their positions.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use crate::walk::MAX_RANK;

/// The number of flags whose elements are written together. Each flag has a slot, although most
/// flags may be `false`.
pub const CHUNK: usize = 256;

/// The number of flags that are skipped together if all of them are `false`.
const WORD: usize = size_of::<u64>();

/// Writes `value(position)` of each true flag to the first slots. Returns the number of true flags.
#[inline(always)]
fn gather<V: Copy>(
    flags: &[bool],
    slots: &mut [MaybeUninit<V>; CHUNK],
    value: impl Fn(usize) -> V,
) -> usize {
    let mut selected = 0;
    let (words, rest) = flags.as_chunks::<WORD>();
    for (word, flags) in words.iter().enumerate() {
        if u64::from_ne_bytes(flags.map(u8::from)) == 0 {
            continue;
        }
        for (bit, &flag) in flags.iter().enumerate() {
            // The loop does not branch. If a flag is `false`, the next element overwrites its
            // element. Each flag has a slot, so `% CHUNK` never changes the index. The operation
            // only avoids a bounds check.
            slots[selected % CHUNK].write(value(word * WORD + bit));
            selected += usize::from(flag);
        }
    }
    for (at, &flag) in rest.iter().enumerate() {
        slots[selected % CHUNK].write(value(words.len() * WORD + at));
        selected += usize::from(flag);
    }
    selected
}

/// Writes `value(position)` of each true flag to `out`. The length of `out` is the number of true
/// flags.
#[inline(always)]
fn write_selected<V: Copy>(flags: &[bool], out: &mut [MaybeUninit<V>], value: impl Fn(usize) -> V) {
    let mut done = 0;
    for (chunk, flags) in flags.chunks(CHUNK).enumerate() {
        let value = |at| value(chunk * CHUNK + at);
        if let Some(slots) = out[done..].first_chunk_mut::<CHUNK>() {
            done += gather(flags, slots, value);
        } else {
            let mut buffer = [const { MaybeUninit::uninit() }; CHUNK];
            let selected = gather(flags, &mut buffer, value);
            out[done..done + selected].copy_from_slice(&buffer[..selected]);
            done += selected;
        }
    }
    assert_eq!(done, out.len(), "the flags changed after they were counted");
}

/// Writes the elements whose flags are `true` to `to`. The elements begin at `from`, and have
/// `bytes` bytes each. `to` has space for `count` elements.
///
/// # Panics
///
/// Panics if `count` is not the number of true flags.
///
/// # Safety
///
/// Each flag must have an element. The elements must be alive and not written to. Only the caller
/// may access the memory at `to`.
pub unsafe fn write_elements(
    bytes: usize,
    flags: &[bool],
    from: *const u8,
    to: *mut u8,
    count: usize,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { by_bytes!(bytes, write_elements_of::<Word>(flags, from, to, count)) };
}

/// # Safety
///
/// The contract of [`write_elements`] must hold.
unsafe fn write_elements_of<T: Copy>(flags: &[bool], from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: the caller upholds this function's contract.
    let (values, out) = unsafe {
        let values: &[T] = from_raw_parts(from.cast(), flags.len());
        (values, from_raw_parts_mut(to.cast(), count))
    };
    write_selected(flags, out, |at| values[at]);
}

/// Writes the positions of the true flags to all of `out`. A position is a row of indices along
/// axes of lengths `dims`. The first flag belongs to the element with row-major
/// index `first`.
///
/// # Panics
///
/// Panics if the number of rows in `out` is not the number of true flags.
pub fn write_positions(flags: &[bool], first: usize, dims: &[usize], out: &mut [MaybeUninit<i64>]) {
    match dims.len() {
        1 => write_selected(flags, out, |at| (first + at) as i64),
        _ => write_rows(flags, first, dims, out),
    }
}

/// Writes the positions like [`write_positions`], for any rank.
fn write_rows(flags: &[bool], first: usize, dims: &[usize], out: &mut [MaybeUninit<i64>]) {
    let mut line = FlagLine::of(first, dims);
    let mut rows = out.chunks_exact_mut(dims.len());
    for (chunk, flags) in flags.chunks(CHUNK).enumerate() {
        let mut buffer = [const { MaybeUninit::uninit() }; CHUNK];
        let selected = gather(flags, &mut buffer, |at| at as u32);
        for (at, row) in buffer[..selected].iter().zip(&mut rows) {
            // SAFETY: `gather` has written the first `selected` positions.
            let at = unsafe { at.assume_init() } as usize;
            line.write(first + chunk * CHUNK + at, dims, row);
        }
    }
    assert!(
        rows.next().is_none(),
        "the flags changed after they were counted"
    );
}

/// The elements along the last axis, with fixed indices along the other axes.
struct FlagLine {
    index: [i64; MAX_RANK],
    /// The row-major indices of the elements.
    numbers: Range<usize>,
}

impl FlagLine {
    /// Returns the line of the element with row-major index `number`.
    fn of(number: usize, dims: &[usize]) -> Self {
        let [others @ .., length] = dims else {
            unreachable!("an array of rank 0 has no rows to write");
        };
        let mut index = [0; MAX_RANK];
        let mut rest = number / length;
        for (slot, length) in index[..others.len()].iter_mut().zip(others).rev() {
            *slot = (rest % length) as i64;
            rest /= length;
        }
        let start = number / length * length;
        Self {
            index,
            numbers: start..start + length,
        }
    }

    /// Advances to the element with row-major index `number`, and writes its indices.
    #[inline(always)]
    fn write(&mut self, number: usize, dims: &[usize], row: &mut [MaybeUninit<i64>]) {
        let others = row.len() - 1;
        while number >= self.numbers.end {
            self.numbers = self.numbers.end..self.numbers.end + dims[others];
            for axis in (0..others).rev() {
                self.index[axis] += 1;
                if self.index[axis] < dims[axis] as i64 {
                    break;
                }
                self.index[axis] = 0;
            }
        }
        for (slot, &index) in row.iter_mut().zip(&self.index[..others]) {
            slot.write(index);
        }
        row[others].write((number - self.numbers.start) as i64);
    }
}
