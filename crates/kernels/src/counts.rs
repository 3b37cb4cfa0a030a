//! Counts of elements by number and by range.

use std::ops::Range;

use crate::compiled::COMPILED_TYPES;
use crate::compiled_or;
use crate::vector::{Loop, vectorised};
use crate::walk::Walk;
use crate::{AnyElement, DType, Float, Integer};

/// The number of tables for fewer than [`MANY`] counts. With several tables, the count of an
/// element does not wait for the count of an equal element before it.
const TABLES: usize = 4;

/// The minimum number of counts for which one table is enough.
const MANY: usize = 1 << 12;

/// Loops over the integers of one type. In each loop, the walk determines the addresses of the
/// integers. The integers must be readable, and of this type.
#[derive(Debug)]
pub struct IntegerLoops {
    /// The type of the integers.
    pub element: DType,
    /// Adds the number of occurrences of each integer to the first table of counts (see
    /// [`tables_length`]). Stops at the first integer that has no count, and returns it.
    pub count: unsafe fn(*const u8, &Walk<1>, &mut [i64], usize) -> Option<i128>,
    /// Returns the first integer outside of a range.
    pub first_outside: unsafe fn(*const u8, &Walk<1>, Range<i64>) -> Option<i128>,
}

/// Loops that count the floating-point numbers of one type.
#[derive(Debug)]
pub struct BinLoops {
    /// The type of the numbers.
    pub element: DType,
    /// Rounds a number to the type.
    pub round: fn(f64) -> f64,
    /// Adds the number of elements between each two adjacent edges to the first table of counts
    /// (see [`tables_length`]). There is one edge more than counts, and no element is beyond the
    /// edges. The walk determines the addresses of the elements. The elements must be readable, and
    /// of this type.
    pub count: unsafe fn(*const u8, &Walk<1>, &mut [i64], &[f64]),
}

static BINS: [BinLoops; COMPILED_TYPES] = [BinLoops::of::<f32>(), BinLoops::of::<f64>()];

/// Returns the loops over integers of `T`.
pub const fn integer_loops_of<T: Integer>() -> &'static IntegerLoops {
    const { &IntegerLoops::of::<T>() }
}

/// Returns the loops that count numbers of `T`.
pub const fn bin_loops_of<T: Float>() -> &'static BinLoops {
    compiled_or!(T, BINS, BinLoops::of::<T>())
}

impl IntegerLoops {
    const fn of<T: Integer>() -> Self {
        Self {
            element: T::DTYPE,
            count: count::<T>,
            first_outside: first_outside::<T>,
        }
    }
}

impl BinLoops {
    const fn of<T: Float>() -> Self {
        Self {
            element: T::DTYPE,
            round: |number| T::from_f64(number).to_f64(),
            count: count_between::<T>,
        }
    }
}

/// Returns the length of the list of zeros that a loop needs for `length` counts. The list consists
/// of one or more tables of counts. The loop adds all tables to the first one.
pub fn tables_length(length: usize) -> usize {
    if length < MANY {
        length * TABLES
    } else {
        length
    }
}

/// # Safety
///
/// As for [`IntegerLoops::count`].
unsafe fn count<T: Integer>(
    integers: *const u8,
    walk: &Walk<1>,
    tables: &mut [i64],
    length: usize,
) -> Option<i128> {
    // As `u64`, a negative integer is a large number.
    let place = |integer: T| usize::try_from(T::into_u64(integer)).unwrap_or(usize::MAX);
    // SAFETY: by this function's contract.
    let outcome = unsafe { tally(integers.cast::<T::Raw>(), walk, tables, length, place) };
    outcome.err().map(wide)
}

/// # Safety
///
/// As for [`BinLoops::count`].
unsafe fn count_between<T: Float>(
    numbers: *const u8,
    walk: &Walk<1>,
    tables: &mut [i64],
    edges: &[f64],
) {
    let bin = bin_among::<T>(edges);
    // SAFETY: by this function's contract.
    let outcome = unsafe { tally(numbers.cast::<T::Raw>(), walk, tables, edges.len() - 1, bin) };
    assert!(outcome.is_ok(), "a number has no bin");
}

/// Returns a function that finds the bin of a number. The function estimates the bin from the
/// common width of the bins, and corrects the estimate by the edges.
fn bin_among<T: Float>(edges: &[f64]) -> impl Fn(T) -> usize {
    let last = edges.len() - 2;
    let scale = (last + 1) as f64 / (edges[last + 1] - edges[0]);
    move |number: T| {
        let number = number.to_f64();
        // Rust's `as` converts negative numbers to 0.
        let mut bin = (((number - edges[0]) * scale) as usize).min(last);
        while bin > 0 && number < edges[bin] {
            bin -= 1;
        }
        while bin < last && number >= edges[bin + 1] {
            bin += 1;
        }
        bin
    }
}

