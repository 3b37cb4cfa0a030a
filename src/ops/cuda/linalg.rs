//! Factorizations by cuSOLVER, which stores matrices in column-major order.
//!
//! cuSOLVER reads a row-major matrix as its transpose. If the factors of the transpose yield the
//! factors of the matrix, the operand is copied without a transposition. The results are then in
//! row-major order. Otherwise, the copy is transposed. cuSOLVER processes one matrix per call. Its
//! workspace is an ordinary buffer.

use std::iter;

use super::copy::copied;
use super::evaluate::evaluate;
use super::memory::{Output, address_of, computed};
use super::reduce::{ReductionKernels, reduce};
use super::regions::{on_diagonal, triangular};
use super::store::store_onto;
use super::workspace::Workspace;
use crate::array::{AnyArray, Array, AxisSet, Buffer, DType, Layout, Shape, bits_of_number};
use crate::device::DevicePtr;
use crate::device::cuda::solver::{Factorization, SolverCall, solver_length};
use crate::error::Result;
use crate::ops::descriptors::{Copying, ReductionPlan, SpectralValues, Triangle};
use crate::ops::expression::elementwise::functions::IsNan;
use crate::ops::expression::elementwise::select::Select;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;
use crate::ops::select;
use cachescope_kernels::reduce::Any;

/// Copies of matrices of `f32` or `f64` that cuSOLVER overwrites. `rows` and `columns` describe the
/// matrices in column-major order.
struct MatrixCopies<'a> {
    workspace: Workspace<'a>,
    array: AnyArray,
    count: usize,
    rows: i32,
    columns: i32,
}

impl<'a> MatrixCopies<'a> {
    /// Copies `array`. In column-major order, the copy has the transposed matrices.
    #[track_caller]
    fn transposed(order: CudaOrder<'a>, operation: &str, array: Operand<'_>) -> Result<Self> {
        let shape = array.layout.shape();
        let [batch @ .., columns, rows] = shape.dims() else {
            unreachable!("the array has at least two axes");
        };
        Ok(Self {
            workspace: Workspace::new(order),
            count: batch.iter().product(),
            rows: solver_length(operation, *rows)?,
            columns: solver_length(operation, *columns)?,
            array: copied(order, array, Copying::All, shape)?,
        })
    }

    /// Copies the transposed `array`. In column-major order, the copy has the matrices of `array`.
    #[track_caller]
    fn as_they_are(order: CudaOrder<'a>, operation: &str, array: Operand<'_>) -> Result<Self> {
        let transposed = array.layout.swap_axes(-2, -1)?;
        Self::transposed(order, operation, array.viewed(&transposed))
    }

    /// Returns the number of elements of each matrix.
    fn size(&self) -> usize {
        self.rows as usize * self.columns as usize
    }

    fn element_bytes(&self) -> usize {
        self.array.dtype.size_bytes()
    }

    #[track_caller]
    fn scratch(&self, length: i32) -> Result<Buffer> {
        (self.workspace).allocate(length as usize, self.element_bytes())
    }

    /// Returns the address of part `number` of the elements at `address`. Each part has `length`
    /// elements.
    fn part(&self, address: DevicePtr, number: usize, length: usize) -> DevicePtr {
        part(address, number, length * self.element_bytes())
    }

    fn matrix(&self, number: usize) -> DevicePtr {
        self.part(address_of(self.array.operand()), number, self.size())
    }

    /// Factorizes the first `columns` columns of each matrix. `kind` maps the index of a matrix to
    /// its factorization.
    #[track_caller]
    fn factorize(
        &self,
        columns: i32,
        info: DevicePtr,
        kind: impl Fn(usize) -> Factorization,
    ) -> Result<()> {
        let order = self.workspace.order.touching(&());
        let call = |number: usize| SolverCall {
            is_wide: self.array.dtype == DType::F64,
            matrix: self.matrix(number),
            rows: self.rows,
            columns,
            kind: kind(number),
            info: part(info, number, INTEGER_BYTES),
        };
        // SAFETY: the call reads only lengths.
        let length =
            order.queue(|stream| unsafe { order.gpu.solver_workspace(stream, &call(0)) })?;
        let workspace = self.workspace.allocate(length, self.element_bytes())?;
        let place = (DevicePtr(workspace.address()), length);
        for number in 0..self.count {
            let call = call(number);
            // SAFETY: the matrices, the workspace and the memory in `kind` are new, and have the
            // lengths in the call. Only work in the order of the stream uses this memory.
            order.queue(|stream| unsafe { order.gpu.factorize(stream, &call, place) })?;
        }
        Ok(())
    }

