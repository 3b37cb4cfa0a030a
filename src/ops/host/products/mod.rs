//! Products of matrices in the host's memory.
//!
//! The algorithm of a product depends only on its type and on the layouts of its operands. So the
//! bits of a product are equal on every run and for any number of threads. If one operand is a
//! vector, the algorithm sums along rows or columns
//! ([`vectors`](cachescope_kernels::products::vectors)). Many small products are computed one after
//! another ([`tiny`](cachescope_kernels::products::tiny)). A few rows times a transposed matrix are
//! computed as dot products ([`dots`](cachescope_kernels::products::dots)). Other products of `f32`
//! and `f64` use the `gemm` crate ([`packed`](cachescope_kernels::products::packed)). Shorter
//! floats are converted to `f32` for `gemm` ([`widened`](cachescope_kernels::products::widened)).
//! Complex numbers use `gemm` for their real and imaginary parts
//! ([`complex`](cachescope_kernels::products::complex)). Integers and small complex matrices are
//! multiplied in blocks ([`blocks`](cachescope_kernels::products::blocks)).
//!
//! The crate `gemm` would divide a product with rayon's iterators. These iterators move the work to
//! the pool. So this module cuts products into parts, and threads share the parts. A part is a
//! range of rows. If there are few rows, a part is a range of columns. Parts are so large that the
//! order in which `gemm` adds terms depends on the inner length alone. So the bits of a product do
//! not depend on the number of threads.

use std::ops::Range;

use super::launch::{Work, launch};
use super::memory::{Untyped, computed_any, output_at};
use crate::array::{AnyArray, DType, Layout, Shape};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::order::HostOrder;
use cachescope_kernels::products::loops::ProductLoops;
use cachescope_kernels::products::matrix::{AnyMatrix, Pairs};
use cachescope_kernels::products::{
    ProductPlace, ProductRows, blocks, complex, dots, tiny, vectors, widened,
};

/// Returns the product of two arrays of one or two axes as an array of `shape`. The shape has as
/// many elements as the product. A vector is a row on the left and a column on the right.
#[track_caller]
pub(in crate::ops) fn multiply(
    order: HostOrder<'_>,
    left: &AnyArray,
    right: &AnyArray,
    shape: &Shape,
) -> Result<AnyArray> {
    let pairs = Pairs::one(matrix_of(left, 0), matrix_of(right, 1));
    write_products(order, Products::new(pairs, [left, right]), shape)
}

/// Returns the products of pairs of matrices, as an array of `shape`. The shape has as many
/// elements as the products. The last two axes of a layout are the axes of a matrix.
#[track_caller]
pub(in crate::ops) fn multiply_stacks(
    order: HostOrder<'_>,
    lefts: (&AnyArray, &Layout),
    rights: (&AnyArray, &Layout),
    shape: &Shape,
) -> Result<AnyArray> {
    write_products(order, Products::of_stacks(lefts, rights), shape)
}

/// Adds the products of `f16` or `bf16` to the elements of `place`, like [`multiply_stacks`].
/// `place` has the operands' type or `f32`. Nothing else may use the elements of `place`.
#[track_caller]
pub(in crate::ops) fn add_stacks(
    order: HostOrder<'_>,
    lefts: (&AnyArray, &Layout),
    rights: (&AnyArray, &Layout),
    place: &AnyArray,
) -> Result<()> {
    let products = Products::of_stacks(lefts, rights).added_to(place.dtype);
    assert_eq!(
        products.count(),
        place.len(),
        "the products and the place differ in length"
    );
    launch_products(order, &products, output_at(place));
    Ok(())
}

/// Writes the product of two matrices to `place`, and returns `true`. Nothing else may use the
/// elements of `place`.
#[track_caller]
pub(in crate::ops) fn multiply_into(
    order: HostOrder<'_>,
    left: &AnyArray,
    right: &AnyArray,
    place: &AnyArray,
) -> Result<bool> {
    let pairs = Pairs::one(matrix_of(left, 0), matrix_of(right, 1));
    let products = Products::new(pairs, [left, right]);
    assert_eq!(
        products.count(),
        place.len(),
        "the products and the place differ in length"
    );
    assert_eq!(
        products.result, place.dtype,
        "the products and the place differ in type"
    );
    launch_products(order, &products, output_at(place));
    Ok(true)
}

#[track_caller]
fn write_products(order: HostOrder<'_>, products: Products, shape: &Shape) -> Result<AnyArray> {
    let count = products.count();
    assert_eq!(
        count,
        shape.checked_len()?,
        "{shape} does not hold the products"
    );
    let write = |output: Untyped| launch_products(order, &products, output);
    // SAFETY: the ranges of a launch cover all jobs, and `launch_products` writes all elements of
    // each job.
    unsafe { computed_any(order.device, shape, products.result, write) }
}

