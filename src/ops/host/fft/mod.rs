//! Fourier transforms by the crates `rustfft` and `realfft`, which `cachescope-fft`
//! compiles.
//!
//! The crates transform rows without gaps. If a row is contiguous in the operand and in the result,
//! it is transformed directly into the result. Otherwise, a few adjacent rows are gathered,
//! transformed in the cache and scattered to the result. So each element is read and written once,
//! and no array is allocated except the result. The scratch memory of each thread is in the
//! device's memory. The crates themselves allocate the tables of roots of unity.
//!
//! One thread transforms a row, independently of other rows. So results do not depend on the number
//! of threads.

mod rows;
mod space;

use std::ops::Range;

use cachescope_fft::{Direction, OrOutOfMemory};

use self::rows::{FftRows, PIECE, complex_rows, forward_rows, inverse_rows};
use self::space::{RowTiles, Space};
use super::launch::{Work, launch};
use super::memory::begun;
use super::pointers::{ReadPtr, WritePtr, bytes_of, bytes_written};
use crate::array::{AnyArray, Layout, Shape, Walk};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::descriptors::pairs;
use crate::ops::expression::tree::Operand;
use crate::ops::order::HostOrder;
use cachescope_kernels::moves::copies::{CopyParts, copy_parts};

/// Returns the transforms of `x` along the axis `at`, multiplied by `factor`.
#[track_caller]
pub(in crate::ops) fn transformed(
    order: HostOrder<'_>,
    x: Operand<'_>,
    at: usize,
    direction: Direction,
    factor: Option<f64>,
) -> Result<AnyArray> {
    let shape = x.layout.shape();
    let rows = complex_rows(x.dtype, shape.dims()[at], direction, factor);
    along(order, x, at, shape, &planned("fft", rows)?)
}

/// Returns the two-dimensional transforms of the matrices of `x`, multiplied by `factor`.
#[track_caller]
pub(in crate::ops) fn transformed_planes(
    order: HostOrder<'_>,
    x: Operand<'_>,
    direction: Direction,
    factor: Option<f64>,
) -> Result<AnyArray> {
    let (shape, last) = (x.layout.shape(), x.layout.ndim() - 1);
    let columns = complex_rows(x.dtype, shape.dims()[last - 1], direction, None);
    let columns = planned("fft2", columns)?;
    let rows = transformed(order, x, last, direction, factor)?;
    // The columns are transformed in place. No other code uses the array, because it is new. Each
    // column is read before its transform is written.
    let lanes = FftLanes::new(&rows.layout, &rows.layout, last - 1);
    let from = bytes_of(rows.operand());
    let to = WritePtr::over(from.at(0).cast_mut().cast());
    // SAFETY: the lanes are all columns of one new array. This stream is ordered after the launch
    // that wrote the array's rows.
    unsafe { transform(order, &columns, &lanes, from, to, false) }?;
    Ok(rows)
}

/// Returns the spectra of the real elements of `x` along the axis `at`. The result has `shape`, and
/// contains the first half of each spectrum.
#[track_caller]
pub(in crate::ops) fn spectra_of(
    order: HostOrder<'_>,
    x: Operand<'_>,
    at: usize,
    shape: &Shape,
) -> Result<AnyArray> {
    let rows = forward_rows(x.dtype, x.layout.dims()[at]);
    along(order, x, at, shape, &planned("rfft", rows)?)
}

/// Returns the inverse transforms of half spectra: an array of `shape`, of real numbers. The
/// elements of `x` along the axis `at` are the first half of each spectrum. The results are
/// multiplied by `factor`.
#[track_caller]
pub(in crate::ops) fn reals_of(
    order: HostOrder<'_>,
    x: Operand<'_>,
    at: usize,
    shape: &Shape,
    factor: f64,
) -> Result<AnyArray> {
    let lengths = [x.layout.dims()[at], shape.dims()[at]];
    let rows = inverse_rows(x.dtype, lengths, factor);
    along(order, x, at, shape, &planned("irfft", rows)?)
}