    /// Returns a new array with a status for each matrix. `write` must enqueue writes of all
    /// statuses.
    #[track_caller]
    fn statuses(&self, write: impl FnOnce(DevicePtr) -> Result<()>) -> Result<Array<i32>> {
        let (device, shape) = (self.workspace.order.device, self.count.into());
        let statuses = computed(device, DType::I32, &shape, |output: Output| {
            write(output.address)
        });
        Ok(statuses?.into_array())
    }

    /// Replaces all matrices by their LU factors. Returns the pivots, with a row for each matrix,
    /// and the statuses. If a matrix has a NaN, all elements of its factors are NaN.
    #[track_caller]
    fn lu(&self) -> Result<(Array<i32>, Array<i32>)> {
        let order = self.workspace.order.touching(&());
        let n = self.columns as usize;
        // cuSOLVER may lose a NaN: on an H200, the determinant of [[NaN, 1], [1, 2]] was -1.
        let have_nan = have_nan(order, &self.array, 2, true)?;
        let shape = Shape::from([self.count, n]);
        let mut status = None;
        let pivots = computed(order.device, DType::I32, &shape, |pivots: Output| {
            let made = self.statuses(|info| {
                self.factorize(self.columns, info, |number| Factorization::Lu {
                    pivots: part(pivots.address, number, n * INTEGER_BYTES),
                })
            });
            status = Some(made?);
            Ok(())
        })?;
        let factors = self.array.operand();
        let mut graph = ExpressionGraph::empty();
        let operands = [
            graph.append_array((&have_nan).into()),
            graph.append_scalar(factors.dtype, bits_of_number(factors.dtype, f64::NAN)),
            graph.append_array(factors),
        ];
        let result = graph.append_call(Select::CALLS.at(factors.dtype), &operands)?;
        graph.set_results(iter::once(result as usize));
        store_onto(order, &graph, factors)?;
        let status = status.expect("the array has at least one matrix");
        Ok((pivots.into_array(), status))
    }
}

/// The size of a pivot or of a status, in bytes.
const INTEGER_BYTES: usize = size_of::<i32>();

/// Returns the address of part `number` of the memory at `address`. Each part has `bytes` bytes.
fn part(address: DevicePtr, number: usize, bytes: usize) -> DevicePtr {
    address.offset((number * bytes) as u64)
}

/// Returns whether any float along the last `count` axes of `array` is NaN. If `keeps`, these axes
/// have length 1 in the result. Otherwise, the result does not have these axes.
#[track_caller]
fn have_nan(
    order: CudaOrder<'_>,
    array: &AnyArray,
    count: usize,
    keeps: bool,
) -> Result<Array<bool>> {
    let rank = array.layout.ndim();
    let reduced = AxisSet::of_each(rank, |axis| axis + count >= rank);
    let graph = ExpressionGraph::of_call(IsNan::CALLS.at(array.dtype), &[array.operand()])?;
    let plan = ReductionPlan::along(&graph, reduced, keeps, false);
    let any = const { &ReductionKernels::of::<Any, bool>() };
    let flags = reduce(order, any, &graph, &plan)?;
    Ok(Array::of_shape(flags, &plan.outputs))
}

/// Returns the layout of the first `count` rows of each matrix.
#[track_caller]
fn first_rows(layout: &Layout, count: usize) -> Result<Layout> {
    layout.part(layout.ndim() - 2, 0..count, 1)
}

/// Returns a copy of `array` with its matrices transposed.
#[track_caller]
fn turned(order: CudaOrder<'_>, array: Operand<'_>) -> Result<AnyArray> {
    let turned = array.layout.swap_axes(-2, -1)?;
    copied(
        order.touching(array.buffer),
        array.viewed(&turned),
        Copying::All,
        turned.shape(),
    )
}

/// Returns the solutions `x` of the equations `a x = right`, and a status for each matrix. The axes
/// before the last two are equal in both arrays.
#[track_caller]
pub(in crate::ops) fn solved(
    order: CudaOrder<'_>,
    a: Operand<'_>,
    right: Operand<'_>,
) -> Result<(AnyArray, Array<i32>)> {
    let matrices = MatrixCopies::as_they_are(order, "solve", a)?;
    let x = MatrixCopies::as_they_are(order, "solve", right)?;
    let (pivots, status) = matrices.lu()?;
    let n = matrices.columns as usize;
    let pivots_at = address_of((&pivots).into());
    // The statuses of the solve step have no information.
    matrices.statuses(|info| {
        matrices.factorize(matrices.columns, info, |number| Factorization::Solve {
            pivots: part(pivots_at, number, n * INTEGER_BYTES),
            right: x.matrix(number),
            count: x.columns,
        })
    })?;
    let solutions = match x.columns {
        1 => x.array.seen(Layout::contiguous(right.layout.shape())?),
        _ => turned(order, x.array.operand())?,
    };
    Ok((solutions, status))
}

