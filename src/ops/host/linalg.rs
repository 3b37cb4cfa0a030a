//! Factorizations, by the crate `faer`, which `cachescope-linalg` has compiled.
//!
//! faer overwrites a copy of the operand. The copy and the results are in the device's memory. The
//! workspace of a factorization is faer's own, from the system's allocator. Its size depends on
//! whether one thread or several factorize a matrix. This is known only when the launch runs. The
//! packed blocks of products are faer's own, too.
//!
//! faer divides a large matrix among threads. If there are many small matrices, each thread takes
//! some at a time. The order of sums depends on the thread count that faer gets. So this count is a
//! constant, however many threads the pool has, and results depend on shapes and elements alone. An
//! exception is delayed work, which stays on one thread.

use std::mem::MaybeUninit;
use std::slice::from_raw_parts;

use cachescope_linalg::{Failure, Outcome};

use super::copy::{copied, copy};
use super::launch::{Work, launch};
use super::memory::{self, Output};
use super::pointers::{bytes_of, bytes_written, elements_of};
use super::threads::is_alone;
use crate::array::{AnyElement, Array, Shape};
use crate::context::Device;
use crate::error::Result;
use crate::ops::descriptors::{Copying, Eigen, Factorized, Factors, OUT_OF_MEMORY, Singular};
use crate::ops::order::HostOrder;
use cachescope_kernels::sort::digits::initialised;

/// The minimum of rows × columns × min(rows, columns) for which a thread count above 1 pays. It
/// pays even if the pool has only one thread. Below the minimum, such a count would take a third
/// longer.
const SHARED: usize = 1 << 29;

/// The thread count that faer gets for a matrix of [`SHARED`] or more.
const THREADS: usize = 4;

/// Matrices of equal shapes that one operation factorizes.
#[derive(Clone, Copy, Debug)]
struct Matrices {
    count: usize,
    rows: usize,
    columns: usize,
    /// The approximate number of multiplications for each matrix.
    steps: usize,
    /// `true` if faer divides each matrix among threads.
    is_shared: bool,
}

impl Matrices {
    /// Returns the matrices of the last two axes of `array`. Each takes `cubes` × rows × columns ×
    /// min(rows, columns) multiplications.
    fn of<T: AnyElement>(array: &Array<T>, cubes: usize) -> Self {
        let [batch @ .., rows, columns] = array.shape() else {
            unreachable!("the array has been found to have matrices");
        };
        let cube = [*columns, *rows.min(columns)];
        let cube = cube.into_iter().fold(*rows, usize::saturating_mul);
        Self {
            count: batch.iter().product(),
            rows: *rows,
            columns: *columns,
            steps: cube.saturating_mul(cubes),
            is_shared: cube >= SHARED,
        }
    }

    /// Launches `factorize` with the number of each matrix and the thread count, and returns the
    /// status of each matrix. `factorize` must write all of its part of every output.
    #[track_caller]
    fn launch(
        self,
        order: HostOrder<'_>,
        factorize: impl Fn(usize, usize) -> Outcome + Send + Sync + 'static,
    ) -> Result<Array<i32>> {
        let is_shared = self.is_shared;
        let work = match is_shared {
            true => Work::on_one_thread(self.count),
            false => Work::of_bytes(self.count, self.steps / 8),
        };
        // SAFETY: the ranges of the launch cover all matrices.
        let (status, output) = unsafe { begun(order.device, &self.count.into()) }?;
        launch(order, work, (&(), &output), move |(), output, range| {
            let threads = match is_shared && !is_alone() {
                true => THREADS,
                false => 1,
            };
            for number in range {
                let code = code_of(factorize(number, threads));
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                let slot = unsafe { output.part(number..number + 1) };
                slot.fill(MaybeUninit::new(code));
            }
        });
        Ok(status)
    }