fn launch_products(order: HostOrder<'_>, products: &Products, output: Untyped) {
    launch(
        order,
        products.work(),
        (products, &output),
        |products, output, range| {
            // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
            // overlap. The stream is ordered after the writes of other streams to the operands.
            unsafe { products.write(range, output) };
        },
    );
}

/// Products and their algorithm.
#[derive(Clone, Copy, Debug)]
struct Products {
    pairs: Pairs,
    /// The type of the operands.
    dtype: DType,
    /// The type of the products.
    result: DType,
    /// `true` if the products are added to values in memory.
    is_begun: bool,
    loops: &'static ProductLoops,
    algorithm: Algorithm,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Algorithm {
    /// Zeros, because the inner length is 0.
    Zeros,
    /// Many small products one after another.
    Tiny,
    /// Sums along rows or columns, because the right operand is a vector.
    Vector,
    /// Dot products of rows and columns.
    Dots,
    /// The crate `gemm`.
    Packed,
    /// The crate `gemm`, applied to the real and imaginary parts of complex numbers.
    Complex,
    /// The crate `gemm`, with operands that are converted to `f32`.
    Widened,
    /// Blocks of the result.
    Blocks,
}

impl Products {
    fn new(mut pairs: Pairs, [left, right]: [&AnyArray; 2]) -> Self {
        let dtype = left.dtype;
        assert_eq!(dtype, right.dtype, "the operands differ in type");
        if pairs.lengths().0 == 1 {
            // A row on the left is computed like a column on the right.
            pairs = pairs.transposed();
        }
        let (rows, inner, columns) = pairs.lengths();
        // Broadcast operands may have more elements than any memory.
        let steps = (rows * columns).saturating_mul(inner);
        let algorithm = if inner == 0 {
            Algorithm::Zeros
        } else if pairs.count() > 1 && steps <= tiny::MOST {
            Algorithm::Tiny
        } else if columns == 1 {
            Algorithm::Vector
        } else {
            match dtype {
                DType::F32 if dots::fit(pairs.models::<f32>()) => Algorithm::Dots,
                DType::F64 if dots::fit(pairs.models::<f64>()) => Algorithm::Dots,
                DType::F32 | DType::F64 => Algorithm::Packed,
                DType::C32 | DType::C64 if steps >= complex::LEAST => Algorithm::Complex,
                DType::F16 | DType::Bf16 => Algorithm::Widened,
                _ => Algorithm::Blocks,
            }
        };
        Self {
            pairs,
            dtype,
            result: dtype,
            is_begun: false,
            loops: ProductLoops::of(dtype),
            algorithm,
        }
    }

    /// Pairs the matrices of two stacks by index. The last two axes of a layout are a matrix.
    fn of_stacks(lefts: (&AnyArray, &Layout), rights: (&AnyArray, &Layout)) -> Self {
        let ((left, left_places), (right, right_places)) = (stack(lefts), stack(rights));
        assert_eq!(
            left_places.len(),
            right_places.len(),
            "the stacks differ in the number of matrices"
        );
        let pairs = Pairs::many(left, right, Layout::walk([&left_places, &right_places]));
        Self::new(pairs, [lefts.0, rights.0])
    }

    /// Returns products of `f16` or `bf16` that are added to values of `result` in memory.
    fn added_to(self, result: DType) -> Self {
        let narrow = self.dtype;
        assert!(
            matches!(narrow, DType::F16 | DType::Bf16) && [narrow, DType::F32].contains(&result),
            "products of {narrow} are added to {result}"
        );
        let algorithm = match self.pairs.lengths() {
            (_, 0, _) => unreachable!("products without terms are filled with zeros"),
            (_, _, 1) => Algorithm::Vector,
            _ => Algorithm::Widened,
        };
        Self {
            result,
            is_begun: true,
            algorithm,
            ..self
        }
    }

    fn count(&self) -> usize {
        let (rows, _, columns) = self.pairs.lengths();
        self.pairs.count() * rows * columns
    }

    /// Returns the number of rows of a product that one job computes. The number is limited, so
    /// that there are jobs for many threads. It does not depend on the number of threads, so
    /// results do not, either.
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

    /// Returns the number of jobs of one product. The product has at least one row.
    fn jobs_each(&self) -> usize {
        match self.parts() {
            Some(parts) => parts.count,
            None => self.pairs.lengths().0.div_ceil(self.job_rows()),
        }
    }

    /// Returns the parts of each product that threads share, if a product is worth several threads.
    fn parts(&self) -> Option<ProductParts> {
        match self.algorithm {
            Algorithm::Dots => ProductParts::of_columns(self.pairs.lengths()),
            Algorithm::Packed | Algorithm::Complex => ProductParts::of(self.pairs.lengths()),
            _ => None,
        }
    }

