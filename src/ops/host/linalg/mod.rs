//! Factorizations, by the crate `faer`, which `cachescope-linalg` compiles.
//!
//! faer overwrites a copy of the operand. The copy and the results are in the device's memory. faer
//! allocates the workspace of a factorization from the system's allocator. The workspace's size
//! depends on whether several threads factorize a matrix, so it is known only when the launch runs.
//! faer also allocates the packed blocks of products.
//!
//! faer divides a large matrix among threads. If there are many small matrices, each thread takes
//! some at a time. The order of sums depends on the thread count that faer receives. So this count
//! is a constant, independent of the pool. Therefore results depend on shapes and elements alone.
//! Delayed work is an exception: one thread runs it.

mod loops;

use std::mem::MaybeUninit;

use cachescope_linalg::{Failure, Outcome};

use self::loops::{EachMatrix, MatrixPart, loops_of};
use super::copy::{copied, copy};
use super::launch::{Work, launch};
use super::memory::{Output, Untyped, begun};
use super::pointers::{bytes_of, bytes_written};
use super::threads::is_alone;
use crate::array::{AnyArray, Array, DType, Layout, Shape};
use crate::error::Result;
use crate::ops::descriptors::{Copying, OUT_OF_MEMORY, SpectralValues};
use crate::ops::expression::tree::Operand;
use crate::ops::order::HostOrder;

/// The minimum of rows × columns × min(rows, columns) for which a thread count above 1 is faster.
/// From this minimum on, it is faster even if the pool has only one thread. Below the minimum, a
/// thread count above 1 would take a third longer.
const SHARED: usize = 1 << 29;

/// The thread count that faer receives for a matrix of [`SHARED`] or more.
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
    /// Returns the matrices of the last two axes of `layout`. Each factorization needs `cubes` ×
    /// rows × columns × min(rows, columns) multiplications.
    fn of(layout: &Layout, cubes: usize) -> Self {
        let [batch @ .., rows, columns] = layout.dims() else {
            unreachable!("the array has at least two axes");
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

    /// Launches `factorize` with the index of each matrix and the thread count, and returns the
    /// status of each matrix. `factorize` must write the whole part of its matrix in every output.
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
        let (status, output) = unsafe { begun(order.device, &self.count.into(), DType::I32) }?;
        // SAFETY: the memory is for elements of the type `i32`.
        let output: Output<i32> = unsafe { output.typed() };
        launch(order, work, (&(), &output), move |(), output, range| {
            let threads = match is_shared && !is_alone() {
                true => THREADS,
                false => 1,
            };
            for number in range {
                let code = code_of(factorize(number, threads));
                // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
                // overlap.
                let slot = unsafe { output.part(number..number + 1) };
                slot.fill(MaybeUninit::new(code));
            }
        });
        Ok(Array::from_erased(status))
    }
}

/// Returns the LAPACK status code of `outcome`.
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

/// Memory that is divided into a part for each matrix.
#[derive(Clone, Copy, Debug)]
struct MatrixParts {
    base: *mut u8,
    /// The number of elements of all parts.
    all: usize,
    /// The number of elements of a part.
    each: usize,
    element_bytes: usize,
}

// SAFETY: the address is of plain data. One thread factorizes a matrix, so only one thread uses a
// part.
unsafe impl Send for MatrixParts {}
// SAFETY: one thread factorizes a matrix, so only one thread uses a part.
unsafe impl Sync for MatrixParts {}

impl MatrixParts {
    /// Returns the memory of a new array, in parts of `each` elements. The elements are not written
    /// yet.
    fn of_new(array: &AnyArray, output: &Untyped, each: usize) -> Self {
        Self {
            base: output.address(),
            all: output.count(),
            each,
            element_bytes: array.dtype.size_bytes(),
        }
    }

    /// Returns the elements of a contiguous array, in parts of `each` elements.
    fn of_rows(array: &AnyArray, each: usize) -> Self {
        let element_bytes = array.dtype.size_bytes();
        let first = bytes_of(array.operand()).at(array.layout.offset() * element_bytes);
        Self {
            base: first.cast_mut(),
            all: array.len(),
            each,
            element_bytes,
        }
    }

