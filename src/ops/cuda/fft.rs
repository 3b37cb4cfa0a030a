//! Fourier transforms by cuFFT.
//!
//! cuFFT requires one positive stride between the elements of a row, and one positive distance
//! between rows. An operand with another layout is copied. An operand is also copied if it must be
//! scaled, or if cuFFT would overwrite it. If cuFFT cannot write the layout of a result, the
//! transforms are written contiguously and then copied. The work area of cuFFT is an ordinary
//! buffer.

use std::iter;

use smallvec::SmallVec;

use super::copy::copied;
use super::evaluate::evaluate;
use super::memory::{Output, address_of, computed, laid_out, zeros};
use super::store::store_onto;
use super::workspace::Workspace;
use crate::array::{AnyArray, Bits, DType, Layout, MAX_RANK, Shape, Walk, bits_of_number};
use crate::device::DevicePtr;
use crate::device::cuda::fft::{FftCall, FftKind, FftPlaces, FftPlan};
use crate::error::{AtCaller, Result};
use crate::ops::descriptors::{Copying, pairs, part_of};
use crate::ops::expression::elementwise::arithmetic::Times;
use crate::ops::expression::elementwise::complex::OfParts;
use crate::ops::expression::elementwise::functions::{Im, Re};
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;
use cachescope_fft::Direction;

/// Returns the transforms of the complex elements of `x` along the axis `at`, multiplied by
/// `factor`.
#[track_caller]
pub(in crate::ops) fn transformed(
    order: CudaOrder<'_>,
    x: Operand<'_>,
    at: usize,
    direction: Direction,
    factor: Option<f64>,
) -> Result<AnyArray> {
    let transform = Transform::new(FftKind::Complex, x.dtype, direction, at);
    let shape = x.layout.shape();
    if factor.is_none()
        && let Some(plan) = transform.plan_for(x, &Layout::contiguous(shape)?)
    {
        return transform.run(order, plan, x, shape);
    }
    let rows = in_rows(x, at, |moved| copied_or_scaled(order, moved, factor))?;
    if rows.layout.is_contiguous() {
        let plan = transform.plan(&rows.layout, &rows.layout);
        let plan = plan.expect("the rows are contiguous");
        transform.execute(order.touching(&()), plan, [address_of(rows.operand()); 2])?;
        return Ok(rows);
    }
    transform.run_rows(order, rows.operand(), shape)
}

/// Returns the two-dimensional transforms of the matrices of `x`, multiplied by `factor`.
#[track_caller]
pub(in crate::ops) fn transformed_planes(
    order: CudaOrder<'_>,
    x: Operand<'_>,
    direction: Direction,
    factor: Option<f64>,
) -> Result<AnyArray> {
    let last = x.layout.ndim() - 1;
    let transform = Transform::new(FftKind::Complex, x.dtype, direction, last);
    let shape = x.layout.shape();
    let to = Layout::contiguous(shape)?;
    if factor.is_none()
        && let Some(plan) = transform.plan_of_planes(x.layout, &to)
    {
        return transform.run(order, plan, x, shape);
    }
    let planes = copied_or_scaled(order, x, factor)?;
    let plan = transform.plan_of_planes(&planes.layout, &to);
    let plan = plan.expect("the matrices are contiguous");
    transform.execute(order.touching(&()), plan, [address_of(planes.operand()); 2])?;
    Ok(planes)
}

/// Returns the spectra of the real elements of `x` along the axis `at`. The result has `shape`, and
/// contains the first half of each spectrum.
#[track_caller]
pub(in crate::ops) fn spectra_of(
    order: CudaOrder<'_>,
    x: Operand<'_>,
    at: usize,
    shape: &Shape,
) -> Result<AnyArray> {
    let transform = Transform::new(FftKind::Forward, x.dtype, Direction::Forward, at);
    if let Some(plan) = transform.plan_for(x, &Layout::contiguous(shape)?) {
        return transform.run(order, plan, x, shape);
    }
    let rows = in_rows(x, at, |moved| {
        copied(order, moved, Copying::All, moved.layout.shape())
    })?;
    transform.run_rows(order, rows.operand(), shape)
}