    /// Returns the work of all jobs. In the time of reading one byte, a thread adds about eight
    /// products of floats, or half a product of integers.
    fn work(&self) -> Work {
        let (rows, inner, columns) = self.pairs.lengths();
        let jobs = self.pairs.count() * self.jobs_each();
        let elements = rows.min(self.job_rows()) * columns;
        let steps = elements.saturating_mul(inner);
        match self.algorithm {
            Algorithm::Zeros => Work::of_bytes(jobs, elements * self.dtype.size_bytes()),
            Algorithm::Tiny | Algorithm::Vector => {
                Work::of_bytes(jobs, steps.saturating_mul(self.dtype.size_bytes()))
            }
            // Each call of `gemm` packs the matrix that all parts share, so that each thread makes
            // one call.
            Algorithm::Dots | Algorithm::Packed | Algorithm::Complex => {
                let bytes = steps / if self.dtype.is_complex() { 2 } else { 8 };
                let parts = self.parts().map_or(1, |parts| parts.count);
                Work::of_bytes(jobs, bytes / parts).in_one_part_each()
            }
            Algorithm::Widened => Work::of_bytes(jobs, steps / 8),
            Algorithm::Blocks => Work::of_bytes(jobs, steps.saturating_mul(2)),
        }
    }

    /// Runs the jobs with the indices `range`.
    ///
    /// # Safety
    ///
    /// The memory of the operands must be alive and not written to. The memory of the output must
    /// be alive, and nothing else may access the written part.
    unsafe fn write(&self, range: Range<usize>, output: &Untyped) {
        let (all_rows, _, columns) = self.pairs.lengths();
        let (jobs_each, job_rows) = (self.jobs_each(), self.job_rows());
        if self.algorithm == Algorithm::Tiny {
            let out = output.part(self.dtype, range.start * all_rows * columns);
            // SAFETY: by this function's contract. A job is a product.
            return unsafe { (self.loops.tiny)(&self.pairs, range, out) };
        }
        if let Some(parts) = self.parts() {
            // SAFETY: by this function's contract.
            return unsafe { self.write_parts(parts, range, output) };
        }
        for job in range {
            let (index, block) = (job / jobs_each, job % jobs_each);
            let rows = block * job_rows..all_rows.min((block + 1) * job_rows);
            let first = (index * all_rows + rows.start) * columns;
            // SAFETY: by this function's contract.
            unsafe { self.write_rows(index, rows, output.part(self.result, first)) };
        }
    }

    /// Writes parts of products. Consecutive parts of one product are written together.
    ///
    /// # Safety
    ///
    /// The contract of [`write`](Self::write) applies.
    unsafe fn write_parts(&self, parts: ProductParts, range: Range<usize>, output: &Untyped) {
        let (all_rows, _, all_columns) = self.pairs.lengths();
        let mut job = range.start;
        while job < range.end {
            let index = job / parts.count;
            let end = range.end.min((index + 1) * parts.count);
            let numbers = job % parts.count..end - index * parts.count;
            job = end;
            let (rows, columns) = parts.place(numbers, [all_rows, all_columns]);
            let first = (index * all_rows + rows.start) * all_columns + columns.start;
            let place = ProductPlace {
                first: output.part(self.dtype, first).cast(),
                row_stride: all_columns,
            };
            // SAFETY: only this job writes the part of the output. This function's contract covers
            // the operands.
            unsafe { self.write_part(index, [rows, columns], place) };
        }
    }

    /// Writes the rows `rows` of the product of the pair `index`, from `out` on.
    ///
    /// # Safety
    ///
    /// The memory of both matrices must be alive and not written to. `out` must have space for the
    /// rows, and nothing else may access this space.
    unsafe fn write_rows(&self, index: usize, rows: Range<usize>, out: *mut u8) {
        let (_, _, columns) = self.pairs.lengths();
        // SAFETY: by this function's contract. `new` selected the loops for the type.
        unsafe {
            match self.algorithm {
                Algorithm::Tiny => unreachable!("tiny products are not written by rows"),
                // Zero bytes represent the number 0.
                Algorithm::Zeros => {
                    out.write_bytes(0, rows.len() * columns * self.dtype.size_bytes());
                }
                Algorithm::Vector => (self.loops.vector)(&self.pairs, index, rows, self.at(out)),
                Algorithm::Dots | Algorithm::Packed | Algorithm::Complex => {
                    let place = ProductPlace {
                        first: out.cast(),
                        row_stride: columns,
                    };
                    self.write_part(index, [rows, 0..columns], place);
                }
                Algorithm::Widened | Algorithm::Blocks => {
                    let write = self
                        .loops
                        .rows
                        .expect("the type has the loop of the algorithm");
                    write(&self.pairs, index, rows, self.at(out));
                }
            }
        }
    }