    /// Returns the part of the matrix `number`, whose elements have been written.
    fn part(&self, number: usize) -> MatrixPart {
        let start = number * self.each;
        assert!(
            start + self.each <= self.all,
            "the matrix number is out of range"
        );
        MatrixPart {
            address: self.base.wrapping_add(start * self.element_bytes),
            count: self.each,
        }
    }

    /// Fills the part of the matrix `number` with zeros, and returns the part.
    ///
    /// # Safety
    ///
    /// The memory must be alive, and nothing else may access the part.
    unsafe fn zeros(&self, number: usize) -> MatrixPart {
        let part = self.part(number);
        // SAFETY: by this function's contract. Zero bytes represent the number 0.
        unsafe { part.address.write_bytes(0, part.count * self.element_bytes) };
        part
    }
}

/// An array of matrices that is being computed, and its memory.
type NewMatrices = (AnyArray, MatrixParts);

/// Allocates an array of `shape`, with a part of `each` elements for each matrix.
///
/// # Safety
///
/// The contract of [`begun`] applies.
#[track_caller]
unsafe fn new_parts(
    order: HostOrder<'_>,
    shape: &Shape,
    dtype: DType,
    each: usize,
) -> Result<NewMatrices> {
    // SAFETY: by this function's contract.
    let (array, output) = unsafe { begun(order.device, shape, dtype) }?;
    let parts = MatrixParts::of_new(&array, &output, each);
    Ok((array, parts))
}

/// Copies `array`, and also returns the memory of the copy, in parts of `each` elements. Later
/// launches on the stream may overwrite the copy.
#[track_caller]
fn copied_to_overwrite(
    order: HostOrder<'_>,
    array: Operand<'_>,
    each: usize,
) -> Result<NewMatrices> {
    let walk = Copying::All.walk(array.layout);
    // SAFETY: the walk is in row-major order of the output, and has the length of the output.
    let (copy_of, output) = unsafe { begun(order.device, array.layout.shape(), array.dtype) }?;
    assert_eq!(
        output.count(),
        walk.count(),
        "the source and the target differ in length"
    );
    let (from, to) = (bytes_of(array), bytes_written(&output));
    // SAFETY: the walk visits the elements of `array` and of the new output, as the assertion
    // checks.
    unsafe { copy(order, array.dtype.size_bytes(), from, to, &walk) };
    let parts = MatrixParts::of_new(&copy_of, &output, each);
    Ok((copy_of, parts))
}

/// Returns a copy of the matrices of `array` in column-major order. Later launches may overwrite
/// the copy.
#[track_caller]
fn columns_of(order: HostOrder<'_>, array: Operand<'_>, each: usize) -> Result<NewMatrices> {
    let turned = array.layout.swap_axes(-2, -1)?;
    copied_to_overwrite(order, array.viewed(&turned), each)
}

/// Returns the array, or a copy in row-major order if it is not contiguous.
#[track_caller]
fn rows_of(order: HostOrder<'_>, array: Operand<'_>) -> Result<AnyArray> {
    if array.layout.is_contiguous() {
        return Ok(array.share());
    }
    copied(order, array, Copying::All, array.layout.shape())
}

/// Returns the solutions `x` of the equations `a x = right`, and a status for each matrix. The axes
/// before the last two are equal in both arrays.
#[track_caller]
pub(in crate::ops) fn solved(
    order: HostOrder<'_>,
    a: Operand<'_>,
    right: Operand<'_>,
) -> Result<(AnyArray, Array<i32>)> {
    assert_eq!(a.dtype, right.dtype, "the operands differ in type");
    let matrices = Matrices::of(a.layout, 1);
    let n = matrices.rows;
    let size = n * right.layout.dims()[right.layout.ndim() - 1];
    let (_columns, columns) = columns_of(order, a, n * n)?;
    let (x, right) = copied_to_overwrite(order, right, size)?;
    let solve = loops_of(a.dtype).solve;
    let status = matrices.launch(order, move |number, threads| {
        // SAFETY: the memory is alive during a launch, and the ranges of a launch do not overlap.
        // The stream is ordered after the launches of the copies.
        unsafe { solve([columns.part(number), right.part(number)], n, threads) }
    })?;
    Ok((x, status))
}

