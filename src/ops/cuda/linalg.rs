//! Factorizations by cuSOLVER, which stores matrices in column-major order.
//!
//! The rows of a matrix are the columns of its transpose. If the transpose has the same factors in
//! other positions, the operand is copied as it is, and the results are in the right order.
//! Otherwise the copy is transposed. cuSOLVER processes one matrix per call. Its workspace is a
//! buffer like any other.

use std::iter;

use ndarray::SliceInfoElem;

use super::copy::copied;
use super::memory::{Output, address_of, computed};
use super::workspace::Workspace;
use crate::array::{AnyElement, Array, Buffer, Shape};
use crate::device::DevicePtr;
use crate::device::cuda::solver::{Factorization, SolverCall, solver_length};
use crate::error::Result;
use crate::ops::descriptors::{Copying, Eigen, Factorized, Factors, Singular};
use crate::ops::order::CudaOrder;
use crate::ops::select;

/// Copies of matrices that cuSOLVER overwrites, with the rows and columns that it sees.
struct MatrixCopies<'a, T: AnyElement> {
    workspace: Workspace<'a>,
    array: Array<T>,
    count: usize,
    rows: i32,
    columns: i32,
}

impl<'a, T: Factorized> MatrixCopies<'a, T> {
    /// Copies `array`. cuSOLVER sees the transposed matrices in the copy.
    #[track_caller]
    fn transposed(order: CudaOrder<'a>, operation: &str, array: &Array<T>) -> Result<Self> {
        let [batch @ .., columns, rows] = array.shape() else {
            unreachable!("the array has been found to have matrices");
        };
        let (count, shape) = (batch.iter().product(), array.layout().shape());
        Ok(Self {
            workspace: Workspace::new(order),
            count,
            rows: solver_length(operation, *rows)?,
            columns: solver_length(operation, *columns)?,
            array: copied(order, array, Copying::All, shape)?,
        })
    }

    /// Copies the transposed `array`. cuSOLVER sees the matrices of `array` in the copy.
    #[track_caller]
    fn as_they_are(order: CudaOrder<'a>, operation: &str, array: &Array<T>) -> Result<Self> {
        Self::transposed(order, operation, &array.swap_axes(-2, -1)?)
    }

    /// Returns the number of elements of each matrix.
    fn size(&self) -> usize {
        self.rows as usize * self.columns as usize
    }

    /// Allocates memory for `length` elements of `T`, for all matrices together.
    #[track_caller]
    fn scratch(&self, length: i32) -> Result<Buffer> {
        self.workspace.allocate(length as usize, size_of::<T>())
    }

    /// Factorizes all matrices, each in its first `columns` columns; `kind` maps the number of a
    /// matrix to its factorization.
    #[track_caller]
    fn factorize(
        &self,
        columns: i32,
        info: DevicePtr,
        kind: impl Fn(usize) -> Factorization,
    ) -> Result<()> {
        let order = self.workspace.order.touching(&());
        let call = |number: usize| SolverCall {
            is_wide: size_of::<T>() == 8,
            matrix: part::<T>(address_of(&self.array), number, self.size()),
            rows: self.rows,
            columns,
            kind: kind(number),
            info: part::<i32>(info, number, 1),
        };
        // SAFETY: only lengths are read.
        let length =
            order.queue(|stream| unsafe { order.gpu.solver_workspace(stream, &call(0)) })?;
        let workspace = self.workspace.allocate(length, size_of::<T>())?;
        let place = (DevicePtr(workspace.address()), length);
        for number in 0..self.count {
            let call = call(number);
            // SAFETY: the matrices, the workspace and the memory that `kind` names are new memory
            // of the lengths in the call. Nothing else uses it outside of the stream's order.
            order.queue(|stream| unsafe { order.gpu.factorize(stream, &call, place) })?;
        }
        Ok(())
    }

    /// Returns a new array of statuses, which `write` enqueues the writing of.
    #[track_caller]
    fn statuses(&self, write: impl FnOnce(DevicePtr) -> Result<()>) -> Result<Array<i32>> {
        let shape = self.count.into();
        computed(self.workspace.order.device, &shape, |output: Output| {
            write(output.address)
        })
    }

