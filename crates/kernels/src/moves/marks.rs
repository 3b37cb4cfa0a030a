//! Rows of zeros with one marked element.

use std::ops::Range;

use crate::element::plain::Bits;
use crate::pointers::ReadPtr;
use crate::walk::Walk;

/// An array of classes, and the element that marks a class.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// The memory of an array of classes, one for each row.
    pub classes_of: ReadPtr<i64>,
    /// The elements of the array.
    pub walk: Walk<1>,
    /// The number of classes, which is the length of a row.
    pub classes: usize,
    /// The element that is written at the position of a row's class.
    pub one: Bits,
    /// The size of an element of a row.
    pub bytes: usize,
}

/// Writes the rows with the numbers `range` to the memory at `row`.
///
/// # Safety
///
/// The array must be alive and not written to. Only the caller may access the rows, which must be
/// aligned.
pub unsafe fn mark_rows(marks: &Marks, range: Range<usize>, mut row: *mut u8) {
    let row_bytes = marks.classes * marks.bytes;
    // SAFETY: by this function's contract. A number of zero bytes is zero.
    unsafe { row.write_bytes(0, range.len() * row_bytes) };
    let (_, [step]) = marks.walk.row();
    let one = marks.one.bytes(marks.bytes);
    for ([at], count) in marks.walk.runs(range) {
        for part in 0..count as isize {
            let from = marks.classes_of.at(at).wrapping_offset(part * step);
            // SAFETY: the walk reaches only elements of the array, which nothing writes to
            // meanwhile.
            let class = unsafe { from.read() } as usize;
            assert!(class < marks.classes, "the class {class} is out of range");
            let to = row.wrapping_add(class * marks.bytes);
            // SAFETY: the row has an element for each class.
            unsafe { by_bytes!(marks.bytes, put::<Word>(to, one)) };
            row = row.wrapping_add(row_bytes);
        }
    }
}

/// Writes the bytes of one element to `to`.
///
/// # Safety
///
/// `to` must be aligned and writable for the element.
#[inline(always)]
unsafe fn put<T>(to: *mut u8, element: &[u8]) {
    assert_eq!(element.len(), size_of::<T>());
    // SAFETY: by this function's contract.
    unsafe { to.copy_from_nonoverlapping(element.as_ptr(), size_of::<T>()) };
}