/// Returns the inverses of the matrices of `a`, and a status for each matrix.
#[track_caller]
pub(in crate::ops) fn inverted(
    order: HostOrder<'_>,
    a: Operand<'_>,
) -> Result<(AnyArray, Array<i32>)> {
    of_each(order, a, 2, loops_of(a.dtype).invert)
}

/// Returns the determinants of the matrices of `a`, and a status for each matrix.
#[track_caller]
pub(in crate::ops) fn determinants(
    order: HostOrder<'_>,
    a: Operand<'_>,
) -> Result<(AnyArray, Array<i32>)> {
    let shape = Shape::from(&a.layout.dims()[..a.layout.ndim() - 2]);
    made_of_each(order, a, (1, &shape, 1), loops_of(a.dtype).determinant)
}

/// Returns the lower Cholesky factors of the matrices of `a`, and a status for each matrix.
#[track_caller]
pub(in crate::ops) fn cholesky_factors(
    order: HostOrder<'_>,
    a: Operand<'_>,
) -> Result<(AnyArray, Array<i32>)> {
    of_each(order, a, 1, loops_of(a.dtype).cholesky)
}

/// Calls [`made_of_each`] for results of the shape of `a`.
#[track_caller]
fn of_each(
    order: HostOrder<'_>,
    a: Operand<'_>,
    cubes: usize,
    write: EachMatrix,
) -> Result<(AnyArray, Array<i32>)> {
    let n = a.layout.dims()[a.layout.ndim() - 1];
    made_of_each(order, a, (cubes, a.layout.shape(), n * n), write)
}

/// Computes `each` elements from each square matrix of `a` by `write`, and returns these elements
/// in `shape`. `write` receives the columns of a matrix, and `each` zeros for the result. `write`
/// may overwrite the columns. The other arguments of `write` are the number of rows and the number
/// of threads.
#[track_caller]
fn made_of_each(
    order: HostOrder<'_>,
    a: Operand<'_>,
    (cubes, shape, each): (usize, &Shape, usize),
    write: EachMatrix,
) -> Result<(AnyArray, Array<i32>)> {
    let matrices = Matrices::of(a.layout, cubes);
    let n = matrices.rows;
    let (_columns, columns) = columns_of(order, a, n * n)?;
    // SAFETY: the launch fills each part with zeros before `write` receives it.
    let (made, output) = unsafe { new_parts(order, shape, a.dtype, each) }?;
    let status = matrices.launch(order, move |number, threads| {
        // SAFETY: the memory is alive during a launch, and the ranges of a launch do not overlap.
        // The stream is ordered after the launch of the copy.
        unsafe { write([columns.part(number), output.zeros(number)], n, threads) }
    })?;
    Ok((made, status))
}

/// Returns the QR factors of the matrices of `a`, with the shapes `of_q` and `of_r`.
#[track_caller]
pub(in crate::ops) fn qr_factors(
    order: HostOrder<'_>,
    a: Operand<'_>,
    of_q: &Shape,
    of_r: &Shape,
) -> Result<([AnyArray; 2], Option<Array<i32>>)> {
    let matrices = Matrices::of(a.layout, 2);
    let Matrices { rows, columns, .. } = matrices;
    let size = rows.min(columns);
    let (_turned, turned) = columns_of(order, a, rows * columns)?;
    // SAFETY: the launch fills each part with zeros before `factor` receives it.
    let (q, to_q) = unsafe { new_parts(order, of_q, a.dtype, rows * size) }?;
    // SAFETY: the launch fills each part with zeros before `factor` receives it.
    let (r, to_r) = unsafe { new_parts(order, of_r, a.dtype, size * columns) }?;
    let factor = loops_of(a.dtype).qr;
    let status = matrices.launch(order, move |number, threads| {
        // SAFETY: the memory is alive during a launch, and the ranges of a launch do not overlap.
        // The stream is ordered after the launch of the copy.
        unsafe {
            let parts = [turned.part(number), to_q.zeros(number), to_r.zeros(number)];
            factor(parts, [rows, columns], threads)
        }
    })?;
    Ok(([q, r], Some(status)))
}