    /// Computes the LU factors of all matrices, and returns their pivots, a row for each, and
    /// statuses. The factors of a matrix with a NaN are NaN throughout.
    #[track_caller]
    fn lu(&mut self) -> Result<(Array<i32>, Array<i32>)> {
        let n = self.columns as usize;
        // cuSOLVER loses a NaN: on an H200, the determinant of [[NaN, 1], [1, 2]] was -1.
        let have_nan = self.array.is_nan().any_keepdims(-1)?.any_keepdims(-2)?;
        let shape = Shape::from([self.count, n]);
        let mut status = None;
        let pivots = computed(self.workspace.order.device, &shape, |pivots: Output| {
            let made = self.statuses(|info| {
                self.factorize(self.columns, info, |number| Factorization::Lu {
                    pivots: part::<i32>(pivots.address, number, n),
                })
            });
            status = Some(made?);
            Ok(())
        })?;
        (self.array).update(|factors| select(have_nan, T::zero() / T::zero(), factors))?;
        Ok((pivots, status.expect("there are matrices to factorize")))
    }
}

/// Returns the address of part `number` of memory at `address`, in parts of `length` elements.
fn part<T>(address: DevicePtr, number: usize, length: usize) -> DevicePtr {
    address.offset((number * length * size_of::<T>()) as u64)
}

/// Returns the first `count` indices of the last axis but one.
#[track_caller]
fn first_rows<T: AnyElement>(array: &Array<T>, count: usize) -> Result<Array<T>> {
    let slice = |end| SliceInfoElem::Slice {
        start: 0,
        end,
        step: 1,
    };
    let others = iter::repeat_n(slice(None), array.ndim() - 2);
    let ends = [slice(Some(count as isize)), slice(None)];
    array.slice(others.chain(ends).collect::<Vec<_>>())
}

/// Returns a copy of the array with the axes of its matrices exchanged.
#[track_caller]
fn turned<T: AnyElement>(order: CudaOrder<'_>, array: &Array<T>) -> Result<Array<T>> {
    let turned = array.swap_axes(-2, -1)?;
    copied(
        order.touching(array.buffer()),
        &turned,
        Copying::All,
        turned.layout().shape(),
    )
}

/// Returns the solutions of equations `a x = right`. Both arrays have the same axes before the last
/// two.
#[track_caller]
pub(in crate::ops) fn solved<T: Factorized>(
    order: CudaOrder<'_>,
    a: &Array<T>,
    right: &Array<T>,
) -> Result<(Array<T>, Array<i32>)> {
    let mut matrices = MatrixCopies::as_they_are(order, "solve", a)?;
    let x = MatrixCopies::as_they_are(order, "solve", right)?;
    let (pivots, status) = matrices.lu()?;
    let n = matrices.columns as usize;
    // The status of a solution has no information.
    matrices.statuses(|info| {
        matrices.factorize(matrices.columns, info, |number| Factorization::Solve {
            pivots: part::<i32>(address_of(&pivots), number, n),
            right: part::<T>(address_of(&x.array), number, x.size()),
            count: x.columns,
        })
    })?;
    let solutions = match x.columns {
        1 => x.array.reshape(right.layout().shape())?,
        _ => turned(order, &x.array)?,
    };
    Ok((solutions, status))
}

/// Returns the inverses of the matrices of `a`.
#[track_caller]
pub(in crate::ops) fn inverted<T: Factorized>(
    order: CudaOrder<'_>,
    a: &Array<T>,
) -> Result<(Array<T>, Array<i32>)> {
    let identity = {
        let _current = order.device.enter();
        Array::<T>::eye(a.shape()[a.ndim() - 1])?
    };
    let identity = identity.broadcast_to(a.layout().shape())?;
    let both = [a.buffer(), identity.buffer()];
    solved(order.touching(&both), a, &identity)
}