/// Returns the inverse transforms of half spectra: an array of `shape`, of real numbers. The
/// elements of `x` along the axis `at` are the first half of each spectrum. The results are
/// multiplied by `factor`. cuFFT overwrites its input, so the input is a copy of `x`.
#[track_caller]
pub(in crate::ops) fn reals_of(
    order: CudaOrder<'_>,
    x: Operand<'_>,
    at: usize,
    shape: &Shape,
    factor: f64,
) -> Result<AnyArray> {
    let transform = Transform::new(FftKind::Inverse, x.dtype, Direction::Inverse, at);
    let rows = in_rows(x, at, |moved| {
        halves(order, moved, shape.dims()[at], factor)
    })?;
    transform.run_rows(order, rows.operand(), shape)
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
    /// Returns the transform of elements of `dtype` along the axis `at`.
    fn new(kind: FftKind, dtype: DType, direction: Direction, at: usize) -> Self {
        Self {
            kind,
            is_wide: matches!(dtype, DType::F64 | DType::C64),
            is_inverse: direction == Direction::Inverse,
            at,
        }
    }

    /// Returns the element type of the results.
    fn output(&self) -> DType {
        match (self.kind, self.is_wide) {
            (FftKind::Inverse, false) => DType::F32,
            (FftKind::Inverse, true) => DType::F64,
            (_, false) => DType::C32,
            (_, true) => DType::C64,
        }
    }

    /// Returns the plan that transforms the rows of `from` to the rows of `to`. The shapes of both
    /// layouts are equal except along the transform axis. Returns `None` if a stride is not
    /// positive, or if a distance between rows is not constant and positive.
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

    /// Returns the plan that reads the elements of `x` in place. Returns `None` if cuFFT cannot
    /// read `x` in place. Real elements, too, must be aligned to the size of a complex number.
    fn plan_for(&self, x: Operand<'_>, to: &Layout) -> Option<FftPlan> {
        let pair_bytes = if self.is_wide { 16 } else { 8 };
        let is_aligned = address_of(x).0.is_multiple_of(pair_bytes);
        self.plan(x.layout, to).filter(|_| is_aligned)
    }

    /// Returns the plan that transforms the matrices of `from` to the contiguous matrices of `to`.
    /// Returns `None` if the matrices of `from` are not contiguous, or if the distance between
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
    fn run(
        &self,
        order: CudaOrder<'_>,
        plan: FftPlan,
        x: Operand<'_>,
        shape: &Shape,
    ) -> Result<AnyArray> {
        computed(order.device, self.output(), shape, |output: Output| {
            self.execute(order, plan, [address_of(x), output.address])
        })
    }

    /// Transforms new contiguous rows into an array of `shape`. If the distance between rows of the
    /// result is not constant, writes the transforms contiguously and copies them.
    #[track_caller]
    fn run_rows(&self, order: CudaOrder<'_>, rows: Operand<'_>, shape: &Shape) -> Result<AnyArray> {
        let order = order.touching(&());
        if let Some(plan) = self.plan(rows.layout, &Layout::contiguous(shape)?) {
            return self.run(order, plan, rows, shape);
        }
        let (there, back) = moves(shape.ndim(), self.at);
        let dims: SmallVec<[usize; MAX_RANK]> =
            there.iter().map(|&axis| shape.dims()[axis]).collect();
        let layout = Layout::contiguous(&Shape::from(&dims[..]))?.permute(&back)?;
        let plan = self.plan(rows.layout, &layout);
        let plan = plan.expect("the rows are contiguous");
        let made = laid_out(order.device, self.output(), layout, |output: Output| {
            self.execute(order, plan, [address_of(rows), output.address])
        })?;
        copied(order, made.operand(), Copying::All, shape)
    }

    /// Enqueues the transform of the elements at `from` to the memory at `to`.
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
        // SAFETY: the caller made the plan for the layouts of the memory at `from` and at `to`. The
        // memory at `to` and the work area are new. Only work in the order of the stream uses them.
        order.queue(|stream| unsafe {
            let workspace = DevicePtr(workspace.address());
            order.gpu.transform(stream, &call, workspace)
        })
    }
}

/// Counts the rows or matrices along the axes `others`. Returns the count, and the distance between
/// neighbours in each layout. Returns `None` if a distance is not constant and positive.
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