/// Returns the singular values of the matrices of `a`, and a status for each matrix. If `wanted`,
/// also returns the singular vectors. `of_values`, `of_u` and `of_vt` are the shapes of the
/// results.
#[track_caller]
pub(in crate::ops) fn singular_values(
    order: HostOrder<'_>,
    a: Operand<'_>,
    [of_values, of_u, of_vt]: &[Shape; 3],
    wanted: bool,
) -> Result<(SpectralValues<2>, Array<i32>)> {
    let matrices = Matrices::of(a.layout, 8);
    let Matrices { rows, columns, .. } = matrices;
    let size = rows.min(columns);
    let a = rows_of(order, a)?;
    let from = MatrixParts::of_rows(&a, rows * columns);
    // SAFETY: the launch fills each part with zeros before `factor` receives it.
    let (values, to_values) = unsafe { new_parts(order, of_values, a.dtype, size) }?;
    let mut vectors = None;
    if wanted {
        // SAFETY: the launch fills each part with zeros before `factor` receives it.
        let u = unsafe { new_parts(order, of_u, a.dtype, rows * size) }?;
        // SAFETY: the launch fills each part with zeros before `factor` receives it.
        let vt = unsafe { new_parts(order, of_vt, a.dtype, size * columns) }?;
        vectors = Some([u, vt]);
    }
    let outputs = vectors
        .as_ref()
        .map(|both| both.each_ref().map(|own| own.1));
    let factor = loops_of(a.dtype).svd;
    let status = matrices.launch(order, move |number, threads| {
        // SAFETY: the memory is alive during a launch, and the ranges of a launch do not overlap.
        // The stream is ordered after the writes to the operand.
        unsafe {
            let vectors = outputs.map(|both| both.map(|own| own.zeros(number)));
            let parts = [from.part(number), to_values.zeros(number)];
            factor(parts, vectors, [rows, columns], threads)
        }
    })?;
    let vectors = vectors.map(|both| both.map(|(array, _)| array));
    Ok(((values, vectors), status))
}

/// Returns the eigenvalues of the symmetric matrices of `a`, as an array of `of_values`, and a
/// status for each matrix. If `wanted`, also returns the eigenvectors.
#[track_caller]
pub(in crate::ops) fn eigenvalues(
    order: HostOrder<'_>,
    a: Operand<'_>,
    of_values: &Shape,
    wanted: bool,
) -> Result<(SpectralValues<1>, Array<i32>)> {
    let matrices = Matrices::of(a.layout, 4);
    let n = matrices.rows;
    let a = rows_of(order, a)?;
    let from = MatrixParts::of_rows(&a, n * n);
    // SAFETY: the launch fills each part with zeros before `factor` receives it.
    let (values, to_values) = unsafe { new_parts(order, of_values, a.dtype, n) }?;
    let mut vectors = None;
    if wanted {
        // SAFETY: the launch fills each part with zeros before `factor` receives it.
        vectors = Some(unsafe { new_parts(order, a.shape(), a.dtype, n * n) }?);
    }
    let output = vectors.as_ref().map(|(_, output)| *output);
    let factor = loops_of(a.dtype).eigh;
    let status = matrices.launch(order, move |number, threads| {
        // SAFETY: the memory is alive during a launch, and the ranges of a launch do not overlap.
        // The stream is ordered after the writes to the operand.
        unsafe {
            let vectors = output.map(|own| own.zeros(number));
            let parts = [from.part(number), to_values.zeros(number)];
            factor(parts, vectors, n, threads)
        }
    })?;
    let vectors = vectors.map(|(vectors, _)| [vectors]);
    Ok(((values, vectors), status))
}
