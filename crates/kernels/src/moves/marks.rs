//! One-hot rows: zeros, with one marked element per row.

use std::ops::Range;

use crate::element::plain::Bits;
use crate::pointers::ReadPtr;
use crate::walk::Walk;

/// An array of classes, and the element that marks a class.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// The address of an array of classes, one class per row.
    pub classes_of: ReadPtr<i64>,
    /// A walk over the array of classes.
    pub walk: Walk<1>,
    /// The number of classes: the length of a row.
    pub classes: usize,
    /// The value of the marked element.
    pub one: Bits,
    /// The size of an element of a row.
    pub bytes: usize,
}

/// Writes the rows of index `range` to the memory at `row`.
///
/// # Safety
///
/// The array of classes must be alive and not written to. Only the caller may access the rows. The
/// rows must be aligned.
pub unsafe fn mark_rows(marks: &Marks, range: Range<usize>, mut row: *mut u8) {
    let row_bytes = marks.classes * marks.bytes;
    // SAFETY: the caller upholds this function's contract. Zero bytes represent the number zero in
    // each type.
    unsafe { row.write_bytes(0, range.len() * row_bytes) };
    let (_, [step]) = marks.walk.row();
    let one = marks.one.bytes(marks.bytes);
    for ([at], count) in marks.walk.runs(range) {
        for part in 0..count as isize {
            let from = marks.classes_of.at(at).wrapping_offset(part * step);
            // SAFETY: the walk reaches only elements of the array, and by this function's contract
            // no code writes to them meanwhile.
            let class = unsafe { from.read() } as usize;
            assert!(class < marks.classes, "the class {class} is out of range");
            let to = row.wrapping_add(class * marks.bytes);
            // SAFETY: the class is below the number of classes, as just checked, so the row has an
            // element for it.
            unsafe { by_bytes!(marks.bytes, put::<Word>(to, one)) };
            row = row.wrapping_add(row_bytes);
        }
    }
}

/// # Safety
///
/// `to` must be aligned and writable for the element.
#[inline(always)]
unsafe fn put<T>(to: *mut u8, element: &[u8]) {
    assert_eq!(element.len(), size_of::<T>());
    // SAFETY: the caller upholds this function's contract.
    unsafe { to.copy_from_nonoverlapping(element.as_ptr(), size_of::<T>()) };
}