    /// Returns a copy of the matrices of `array` in column-major order, to be overwritten.
    #[track_caller]
    fn columns_of<T: AnyElement>(
        order: HostOrder<'_>,
        array: &Array<T>,
    ) -> Result<(Array<T>, Output<T>)> {
        let turned = array.swap_axes(-2, -1)?;
        let shape = *turned.layout().shape();
        copied_to_overwrite(order, &turned, &shape)
    }

    /// Returns the array, or a copy in row-major order if it is not contiguous.
    #[track_caller]
    fn rows_of<T: AnyElement>(order: HostOrder<'_>, array: &Array<T>) -> Result<Array<T>> {
        if array.layout().is_contiguous() {
            return Ok(array.clone());
        }
        copied(order, array.into(), Copying::All, array.layout().shape()).map(Array::from_erased)
    }
}

/// Returns the status code of LAPACK.
fn code_of(outcome: Outcome) -> i32 {
    let number = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    match outcome {
        Ok(()) => 0,
        Err(Failure::Singular(pivot)) => number(pivot + 1),
        Err(Failure::NotPositiveDefinite(order)) => number(order),
        Err(Failure::NotConverged) => 1,
        Err(Failure::OutOfMemory) => OUT_OF_MEMORY,
    }
}

/// Returns the part `number` of an output whose parts have `count` elements and were written by an
/// earlier launch.
///
/// # Safety
///
/// As for [`Output::part`], and the elements must have been written.
#[expect(
    clippy::mut_from_ref,
    reason = "the parts do not overlap, by the contract"
)]
unsafe fn written<T: AnyElement>(output: &Output<T>, number: usize, count: usize) -> &mut [T] {
    // SAFETY: the caller keeps this contract.
    unsafe { initialised(output.part(number * count..(number + 1) * count)) }
}

/// Returns the part `number` of an output that nobody has written, filled with zeros.
///
/// # Safety
///
/// As for [`Output::part`].
#[expect(
    clippy::mut_from_ref,
    reason = "the parts do not overlap, by the contract"
)]
unsafe fn zeros<T: AnyElement>(output: &Output<T>, number: usize, count: usize) -> &mut [T] {
    // SAFETY: all of the elements are written here, and the caller keeps the rest.
    unsafe {
        let part = output.part(number * count..(number + 1) * count);
        part.fill(MaybeUninit::new(T::zero()));
        initialised(part)
    }
}

/// Returns the part `number` of the contiguous elements from `from` on, in parts of `count`
/// elements.
///
/// # Safety
///
/// The elements must be in memory that is alive and not written to.
unsafe fn read<'a, T: AnyElement>(from: *const T, number: usize, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { from_raw_parts(from.wrapping_add(number * count), count) }
}

/// Returns the solutions of the equations `a x = right`. Both arrays have equal axes before the
/// axes of the matrices.
#[track_caller]
pub(in crate::ops) fn solved<T: Factorized>(
    order: HostOrder<'_>,
    a: &Array<T>,
    right: &Array<T>,
) -> Result<(Array<T>, Array<i32>)> {
    let matrices = Matrices::of(a, 1);
    let n = matrices.rows;
    let size = n * right.shape()[right.ndim() - 1];
    let (_columns, columns) = Matrices::columns_of(order, a)?;
    let (x, output) = copied_to_overwrite(order, right, right.layout().shape())?;
    let status = matrices.launch(order, move |number, threads| {
        // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap. The
        // launches of the copies came before.
        let (columns, right) = unsafe {
            (
                written(&columns, number, n * n),
                written(&output, number, size),
            )
        };
        T::solve(columns, right, n, threads)
    })?;
    Ok((x, status))
}

/// Returns the inverses of the matrices of `a`.
#[track_caller]
pub(in crate::ops) fn inverted<T: Factorized>(
    order: HostOrder<'_>,
    a: &Array<T>,
) -> Result<(Array<T>, Array<i32>)> {
    of_each(order, a, 2, T::invert)
}