/// Returns the determinants of the matrices of `a`, the products of the pivots. If such a product
/// overflows or underflows, the determinant is computed from the sum of the logarithms, which may
/// fit.
#[track_caller]
pub(in crate::ops) fn determinants<T: Factorized>(
    order: CudaOrder<'_>,
    a: &Array<T>,
) -> Result<(Array<T>, Option<Array<i32>>)> {
    let mut matrices = MatrixCopies::as_they_are(order, "det", a)?;
    let n = matrices.columns as usize;
    let (pivots, _) = matrices.lu()?;
    let elements = matrices.array.reshape([matrices.count, n * n])?;
    let every = |step| SliceInfoElem::Slice {
        start: 0,
        end: None,
        step,
    };
    let diagonal = elements.slice([every(1), every(n as isize + 1)])?;
    let places = {
        let _current = order.device.enter();
        Array::<i32>::arange(1, n as i32 + 1, 1)?
    };
    let swaps = pivots.ne(&places).cast::<i32>().sum_axis(-1)?;
    let sign = ((swaps % 2).cast::<T>() * -(T::one() + T::one()) + T::one()).eval_unfused()?;
    let product = (diagonal.prod_axis(-1)? * &sign).eval_unfused()?;
    let size = diagonal.abs().ln().sum_axis(-1)?.exp();
    let signs = (diagonal.sign().prod_axis(-1)? * &sign).eval_unfused()?;
    let fits = product.abs().lt(T::max_value()).and(product.ne(T::zero()));
    let found = select(fits, &product, size * &signs).eval_unfused()?;
    Ok((found.reshape(&a.shape()[..a.ndim() - 2])?, None))
}

/// Returns the lower Cholesky factors of the matrices of `a`: the transposed upper factors of the
/// transposed matrices.
#[track_caller]
pub(in crate::ops) fn cholesky_factors<T: Factorized>(
    order: CudaOrder<'_>,
    a: &Array<T>,
) -> Result<(Array<T>, Array<i32>)> {
    let matrices = MatrixCopies::transposed(order, "cholesky", a)?;
    // cuSOLVER reports no NaN. A row with one makes the leading minor that ends there NaN.
    let rows = matrices.array.tril(0)?.is_nan().any_axis(-1)?;
    let rows = rows.reshape([matrices.count, matrices.columns as usize])?;
    let (have_nan, first) = (rows.any_axis(-1)?, rows.argmax_axis(-1)?);
    let status = matrices
        .statuses(|info| matrices.factorize(matrices.columns, info, |_| Factorization::Cholesky))?;
    let order_of_nan = first.cast::<i32>() + 1;
    let is_first = status.eq(0).or(order_of_nan.lt(&status)).and(have_nan);
    let status = select(is_first, order_of_nan, &status).eval_unfused()?;
    Ok((matrices.array.tril(0)?, status))
}

#[track_caller]
pub(in crate::ops) fn qr_factors<T: Factorized>(
    order: CudaOrder<'_>,
    a: &Array<T>,
    _of_q: &Shape,
    _of_r: &Shape,
) -> Result<(Factors<T>, Option<Array<i32>>)> {
    let matrices = MatrixCopies::as_they_are(order, "qr", a)?;
    let size = matrices.rows.min(matrices.columns);
    let all = matrices.scratch(size.saturating_mul(matrices.count as i32))?;
    let factors = |number| part::<T>(DevicePtr(all.address()), number, size as usize);
    matrices.statuses(|info| {
        matrices.factorize(matrices.columns, info, |number| Factorization::Qr {
            factors: factors(number),
        })
    })?;
    // The upper triangle, before the reflections overwrite it.
    let upper = first_rows(&matrices.array.swap_axes(-2, -1)?, size as usize)?;
    let r = upper.triu(0)?;
    matrices.statuses(|info| {
        matrices.factorize(size, info, |number| Factorization::Reflections {
            factors: factors(number),
        })
    })?;
    let q = turned(order, &first_rows(&matrices.array, size as usize)?)?;
    Ok(((q, r), None))
}

