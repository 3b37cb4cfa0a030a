//! Fourier transforms by the crates `rustfft` and `realfft`, which `cachescope-fft`
//! compiles.
//!
//! The crates transform rows without gaps. If a row is contiguous in the operand and in the result,
//! it is transformed directly into the result. Along other axes, a few adjacent rows are gathered,
//! transformed in the cache and scattered to the result. So each element is read and written once,
//! and no array is allocated except the result. The scratch memory of each thread is the device's;
//! the tables of roots of unity are the crates' own.
//!
//! One thread transforms a row, in a way that does not depend on other rows. So results do not
//! depend on the number of threads.

mod rows;
mod space;

use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use cachescope_fft::{Direction, OutOfMemory};
use num_complex::Complex;

use self::rows::{ComplexRows, ForwardRows, InverseRows, PIECE, RowTransform};
use self::space::{RowTiles, Space};
use super::launch::{Work, launch};
use super::memory::begun;
use super::pointers::{ReadPtr, WritePtr, elements_of, written_by};
use crate::array::{Array, Layout, Number, Shape, Walk};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::descriptors::{Sample, pairs};
use crate::ops::order::HostOrder;
use cachescope_kernels::moves::copies::copy_all;

/// Returns the transforms of `x` along its axis `at`, times `factor`.
#[track_caller]
pub(in crate::ops) fn transformed<T: Sample>(
    order: HostOrder<'_>,
    x: &Array<Complex<T>>,
    at: usize,
    direction: Direction,
    factor: Option<T>,
) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    let shape = x.layout().shape();
    let plan = planned("fft", T::plan(shape.dims()[at], direction))?;
    along(order, x, at, shape, &ComplexRows { plan, factor })
}

/// Returns the transforms of the matrices of `x` along both axes, times `factor`.
#[track_caller]
pub(in crate::ops) fn transformed_planes<T: Sample>(
    order: HostOrder<'_>,
    x: &Array<Complex<T>>,
    direction: Direction,
    factor: Option<T>,
) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    let (shape, last) = (x.layout().shape(), x.ndim() - 1);
    let plan = planned("fft2", T::plan(shape.dims()[last - 1], direction))?;
    let rows = transformed(order, x, last, direction, factor)?;
    // The array is new, and its columns are read before they are written to.
    let columns = ComplexRows { plan, factor: None };
    let lanes = FftLanes::new(rows.layout(), rows.layout(), last - 1);
    let to = WritePtr::over(host_pointer(DevicePtr(rows.buffer().address())).cast());
    // SAFETY: the lanes are all lanes of one new array, whose first writes are launched on this
    // stream.
    unsafe { transform(order, &columns, &lanes, elements_of(&rows), to, false) }?;
    Ok(rows)
}

/// Returns the spectra of the real numbers along the axis `at` of `x`, as an array of `shape`. It
/// has the first half of each spectrum.
#[track_caller]
pub(in crate::ops) fn spectra_of<T: Sample>(
    order: HostOrder<'_>,
    x: &Array<T>,
    at: usize,
    shape: &Shape,
) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    let plan = planned("rfft", T::plan_forward(x.shape()[at]))?;
    along(order, x, at, shape, &ForwardRows { plan })
}

/// Returns an array of `shape`: the real numbers whose spectra begin with the numbers along the
/// axis `at` of `x`. They are multiplied by `factor`.
#[track_caller]
pub(in crate::ops) fn reals_of<T: Sample>(
    order: HostOrder<'_>,
    x: &Array<Complex<T>>,
    at: usize,
    shape: &Shape,
    factor: T,
) -> Result<Array<T>>
where
    Complex<T>: Number<Part = T>,
{
    let plan = planned("irfft", T::plan_inverse(shape.dims()[at]))?;
    let width = x.shape()[at];
    let rows = InverseRows {
        plan,
        width,
        factor,
    };
    along(order, x, at, shape, &rows)
}

#[track_caller]
fn planned<P>(operation: &str, plan: std::result::Result<P, OutOfMemory>) -> Result<P> {
    plan.map_err(|_| {
        let text = format!("{operation}: the host has no memory for the roots of unity");
        Error::new(ErrorKind::OutOfMemory, text)
    })
}

