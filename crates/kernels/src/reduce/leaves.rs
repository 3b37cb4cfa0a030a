//! The loops over elements, for one reducer and one element type.
//!
//! Totals and partial results are arguments, not fields, so that the compiler knows that these
//! arguments are not aliased.
//!
//! A separate pass finishes the totals. Therefore `var` and `std` share loops, `logsumexp` and
//! `cross_entropy` share loops, and rows of any length share loops. These loops are the library's
//! largest code. The cost is the additional pass. If there are few totals per element, this cost is
//! negligible.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::loops::{LeafLoops, Scratch};
use crate::AnyElement;
use crate::blocks::BLOCK;
use crate::reduce::{ACCUMULATORS, Reducer};
use crate::vector::{BASELINE_FMA, is_baseline, rolled};

/// The number of rows of a block. The results of a block are merged into the totals.
pub const BLOCK_ROWS: usize = 16;

/// The number of rows that are added to the partial results in one pass.
const GROUP: usize = 4;

/// The maximum length of rows that are reduced side by side.
const SHORT: usize = 16;

/// Returns the loops for the instruction set that the library is compiled for.
pub const fn baseline<F: Reducer<T>, T: AnyElement>() -> LeafLoops {
    LeafLoops {
        rows: rows::<F::Inner, T, BASELINE_FMA>,
        columns: columns::<F::Inner, T, BASELINE_FMA>,
        finish: finish::<F, T>,
    }
}

/// Returns the loops for a processor that [has vectors](crate::vector::has_vectors).
pub const fn with_vectors<F: Reducer<T>, T: AnyElement>() -> LeafLoops {
    #[cfg(target_arch = "x86_64")]
    return LeafLoops {
        rows: avx2::rows::<F::Inner, T>,
        columns: avx2::columns::<F::Inner, T>,
        finish: avx2::finish::<F, T>,
    };
    #[cfg(not(target_arch = "x86_64"))]
    baseline::<F, T>()
}

/// The loops, compiled for AVX2, FMA and F16C. Each function has the contract of the loop that it
/// calls. In addition, the processor must have these features.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{AnyElement, Columns, Reducer, Rows, Scratch};

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn rows<F: Reducer<T>, T: AnyElement>(rows: &Rows, totals: &mut Scratch) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { super::rows::<F, T, true>(rows, totals) }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn columns<F: Reducer<T>, T: AnyElement>(
        columns: &Columns,
        partials: &mut Scratch,
        totals: &mut Scratch,
    ) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { super::columns::<F, T, true>(columns, partials, totals) }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn finish<F: Reducer<T>, T: AnyElement>(
        totals: &Scratch,
        length: usize,
        out: *mut u8,
        count: usize,
    ) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { super::finish::<F, T>(totals, length, out, count) }
    }
}

/// Contiguous rows of elements.
#[derive(Debug)]
pub struct Rows {
    /// The address of the first element.
    pub values: *const u8,
    pub count: usize,
    /// The length of a row, which is at least 1.
    pub length: usize,
    /// The index of each row's first element.
    pub first: usize,
    /// `true` if there is only one row, and its slot in the totals already has the total of earlier
    /// elements.
    pub continues: bool,
}