/// Returns the determinants of the matrices of `a`.
#[track_caller]
pub(in crate::ops) fn determinants<T: Factorized>(
    order: HostOrder<'_>,
    a: &Array<T>,
) -> Result<(Array<T>, Option<Array<i32>>)> {
    let matrices = Matrices::of(a, 1);
    let n = matrices.rows;
    let (_columns, columns) = Matrices::columns_of(order, a)?;
    let shape = Shape::from(&a.shape()[..a.ndim() - 2]);
    // SAFETY: the launch writes the determinant of each matrix.
    let (found, output) = unsafe { begun(order.device, &shape) }?;
    let status = matrices.launch(order, move |number, threads| {
        // SAFETY: as in `solved`.
        let (columns, slot) =
            unsafe { (written(&columns, number, n * n), zeros(&output, number, 1)) };
        slot[0] = T::determinant(columns, n, threads)?;
        Ok(())
    })?;
    Ok((found, Some(status)))
}

/// Returns the lower Cholesky factors of the matrices of `a`.
#[track_caller]
pub(in crate::ops) fn cholesky_factors<T: Factorized>(
    order: HostOrder<'_>,
    a: &Array<T>,
) -> Result<(Array<T>, Array<i32>)> {
    of_each(order, a, 1, T::cholesky)
}

/// Computes a matrix from each square matrix of `a` by `write`, and returns these matrices in the
/// shape of `a`. `write` gets the columns of a matrix, which it overwrites, and the rows of the
/// result, which are zero before. Its other arguments are the number of rows and the number of
/// threads.
#[track_caller]
fn of_each<T: Factorized>(
    order: HostOrder<'_>,
    a: &Array<T>,
    cubes: usize,
    write: fn(&mut [T], &mut [T], usize, usize) -> Outcome,
) -> Result<(Array<T>, Array<i32>)> {
    let matrices = Matrices::of(a, cubes);
    let n = matrices.rows;
    let (_columns, columns) = Matrices::columns_of(order, a)?;
    // SAFETY: each matrix of the launch is written whole.
    let (made, output) = unsafe { begun(order.device, a.layout().shape()) }?;
    let status = matrices.launch(order, move |number, threads| {
        // SAFETY: as in `solved`.
        let (columns, rows) = unsafe {
            (
                written(&columns, number, n * n),
                zeros(&output, number, n * n),
            )
        };
        write(columns, rows, n, threads)
    })?;
    Ok((made, status))
}

/// Returns the QR factors of the matrices of `a`, of these shapes.
#[track_caller]
pub(in crate::ops) fn qr_factors<T: Factorized>(
    order: HostOrder<'_>,
    a: &Array<T>,
    of_q: &Shape,
    of_r: &Shape,
) -> Result<(Factors<T>, Option<Array<i32>>)> {
    let matrices = Matrices::of(a, 2);
    let Matrices { rows, columns, .. } = matrices;
    let size = rows.min(columns);
    let (_turned, turned) = Matrices::columns_of(order, a)?;
    // SAFETY: each matrix of the launch is written whole.
    let (q, of_q) = unsafe { begun(order.device, of_q) }?;
    // SAFETY: as above.
    let (r, of_r) = unsafe { begun(order.device, of_r) }?;
    let status = matrices.launch(order, move |number, threads| {
        // SAFETY: as in `solved`.
        let (turned, q, r) = unsafe {
            (
                written(&turned, number, rows * columns),
                zeros(&of_q, number, rows * size),
                zeros(&of_r, number, size * columns),
            )
        };
        T::qr(turned, q, r, [rows, columns], threads)
    })?;
    Ok(((q, r), Some(status)))
}