/// Returns the permutation that moves the axis `at` to the end, and the inverse permutation.
fn moves(rank: usize, at: usize) -> (SmallVec<[usize; MAX_RANK]>, SmallVec<[usize; MAX_RANK]>) {
    let there = (0..rank).filter(|&axis| axis != at).chain([at]).collect();
    let before = |axis: usize| axis - usize::from(axis > at);
    let back = (0..rank).map(|axis| if axis == at { rank - 1 } else { before(axis) });
    (there, back.collect())
}

/// Calls `make` for a view of `x` in which the axis `at` is last. Returns the result with this axis
/// moved back.
#[track_caller]
fn in_rows(
    x: Operand<'_>,
    at: usize,
    make: impl FnOnce(Operand<'_>) -> Result<AnyArray>,
) -> Result<AnyArray> {
    let (there, back) = moves(x.layout.ndim(), at);
    let made = make(x.viewed(&x.layout.permute(&there)?))?;
    let layout = made.layout.permute(&back)?;
    Ok(made.seen(layout))
}

/// Returns a row-major copy of the complex elements of `x`, multiplied by `factor`.
#[track_caller]
fn copied_or_scaled(order: CudaOrder<'_>, x: Operand<'_>, factor: Option<f64>) -> Result<AnyArray> {
    let shape = x.layout.shape();
    let Some(factor) = factor else {
        return copied(order, x, Copying::All, shape);
    };
    let results = evaluate(order, &scaled(x, factor)?, shape)?;
    let buffer = results.into_iter().next().expect("one result");
    Ok(AnyArray::of_shape(buffer, shape, x.dtype))
}

/// Returns the expression that multiplies the complex elements of `x` by the real number `factor`.
/// A product with a complex factor would turn infinities into NaN.
#[track_caller]
fn scaled(x: Operand<'_>, factor: f64) -> Result<ExpressionGraph<'_>> {
    let part = part_of(x.dtype);
    let mut graph = ExpressionGraph::empty();
    let factor = bits_of_number(part, factor);
    let [array, factor] = [graph.append_array(x), graph.append_scalar(part, factor)];
    let mut parts = [0; 2];
    for (scaled, call) in parts.iter_mut().zip([Re::CALLS, Im::CALLS]) {
        let own = graph.append_call(call.at(x.dtype), &[array])?;
        *scaled = graph.append_call(Times::CALLS.at(part), &[own, factor])?;
    }
    let result = graph.append_call(OfParts::CALLS.at(part), &parts)?;
    graph.set_results(iter::once(result as usize));
    Ok(graph)
}

/// Returns the expression of the real parts of `x`, as complex numbers.
#[track_caller]
fn real_parts(x: Operand<'_>) -> Result<ExpressionGraph<'_>> {
    let part = part_of(x.dtype);
    let mut graph = ExpressionGraph::empty();
    let array = graph.append_array(x);
    let real = graph.append_call(Re::CALLS.at(x.dtype), &[array])?;
    let zero = graph.append_scalar(part, Bits::default());
    let result = graph.append_call(OfParts::CALLS.at(part), &[real, zero])?;
    graph.set_results(iter::once(result as usize));
    Ok(graph)
}

/// Copies the first half of each spectrum along the last axis of `x`. The inverse transform of a
/// row has `length` real numbers. The copies are multiplied by `factor`. Elements beyond the end of
/// `x` are zero. The imaginary part of element 0 is set to zero. If `length` is even, the imaginary
/// part of the last element is set to zero, too. cuFFT does not clear these imaginary parts.
#[track_caller]
fn halves(order: CudaOrder<'_>, x: Operand<'_>, length: usize, factor: f64) -> Result<AnyArray> {
    let (last, half) = (x.layout.ndim() - 1, length / 2 + 1);
    let there = x.layout.dims()[last];
    let copies = if there == half {
        copied_or_scaled(order, x, Some(factor))?
    } else {
        let shape = x.layout.shape().with(last, half);
        let copies = zeros(order, x.dtype, &shape)?;
        let part = copies.layout.part(last, 0..there, 1)?;
        store_onto(order, &scaled(x, factor)?, copies.operand().viewed(&part))?;
        copies
    };
    let order = order.touching(&());
    let make_real = |place: usize| {
        let part = copies.layout.part(last, place..place + 1, 1)?;
        let part = copies.operand().viewed(&part);
        store_onto(order, &real_parts(part)?, part)
    };
    make_real(0)?;
    if length.is_multiple_of(2) {
        make_real(half - 1)?;
    }
    Ok(copies)
}