/// Writes the total of each row.
///
/// # Safety
///
/// The rows must have readable elements of `T`, at least one in each row. `totals` must have space
/// for one total per row. If `continues`, its first slot must have the total of the earlier
/// elements.
#[inline(always)]
unsafe fn rows<F: Reducer<T>, T: AnyElement, const FMA: bool>(rows: &Rows, totals: &mut Scratch) {
    let Rows { length, first, .. } = *rows;
    // SAFETY: the caller upholds this function's contract.
    let values: &[T] = unsafe { part(rows.values.cast(), 0, rows.count * length) };
    // SAFETY: by this function's contract, `totals` has space.
    let totals = unsafe { typed_mut::<F::Total>(totals, rows.count) };
    let each = values.chunks_exact(length);
    if length <= BLOCK && !rows.continues {
        let together = match F::BY_ROWS && length <= SHORT && !is_baseline::<FMA>() {
            true => short_rows::<F, T, FMA>(values, (length, first), totals),
            false => 0,
        };
        // This loop is separate from the loop for long rows, because rows may be as short as one
        // element.
        for (slot, row) in totals[together..].iter_mut().zip(each.skip(together)) {
            slot.write(F::total(reduced::<F, T, FMA>(row, first), length));
        }
        return;
    }
    for (slot, row) in totals.iter_mut().zip(each) {
        let mut total = match rows.continues {
            // SAFETY: the caller upholds this function's contract.
            true => Some(unsafe { slot.assume_init() }),
            false => None,
        };
        let mut index = first;
        // Blocks are long enough that the time to merge their accumulators is small. Blocks are
        // short enough that their sums lose little precision.
        for block in row.chunks(BLOCK) {
            let own = F::total(reduced::<F, T, FMA>(block, index), block.len());
            total = Some(match total {
                Some(before) => F::merge::<FMA>(before, own),
                None => own,
            });
            index += block.len();
        }
        if let Some(total) = total {
            slot.write(total);
        }
    }
}

/// Returns the partial result of `values`. The first value has index `first`.
#[inline(always)]
fn reduced<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    values: &[T],
    first: usize,
) -> F::Partial {
    match is_baseline::<FMA>() {
        true => reduced_apart::<F, T, FMA>(values, first),
        false => F::reduce::<FMA>(values, first),
    }
}

/// Reduces values like [`reduced`]. The function is not inlined, so that several loops share the
/// code.
#[inline(never)]
fn reduced_apart<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    values: &[T],
    first: usize,
) -> F::Partial {
    F::reduce::<FMA>(values, first)
}

/// Reduces rows of at most [`SHORT`] elements, one row in each accumulator. Returns the number of
/// reduced rows. If the last rows do not fill the accumulators, they are not reduced.
#[inline(always)]
fn short_rows<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    values: &[T],
    (length, first): (usize, usize),
    totals: &mut [MaybeUninit<F::Total>],
) -> usize {
    let (groups, _) = totals.as_chunks_mut::<ACCUMULATORS>();
    let mut columns = [[<T as AnyElement>::zero(); ACCUMULATORS]; SHORT];
    let columns = &mut columns[..length];
    let values = values.chunks_exact(length * ACCUMULATORS);
    for (slots, values) in groups.iter_mut().zip(values) {
        for (row, values) in values.chunks_exact(length).enumerate() {
            for (column, &value) in columns.iter_mut().zip(values) {
                column[row] = value;
            }
        }
        let partials = F::reduce_rows::<FMA>(columns, first);
        for (slot, partial) in slots.iter_mut().zip(partials) {
            slot.write(F::total(partial, length));
        }
    }
    groups.len() * ACCUMULATORS
}

/// Adjacent outputs, in one or several runs, and the rows of elements that are reduced to them.
#[derive(Debug)]
pub struct Columns {
    /// The address of the first row's first element.
    pub values: *const u8,
    /// The stride between rows, in elements.
    pub stride: usize,
    /// The number of outputs in a run.
    pub width: usize,
    /// The indices of the rows to read. The rows of the next run follow these rows in memory.
    pub rows: Range<usize>,
    /// The indices of all rows that are reduced to the totals. If `all` has more rows than `rows`,
    /// there is only one run.
    pub all: Range<usize>,
    pub runs: usize,
}