/// Returns the singular values of the matrices of `a` as arrays of these shapes. If the vectors are
/// `wanted`, returns them too.
#[track_caller]
pub(in crate::ops) fn singular_values<T: Factorized>(
    order: HostOrder<'_>,
    a: &Array<T>,
    [of_values, of_u, of_vt]: &[Shape; 3],
    wanted: bool,
) -> Result<(Singular<T>, Array<i32>)> {
    let matrices = Matrices::of(a, 8);
    let Matrices { rows, columns, .. } = matrices;
    let size = rows.min(columns);
    let a = Matrices::rows_of(order, a)?;
    let from = elements_of(&a);
    let first = a.layout().offset();
    // SAFETY: each matrix of the launch is written whole, here and below.
    let (values, to_values) = unsafe { begun(order.device, of_values) }?;
    let mut vectors = None;
    if wanted {
        // SAFETY: as above.
        vectors = Some(unsafe { (begun(order.device, of_u)?, begun(order.device, of_vt)?) });
    }
    let outputs = (vectors.as_ref()).map(|((_, u), (_, vt))| (*u, *vt));
    let status = matrices.launch(order, move |number, threads| {
        // SAFETY: as in `solved`. The stream is ordered after the writes to the operand.
        let (elements, values, vectors) = unsafe {
            (
                read(from.at(first), number, rows * columns),
                zeros(&to_values, number, size),
                (outputs.as_ref()).map(|(u, vt)| {
                    [
                        zeros(u, number, rows * size),
                        zeros(vt, number, size * columns),
                    ]
                }),
            )
        };
        T::svd(elements, values, vectors, [rows, columns], threads)
    })?;
    let vectors = vectors.map(|((u, _), (vt, _))| [u, vt]);
    Ok(((values, vectors), status))
}

/// Returns the eigenvalues of the symmetric matrices of `a`, as an array of this shape. If the
/// vectors are `wanted`, returns them too.
#[track_caller]
pub(in crate::ops) fn eigenvalues<T: Factorized>(
    order: HostOrder<'_>,
    a: &Array<T>,
    of_values: &Shape,
    wanted: bool,
) -> Result<(Eigen<T>, Array<i32>)> {
    let matrices = Matrices::of(a, 4);
    let n = matrices.rows;
    let a = Matrices::rows_of(order, a)?;
    let from = elements_of(&a);
    let first = a.layout().offset();
    // SAFETY: each matrix of the launch is written whole, here and below.
    let (values, to_values) = unsafe { begun(order.device, of_values) }?;
    let mut vectors = None;
    if wanted {
        // SAFETY: as above.
        vectors = Some(unsafe { begun(order.device, a.layout().shape()) }?);
    }
    let output = vectors.as_ref().map(|(_, output)| *output);
    let status = matrices.launch(order, move |number, threads| {
        // SAFETY: as in `singular_values`.
        let (elements, values, vectors) = unsafe {
            (
                read(from.at(first), number, n * n),
                zeros(&to_values, number, n),
                output.as_ref().map(|output| zeros(output, number, n * n)),
            )
        };
        T::eigh(elements, values, vectors, n, threads)
    })?;
    let vectors = vectors.map(|(vectors, _)| vectors);
    Ok(((values, vectors), status))
}

/// Like [`memory::begun`], with the type of the elements.
///
/// # Safety
///
/// As for [`memory::begun`].
#[track_caller]
unsafe fn begun<T: AnyElement>(device: &Device, shape: &Shape) -> Result<(Array<T>, Output<T>)> {
    // SAFETY: the memory is for elements of `T`. The caller keeps the rest.
    unsafe {
        let (array, output) = memory::begun(device, shape, T::DTYPE)?;
        Ok((Array::from_erased(array), output.typed()))
    }
}

/// Like [`copied`] with [`Copying::All`], but also returns the memory of the new array. Later
/// launches on the stream may overwrite it.
#[track_caller]
fn copied_to_overwrite<T: AnyElement>(
    order: HostOrder<'_>,
    array: &Array<T>,
    shape: &Shape,
) -> Result<(Array<T>, Output<T>)> {
    let walk = Copying::All.walk(array.layout());
    // SAFETY: the walk is in row-major order of the output, and as long.
    let (copy_of, output) = unsafe { begun(order.device, shape) }?;
    assert_eq!(output.count(), walk.count(), "copied to another length");
    let from = bytes_of(array.into());
    let to = bytes_written(&output.untyped());
    // SAFETY: the walk goes over the array and over the output, which has as many elements.
    unsafe { copy(order, size_of::<T>(), from, to, &walk) };
    Ok((copy_of, output))
}
