//! Products of matrices in the host's memory.
//!
//! The algorithm of a product depends only on its type and on the layouts of its operands. So its
//! bits are equal on every run and for any number of threads. If one operand is a vector, the
//! algorithm sums along rows or columns ([`vectors`]). Many small products are computed one after
//! another ([`tiny`]), and a few rows times a transposed matrix as dot products ([`dots`]). Other
//! products of `f32` and `f64` use the `gemm` crate ([`packed`]). Shorter
//! floats use it by way of `f32` ([`widened`]), and complex numbers use it for their real and
//! imaginary parts ([`complex`]). Integers and small complex matrices are multiplied in blocks
//! ([`blocks`]).

mod blocks;
mod complex;
mod dots;
mod matrix;
mod packed;
mod tiny;
mod vectors;
mod widened;

use std::any::TypeId;
use std::mem::MaybeUninit;
use std::ops::Range;

use self::matrix::{Matrix, Pairs};
use super::launch::{Work, launch};
use super::memory::{Output, computed};
use crate::array::{AnyElement, Array, DType, Layout, Number, Shape};
use crate::error::Result;
use crate::ops::order::HostOrder;

/// Returns the product of two arrays of one or two axes as an array of `shape`, which has as many
/// elements as the product. A vector is a row on the left and a column on the right.
#[track_caller]
pub(in crate::ops) fn multiply<T: Number>(
    order: HostOrder<'_>,
    left: &Array<T>,
    right: &Array<T>,
    shape: &Shape,
) -> Result<Array<T>> {
    let pairs = Pairs::one(Matrix::of(left, 0), Matrix::of(right, 1));
    write_products(order, pairs, shape)
}

/// Returns the products of each left matrix and the right matrix of equal number as an array of
/// `shape`, which has as many elements as the products. The last two axes of a layout are the axes
/// of a matrix.
#[track_caller]
pub(in crate::ops) fn multiply_stacks<T: Number>(
    order: HostOrder<'_>,
    (left, left_layout): (&Array<T>, &Layout),
    (right, right_layout): (&Array<T>, &Layout),
    shape: &Shape,
) -> Result<Array<T>> {
    let pairs = Pairs::many((left, left_layout), (right, right_layout));
    write_products(order, pairs, shape)
}

/// Writes the product of two matrices to `place`, whose elements nobody else uses.
#[track_caller]
pub(in crate::ops) fn multiply_into<T: Number>(
    order: HostOrder<'_>,
    left: &Array<T>,
    right: &Array<T>,
    place: &Array<T>,
) -> Result<bool> {
    let products = Products::new(Pairs::one(Matrix::of(left, 0), Matrix::of(right, 1)));
    assert_eq!(products.count(), place.len(), "the place is as large");
    launch_products(order, &products, Output::at(place));
    Ok(true)
}

#[track_caller]
fn write_products<T: Number>(
    order: HostOrder<'_>,
    pairs: Pairs<T>,
    shape: &Shape,
) -> Result<Array<T>> {
    let products = Products::new(pairs);
    let count = products.count();
    assert_eq!(
        count,
        shape.checked_len()?,
        "{shape} does not hold the products"
    );
    let write = |output: Output<T>| launch_products(order, &products, output);
    // SAFETY: the ranges of a launch cover all jobs, and `launch_products` writes all elements of
    // each.
    unsafe { computed(order.device, shape, write) }
}

fn launch_products<T: Number>(order: HostOrder<'_>, products: &Products<T>, output: Output<T>) {
    launch(
        order,
        products.work(),
        (products, &output),
        |products, output, range| {
            // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap. The
            // stream is ordered after what other streams wrote, so while a launch on it runs, the
            // operands are alive and not written to.
            unsafe { products.write(range, output) };
        },
    );
}

/// Products and their algorithm.
#[derive(Clone, Copy, Debug)]
struct Products<T> {
    pairs: Pairs<T>,
    algorithm: Algorithm,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Algorithm {
    /// All zeros, because there is nothing to sum.
    Zeros,
    /// Many small products one after another.
    Tiny,
    /// The right operand is a vector.
    Vector,
    /// Dot products of rows and columns.
    Dots,
    /// The crate `gemm`.
    Packed,
    /// The crate `gemm`, applied to the real and imaginary parts of complex numbers.
    Complex,
    /// The crate `gemm` by way of `f32`.
    Widened,
    /// Blocks of the result.
    Blocks,
}

impl<T: Number> Products<T> {
    fn new(mut pairs: Pairs<T>) -> Self {
        if pairs.lengths().0 == 1 {
            // A row on the left is computed like a column on the right.
            pairs = pairs.transposed();
        }
        let (rows, inner, columns) = pairs.lengths();
        // Operands that are broadcast may be longer than any memory.
        let steps = (rows * columns).saturating_mul(inner);
        let algorithm = if inner == 0 {
            Algorithm::Zeros
        } else if pairs.count() > 1 && steps <= tiny::MOST {
            Algorithm::Tiny
        } else if columns == 1 {
            Algorithm::Vector
        } else if is::<T, f32>() || is::<T, f64>() {
            let (left, right) = pairs.models();
            match dots::fit(&left, &right) {
                true => Algorithm::Dots,
                false => Algorithm::Packed,
            }
        } else if T::DTYPE.is_complex() && steps >= complex::LEAST {
            Algorithm::Complex
        } else if is_float::<T>() && !T::DTYPE.is_complex() {
            Algorithm::Widened
        } else {
            Algorithm::Blocks
        };
        Self { pairs, algorithm }
    }

