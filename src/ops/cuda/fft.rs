//! Fourier transforms by cuFFT.
//!
//! cuFFT reads and writes rows with one stride between elements and one distance between rows. If
//! an operand has no such layout, or if it would be scaled or overwritten, it is copied. If a
//! result has none, the transformed rows are written contiguously and then copied. The work area is
//! a buffer like any other.

use std::iter;

use ndarray::SliceInfoElem;
use num_complex::Complex;
use smallvec::SmallVec;

use super::copy::copied;
use super::memory::{Output, address_of, computed, laid_out};
use super::workspace::Workspace;
use crate::array::{AnyElement, Array, Layout, MAX_RANK, Number, Shape, Walk};
use crate::device::DevicePtr;
use crate::device::cuda::fft::{FftCall, FftKind, FftPlaces, FftPlan};
use crate::error::{AtCaller, Result};
use crate::ops::complex;
use crate::ops::descriptors::{Copying, Sample, pairs};
use crate::ops::order::CudaOrder;
use cachescope_transforms::Direction;

/// Returns the transforms of `x` along its axis `at`, times `factor`.
#[track_caller]
pub(in crate::ops) fn transformed<T: Sample>(
    order: CudaOrder<'_>,
    x: &Array<Complex<T>>,
    at: usize,
    direction: Direction,
    factor: Option<T>,
) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    let transform = Transform::new::<T>(FftKind::Complex, direction, at);
    let shape = x.layout().shape();
    if factor.is_none()
        && let Some(plan) = transform.plan_for(x, &Layout::contiguous(shape)?)
    {
        return transform.run(order, plan, x, shape);
    }
    let rows = in_rows(x, at, |moved| copied_or_scaled(order, moved, factor))?;
    if rows.layout().is_contiguous() {
        let plan = transform.plan(rows.layout(), rows.layout());
        let plan = plan.expect("rows stand one after another");
        transform.execute(order.touching(&()), plan, [address_of(&rows); 2])?;
        return Ok(rows);
    }
    transform.run_rows(order, &rows, shape)
}

/// Returns the transforms of the matrices of `x` along both axes, times `factor`.
#[track_caller]
pub(in crate::ops) fn transformed_planes<T: Sample>(
    order: CudaOrder<'_>,
    x: &Array<Complex<T>>,
    direction: Direction,
    factor: Option<T>,
) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    let transform = Transform::new::<T>(FftKind::Complex, direction, x.ndim() - 1);
    let shape = x.layout().shape();
    let to = Layout::contiguous(shape)?;
    if factor.is_none()
        && let Some(plan) = transform.plan_of_planes(x.layout(), &to)
    {
        return transform.run(order, plan, x, shape);
    }
    let planes = copied_or_scaled(order, x, factor)?;
    let plan = transform.plan_of_planes(planes.layout(), &to);
    let plan = plan.expect("matrices stand one after another");
    transform.execute(order.touching(&()), plan, [address_of(&planes); 2])?;
    Ok(planes)
}

/// Returns the first halves of the spectra of the real numbers along the axis `at` of `x`, in an
/// array of `shape`.
#[track_caller]
pub(in crate::ops) fn spectra_of<T: Sample>(
    order: CudaOrder<'_>,
    x: &Array<T>,
    at: usize,
    shape: &Shape,
) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    let transform = Transform::new::<T>(FftKind::Forward, Direction::Forward, at);
    if let Some(plan) = transform.plan_for(x, &Layout::contiguous(shape)?) {
        return transform.run(order, plan, x, shape);
    }
    let rows = in_rows(x, at, |moved| {
        copied(order, moved, Copying::All, moved.layout().shape())
    })?;
    transform.run_rows(order, &rows, shape)
}

/// Returns the real numbers, in an array of `shape`, whose spectra begin with the numbers along the
/// axis `at` of `x`, times `factor`. cuFFT overwrites its input here, which is a copy of `x`.
#[track_caller]
pub(in crate::ops) fn reals_of<T: Sample>(
    order: CudaOrder<'_>,
    x: &Array<Complex<T>>,
    at: usize,
    shape: &Shape,
    factor: T,
) -> Result<Array<T>>
where
    Complex<T>: Number<Part = T>,
{
    let transform = Transform::new::<T>(FftKind::Inverse, Direction::Inverse, at);
    let rows = in_rows(x, at, |moved| {
        halves(order, moved, shape.dims()[at], factor)
    })?;
    transform.run_rows(order, &rows, shape)
}