/// Reduces rows to totals, block by block. The first row of a block writes the partial results of
/// the outputs. The first block writes the totals of the outputs.
///
/// # Safety
///
/// The rows must have readable elements of `T`. `partials` must have space for the partial results
/// of a run, and `totals` for the totals of all runs. If `all` has rows before `rows`, this
/// function must have reduced them to `partials` and `totals`. `partials` and `totals` must be
/// unchanged since then.
#[inline(always)]
unsafe fn columns<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    columns: &Columns,
    partials: &mut Scratch,
    totals: &mut Scratch,
) {
    let Columns {
        stride,
        width,
        ref rows,
        ref all,
        ..
    } = *columns;
    let mut values: *const T = columns.values.cast();
    // SAFETY: the caller upholds this function's contract.
    let partials = unsafe { typed_mut::<F::Partial>(partials, width) };
    // SAFETY: by this function's contract, `totals` has space.
    let mut totals = unsafe { typed_mut::<F::Total>(totals, columns.runs * width) };
    while !totals.is_empty() {
        let (own, others) = std::mem::take(&mut totals).split_at_mut(width);
        let mut row = rows.start;
        while row < rows.end {
            let opened = row - (row - all.start) % BLOCK_ROWS;
            let end = all.end.min(opened + BLOCK_ROWS);
            let stop = end.min(rows.end);
            while stop - row >= GROUP && !is_baseline::<FMA>() {
                // SAFETY: by this function's contract, these rows are readable.
                let group =
                    std::array::from_fn(|index| unsafe { part(values, index * stride, width) });
                // SAFETY: the first row of the block opens the partial results.
                unsafe { accumulate_group::<F, T, FMA>(partials, group, row, row == opened) };
                values = values.wrapping_add(GROUP * stride);
                row += GROUP;
            }
            while row < stop {
                // SAFETY: by this function's contract, the row is readable.
                let of_row = unsafe { part(values, 0, width) };
                // SAFETY: the first row of the block opens the partial results.
                unsafe { accumulate::<F, T, FMA>(partials, of_row, row, row == opened) };
                values = values.wrapping_add(stride);
                row += 1;
            }
            if stop == end {
                let (is_first, count) = (opened == all.start, end - opened);
                // SAFETY: the partial results include all rows of the block. If this is not the
                // first block, the first block has written the totals.
                unsafe { close::<F, T, FMA>(own, partials, is_first, count) };
            }
        }
        totals = others;
    }
}

/// Adds one element to each of `partials`. If `opens`, the elements open `partials` instead.
///
/// # Safety
///
/// If `opens` is `false`, the partial results must have been written.
#[inline(always)]
unsafe fn accumulate<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    partials: &mut [MaybeUninit<F::Partial>],
    values: &[T],
    row: usize,
    opens: bool,
) {
    if is_baseline::<FMA>() {
        for column in 0..values.len() {
            let column = rolled::<FMA>(column);
            let (slot, value) = (&mut partials[column], values[column]);
            slot.write(match opens {
                true => F::open(value, row),
                // SAFETY: the caller upholds this function's contract.
                false => F::step::<FMA>(unsafe { slot.assume_init() }, value, row),
            });
        }
        return;
    }
    let pairs = partials.iter_mut().zip(values);
    if opens {
        for (partial, &value) in pairs {
            partial.write(F::open(value, row));
        }
    } else {
        for (partial, &value) in pairs {
            // SAFETY: the caller upholds this function's contract.
            let before = unsafe { partial.assume_init() };
            partial.write(F::step::<FMA>(before, value, row));
        }
    }
}

/// Adds several rows to `partials` in one pass. If `opens`, the first row opens `partials` instead.
///
/// # Safety
///
/// If `opens` is `false`, the partial results must have been written.
#[inline(always)]
unsafe fn accumulate_group<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    partials: &mut [MaybeUninit<F::Partial>],
    rows: [&[T]; GROUP],
    first: usize,
    opens: bool,
) {
    let width = partials.len();
    let rows = rows.map(|row| &row[..width]);
    let rest = |mut partial, column: usize| {
        for (index, row) in rows.iter().enumerate().skip(1) {
            partial = F::step::<FMA>(partial, row[column], first + index);
        }
        partial
    };
    if opens {
        for column in 0..width {
            partials[column].write(rest(F::open(rows[0][column], first), column));
        }
    } else {
        for column in 0..width {
            // SAFETY: the caller upholds this function's contract.
            let before = unsafe { partials[column].assume_init() };
            let partial = F::step::<FMA>(before, rows[0][column], first);
            partials[column].write(rest(partial, column));
        }
    }
}

