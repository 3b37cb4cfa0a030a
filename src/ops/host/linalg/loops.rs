//! Tables of the functions of `cachescope-linalg`, by element type. Only this module of the
//! factorizations depends on the element type.

use std::slice::{from_raw_parts, from_raw_parts_mut};

use cachescope_linalg::{Outcome, Real};

use crate::array::DType;

/// The memory of one matrix, or of the values of one matrix, such as its eigenvalues.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatrixPart {
    pub(super) address: *mut u8,
    pub(super) count: usize,
}

impl MatrixPart {
    /// Returns the elements.
    ///
    /// # Safety
    ///
    /// The elements must have the type `T`, and must have been written. Nothing may write to the
    /// elements while the slice exists.
    unsafe fn read<'a, T>(self) -> &'a [T] {
        match self.count {
            0 => &[],
            // SAFETY: by this function's contract.
            count => unsafe { from_raw_parts(self.address.cast(), count) },
        }
    }

    /// Returns the elements for writing.
    ///
    /// # Safety
    ///
    /// The contract of [`read`](Self::read) applies. Nothing else may access the elements while the
    /// slice exists.
    unsafe fn write<'a, T>(self) -> &'a mut [T] {
        match self.count {
            0 => &mut [],
            // SAFETY: by this function's contract.
            count => unsafe { from_raw_parts_mut(self.address.cast(), count) },
        }
    }
}

/// A function of two parts, the number of rows, and the number of threads.
pub(super) type EachMatrix = unsafe fn([MatrixPart; 2], usize, usize) -> Outcome;

/// A function of the rows of a matrix, its values, and the memory `V` of its vectors. If the
/// vectors are not wanted, the memory is `None`. The other arguments are the shape `S` of the
/// matrix and the number of threads.
type Spectral<V, S> = unsafe fn([MatrixPart; 2], Option<V>, S, usize) -> Outcome;

/// The functions of [`Real`] for one type.
///
/// # Safety
///
/// Parts must have elements of this type. The elements must have been written. During a call,
/// nothing may write to the rows of `svd` and `eigh`. Nothing else may access the other parts.
pub(super) struct MatrixLoops {
    pub(super) solve: EachMatrix,
    pub(super) invert: EachMatrix,
    pub(super) determinant: EachMatrix,
    pub(super) cholesky: EachMatrix,
    pub(super) qr: unsafe fn([MatrixPart; 3], [usize; 2], usize) -> Outcome,
    pub(super) svd: Spectral<[MatrixPart; 2], [usize; 2]>,
    pub(super) eigh: Spectral<MatrixPart, usize>,
}

/// Returns the functions for matrices of `dtype`.
pub(super) fn loops_of(dtype: DType) -> &'static MatrixLoops {
    static SINGLE: MatrixLoops = MatrixLoops::of::<f32>();
    static DOUBLE: MatrixLoops = MatrixLoops::of::<f64>();
    match dtype {
        DType::F32 => &SINGLE,
        DType::F64 => &DOUBLE,
        other => unreachable!("matrices of {other} cannot be factorized"),
    }
}

impl MatrixLoops {
    const fn of<T: Real>() -> Self {
        Self {
            // SAFETY: by the contract of `MatrixLoops`.
            solve: |[columns, right], n, threads| unsafe {
                T::solve(columns.write(), right.write(), n, threads)
            },
            // SAFETY: by the contract of `MatrixLoops`.
            invert: |[columns, inverse], n, threads| unsafe {
                T::invert(columns.write(), inverse.write(), n, threads)
            },
            // SAFETY: by the contract of `MatrixLoops`.
            determinant: |[columns, value], n, threads| unsafe {
                value.write()[0] = T::determinant(columns.write(), n, threads)?;
                Ok(())
            },
            // SAFETY: by the contract of `MatrixLoops`.
            cholesky: |[columns, lower], n, threads| unsafe {
                T::cholesky(columns.write(), lower.write(), n, threads)
            },
            // SAFETY: by the contract of `MatrixLoops`.
            qr: |[columns, q, r], shape, threads| unsafe {
                T::qr(columns.write(), q.write(), r.write(), shape, threads)
            },
            // SAFETY: by the contract of `MatrixLoops`.
            svd: |[rows, values], vectors, shape, threads| unsafe {
                let vectors = vectors.map(|both| both.map(|part| part.write()));
                T::svd(rows.read(), values.write(), vectors, shape, threads)
            },
            // SAFETY: by the contract of `MatrixLoops`.
            eigh: |[rows, values], vectors, n, threads| unsafe {
                let vectors = vectors.map(|part| part.write());
                T::eigh(rows.read(), values.write(), vectors, n, threads)
            },
        }
    }
}
