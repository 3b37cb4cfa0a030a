//! Gathers of elements that an index array selects. Each loop checks the indices that it reads.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::copies::copy_run;
use crate::pointers::{ReadPtr, WritePtr};
use crate::walk::Walk;

/// The axis along which indices select elements.
#[derive(Clone, Copy, Debug)]
pub struct IndexedAxis {
    /// The length of the axis: the exclusive bound of the indices.
    pub length: usize,
    /// The stride of the axis.
    pub step: isize,
}

impl IndexedAxis {
    /// Returns the offset of `index` from index 0, in elements.
    #[inline(always)]
    pub(super) fn offset(self, index: i64) -> isize {
        match counted(index, self.length) {
            Some(index) => index as isize * self.step,
            None => never(index, self.length),
        }
    }
}

/// Panics for an index out of range. An earlier check should have rejected this index. The function
/// is not inlined. An inlined call would make a loop store the length in memory for the message.
#[cold]
#[inline(never)]
fn never(index: i64, length: usize) -> ! {
    unreachable!("the index {index} is out of range for length {length}");
}

/// Returns `index` counted from the beginning of an axis of `length`. A negative index counts from
/// the end. If the index is out of range, returns `None`.
#[inline(always)]
pub fn counted(index: i64, length: usize) -> Option<usize> {
    // A length is at most `isize::MAX`, so the sum does not overflow.
    let counted = index + if index < 0 { length as i64 } else { 0 };
    ((counted as u64) < length as u64).then_some(counted as usize)
}

/// An array, and indices along one of its axes.
#[derive(Clone, Copy, Debug)]
pub struct Pick {
    /// The address of the array.
    pub from: ReadPtr<u8>,
    /// The address of the indices.
    pub indices: ReadPtr<i64>,
    pub axis: IndexedAxis,
}

/// Writes the rows of index `range`, of elements of `bytes` bytes each, to the rows' positions in
/// `to`. Each row has one index. `firsts` is a walk over the first elements of the rows.
///
/// # Safety
///
/// The contract of [`pick_elements`] must hold for whole rows.
pub unsafe fn pick_rows(
    bytes: usize,
    pick: &Pick,
    firsts: &Walk<2>,
    row: (usize, [isize; 2]),
    range: Range<usize>,
    to: WritePtr<u8>,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { by_bytes!(bytes, pick_rows_of::<Word>(pick, firsts, row, range, to)) };
}

/// # Safety
///
/// The contract of [`pick_elements`] must hold.
unsafe fn pick_rows_of<T: Copy>(
    pick: &Pick,
    firsts: &Walk<2>,
    (length, [step, _]): (usize, [isize; 2]),
    range: Range<usize>,
    to: WritePtr<u8>,
) {
    let (from, to) = (pick.from.cast::<T>(), to.cast::<T>());
    let mut number = range.start * length;
    for [at, index_at] in firsts.each(range) {
        // SAFETY: the caller upholds this function's contract. `IndexedAxis::offset` checks each
        // index.
        unsafe {
            let offset = pick.axis.offset(pick.indices.at(index_at).read());
            let from = from.at(at).wrapping_offset(offset);
            copy_run(from, to.at(number), length, [step, 1]);
        }
        number += length;
    }
}

/// Writes the elements of row-major index `range`, of `bytes` bytes each, to the elements'
/// positions in `to`.
///
/// # Safety
///
/// The walk must pair the array's elements at index 0 of the axis with the indices. The array and
/// the indices must be alive and not written to. Only the caller may access these elements of `to`.
pub unsafe fn pick_elements(
    bytes: usize,
    pick: &Pick,
    walk: &Walk<2>,
    range: Range<usize>,
    to: WritePtr<u8>,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { by_bytes!(bytes, pick_elements_of::<Word>(pick, walk, range, to)) };
}

/// # Safety
///
/// The contract of [`pick_elements`] must hold.
unsafe fn pick_elements_of<T: Copy>(
    pick: &Pick,
    walk: &Walk<2>,
    range: Range<usize>,
    to: WritePtr<u8>,
) {
    let (elements, to) = (pick.from.cast::<T>(), to.cast::<T>());
    let (_, [step, index_step]) = walk.row();
    let axis = pick.axis;
    let mut number = range.start;
    for ([at, index_at], count) in walk.runs(range) {
        let (from, indices, out) = (elements.at(at), pick.indices.at(index_at), to.at(number));
        // SAFETY: by this function's contract, the walk stays within the indices and the elements
        // at index 0 of the axis. `IndexedAxis::offset` checks each index. Only elements of the
        // range are written.
        unsafe {
            match (step, index_step) {
                (_, 0) => {
                    let from = from.wrapping_offset(axis.offset(indices.read()));
                    copy_run(from, out, count, [step, 1]);
                }
                (0, 1) => {
                    let indices = from_raw_parts(indices, count);
                    for (slot, &index) in from_raw_parts_mut(out, count).iter_mut().zip(indices) {
                        slot.write(from.wrapping_offset(axis.offset(index)).read());
                    }
                }
                _ => {
                    for part in 0..count as isize {
                        let index = indices.wrapping_offset(part * index_step).read();
                        let from = from.wrapping_offset(part * step + axis.offset(index));
                        out.wrapping_offset(part)
                            .write(MaybeUninit::new(from.read()));
                    }
                }
            }
        }
        number += count;
    }
}