/// Merges a block of `count` rows into `totals`. If the block is the first one, writes `totals`
/// instead.
///
/// # Safety
///
/// All partial results must have been written. Unless the block is the first one, all totals must
/// have been written.
#[inline(always)]
unsafe fn close<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    totals: &mut [MaybeUninit<F::Total>],
    partials: &[MaybeUninit<F::Partial>],
    is_first: bool,
    count: usize,
) {
    if is_baseline::<FMA>() {
        for column in 0..totals.len() {
            let column = rolled::<FMA>(column);
            let slot = &mut totals[column];
            // SAFETY: the caller upholds this function's contract.
            let own = F::total(unsafe { partials[column].assume_init() }, count);
            slot.write(match is_first {
                true => own,
                // SAFETY: by this function's contract, the totals have been written.
                false => F::merge::<FMA>(unsafe { slot.assume_init() }, own),
            });
        }
        return;
    }
    let pairs = totals.iter_mut().zip(partials);
    // There are two loops without a branch, instead of one loop with a branch.
    if is_first {
        for (total, partial) in pairs {
            // SAFETY: the caller upholds this function's contract.
            total.write(F::total(unsafe { partial.assume_init() }, count));
        }
    } else {
        for (total, partial) in pairs {
            // SAFETY: the caller upholds this function's contract.
            let (before, partial) = unsafe { (total.assume_init(), partial.assume_init()) };
            total.write(F::merge::<FMA>(before, F::total(partial, count)));
        }
    }
}

/// Merges the first `count` totals of `right` into the first `count` totals of `left`.
///
/// # Safety
///
/// The first `count` totals of `left` and `right` must have been written.
pub unsafe fn merge<F: Reducer<T>, T: AnyElement>(
    left: &mut Scratch,
    right: &Scratch,
    count: usize,
) {
    // SAFETY: the caller upholds this function's contract.
    let (left, right) = unsafe {
        (
            typed_mut::<F::Total>(left, count),
            typed::<F::Total>(right, count),
        )
    };
    for (left, right) in left.iter_mut().zip(right) {
        // SAFETY: by this function's contract, the totals have been written.
        let (one, other) = unsafe { (left.assume_init(), right.assume_init()) };
        left.write(F::merge::<false>(one, other));
    }
}

/// Writes the results of `count` totals, each of `length` elements.
///
/// # Safety
///
/// The totals must have been written. `out` must be writable for `count` results, and no other code
/// may access it.
#[inline(always)]
unsafe fn finish<F: Reducer<T>, T: AnyElement>(
    totals: &Scratch,
    length: usize,
    out: *mut u8,
    count: usize,
) {
    let out: *mut F::Output = out.cast();
    // SAFETY: the caller upholds this function's contract.
    for (index, total) in unsafe { typed::<F::Total>(totals, count) }
        .iter()
        .enumerate()
    {
        // SAFETY: the caller upholds this function's contract.
        unsafe { out.add(index).write(F::finish(total.assume_init(), length)) };
    }
}

/// Returns the first `count` values of type `P` in scratch memory.
///
/// # Safety
///
/// The memory must have space for `count` values. The alignment of `P` must be at most the
/// alignment of [`Scratch`].
#[inline(always)]
unsafe fn typed<P>(scratch: &Scratch, count: usize) -> &[MaybeUninit<P>] {
    // SAFETY: the caller upholds this function's contract.
    unsafe { std::slice::from_raw_parts(scratch.as_ptr().cast(), count) }
}

/// # Safety
///
/// The contract of [`typed`] must hold.
#[inline(always)]
unsafe fn typed_mut<P>(scratch: &mut Scratch, count: usize) -> &mut [MaybeUninit<P>] {
    // SAFETY: the caller upholds this function's contract.
    unsafe { std::slice::from_raw_parts_mut(scratch.as_mut_ptr().cast(), count) }
}

/// # Safety
///
/// The elements must exist at `values`, and no code may write to them.
#[inline(always)]
unsafe fn part<'a, T>(values: *const T, start: usize, count: usize) -> &'a [T] {
    // SAFETY: the caller upholds this function's contract.
    unsafe { std::slice::from_raw_parts(values.add(start), count) }
}