/// Returns the inverses of the matrices of `a`, and a status for each matrix.
#[track_caller]
pub(in crate::ops) fn inverted(
    order: CudaOrder<'_>,
    a: Operand<'_>,
) -> Result<(AnyArray, Array<i32>)> {
    let identity = identity(order.touching(&()), a)?;
    let layout = identity.layout.broadcast_to(a.layout.shape())?;
    let both = [a.buffer, &identity.buffer];
    solved(order.touching(&both), a, identity.operand().viewed(&layout))
}

/// Returns the identity matrix of the size of the matrices of `a`.
#[track_caller]
fn identity(order: CudaOrder<'_>, a: Operand<'_>) -> Result<AnyArray> {
    let n = a.layout.dims()[a.layout.ndim() - 1];
    let one = ExpressionGraph::of_value(a.dtype, bits_of_number(a.dtype, 1.0));
    let ones = evaluate(order, &one, &n.into())?;
    let ones = ones.into_iter().next().expect("one result");
    let ones = AnyArray::of_shape(ones, &n.into(), a.dtype);
    on_diagonal(order, ones.operand(), 0, &[n, n].into())
}

/// Returns the transposed LU factors of the matrices of `a`, and the pivots, with a row for each
/// matrix. If a matrix has a NaN, all elements of its factors are NaN.
#[track_caller]
pub(in crate::ops) fn lu_factors(
    order: CudaOrder<'_>,
    a: Operand<'_>,
) -> Result<(AnyArray, Array<i32>)> {
    let matrices = MatrixCopies::as_they_are(order, "det", a)?;
    let (pivots, _) = matrices.lu()?;
    Ok((matrices.array, pivots))
}

/// Returns the lower Cholesky factors of the matrices of `a`, and a status for each matrix.
/// cuSOLVER computes upper factors in column-major order. In row-major order, these are lower
/// factors.
#[track_caller]
pub(in crate::ops) fn cholesky_factors(
    order: CudaOrder<'_>,
    a: Operand<'_>,
) -> Result<(AnyArray, Array<i32>)> {
    let matrices = MatrixCopies::transposed(order, "cholesky", a)?;
    let order = order.touching(&());
    // cuSOLVER does not report a NaN. If a row has a NaN, the leading minor that ends at this row
    // is NaN.
    let lower = triangular(order, matrices.array.operand(), Triangle::Lower, 0)?;
    let rows = have_nan(order, &lower, 1, false)?;
    let rows = rows.reshape([matrices.count, matrices.columns as usize])?;
    let (have_nan, first) = (rows.any_axis(-1)?, rows.argmax_axis(-1)?);
    let status = matrices
        .statuses(|info| matrices.factorize(matrices.columns, info, |_| Factorization::Cholesky))?;
    let order_of_nan = first.cast::<i32>() + 1;
    let is_first = status.eq(0).or(order_of_nan.lt(&status)).and(have_nan);
    let status = select(is_first, order_of_nan, &status).eval()?;
    let lower = triangular(order, matrices.array.operand(), Triangle::Lower, 0)?;
    Ok((lower, status))
}

/// Returns the QR factors of the matrices of `a`: orthonormal columns, and upper triangles.
#[track_caller]
pub(in crate::ops) fn qr_factors(order: CudaOrder<'_>, a: Operand<'_>) -> Result<[AnyArray; 2]> {
    let matrices = MatrixCopies::as_they_are(order, "qr", a)?;
    let size = matrices.rows.min(matrices.columns);
    let all = matrices.scratch(size.saturating_mul(matrices.count as i32))?;
    let factors = |number| matrices.part(DevicePtr(all.address()), number, size as usize);
    matrices.statuses(|info| {
        matrices.factorize(matrices.columns, info, |number| Factorization::Qr {
            factors: factors(number),
        })
    })?;
    let factored = matrices.array.operand();
    // The upper triangle is copied before the reflections overwrite it.
    let upper = first_rows(&factored.layout.swap_axes(-2, -1)?, size as usize)?;
    let upper = factored.viewed(&upper);
    let r = triangular(order.touching(&()), upper, Triangle::Upper, 0)?;
    matrices.statuses(|info| {
        matrices.factorize(size, info, |number| Factorization::Reflections {
            factors: factors(number),
        })
    })?;
    let columns = first_rows(factored.layout, size as usize)?;
    let q = turned(order, factored.viewed(&columns))?;
    Ok([q, r])
}

