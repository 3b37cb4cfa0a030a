//! Reductions of elements that are contiguous.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::{CHUNK, finish_all, merged};
use crate::array::AnyElement;
use crate::ops::host::blocked::{BLOCK, Blocks, Readable};
use crate::ops::reducers::{ACCUMULATORS, Reducer};
use crate::ops::vector::{Loop, vectorised};

/// Reduces `length` elements for each of `out`, the first of which has number `first`.
pub(super) fn rows<F: Reducer<T>, T: AnyElement>(
    elements: Readable<'_, T>,
    length: usize,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    if length > CHUNK {
        return long_rows::<F, T>(elements, length, first, out);
    }
    elements.read(|elements| {
        if length > BLOCK {
            for (index, slot) in out.iter_mut().enumerate() {
                let start = (first + index) * length;
                let total = total_of::<F::Inner, T>(elements, start..start + length, 0);
                slot.write(F::finish(total, length));
            }
            return;
        }
        let together = if elements.is_in_memory() {
            BLOCK
        } else {
            BLOCK / length
        };
        let mut totals = [const { MaybeUninit::uninit() }; BLOCK];
        for (index, part) in out.chunks_mut(together).enumerate() {
            let start = (first + index * together) * length;
            let rows = RowTotals {
                values: elements.values(start..start + part.len() * length),
                length,
                first: 0,
                before: None,
                reducer: PhantomData::<F::Inner>,
            };
            let totals = &mut totals[..part.len()];
            vectorised(rows, totals);
            // SAFETY: the loop has written one total for each row.
            unsafe { finish_all::<F, T>(totals, length, part) };
        }
    });
}

/// Reduces rows that need more than one chunk each. Chunks are merged two by two.
fn long_rows<F: Reducer<T>, T: AnyElement>(
    elements: Readable<'_, T>,
    length: usize,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    for (index, slot) in out.iter_mut().enumerate() {
        let start = (first + index) * length;
        let total = merged(
            (length, size_of::<T>()),
            CHUNK,
            &|part| {
                elements.read(|elements| {
                    let range = start + part.start..start + part.end;
                    total_of::<F::Inner, T>(elements, range, part.start)
                })
            },
            &F::merge::<false>,
        );
        slot.write(F::finish(total, length));
    }
}

/// Returns the total of the elements of `range`, the first of which has number `index` in its
/// output.
fn total_of<F: Reducer<T>, T: AnyElement>(
    elements: &mut Blocks<'_, '_, T>,
    range: Range<usize>,
    index: usize,
) -> F::Total {
    let at_once = if elements.is_in_memory() {
        range.len()
    } else {
        BLOCK
    };
    let mut total = None;
    for start in range.clone().step_by(at_once) {
        let end = range.end.min(start + at_once);
        let row = RowTotals {
            values: elements.values(start..end),
            length: end - start,
            first: index + (start - range.start),
            before: total,
            reducer: PhantomData::<F>,
        };
        let mut slot = [MaybeUninit::uninit()];
        vectorised(row, &mut slot[..]);
        // SAFETY: the loop has written the total of its only row.
        total = Some(unsafe { slot[0].assume_init() });
    }
    total.expect("a range has elements")
}

/// Contiguous rows of `length` elements, whose totals are computed block by block.
struct RowTotals<'a, T: AnyElement, F: Reducer<T>> {
    values: &'a [T],
    length: usize,
    /// The number of each row's first element.
    first: usize,
    /// The total of the elements before the only row.
    before: Option<F::Total>,
    reducer: PhantomData<F>,
}

/// The longest rows that are reduced side by side.
const SHORT: usize = 16;

impl<F: Reducer<T>, T: AnyElement> RowTotals<'_, T, F> {
    /// Reduces rows of at most [`SHORT`] elements, one in each accumulator. Returns the number of
    /// reduced rows. Rows that do not fill the accumulators are left.
    #[inline(always)]
    fn several_rows<const FMA: bool>(&self, out: &mut [MaybeUninit<F::Total>]) -> usize {
        let (groups, _) = out.as_chunks_mut::<ACCUMULATORS>();
        let mut columns = [[<T as AnyElement>::zero(); ACCUMULATORS]; SHORT];
        let columns = &mut columns[..self.length];
        let values = self.values.chunks_exact(self.length * ACCUMULATORS);
        for (slots, values) in groups.iter_mut().zip(values) {
            for (row, values) in values.chunks_exact(self.length).enumerate() {
                for (column, &value) in columns.iter_mut().zip(values) {
                    column[row] = value;
                }
            }
            let partials = F::reduce_rows::<FMA>(columns, self.first);
            for (slot, partial) in slots.iter_mut().zip(partials) {
                slot.write(F::total(partial, self.length));
            }
        }
        groups.len() * ACCUMULATORS
    }
}

impl<F: Reducer<T>, T: AnyElement> Loop<[MaybeUninit<F::Total>]> for RowTotals<'_, T, F> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<F::Total>]) {
        let rows = self.values.chunks_exact(self.length);
        if self.length <= BLOCK && self.before.is_none() {
            let together = match F::BY_ROWS && self.length <= SHORT {
                true => self.several_rows::<FMA>(out),
                false => 0,
            };
            // A loop of its own, because rows may be as short as one element.
            for (slot, row) in out[together..].iter_mut().zip(rows.skip(together)) {
                slot.write(F::total(F::reduce::<FMA>(row, self.first), self.length));
            }
            return;
        }
        for (slot, row) in out.iter_mut().zip(rows) {
            let mut total = self.before;
            let mut index = self.first;
            // Blocks are long enough that joining their accumulators costs little, and short enough
            // that their sums lose little precision.
            for block in row.chunks(BLOCK) {
                let own = F::total(F::reduce::<FMA>(block, index), block.len());
                total = Some(match total {
                    Some(before) => F::merge::<FMA>(before, own),
                    None => own,
                });
                index += block.len();
            }
            slot.write(total.expect("a row has elements"));
        }
    }
}
