//! Folds of elements that stand together.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::{CHUNK, merged};
use crate::array::AnyElement;
use crate::ops::host::blocked::{BLOCK, Blocks, Readable};
use crate::ops::host::vector::{Loop, vectorised};
use crate::ops::reductions::Reducer;

/// Folds `length` elements for each of `out`, the first of which has number `first`.
#[inline(always)]
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
        let rows = Rows {
            elements,
            length,
            first,
            reducer: PhantomData::<F>,
        };
        vectorised(rows, out);
    });
}

/// Outputs whose elements stand together, `length` for each; the first output has number `first`.
struct Rows<'a, 'b, 'c, F, T> {
    elements: &'a mut Blocks<'b, 'c, T>,
    length: usize,
    first: usize,
    reducer: PhantomData<F>,
}

impl<F: Reducer<T>, T: AnyElement> Loop<[MaybeUninit<F::Output>]> for Rows<'_, '_, '_, F, T> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<F::Output>]) {
        let Self {
            elements,
            length,
            first,
            ..
        } = self;
        if length > BLOCK {
            for (index, slot) in out.iter_mut().enumerate() {
                let start = (first + index) * length;
                let total = total_of::<F, T, FMA>(elements, start..start + length, 0);
                slot.write(F::finish::<FMA>(total, length));
            }
            return;
        }
        let together = BLOCK / length;
        for (index, part) in out.chunks_mut(together).enumerate() {
            let start = (first + index * together) * length;
            let values = elements.values(start..start + part.len() * length);
            for (slot, row) in part.iter_mut().zip(values.chunks_exact(length)) {
                let total = F::total(F::fold::<FMA>(row, 0), length);
                slot.write(F::finish::<FMA>(total, length));
            }
        }
    }
}

/// The total of the elements of `range`, block by block; the first of them has number `index` among
/// those of its output.
#[inline(always)]
fn total_of<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    elements: &mut Blocks<'_, '_, T>,
    range: Range<usize>,
    index: usize,
) -> F::Total {
    let (count, start) = (range.len(), range.start);
    // So many that joining a block's accumulators counts for little, and so few that the sum of one loses little.
    let block = BLOCK;
    let values = elements.values(start..start + block.min(count));
    let mut total = F::total(F::fold::<FMA>(values, index), values.len());
    let mut done = block;
    while done < count {
        let values = elements.values(start + done..start + count.min(done + block));
        let more = F::total(F::fold::<FMA>(values, index + done), values.len());
        total = F::merge::<FMA>(total, more);
        done += block;
    }
    total
}

/// As [`Rows`], for long ones.
fn long_rows<F: Reducer<T>, T: AnyElement>(
    elements: Readable<'_, T>,
    length: usize,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    for (index, slot) in out.iter_mut().enumerate() {
        let start = (first + index) * length;
        let total = merged(
            length,
            CHUNK,
            &|part| {
                elements.read(|elements| {
                    let chunk = Chunk {
                        elements,
                        range: start + part.start..start + part.end,
                        index: part.start,
                        reducer: PhantomData::<F>,
                    };
                    vectorised(chunk, &mut ())
                })
            },
            &F::merge::<false>,
        );
        slot.write(F::finish::<false>(total, length));
    }
}

/// Elements whose total is asked for.
struct Chunk<'a, 'b, 'c, F, T> {
    elements: &'a mut Blocks<'b, 'c, T>,
    range: Range<usize>,
    index: usize,
    reducer: PhantomData<F>,
}

impl<F: Reducer<T>, T: AnyElement> Loop<()> for Chunk<'_, '_, '_, F, T> {
    type Result = F::Total;

    #[inline(always)]
    fn run<const FMA: bool>(self, _out: &mut ()) -> F::Total {
        total_of::<F, T, FMA>(self.elements, self.range, self.index)
    }
}
