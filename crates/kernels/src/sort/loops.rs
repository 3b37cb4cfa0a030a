//! The tables of loops that sort lanes. A table is for one element type.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::choose::choose_lane;
use super::lanes::{Lane, Lanes};
use super::{RowPair, rank_lane, sort_lane};
use crate::compiled::COMPILED_TYPES;
use crate::compiled_or;
use crate::sort::digits::Rank;
use crate::vector::{Loop, vectorised};
use crate::{AnyElement, DType, Element, Float};

/// The memory of the two rows of items that a lane's task needs.
#[derive(Debug)]
pub struct Rows {
    /// The address of the first row, which has [`Task::slots`](super::Task::slots) slots.
    pub items: *mut u8,
    /// The address of the second row, which may be empty.
    pub spare: *mut u8,
    pub spare_slots: usize,
}

/// A function that reads a lane of elements and writes a lane. Rows of items are its scratch
/// memory.
///
/// The elements must be of the loop's type and readable. Only the caller may access the written
/// lane. The rows must be aligned, and no other code may access them.
type LaneLoop = unsafe fn(&Lanes, *const u8, *mut u8, &Rows);

/// A loop with the size of its items.
#[derive(Clone, Copy, Debug)]
pub struct LaneKernel {
    pub run: LaneLoop,
    pub item_bytes: usize,
}

impl LaneKernel {
    pub const fn of<R: Rank>(run: LaneLoop) -> Self {
        Self {
            run,
            item_bytes: size_of::<R>(),
        }
    }
}

/// The loops for items of 64 bits and for items of 128 bits.
#[derive(Debug)]
pub struct Widths {
    /// The loop for items of 64 bits. If a key needs more than half of an item, the field is
    /// `None`.
    narrow: Option<LaneLoop>,
    wide: LaneLoop,
}

impl Widths {
    /// Returns the loop for the shortest items that have space for a key and a position below
    /// `length`.
    pub fn for_length(&self, length: usize) -> LaneKernel {
        match self.narrow {
            Some(narrow) if u32::try_from(length).is_ok() => LaneKernel::of::<u64>(narrow),
            _ => LaneKernel::of::<u128>(self.wide),
        }
    }
}

/// The loops that sort lanes of elements of one type.
#[derive(Debug)]
pub struct SortLoops {
    pub element: DType,
    pub sort: Widths,
    pub rank: Widths,
    /// The loop that writes two elements by their rank. Only floats have this loop.
    pub choose: Option<LaneLoop>,
    pub firsts: FirstsLoop,
}

/// A function that writes a flag for each element of a range of sorted elements. A flag is `true`
/// for the first element of each group of equal elements.
///
/// The elements must be of the loop's type and readable. Only the caller may access the flags of
/// the range.
type FirstsLoop = unsafe fn(*const u8, *mut u8, Range<usize>);

impl SortLoops {
    const fn of<T: Element>() -> Self {
        let is_short = size_of::<T>() <= 4;
        Self {
            element: T::DTYPE,
            sort: Widths {
                narrow: if is_short { Some(sort::<T, u64>) } else { None },
                wide: sort::<T, u128>,
            },
            rank: Widths {
                narrow: if is_short { Some(rank::<T, u64>) } else { None },
                wide: rank::<T, u128>,
            },
            choose: None,
            firsts: firsts::<T>,
        }
    }

    const fn of_floats<T: Float>() -> Self {
        Self {
            choose: Some(choose::<T>),
            ..Self::of::<T>()
        }
    }
}

/// The loops that are compiled with the library, for `f32` and `f64`.
static COMPILED: [SortLoops; COMPILED_TYPES] =
    [SortLoops::of_floats::<f32>(), SortLoops::of_floats::<f64>()];

/// Returns the loops that sort elements of `T`.
pub const fn sort_loops_of<T: Element>() -> &'static SortLoops {
    compiled_or!(T, COMPILED, SortLoops::of::<T>())
}

/// Returns the loops of a float type. These loops can also select by rank.
pub const fn float_sort_loops_of<T: Float>() -> &'static SortLoops {
    compiled_or!(T, COMPILED, SortLoops::of_floats::<T>())
}

/// # Safety
///
/// The contract of a [`LaneLoop`] must hold.
unsafe fn sort<T: Element, R: Rank>(lanes: &Lanes, from: *const u8, to: *mut u8, rows: &Rows) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { sort_lane(lane::<T, T>(lanes, from, to), row_pair::<R>(lanes, rows)) };
}

/// # Safety
///
/// The contract of a [`LaneLoop`] must hold.
unsafe fn rank<T: Element, R: Rank>(lanes: &Lanes, from: *const u8, to: *mut u8, rows: &Rows) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { rank_lane(lane::<T, i64>(lanes, from, to), row_pair::<R>(lanes, rows)) };
}

/// # Safety
///
/// The contract of a [`LaneLoop`] must hold.
unsafe fn choose<T: Float>(lanes: &Lanes, from: *const u8, to: *mut u8, rows: &Rows) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { choose_lane(lane::<T, T>(lanes, from, to), row_pair::<u64>(lanes, rows)) };
}

/// # Safety
///
/// The contract of a [`FirstsLoop`] must hold.
unsafe fn firsts<T: Element>(from: *const u8, to: *mut u8, range: Range<usize>) {
    // The first element has no previous element. Its flag is set separately.
    let start = range.start.saturating_sub(1);
    // SAFETY: the caller upholds this function's contract.
    let (values, flags): (&[T], &mut [MaybeUninit<bool>]) = unsafe {
        let from: *const T = from.cast();
        (
            from_raw_parts(from.add(start), range.end - start),
            from_raw_parts_mut(to.add(range.start).cast(), range.len()),
        )
    };
    let rest = flags.len().min(values.len() - 1);
    let (head, tail) = flags.split_at_mut(flags.len() - rest);
    head.fill(MaybeUninit::new(true));
    vectorised(Firsts { values }, tail);
}

/// The loop of [`firsts`]. It compares the key of each value with the key of the previous value.
/// All NaNs have one key.
struct Firsts<'a, T> {
    values: &'a [T],
}

impl<T: Element> Loop<[MaybeUninit<bool>]> for Firsts<'_, T> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, flags: &mut [MaybeUninit<bool>]) {
        let pairs = self.values.iter().zip(&self.values[1..]);
        for (slot, (before, own)) in flags.iter_mut().zip(pairs) {
            slot.write(before.key() != own.key());
        }
    }
}

fn lane<T: Element, O: AnyElement>(lanes: &Lanes, from: *const u8, to: *mut u8) -> Lane<'_, T, O> {
    Lane {
        lanes,
        from: from.cast(),
        to: to.cast(),
    }
}

/// # Safety
///
/// The contract of a [`LaneLoop`] must hold.
unsafe fn row_pair<'a, R: Rank>(lanes: &Lanes, rows: &Rows) -> RowPair<'a, R> {
    let items: *mut MaybeUninit<R> = rows.items.cast();
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        (
            from_raw_parts_mut(items, lanes.task.slots),
            from_raw_parts_mut(rows.spare.cast(), rows.spare_slots),
        )
    }
}