/// The kind, precision, direction and axis of a transform.
#[derive(Clone, Copy, Debug)]
struct Transform {
    kind: FftKind,
    is_wide: bool,
    is_inverse: bool,
    at: usize,
}

impl Transform {
    fn new<T>(kind: FftKind, direction: Direction, at: usize) -> Self {
        Self {
            kind,
            is_wide: size_of::<T>() == 8,
            is_inverse: direction == Direction::Inverse,
            at,
        }
    }

    /// Returns the plan that transforms the rows of `from` to the rows of `to`. Their shapes differ
    /// at most in the length of the axis. Returns `None` if the rows of either have no constant
    /// stride and distance.
    fn plan(&self, from: &Layout, to: &Layout) -> Option<FftPlan> {
        let others = pairs(from, to).enumerate();
        let others = others.filter(|&(axis, _)| axis != self.at);
        let (count, apart) = steps(from, to, others.map(|(_, pair)| pair))?;
        let side = |layout: &Layout, apart| {
            let stride = match layout.dims()[self.at] {
                1 => 1,
                _ => layout.strides()[self.at],
            };
            (stride > 0).then_some(FftPlaces {
                stride: stride as i64,
                distance: apart,
            })
        };
        let reals = if self.kind == FftKind::Inverse {
            to
        } else {
            from
        };
        Some(FftPlan {
            kind: self.kind,
            is_wide: self.is_wide,
            lengths: [1, reals.dims()[self.at] as i64],
            count,
            from: side(from, apart[0])?,
            to: side(to, apart[1])?,
        })
    }

    /// Returns the plan for the elements of `x`, or `None` if cuFFT cannot read them in place. Real
    /// elements must be aligned as complex numbers too.
    fn plan_for<F: AnyElement>(&self, x: &Array<F>, to: &Layout) -> Option<FftPlan> {
        let pair_bytes = if self.is_wide { 16 } else { 8 };
        let is_aligned = address_of(x).0.is_multiple_of(pair_bytes);
        self.plan(x.layout(), to).filter(|_| is_aligned)
    }

    /// Returns the plan that transforms the matrices of `from` to the matrices of `to`, which have
    /// no gaps. Returns `None` if the matrices of `from` have gaps, or if the distance between
    /// matrices is not constant.
    fn plan_of_planes(&self, from: &Layout, to: &Layout) -> Option<FftPlan> {
        let outer = from.ndim() - 2;
        let inner = from.split_at(outer).1;
        let (count, apart) = steps(from, to, pairs(from, to).take(outer))?;
        let [rows, columns] = [from.dims()[outer], from.dims()[outer + 1]];
        let places = apart.map(|distance| FftPlaces {
            stride: 1,
            distance,
        });
        inner.is_contiguous().then_some(FftPlan {
            kind: self.kind,
            is_wide: self.is_wide,
            lengths: [rows as i64, columns as i64],
            count,
            from: places[0],
            to: places[1],
        })
    }

    #[track_caller]
    fn run<F: AnyElement, O: AnyElement>(
        &self,
        order: CudaOrder<'_>,
        plan: FftPlan,
        x: &Array<F>,
        shape: &Shape,
    ) -> Result<Array<O>> {
        computed(order.device, shape, |output: Output| {
            self.execute(order, plan, [address_of(x), output.address])
        })
    }

    /// Transforms new contiguous rows into an array of `shape`. If the rows of that array have no
    /// constant stride and distance, the transforms are written contiguously and then copied.
    #[track_caller]
    fn run_rows<F: AnyElement, O: AnyElement>(
        &self,
        order: CudaOrder<'_>,
        rows: &Array<F>,
        shape: &Shape,
    ) -> Result<Array<O>> {
        let order = order.touching(&());
        if let Some(plan) = self.plan(rows.layout(), &Layout::contiguous(shape)?) {
            return self.run(order, plan, rows, shape);
        }
        let (there, back) = moves(shape.ndim(), self.at);
        let dims: SmallVec<[usize; MAX_RANK]> =
            there.iter().map(|&axis| shape.dims()[axis]).collect();
        let layout = Layout::contiguous(&Shape::from(&dims[..]))?.permute(&back)?;
        let plan = self.plan(rows.layout(), &layout);
        let plan = plan.expect("rows stand one after another");
        let made: Array<O> = laid_out(order.device, layout, |output: Output| {
            self.execute(order, plan, [address_of(rows), output.address])
        })?;
        copied(order, &made, Copying::All, shape)
    }