#[track_caller]
fn planned(operation: &str, rows: OrOutOfMemory<FftRows>) -> Result<FftRows> {
    rows.map_err(|_| {
        let text = format!("{operation}: the host has no memory for the roots of unity");
        Error::new(ErrorKind::OutOfMemory, text)
    })
}

#[track_caller]
fn along(
    order: HostOrder<'_>,
    x: Operand<'_>,
    at: usize,
    shape: &Shape,
    rows: &FftRows,
) -> Result<AnyArray> {
    let [from, to] = rows.dtypes;
    assert_eq!([x.layout.dims()[at], shape.dims()[at]], rows.lengths);
    assert_eq!(x.dtype, from, "the rows differ in type from the plan");
    let lanes = FftLanes::new(x.layout, &Layout::contiguous(shape)?, at);
    // SAFETY: the lanes cover the whole array.
    let (array, output) = unsafe { begun(order.device, shape, to) }?;
    // SAFETY: the lanes are within both arrays, and the written array is new.
    unsafe {
        transform(
            order,
            rows,
            &lanes,
            bytes_of(x),
            bytes_written(&output),
            true,
        )
    }?;
    Ok(array)
}

/// The rows along an axis of two arrays. The shapes are equal, except for the length of this axis.
#[derive(Clone, Copy)]
struct FftLanes {
    /// A walk over the first elements of the rows of both arrays.
    firsts: Walk<2>,
    /// The steps from one element of a row to the next, in both arrays.
    steps: [isize; 2],
}

impl FftLanes {
    fn new(from: &Layout, to: &Layout, at: usize) -> Self {
        let others = pairs(from, to).enumerate();
        let others = others.filter(|&(axis, _)| axis != at).map(|(_, pair)| pair);
        // The step of a single element does not matter.
        let step = |layout: &Layout| match layout.dims()[at] {
            1 => 1,
            _ => layout.strides()[at],
        };
        Self {
            firsts: Walk::over([from.offset(), to.offset()], others),
            steps: [step(from), step(to)],
        }
    }
}

/// Launches the transforms of all rows. `is_apart` is `true` if the read array and the written
/// array are different.
///
/// # Safety
///
/// `lanes` must be within both arrays, and visit each element of the written array once. If the two
/// arrays are one, its elements are read before they are written. No other pending work may write
/// to the arrays.
#[track_caller]
unsafe fn transform(
    order: HostOrder<'_>,
    rows: &FftRows,
    lanes: &FftLanes,
    from: ReadPtr<u8>,
    to: WritePtr<u8>,
    is_apart: bool,
) -> Result<()> {
    let is_direct = is_apart && lanes.steps == [1, 1];
    let count = lanes.firsts.count();
    let space = Space::new(order.device, rows, count, is_direct)?;
    let row_bytes: usize = rows.row_bytes().iter().sum();
    // The approximate cost of a transform, in passes over the row.
    let rounds = 2 + row_bytes.ilog2() as usize / 4;
    let each = space.each;
    let part_bytes = each.saturating_mul(row_bytes).saturating_mul(rounds);
    let work = Work::of_bytes(count.div_ceil(each), part_bytes);
    let reads = (rows.clone(), *lanes, from);
    let writes = (to, space.slots);
    launch(
        order,
        work,
        (&reads, &writes),
        move |(rows, lanes, from), (to, slots), parts| {
            let range = parts.start * each..count.min(parts.end * each);
            // SAFETY: the memory is alive during a launch. Each range uses the slot of its first
            // part. The ranges of a launch do not overlap, so no two ranges use one slot. By this
            // function's contract, `lanes` is within both arrays, and no other work writes to them.
            unsafe {
                let scratch = slots.scratch(parts.start);
                if is_direct {
                    transform_direct(rows, lanes, range, (*from, *to), scratch);
                } else {
                    let tiles = slots.tiles(parts.start);
                    transform_by_tiles(rows, lanes, range, (*from, *to), (scratch, tiles));
                }
            }
        },
    );
    Ok(())
}