/// Returns the singular values of the matrices of `a`, and a status for each matrix. If `wanted`,
/// also returns the singular vectors. `of_values`, `of_u` and `of_vt` are the shapes of the
/// results. cuSOLVER requires at least as many rows as columns. So wide matrices are transposed.
#[track_caller]
pub(in crate::ops) fn singular_values(
    order: CudaOrder<'_>,
    a: Operand<'_>,
    [of_values, of_u, of_vt]: &[Shape; 3],
    wanted: bool,
) -> Result<(SpectralValues<2>, Array<i32>)> {
    let [.., m, n] = *a.layout.dims() else {
        unreachable!("the array has at least two axes");
    };
    let is_wide = m <= n;
    let matrices = match is_wide {
        true => MatrixCopies::transposed(order, "svd", a)?,
        false => MatrixCopies::as_they_are(order, "svd", a)?,
    };
    let k = m.min(n);
    // The shapes of the left and right vectors that cuSOLVER writes. For transposed matrices, the
    // left vectors are the rows of `vt`.
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
    let (values, vectors) = found.expect("the array has at least one matrix");
    let vectors = match vectors {
        None => None,
        Some([vt, u]) if is_wide => Some([u, vt]),
        Some([u, vt]) => Some([turned(order, u.operand())?, turned(order, vt.operand())?]),
    };
    Ok(((values, vectors), status))
}

/// Returns `shape` with the axes of its matrices exchanged.
fn swapped(shape: &Shape) -> Shape {
    let (rank, dims) = (shape.ndim(), shape.dims());
    shape
        .with(rank - 2, dims[rank - 1])
        .with(rank - 1, dims[rank - 2])
}

/// Returns the singular values of `matrices`, as an array of `of_values`. If `of_vectors` has
/// shapes, also returns arrays of these shapes. In column-major order, they contain the left
/// vectors and the transposed right vectors.
#[track_caller]
fn svd_into(
    matrices: &MatrixCopies<'_>,
    of_values: &Shape,
    of_vectors: Option<[Shape; 2]>,
    k: usize,
    info: DevicePtr,
) -> Result<SpectralValues<2>> {
    let new = |shape: &Shape| {
        let device = matrices.workspace.order.device;
        computed(device, matrices.array.dtype, shape, |_| Ok(()))
    };
    let values = new(of_values)?;
    let vectors = match of_vectors {
        None => None,
        Some([left, right]) => Some([new(&left)?, new(&right)?]),
    };
    let smaller = k * k;
    let at = |array: &AnyArray, number, length| {
        matrices.part(address_of(array.operand()), number, length)
    };
    matrices.factorize(matrices.columns, info, |number| Factorization::Svd {
        values: at(&values, number, k),
        vectors: vectors.as_ref().map(|[left, right]| {
            [
                at(left, number, matrices.size()),
                at(right, number, smaller),
            ]
        }),
    })?;
    Ok((values, vectors))
}

/// Returns the eigenvalues of the symmetric matrices of `a`, and a status for each matrix. If
/// `wanted`, also returns the eigenvectors. cuSOLVER reads the upper triangles in column-major
/// order. In row-major order, these are the lower triangles of `a`.
#[track_caller]
pub(in crate::ops) fn eigenvalues(
    order: CudaOrder<'_>,
    a: Operand<'_>,
    of_values: &Shape,
    wanted: bool,
) -> Result<(SpectralValues<1>, Array<i32>)> {
    let matrices = MatrixCopies::transposed(order, "eigh", a)?;
    let n = matrices.columns as usize;
    let mut status = None;
    let values = computed(order.device, a.dtype, of_values, |values: Output| {
        let made = matrices.statuses(|info| {
            matrices.factorize(matrices.columns, info, |number| Factorization::Eigen {
                values: matrices.part(values.address, number, n),
                wanted,
            })
        });
        status = Some(made?);
        Ok(())
    })?;
    let vectors = match wanted {
        true => Some([turned(order, matrices.array.operand())?]),
        false => None,
    };
    let status = status.expect("the array has at least one matrix");
    Ok(((values, vectors), status))
}
