//! The tables of loops that multiply matrices. A table is for one element type.

use std::mem::MaybeUninit;
use std::ops::Range;

use half::{bf16, f16};
use num_complex::Complex;

use super::matrix::{Matrix, Pairs};
use super::packed::Packed;
use super::{ProductPlace, ProductRows, blocks, complex, dots, packed, tiny, vectors, widened};
use crate::registers::RegisterFloat;
use crate::{DType, Number};

/// A function that writes some rows of a pair's product, row by row.
///
/// The elements must be of the loop's type. The memory of the matrices must be alive and not
/// written to. The memory of the rows must be writable, and no other code may access it. Only loops
/// for `f16` and `bf16` support `is_wide` and `is_begun`. If `is_begun` is `true`, the rows must be
/// initialised.
type RowsLoop = unsafe fn(&Pairs, usize, Range<usize>, ProductRows);

/// A function that writes some rows and columns of a pair's product. Its contract is the contract
/// of a [`RowsLoop`].
type PartLoop = unsafe fn(&Pairs, usize, [Range<usize>; 2], ProductPlace<u8>);

/// The loops that multiply matrices of a type.
#[derive(Debug)]
pub struct ProductLoops {
    /// The loop for many small matrices. Its contract is the contract of a `RowsLoop` without
    /// `is_begun`.
    pub tiny: unsafe fn(&Pairs, Range<usize>, *mut u8),
    /// The loop for products of a matrix and a vector.
    pub vector: RowsLoop,
    /// The loop for matrices that neither `packed` nor `dots` multiplies.
    pub rows: Option<RowsLoop>,
    /// The loop for large matrices.
    pub packed: Option<PartLoop>,
    /// The loop for matrices that [`fit`](dots::fit) dot products.
    pub dots: Option<PartLoop>,
}

impl ProductLoops {
    /// Returns the loops for elements of `dtype`.
    ///
    /// # Panics
    ///
    /// Panics if `dtype` is not a type of numbers.
    pub fn of(dtype: DType) -> &'static Self {
        static F32: ProductLoops = ProductLoops::packed::<f32>();
        static F64: ProductLoops = ProductLoops::packed::<f64>();
        static F16: ProductLoops = ProductLoops::narrow::<f16>();
        static BF16: ProductLoops = ProductLoops::narrow::<bf16>();
        // Integers wrap. Therefore signed and unsigned types share a loop, and sums of short
        // integers may have a longer type. Sums of `u8` and `u16` are in `u32`, because loops with
        // short sums have four times the code.
        static BYTES: ProductLoops = ProductLoops::by_rows::<u8, u32>(block_rows::<u8, u32>);
        static SHORTS: ProductLoops = ProductLoops::by_rows::<u16, u32>(block_rows::<u16, u32>);
        static WORDS: ProductLoops = ProductLoops::by_rows::<u32, u32>(block_rows::<u32, u32>);
        static LONGS: ProductLoops = ProductLoops::by_rows::<u64, u64>(block_rows::<u64, u64>);
        static C32: ProductLoops = ProductLoops::complex::<f32>();
        static C64: ProductLoops = ProductLoops::complex::<f64>();
        match dtype {
            DType::F32 => &F32,
            DType::F64 => &F64,
            DType::F16 => &F16,
            DType::Bf16 => &BF16,
            DType::I8 | DType::U8 => &BYTES,
            DType::I16 | DType::U16 => &SHORTS,
            DType::I32 | DType::U32 => &WORDS,
            DType::I64 | DType::U64 => &LONGS,
            DType::C32 => &C32,
            DType::C64 => &C64,
            _ => unreachable!("truth values are not multiplied"),
        }
    }

    const fn by_rows<T: Number, A: Number>(rows: RowsLoop) -> Self {
        Self {
            tiny: tiny_products::<T, A>,
            vector: vector_rows::<T, A>,
            rows: Some(rows),
            packed: None,
            dots: None,
        }
    }

    const fn narrow<T: Number>() -> Self {
        Self {
            tiny: tiny_products::<T, f32>,
            vector: widened_vector_rows::<T>,
            rows: Some(widened_rows::<T>),
            packed: None,
            dots: None,
        }
    }

    const fn packed<T: Number + Packed + RegisterFloat>() -> Self {
        Self {
            tiny: tiny_products::<T, T>,
            vector: vector_rows::<T, T>,
            rows: None,
            packed: Some(packed_part::<T>),
            dots: Some(dots_part::<T>),
        }
    }

    const fn complex<U: Packed>() -> Self
    where
        Complex<U>: Number,
    {
        Self {
            packed: Some(complex_part::<U>),
            ..Self::by_rows::<Complex<U>, Complex<U>>(block_rows::<Complex<U>, Complex<U>>)
        }
    }
}

/// # Safety
///
/// The contract of [`ProductLoops::tiny`] must hold.
unsafe fn tiny_products<T: Number, A: Number>(pairs: &Pairs, range: Range<usize>, out: *mut u8) {
    let (rows, _, columns) = pairs.lengths();
    let count = range.len() * rows * columns;
    // SAFETY: the caller upholds this function's contract.
    unsafe { tiny::multiply::<T, A>(pairs, range, elements::<T>(out, count)) };
}