    /// Returns the memory of rows of the products, from `first` on.
    fn at(&self, first: *mut u8) -> ProductRows {
        ProductRows {
            first,
            is_wide: self.result != self.dtype,
            is_begun: self.is_begun,
        }
    }

    /// Writes a part of a product to `place`.
    ///
    /// # Safety
    ///
    /// The memory of both matrices must be alive and not written to. `place` must have space for
    /// the part, and nothing else may access this space.
    unsafe fn write_part(&self, index: usize, part: [Range<usize>; 2], place: ProductPlace<u8>) {
        let write = match self.algorithm {
            Algorithm::Dots => self.loops.dots,
            _ => self.loops.packed,
        };
        let write = write.expect("the type has the loop of the algorithm");
        // SAFETY: by this function's contract. `new` selected the loops for the type.
        unsafe { write(&self.pairs, index, part, place) };
    }
}

/// The parts of a product that threads share: rows, or columns if there are few rows.
///
/// The crate `gemm` adds the terms of an element in an order that depends on the inner length. In
/// small products, it uses another order. So parts are large enough that elements do not depend on
/// the division into parts.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProductParts {
    count: usize,
    of_rows: bool,
}

impl ProductParts {
    /// The minimum number of multiplications of a product with parts.
    const SHARED: usize = 1 << 22;
    /// The minimum length of a part along the divided axis.
    const LEAST: usize = 32;
    /// The minimum length of a part along the axis that is not divided.
    const LEAST_OTHER: usize = 65;
    /// The maximum number of parts.
    const MOST: usize = 64;

    /// Returns parts of columns, for an algorithm whose elements do not depend on the division into
    /// parts.
    fn of_columns((rows, inner, columns): (usize, usize, usize)) -> Option<Self> {
        let is_long = (rows * columns).saturating_mul(inner) >= Self::SHARED;
        let count = (columns / Self::LEAST).min(Self::MOST);
        let of_rows = false;
        (is_long && count > 1).then_some(Self { count, of_rows })
    }

    /// Returns the parts of a product with the lengths `rows`, `inner` and `columns`. Returns
    /// `None` if the product is too small for several threads.
    fn of((rows, inner, columns): (usize, usize, usize)) -> Option<Self> {
        let is_long = (rows * columns).saturating_mul(inner) >= Self::SHARED;
        let count = |length: usize, other: usize| match other >= Self::LEAST_OTHER {
            true => (length / Self::LEAST).min(Self::MOST),
            false => 0,
        };
        let [by_rows, by_columns] = [count(rows, columns), count(columns, rows)];
        // Parts of rows are contiguous, so four of them are preferred to more parts of columns.
        let of_rows = by_rows >= by_columns.min(4);
        let count = if of_rows { by_rows } else { by_columns };
        (is_long && count > 1).then_some(Self { count, of_rows })
    }

    /// Returns the rows and the columns of the parts with the indices `numbers`.
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

/// Returns an array of one or two axes as a matrix. A vector becomes a matrix of length 1 along
/// `axis`.
fn matrix_of(array: &AnyArray, axis: usize) -> AnyMatrix {
    let layout = &array.layout;
    let (dims, strides) = match (layout.dims(), layout.strides(), axis) {
        (&[columns], &[stride], 0) => ([1, columns], [0, stride]),
        (&[rows], &[stride], _) => ([rows, 1], [stride, 0]),
        (&[rows, columns], &[down, along], _) => ([rows, columns], [down, along]),
        _ => unreachable!("{layout:?} is not a matrix"),
    };
    let offset_bytes = layout.offset() * array.dtype.size_bytes();
    AnyMatrix::new(base(array).wrapping_add(offset_bytes), dims, strides)
}

/// Returns the address of an array's memory, from which the offsets of its layouts count.
fn base(array: &AnyArray) -> *const u8 {
    host_pointer(DevicePtr(array.buffer.address()))
}

/// Returns a matrix at the beginning of an array's memory, and the layout of the offsets of all
/// matrices. The last two axes of `layout` are the axes of a matrix.
fn stack((array, layout): (&AnyArray, &Layout)) -> (AnyMatrix, Layout) {
    let within = layout
        .bounds()
        .is_none_or(|(_, highest)| highest < array.buffer.size_bytes() / array.dtype.size_bytes());
    assert!(within, "{layout:?} reaches beyond its array");
    let (places, matrix) = layout.split_at(layout.ndim() - 2);
    let (dims, strides) = (matrix.dims(), matrix.strides());
    let first = AnyMatrix::new(base(array), [dims[0], dims[1]], [strides[0], strides[1]]);
    (first, places)
}