#[track_caller]
fn along<R: RowTransform>(
    order: HostOrder<'_>,
    x: &Array<R::From>,
    at: usize,
    shape: &Shape,
    rows: &R,
) -> Result<Array<R::To>> {
    assert_eq!([x.shape()[at], shape.dims()[at]], rows.lengths());
    let lanes = FftLanes::new(x.layout(), &Layout::contiguous(shape)?, at);
    // SAFETY: the lanes are all of the array.
    let (array, output) = unsafe { begun(order.device, shape) }?;
    // SAFETY: the lanes are within both arrays, and the one that is written is new.
    unsafe {
        let to = written_by(&output);
        transform(order, rows, &lanes, elements_of(x), to, true)
    }?;
    Ok(array)
}

/// The rows along an axis of two arrays, whose shapes are equal except for the length of this axis.
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

/// Launches the transforms of all rows. `is_apart` is `true` if the rows are written to another
/// array than they are read from.
///
/// # Safety
///
/// `lanes` must be within both arrays, and reach each element of the written array once. If the two
/// arrays are one, its elements are read before they are written. Nobody else may be about to write
/// to them.
#[track_caller]
unsafe fn transform<R: RowTransform>(
    order: HostOrder<'_>,
    rows: &R,
    lanes: &FftLanes,
    from: ReadPtr<R::From>,
    to: WritePtr<R::To>,
    is_apart: bool,
) -> Result<()> {
    let is_direct = is_apart && lanes.steps == [1, 1];
    let count = lanes.firsts.count();
    let space = Space::new(order.device, rows, count, is_direct)?;
    let [read, written] = rows.lengths();
    let row_bytes = read * size_of::<R::From>() + written * size_of::<R::To>();
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
            // SAFETY: the memory is alive while a launch runs. The ranges of a launch do not
            // overlap, so each has the slot of its first part to itself. The caller keeps the rest.
            unsafe {
                if is_direct {
                    transform_direct(rows, lanes, range, (*from, *to), slots.scratch(parts.start));
                } else {
                    let (scratch, tiles) = slots.both(parts.start);
                    transform_by_tiles(rows, lanes, range, (*from, *to), scratch, tiles);
                }
            }
        },
    );
    Ok(())
}

/// Transforms the rows of the numbers `range`, which are contiguous in both arrays.
///
/// # Safety
///
/// The rows must be alive, and the rows that are written must be the caller's alone.
unsafe fn transform_direct<R: RowTransform>(
    rows: &R,
    lanes: &FftLanes,
    range: Range<usize>,
    (from, to): (ReadPtr<R::From>, WritePtr<R::To>),
    scratch: &mut [Complex<R::Sample>],
) {
    let [read, written] = rows.lengths();
    // SAFETY: both arrays have `count` rows from these elements on, by this function's contract.
    let mut transform = |[at, target]: [usize; 2], count: usize| unsafe {
        let from = from_raw_parts(from.at(at), count * read);
        let to = from_raw_parts_mut(to.at(target), count * written);
        rows.transform(from, to, scratch);
    };
    let (_, strides) = lanes.firsts.row();
    let is_dense = strides == [read as isize, written as isize];
    // If rows are short, a call for several takes little longer than a call for one.
    let together = (PIECE / read.max(written)).max(1);
    for (first, count) in lanes.firsts.runs(range) {
        let each = if is_dense { together } else { 1 };
        for start in (0..count).step_by(each) {
            let at = |side: usize| first[side].wrapping_add_signed(start as isize * strides[side]);
            transform([at(0), at(1)], each.min(count - start));
        }
    }
}

/// Transforms the rows of the numbers `range`, several at a time. They are gathered in one tile,
/// and scattered from another one to the result.
///
/// # Safety
///
/// As for [`transform_direct`]; nobody else may have the tiles.
unsafe fn transform_by_tiles<R: RowTransform>(
    rows: &R,
    lanes: &FftLanes,
    range: Range<usize>,
    (from, to): (ReadPtr<R::From>, WritePtr<R::To>),
    scratch: &mut [Complex<R::Sample>],
    tiles: RowTiles<R>,
) {
    let lengths @ [read, written] = rows.lengths();
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
            // The axis without gaps in the array is the inner one.
            let axes = if to_step == 1 {
                [across, along]
            } else {
                [along, across]
            };
            let scattered = Walk::over([0, target], axes);
            let sizes = lengths.map(|length| length * height);
            // SAFETY: both arrays and the tiles have `height` rows, by this function's contract.
            // Each tile is written before it is read.
            unsafe {
                copy_all(from, WritePtr::over(tiles.from.cast()), &gathered);
                rows.transform(
                    from_raw_parts(tiles.from, sizes[0]),
                    from_raw_parts_mut(tiles.to.cast(), sizes[1]),
                    scratch,
                );
                copy_all(ReadPtr::over(tiles.to), to, &scattered);
            }
        }
    }
}
