//! Binary search for the positions of values among sorted elements (Knuth, "The Art of Computer
//! Programming", volume 3, section 6.2.1).

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::compiled::COMPILED_TYPES;
use crate::compiled_or;
use crate::walk::Walk;
use crate::{DType, Element};

/// The number of values that are searched for together. Their searches are independent, so the
/// processor overlaps them.
const TOGETHER: usize = 8;

/// A function that writes the positions of values. The range selects the values by row-major index,
/// and the walk determines their addresses.
///
/// The elements and the values must be of the loop's type, and readable.
pub type SearchLoop =
    unsafe fn(&Sorted<u8>, *const u8, &Walk<1>, Range<usize>, &mut [MaybeUninit<i64>]);

/// The loops that search among elements of one type.
#[derive(Debug)]
pub struct SearchLoops {
    /// The type of the elements.
    pub element: DType,
    /// The loop for positions before equal elements, and the loop for positions after equal
    /// elements.
    pub by_side: [SearchLoop; 2],
}

impl SearchLoops {
    const fn of<T: Element>() -> Self {
        Self {
            element: T::DTYPE,
            by_side: [write::<T, false>, write::<T, true>],
        }
    }
}

/// The loops that are compiled with the library, for `f32` and `f64`.
static COMPILED: [SearchLoops; COMPILED_TYPES] =
    [SearchLoops::of::<f32>(), SearchLoops::of::<f64>()];

/// Returns the loops that search among elements of `T`.
pub const fn search_loops_of<T: Element>() -> &'static SearchLoops {
    compiled_or!(T, COMPILED, SearchLoops::of::<T>())
}

/// # Safety
///
/// The contract of a [`SearchLoop`] must hold.
unsafe fn write<T: Element, const AFTER: bool>(
    sorted: &Sorted<u8>,
    values: *const u8,
    walk: &Walk<1>,
    range: Range<usize>,
    out: &mut [MaybeUninit<i64>],
) {
    let sorted = Sorted {
        elements: sorted.elements.cast::<T>(),
        first: sorted.first,
        step: sorted.step,
        length: sorted.length,
    };
    // SAFETY: the caller upholds this function's contract.
    unsafe { sorted.write::<AFTER>(values.cast(), walk, range, out) };
}

/// Sorted elements.
#[derive(Clone, Copy, Debug)]
pub struct Sorted<T> {
    /// The address of the element at index 0 of the array.
    pub elements: *const T,
    /// The index in the array of the first sorted element.
    pub first: usize,
    /// The stride of the elements.
    pub step: isize,
    /// The number of elements.
    pub length: usize,
}

// SAFETY: the type is an address of plain data. By its contract, a loop only reads the data.
unsafe impl<T: Sync> Send for Sorted<T> {}
// SAFETY: the type is an address of plain data, which loops only read.
unsafe impl<T: Sync> Sync for Sorted<T> {}

impl<T: Element> Sorted<T> {
    /// Writes the insertion positions of the values with the row-major indices `range`. A position
    /// is after equal elements if `AFTER`, otherwise before equal elements.
    ///
    /// # Safety
    ///
    /// The elements and the values must be readable. The walk must be over the values.
    unsafe fn write<const AFTER: bool>(
        &self,
        values: *const T,
        walk: &Walk<1>,
        range: Range<usize>,
        out: &mut [MaybeUninit<i64>],
    ) {
        let (_, [step]) = walk.row();
        let mut done = 0;
        for ([at], count) in walk.runs(range) {
            for (part, slots) in out[done..done + count].chunks_mut(TOGETHER).enumerate() {
                let place = |number: usize| {
                    // If a group has fewer than `TOGETHER` values, the loop searches for the last
                    // value again. The surplus positions are not written.
                    let number = part * TOGETHER + number.min(slots.len() - 1);
                    values
                        .wrapping_add(at)
                        .wrapping_offset(number as isize * step)
                };
                // SAFETY: by this function's contract, the walk has these values, and they are
                // readable.
                let values = std::array::from_fn(|number| unsafe { place(number).read() });
                // SAFETY: the caller upholds this function's contract.
                let places = unsafe { self.places::<AFTER>(values) };
                for (slot, place) in slots.iter_mut().zip(places) {
                    slot.write(place as i64);
                }
            }
            done += count;
        }
    }

    /// Returns the insertion positions of `values`.
    ///
    /// # Safety
    ///
    /// The elements must be readable.
    #[inline(always)]
    unsafe fn places<const AFTER: bool>(&self, values: [T; TOGETHER]) -> [usize; TOGETHER] {
        // The closure returns 1 or 0 without branches, because the outcome cannot be predicted.
        let comes_before = |place: usize, value: T| {
            let at = self.elements.wrapping_add(self.first);
            let at = at.wrapping_offset(place as isize * self.step);
            // SAFETY: by this function's contract, the elements are readable. All places are below
            // the length.
            let own = unsafe { at.read() };
            let less = if AFTER { own <= value } else { own < value };
            // NaN is sorted after all numbers. NaN equals NaN.
            let is_nan = is_nan(&value) & (AFTER | !is_nan(&own));
            usize::from(less | is_nan)
        };
        let (mut places, mut rest) = ([0; TOGETHER], self.length);
        while rest > 1 {
            let half = rest / 2;
            for (place, &value) in places.iter_mut().zip(&values) {
                *place += half * comes_before(*place + half - 1, value);
            }
            rest -= half;
        }
        if rest == 1 {
            for (place, &value) in places.iter_mut().zip(&values) {
                *place += comes_before(*place, value);
            }
        }
        places
    }
}

#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn is_nan<T: PartialEq>(value: &T) -> bool {
    value != value
}