/// # Safety
///
/// The contract of a [`RowsLoop`] must hold.
unsafe fn vector_rows<T: Number, A: Number>(
    pairs: &Pairs,
    index: usize,
    rows: Range<usize>,
    out: ProductRows,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let (left, right, out) = rows_of::<T>(pairs, index, rows, out);
        vectors::matrix_vector::<T, A, T>(&left, &right.transposed(), out);
    }
}

/// # Safety
///
/// The contract of a [`RowsLoop`] must hold. In addition, there must be at most [`vectors::HEIGHT`]
/// rows.
unsafe fn widened_vector_rows<T: Number>(
    pairs: &Pairs,
    index: usize,
    rows: Range<usize>,
    out: ProductRows,
) {
    let count = rows.len();
    let (left, right) = pairs.get::<T>(index);
    let mut sums = [MaybeUninit::uninit(); vectors::HEIGHT];
    // SAFETY: the caller upholds this function's contract. `matrix_vector` writes all sums. The
    // product of a matrix and a vector has one element per row.
    unsafe {
        vectors::matrix_vector::<T, f32, f32>(
            &left.rows(rows),
            &right.transposed(),
            &mut sums[..count],
        );
        let sums = std::slice::from_raw_parts(sums.as_ptr().cast(), count);
        match out.is_wide {
            true => widened::store::<f32>(sums, elements(out.first, count), out.is_begun),
            false => widened::store::<T>(sums, elements(out.first, count), out.is_begun),
        }
    }
}

/// # Safety
///
/// The contract of a [`RowsLoop`] must hold.
unsafe fn widened_rows<T: Number>(
    pairs: &Pairs,
    index: usize,
    rows: Range<usize>,
    out: ProductRows,
) {
    let (left, right) = pairs.get::<T>(index);
    let (left, count) = (left.rows(rows.clone()), rows.len() * right.columns);
    let is_begun = out.is_begun;
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        match out.is_wide {
            true => {
                let out = elements::<f32>(out.first, count);
                widened::multiply(&left, &right, out, is_begun);
            }
            false => {
                let out = elements::<T>(out.first, count);
                widened::multiply(&left, &right, out, is_begun);
            }
        }
    }
}

/// # Safety
///
/// The contract of a [`RowsLoop`] must hold.
unsafe fn block_rows<T: Number, A: Number>(
    pairs: &Pairs,
    index: usize,
    rows: Range<usize>,
    out: ProductRows,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let (left, right, out) = rows_of::<T>(pairs, index, rows, out);
        blocks::multiply::<T, A>(&left, &right, out);
    }
}

/// # Safety
///
/// The contract of a [`PartLoop`] must hold.
unsafe fn packed_part<T: Number + Packed>(
    pairs: &Pairs,
    index: usize,
    part: [Range<usize>; 2],
    place: ProductPlace<u8>,
) {
    let (left, right) = part_of::<T>(pairs, index, part);
    // SAFETY: the caller upholds this function's contract.
    unsafe { packed::multiply(&left, &right, place.typed()) };
}

/// # Safety
///
/// The contract of a [`PartLoop`] must hold.
unsafe fn dots_part<T: Number + RegisterFloat>(
    pairs: &Pairs,
    index: usize,
    part: [Range<usize>; 2],
    place: ProductPlace<u8>,
) {
    let (left, right) = part_of::<T>(pairs, index, part);
    // SAFETY: the caller upholds this function's contract.
    unsafe { dots::multiply(&left, &right, place.typed()) };
}

/// # Safety
///
/// The contract of a [`PartLoop`] must hold.
unsafe fn complex_part<U: Packed>(
    pairs: &Pairs,
    index: usize,
    part: [Range<usize>; 2],
    place: ProductPlace<u8>,
) where
    Complex<U>: Number,
{
    let (left, right) = part_of::<Complex<U>>(pairs, index, part);
    // SAFETY: the caller upholds this function's contract.
    unsafe { complex::multiply(&left, &right, place.typed()) };
}

/// Returns some rows of the left matrix, the right matrix, and the elements of their product.
///
/// # Safety
///
/// The contract of a [`RowsLoop`] must hold.
#[inline(always)]
unsafe fn rows_of<'a, T: Number>(
    pairs: &Pairs,
    index: usize,
    rows: Range<usize>,
    out: ProductRows,
) -> (Matrix<T>, Matrix<T>, &'a mut [MaybeUninit<T>]) {
    debug_assert!(
        !out.is_wide && !out.is_begun,
        "this loop does not write wide or begun products"
    );
    let (left, right) = pairs.get::<T>(index);
    let count = rows.len() * right.columns;
    // SAFETY: the caller upholds this function's contract.
    let out = unsafe { elements(out.first, count) };
    (left.rows(rows), right, out)
}

fn part_of<T: Number>(
    pairs: &Pairs,
    index: usize,
    [rows, columns]: [Range<usize>; 2],
) -> (Matrix<T>, Matrix<T>) {
    let (left, right) = pairs.get::<T>(index);
    let right = right.part(0, columns.start, right.rows, columns.len());
    (left.rows(rows), right)
}

/// # Safety
///
/// The memory must be aligned and writable for the elements. No other code may access it.
#[inline(always)]
unsafe fn elements<'a, T>(out: *mut u8, count: usize) -> &'a mut [MaybeUninit<T>] {
    // SAFETY: the caller upholds this function's contract.
    unsafe { std::slice::from_raw_parts_mut(out.cast(), count) }
}