/// Returns the singular values of the matrices of `a`, and their vectors if they are `wanted`, as
/// arrays of these shapes. cuSOLVER requires at least as many rows as columns, so a wide matrix is
/// transposed first.
#[track_caller]
pub(in crate::ops) fn singular_values<T: Factorized>(
    order: CudaOrder<'_>,
    a: &Array<T>,
    [of_values, of_u, of_vt]: &[Shape; 3],
    wanted: bool,
) -> Result<(Singular<T>, Array<i32>)> {
    let [m, n] = [a.shape()[a.ndim() - 2], a.shape()[a.ndim() - 1]];
    let is_wide = m <= n;
    let matrices = match is_wide {
        true => MatrixCopies::transposed(order, "svd", a)?,
        false => MatrixCopies::as_they_are(order, "svd", a)?,
    };
    let k = m.min(n);
    // The columns of the left vectors of a, or of the transposed a: the rows of vt.
    let (left, right) = match is_wide {
        true => (*of_vt, *of_u),
        false => (swapped(of_u), swapped(of_vt)),
    };
    let mut found = None;
    let status = matrices.statuses(|info| {
        let made = svd_into(
            &matrices,
            of_values,
            wanted.then_some([left, right]),
            k,
            info,
        );
        found = Some(made?);
        Ok(())
    })?;
    let (values, vectors) = found.expect("there are matrices to factorize");
    let vectors = match vectors {
        None => None,
        Some([vt, u]) if is_wide => Some([u, vt]),
        Some([u, vt]) => Some([turned(order, &u)?, turned(order, &vt)?]),
    };
    Ok(((values, vectors), status))
}

/// Returns the shape with the axes of its matrices exchanged.
fn swapped(shape: &Shape) -> Shape {
    let (rank, dims) = (shape.ndim(), shape.dims());
    shape
        .with(rank - 2, dims[rank - 1])
        .with(rank - 1, dims[rank - 2])
}

/// Returns the singular values of the matrices, and arrays of these shapes with the columns of the
/// left and of the transposed right vectors.
#[track_caller]
fn svd_into<T: Factorized>(
    matrices: &MatrixCopies<'_, T>,
    of_values: &Shape,
    of_vectors: Option<[Shape; 2]>,
    k: usize,
    info: DevicePtr,
) -> Result<Singular<T>> {
    let device = matrices.workspace.order.device;
    let nothing = |_: Output| Ok(());
    let values: Array<T> = computed(device, of_values, nothing)?;
    let vectors: Option<[Array<T>; 2]> = match of_vectors {
        None => None,
        Some([left, right]) => Some([
            computed(device, &left, nothing)?,
            computed(device, &right, nothing)?,
        ]),
    };
    let smaller = k * k;
    matrices.factorize(matrices.columns, info, |number| Factorization::Svd {
        values: part::<T>(address_of(&values), number, k),
        vectors: vectors.as_ref().map(|[left, right]| {
            [
                part::<T>(address_of(left), number, matrices.size()),
                part::<T>(address_of(right), number, smaller),
            ]
        }),
    })?;
    Ok((values, vectors))
}

/// Returns the eigenvalues of the symmetric matrices of `a`, and their vectors if they are
/// `wanted`. The lower triangles are the upper triangles of the transposed matrices.
#[track_caller]
pub(in crate::ops) fn eigenvalues<T: Factorized>(
    order: CudaOrder<'_>,
    a: &Array<T>,
    of_values: &Shape,
    wanted: bool,
) -> Result<(Eigen<T>, Array<i32>)> {
    let matrices = MatrixCopies::transposed(order, "eigh", a)?;
    let n = matrices.columns as usize;
    let mut status = None;
    let values: Array<T> = computed(order.device, of_values, |values: Output| {
        let made = matrices.statuses(|info| {
            matrices.factorize(matrices.columns, info, |number| Factorization::Eigen {
                values: part::<T>(values.address, number, n),
                wanted,
            })
        });
        status = Some(made?);
        Ok(())
    })?;
    let vectors = match wanted {
        true => Some(turned(order, &matrices.array)?),
        false => None,
    };
    Ok((
        (values, vectors),
        status.expect("there are matrices to factorize"),
    ))
}