    /// Enqueues the transform from the one address to the other.
    #[track_caller]
    fn execute(
        &self,
        order: CudaOrder<'_>,
        plan: FftPlan,
        [from, to]: [DevicePtr; 2],
    ) -> Result<()> {
        let bytes = order.gpu.fft_workspace(&plan).at_caller()?;
        let workspace = Workspace::new(order).allocate(bytes, 1)?;
        let call = FftCall {
            plan,
            is_inverse: self.is_inverse,
            from,
            to,
        };
        // SAFETY: the plan is for the layouts of what is read and of new memory, which is written.
        // Nothing else uses that memory or the work area outside of the stream's order.
        order.queue(|stream| unsafe {
            let workspace = DevicePtr(workspace.address());
            order.gpu.transform(stream, &call, workspace)
        })
    }
}

/// Returns the number of rows, or matrices, along the axes `others` of both layouts, and the
/// distance between them in each layout; `None` if the distance is not constant.
fn steps(
    from: &Layout,
    to: &Layout,
    others: impl Iterator<Item = (usize, [isize; 2])>,
) -> Option<(i64, [i64; 2])> {
    let walk = Walk::over([from.offset(), to.offset()], others);
    let (count, apart) = walk.row();
    if count == 1 && walk.axes().len() == 1 {
        return Some((1, [1, 1]));
    }
    let is_one = walk.axes().len() == 1 && apart.iter().all(|&apart| apart > 0);
    is_one.then_some((count as i64, apart.map(|apart| apart as i64)))
}

/// Returns the permutation of the axes that makes `at` the last one, and its inverse.
fn moves(rank: usize, at: usize) -> (SmallVec<[usize; MAX_RANK]>, SmallVec<[usize; MAX_RANK]>) {
    let there = (0..rank).filter(|&axis| axis != at).chain([at]).collect();
    let before = |axis: usize| axis - usize::from(axis > at);
    let back = (0..rank).map(|axis| if axis == at { rank - 1 } else { before(axis) });
    (there, back.collect())
}

/// Returns the result of `make` for `x` with the axis `at` moved to the end, and moves the axis
/// back.
#[track_caller]
fn in_rows<F: AnyElement, O: AnyElement>(
    x: &Array<F>,
    at: usize,
    make: impl FnOnce(&Array<F>) -> Result<Array<O>>,
) -> Result<Array<O>> {
    let (there, back) = moves(x.ndim(), at);
    make(&x.permute(&there)?)?.permute(&back)
}

/// Returns a copy of `x`, times `factor`, in row-major order.
#[track_caller]
fn copied_or_scaled<T: Sample>(
    order: CudaOrder<'_>,
    x: &Array<Complex<T>>,
    factor: Option<T>,
) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    match factor {
        None => copied(order, x, Copying::All, x.layout().shape()),
        // A complex factor would make NaN of infinities.
        Some(factor) => complex(x.re() * factor, x.im() * factor).eval_unfused(),
    }
}

/// Returns copies of the first halves of the spectra along the last axis of `x`, times `factor`,
/// for rows of `length` real numbers. Missing elements are zero, and elements that must be real are
/// made real, because cuFFT does not do so.
#[track_caller]
fn halves<T: Sample>(
    order: CudaOrder<'_>,
    x: &Array<Complex<T>>,
    length: usize,
    factor: T,
) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    let (last, half) = (x.ndim() - 1, length / 2 + 1);
    let there = x.shape()[last];
    let places = |start: usize, end: usize| {
        let slice = |start, end| SliceInfoElem::Slice {
            start,
            end,
            step: 1,
        };
        let others = iter::repeat_n(slice(0, None), last);
        let own = slice(start as isize, Some(end as isize));
        others.chain([own]).collect::<SmallVec<[_; MAX_RANK]>>()
    };
    let mut copies = if there == half {
        copied_or_scaled(order, x, Some(factor))?
    } else {
        let mut copies = {
            let _current = order.device.enter();
            Array::<Complex<T>>::zeros(x.layout().shape().with(last, half))?
        };
        let mut part = copies.slice_mut(places(0, there))?;
        part.assign(complex(x.re() * factor, x.im() * factor))?;
        copies
    };
    let mut make_real = |place: usize| {
        let mut part = copies.slice_mut(places(place, place + 1))?;
        part.update(|part| complex(part.re(), T::zero()))
    };
    make_real(0)?;
    if length.is_multiple_of(2) {
        make_real(half - 1)?;
    }
    Ok(copies)
}