    fn count(&self) -> usize {
        let (rows, _, columns) = self.pairs.lengths();
        self.pairs.count() * rows * columns
    }

    /// Returns the number of rows of a product that one job computes. It is limited so that there
    /// are jobs for many threads. It does not depend on the number of threads, so results do not
    /// either.
    fn job_rows(&self) -> usize {
        match self.algorithm {
            Algorithm::Vector => vectors::HEIGHT,
            Algorithm::Widened => widened::ROWS,
            Algorithm::Blocks => blocks::BLOCK,
            Algorithm::Zeros
            | Algorithm::Tiny
            | Algorithm::Dots
            | Algorithm::Packed
            | Algorithm::Complex => self.pairs.lengths().0,
        }
    }

    /// Returns the number of jobs of one product, which has rows.
    fn jobs_each(&self) -> usize {
        match self.parts() {
            Some(parts) => parts.count,
            None => self.pairs.lengths().0.div_ceil(self.job_rows()),
        }
    }

    /// Returns the parts of each product that threads share, if it is worth several threads.
    fn parts(&self) -> Option<ProductParts> {
        match self.algorithm {
            Algorithm::Dots => ProductParts::of_columns(self.pairs.lengths()),
            Algorithm::Packed | Algorithm::Complex => ProductParts::of(self.pairs.lengths()),
            _ => None,
        }
    }

    /// Returns the work of all jobs. In the time of reading one byte of memory, a thread adds about
    /// eight products of floats or half a product of integers.
    fn work(&self) -> Work {
        let (rows, inner, columns) = self.pairs.lengths();
        let jobs = self.pairs.count() * self.jobs_each();
        let elements = rows.min(self.job_rows()) * columns;
        let steps = elements.saturating_mul(inner);
        match self.algorithm {
            Algorithm::Zeros => Work::of_bytes(jobs, elements * size_of::<T>()),
            Algorithm::Tiny | Algorithm::Vector => {
                Work::of_bytes(jobs, steps.saturating_mul(size_of::<T>()))
            }
            // Each call of `gemm` packs the matrix that its parts share.
            Algorithm::Dots | Algorithm::Packed | Algorithm::Complex => {
                let bytes = steps / if T::DTYPE.is_complex() { 2 } else { 8 };
                let parts = self.parts().map_or(1, |parts| parts.count);
                Work::of_bytes(jobs, bytes / parts).in_one_part_each()
            }
            Algorithm::Widened => Work::of_bytes(jobs, steps / 8),
            Algorithm::Blocks => Work::of_bytes(jobs, steps.saturating_mul(2)),
        }
    }

    /// Does the jobs of the numbers in `range`.
    ///
    /// # Safety
    ///
    /// The memory of the operands must be alive and not written to. The memory of the output must
    /// be alive, and nobody else may hold the part that is written.
    unsafe fn write(&self, range: Range<usize>, output: &Output<T>) {
        let (all_rows, _, columns) = self.pairs.lengths();
        let (jobs_each, job_rows) = (self.jobs_each(), self.job_rows());
        if self.algorithm == Algorithm::Tiny {
            let each = all_rows * columns;
            // SAFETY: a job is a product, and the caller keeps this contract.
            return unsafe {
                let out = output.part(range.start * each..range.end * each);
                tiny::multiply(&self.pairs, range, out);
            };
        }
        if let Some(parts) = self.parts() {
            // SAFETY: the caller keeps this contract.
            return unsafe { self.write_parts(parts, range, output) };
        }
        for job in range {
            let (index, block) = (job / jobs_each, job % jobs_each);
            let rows = block * job_rows..all_rows.min((block + 1) * job_rows);
            let start = index * all_rows;
            let (left, right) = self.pairs.get(index);
            let left = left.rows(rows.clone());
            // SAFETY: the caller keeps this contract.
            unsafe {
                let out = output.part((start + rows.start) * columns..(start + rows.end) * columns);
                self.write_rows(&left, &right, out);
            }
        }
    }

    /// Writes parts of products. Parts of one product that follow each other are written together.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    unsafe fn write_parts(&self, parts: ProductParts, range: Range<usize>, output: &Output<T>) {
        let (all_rows, _, all_columns) = self.pairs.lengths();
        let mut job = range.start;
        while job < range.end {
            let index = job / parts.count;
            let end = range.end.min((index + 1) * parts.count);
            let numbers = job % parts.count..end - index * parts.count;
            job = end;
            let (rows, columns) = parts.place(numbers, [all_rows, all_columns]);
            let first = (index * all_rows + rows.start) * all_columns + columns.start;
            let (left, right) = self.pairs.get(index);
            let left = left.rows(rows);
            let right = right.part(0, columns.start, right.rows, columns.len());
            let place = ProductPlace {
                first: output.address(first),
                row_stride: all_columns,
            };
            // SAFETY: the part of the output is this job's alone, and the caller keeps the rest.
            unsafe { self.write_part(&left, &right, place) };
        }
    }