/// Transforms the rows with the indices `range`. They are contiguous in both arrays.
///
/// # Safety
///
/// The rows must be alive. Nothing else may access the written rows.
unsafe fn transform_direct(
    rows: &FftRows,
    lanes: &FftLanes,
    range: Range<usize>,
    (from, to): (ReadPtr<u8>, WritePtr<u8>),
    scratch: *mut u8,
) {
    let [read, written] = rows.lengths;
    let [read_bytes, written_bytes] = rows.element_bytes();
    let (_, strides) = lanes.firsts.row();
    let is_dense = strides == [read as isize, written as isize];
    // If rows are short, a call for several takes little longer than a call for one.
    let together = (PIECE / read.max(written)).max(1);
    for (first, count) in lanes.firsts.runs(range) {
        let each = if is_dense { together } else { 1 };
        for start in (0..count).step_by(each) {
            let at = |side: usize| first[side].wrapping_add_signed(start as isize * strides[side]);
            let height = each.min(count - start);
            let (from, to) = (from.at(at(0) * read_bytes), to.at(at(1) * written_bytes));
            // SAFETY: both arrays have `height` rows from these elements on, by this function's
            // contract.
            unsafe { rows.transform(height, from, to.cast(), scratch) };
        }
    }
}

/// Transforms the rows with the indices `range`, several at a time. The rows are gathered in one
/// tile. Their transforms are scattered from another tile to the result.
///
/// # Safety
///
/// The contract of [`transform_direct`] applies. Nothing else may access the tiles.
unsafe fn transform_by_tiles(
    rows: &FftRows,
    lanes: &FftLanes,
    range: Range<usize>,
    (from, to): (ReadPtr<u8>, WritePtr<u8>),
    (scratch, tiles): (*mut u8, RowTiles),
) {
    let [read, written] = rows.lengths;
    let [read_bytes, written_bytes] = rows.element_bytes();
    let [step, to_step] = lanes.steps;
    let (_, [apart, to_apart]) = lanes.firsts.row();
    for ([at, target], count) in lanes.firsts.runs(range) {
        for start in (0..count).step_by(tiles.rows) {
            let height = tiles.rows.min(count - start);
            let at = at.wrapping_add_signed(start as isize * apart);
            let target = target.wrapping_add_signed(start as isize * to_apart);
            let along = (read, [step, 1]);
            let gathered = Walk::over([at, 0], [(height, [apart, read as isize]), along]);
            let across = (height, [written as isize, to_apart]);
            let along = (written, [1, to_step]);
            // If rows are contiguous in the result, the inner axis is along the rows. Otherwise, it
            // is across the rows.
            let axes = if to_step == 1 {
                [across, along]
            } else {
                [along, across]
            };
            let scattered = Walk::over([0, target], axes);
            // SAFETY: both arrays and the tiles have `height` rows, by this function's contract.
            // Each tile is written before it is read.
            unsafe {
                let tile = WritePtr::over(tiles.from.cast());
                copy_all(read_bytes, from, tile, &gathered);
                rows.transform(height, tiles.from, tiles.to, scratch);
                copy_all(written_bytes, ReadPtr::over(tiles.to), to, &scattered);
            }
        }
    }
}

/// Copies the elements that `walk` visits. Each element has `bytes` bytes.
///
/// # Safety
///
/// The contract of [`copy_parts`] applies.
unsafe fn copy_all(bytes: usize, from: ReadPtr<u8>, to: WritePtr<u8>, walk: &Walk<2>) {
    let parts = CopyParts::of(walk);
    // SAFETY: by this function's contract.
    unsafe { copy_parts(bytes, &parts, 0..parts.count(), from, to) };
}