/// Adds the number of elements with each value of `place` to the first table. If `place` of an
/// element is not below `length`, returns the element.
///
/// # Safety
///
/// The walk's elements must be readable, and of `T`.
unsafe fn tally<T: AnyElement>(
    elements: *const T::Raw,
    walk: &Walk<1>,
    tables: &mut [i64],
    length: usize,
    place: impl Fn(T) -> usize,
) -> Result<(), T> {
    assert_eq!(
        tables.len(),
        tables_length(length),
        "the tables and the counts differ in length"
    );
    // SAFETY: by this function's contract.
    unsafe {
        match length < MANY {
            true => tally_in::<T, TABLES>(elements, walk, tables, length, &place),
            false => tally_in::<T, 1>(elements, walk, tables, length, &place),
        }
    }
}

/// Like [`tally`], but with `COUNT` tables.
///
/// # Safety
///
/// As for [`tally`].
unsafe fn tally_in<T: AnyElement, const COUNT: usize>(
    elements: *const T::Raw,
    walk: &Walk<1>,
    tables: &mut [i64],
    length: usize,
    place: &impl Fn(T) -> usize,
) -> Result<(), T> {
    let mut rest = &mut *tables;
    let mut parts: [&mut [i64]; COUNT] = std::array::from_fn(|_| {
        let (part, others) = std::mem::take(&mut rest).split_at_mut(length);
        rest = others;
        part
    });
    let (_, [stride]) = walk.row();
    for ([first], count) in walk.runs(0..walk.count()) {
        // SAFETY: by this function's contract, the walk has these elements.
        let row = |stride| unsafe { row(elements, first, stride, count) };
        match stride {
            1 => tally_row(row(1), &mut parts, place)?,
            _ => tally_row(row(stride), &mut parts, place)?,
        }
    }
    let (sums, others) = tables.split_at_mut(length);
    for table in others.chunks_exact(length.max(1)) {
        let pairs = sums.iter_mut().zip(table);
        pairs.for_each(|(sum, count)| *sum += count);
    }
    Ok(())
}

#[inline(always)]
fn tally_row<T: AnyElement, const COUNT: usize>(
    mut row: impl Iterator<Item = T>,
    tables: &mut [&mut [i64]; COUNT],
    place: &impl Fn(T) -> usize,
) -> Result<(), T> {
    loop {
        for counts in &mut *tables {
            let Some(element) = row.next() else {
                return Ok(());
            };
            match counts.get_mut(place(element)) {
                Some(count) => *count += 1,
                None => return Err(element),
            }
        }
    }
}

/// Returns `count` elements from the index `first` on, `stride` indices apart.
///
/// # Safety
///
/// The returned elements must be readable, and of `T`.
#[inline(always)]
unsafe fn row<T: AnyElement>(
    elements: *const T::Raw,
    first: usize,
    stride: isize,
    count: usize,
) -> impl Iterator<Item = T> + Clone {
    let first = elements.wrapping_add(first);
    (0..count).map(move |number| {
        // SAFETY: by this function's contract. Every bit pattern is a valid `Raw`.
        T::from_raw(unsafe { first.wrapping_offset(number as isize * stride).read() })
    })
}

/// # Safety
///
/// As for [`IntegerLoops::first_outside`].
unsafe fn first_outside<T: Integer>(
    integers: *const u8,
    walk: &Walk<1>,
    range: Range<i64>,
) -> Option<i128> {
    let integers = integers.cast::<T::Raw>();
    let (_, [stride]) = walk.row();
    let mut runs = walk.runs(0..walk.count());
    let outside = runs.find_map(|([first], count)| {
        // SAFETY: by this function's contract, the walk has these integers.
        let row = |stride| unsafe { row::<T>(integers, first, stride, count) };
        // First checks all integers of the row without a branch. If all are inside, the slower
        // search for an integer outside is unnecessary.
        let are_inside = match stride {
            1 => vectorised(AllInside(row(1), &range), &mut ()),
            _ => AllInside(row(stride), &range).check(),
        };
        match are_inside {
            true => None,
            false => row(stride).find(|&integer| !is_inside::<T>(integer, &range)),
        }
    });
    outside.map(wide)
}

/// The check that all integers are inside a range.
struct AllInside<'r, I>(I, &'r Range<i64>);

impl<T: Integer, I: Iterator<Item = T>> AllInside<'_, I> {
    #[inline(always)]
    fn check(self) -> bool {
        let Self(integers, range) = self;
        integers.fold(true, |all, integer| all & is_inside(integer, range))
    }
}

impl<T: Integer, I: Iterator<Item = T>> Loop<()> for AllInside<'_, I> {
    type Result = bool;

    #[inline(always)]
    fn run<const FMA: bool>(self, (): &mut ()) -> bool {
        self.check()
    }
}

#[inline(always)]
fn is_inside<T: Integer>(integer: T, range: &Range<i64>) -> bool {
    let is_negative = integer < T::zero();
    let is_above = is_negative & (T::into_i64(integer) >= range.start);
    let is_below = !is_negative & (T::into_u64(integer) < range.end as u64);
    is_above | is_below
}

fn wide<T: Integer>(integer: T) -> i128 {
    match integer < T::zero() {
        true => T::into_i64(integer).into(),
        false => T::into_u64(integer).into(),
    }
}