    /// Writes the product of some rows to all of `out`, row by row.
    ///
    /// # Safety
    ///
    /// The memory of both matrices must be alive and not written to.
    unsafe fn write_rows(&self, left: &Matrix<T>, right: &Matrix<T>, out: &mut [MaybeUninit<T>]) {
        assert_eq!(out.len(), left.rows * right.columns);
        // SAFETY: the types have been checked, and the caller keeps the rest.
        unsafe {
            match self.algorithm {
                Algorithm::Tiny => unreachable!("these are not written by rows"),
                Algorithm::Zeros => out.fill(MaybeUninit::new(T::zero())),
                Algorithm::Vector => vectors::matrix_vector(left, &right.transposed(), out),
                Algorithm::Dots | Algorithm::Packed | Algorithm::Complex => {
                    let place = ProductPlace {
                        first: out.as_mut_ptr(),
                        row_stride: right.columns,
                    };
                    self.write_part(left, right, place);
                }
                Algorithm::Widened => widened::multiply(left, right, out),
                Algorithm::Blocks => blocks::multiply(left, right, out),
            }
        }
    }

    /// Writes a part of a product to `place`.
    ///
    /// # Safety
    ///
    /// The memory of both matrices must be alive and not written to. The place must have room for
    /// the product, and nobody else may hold it.
    unsafe fn write_part(&self, left: &Matrix<T>, right: &Matrix<T>, place: ProductPlace<T>) {
        let are_dots = self.algorithm == Algorithm::Dots;
        // SAFETY: the types have been checked, and the caller keeps the rest.
        unsafe {
            match T::DTYPE {
                DType::F32 if are_dots => dots::multiply::<T, f32>(left, right, place),
                DType::F64 if are_dots => dots::multiply::<T, f64>(left, right, place),
                DType::F32 => packed::multiply::<T, f32>(left, right, place),
                DType::F64 => packed::multiply::<T, f64>(left, right, place),
                DType::C32 => complex::multiply::<T, f32>(left, right, place),
                _ => complex::multiply::<T, f64>(left, right, place),
            }
        }
    }
}

/// The memory of a product.
#[derive(Clone, Copy, Debug)]
struct ProductPlace<T> {
    first: *mut MaybeUninit<T>,
    /// The distance of two rows, in elements. The elements of a row are contiguous.
    row_stride: usize,
}

/// The parts of a product that threads share: rows, or columns if there are few rows.
///
/// The crate `gemm` adds the terms of an element in an order that depends on the inner length, and
/// on whether the product is small. So parts are large enough that an element does not depend on
/// them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProductParts {
    count: usize,
    of_rows: bool,
}

impl ProductParts {
    /// The fewest multiplications of a product with parts.
    const SHARED: usize = 1 << 22;
    /// The least length of a part, and the least length of a part's other side.
    const LEAST: usize = 32;
    const LEAST_OTHER: usize = 65;
    /// The most parts.
    const MOST: usize = 64;

    /// Returns the parts of a product whose elements do not depend on its parts.
    fn of_columns((rows, inner, columns): (usize, usize, usize)) -> Option<Self> {
        let is_long = (rows * columns).saturating_mul(inner) >= Self::SHARED;
        let count = (columns / Self::LEAST).min(Self::MOST);
        let of_rows = false;
        (is_long && count > 1).then_some(Self { count, of_rows })
    }

    /// Returns the parts of a product with these rows, inner length and columns.
    fn of((rows, inner, columns): (usize, usize, usize)) -> Option<Self> {
        let is_long = (rows * columns).saturating_mul(inner) >= Self::SHARED;
        let count = |length: usize, other: usize| match other >= Self::LEAST_OTHER {
            true => (length / Self::LEAST).min(Self::MOST),
            false => 0,
        };
        let [by_rows, by_columns] = [count(rows, columns), count(columns, rows)];
        // Parts of rows are contiguous. A few of them are enough.
        let of_rows = by_rows >= by_columns.min(4);
        let count = if of_rows { by_rows } else { by_columns };
        (is_long && count > 1).then_some(Self { count, of_rows })
    }

    /// Returns the rows and the columns of the parts `numbers`.
    fn place(self, numbers: Range<usize>, lengths: [usize; 2]) -> (Range<usize>, Range<usize>) {
        let [rows, columns] = lengths;
        let cut =
            |length: usize| length * numbers.start / self.count..length * numbers.end / self.count;
        match self.of_rows {
            true => (cut(rows), 0..columns),
            false => (0..rows, cut(columns)),
        }
    }
}

/// Returns whether two types are equal.
#[inline(always)]
fn is<T: 'static, U: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<U>()
}

/// Returns whether `T` is a float or a complex number: only for these types is the mean of the type
/// itself.
#[inline(always)]
fn is_float<T: AnyElement>() -> bool {
    is::<T, T::Average>()
}
