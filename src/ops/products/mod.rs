//! Products of matrices and vectors.

mod gradients;

use self::gradients::Multiplication;
use super::cuda;
use super::dispatch::same_device;
use super::expression::any_array::AnyArray;
use super::host;
use super::index::check_size;
use super::order::UpdateTargets;
use super::precompiled::precompiled;
use crate::array::{Array, Layout, Number, Shape, Writer, broadcast_shapes};
use crate::error::{Error, ErrorCode, Result};
use crate::ops::descriptors::as_matrices;

impl<T: Number> Array<T> {
    /// Returns the matrix product. Operands of any strides are read without a copy.
    ///
    /// The last two axes count rows and columns; the axes before them count products, and
    /// broadcast. A vector on the left is a row, and one on the right a column; the axis that makes
    /// it one is not in the result. Integers wrap, `f16` and `bf16` are summed in `f32`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let a = Array::from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
    /// let gram = a.matmul(&a.transpose()?)?;
    /// assert_eq!(gram.shape(), [2, 2]);
    /// assert_eq!(gram.to_vec()?, [14.0, 32.0, 32.0, 77.0]);
    ///
    /// let weights = Array::from_slice(&[1.0, 0.0, -1.0], 3)?;
    /// assert_eq!(a.matmul(&weights)?.to_vec()?, [-2.0, -2.0]);
    ///
    /// let batch = Array::<f64>::ones([10, 4, 2])?;
    /// assert_eq!(batch.matmul(&a)?.shape(), [10, 4, 3]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) where the lengths that are summed over
    /// differ, the axes before them do not broadcast, or an operand has rank 0,
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        let (left, right) = (self, other);
        let multiplication = Multiplication::begin(left, right)?;
        let product: Result<Self> = precompiled!(matmul::<T>([left], [right]));
        // Not in a closure, which would be reported as the caller.
        Ok(multiplication.finish(product?))
    }

    /// Returns the inner product of two vectors, of rank 0.
    ///
    /// Integers wrap, `f16` and `bf16` are summed in `f32`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let a = Array::from_slice(&[1.0, 2.0, 3.0], 3)?;
    /// let b = Array::from_slice(&[4.0, 5.0, 6.0], 3)?;
    /// assert_eq!(a.dot(&b)?.item()?, 32.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) unless both are vectors of one length,
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn dot(&self, other: &Self) -> Result<Self> {
        vectors("dot", self, other)?;
        if self.len() != other.len() {
            let (own, others) = (self.layout().shape(), other.layout().shape());
            return Err(mismatch(
                "dot",
                own,
                others,
                "expected vectors of one length",
            ));
        }
        self.matmul(other)
    }

    /// Returns the product of every element of one vector with every element of another: for
    /// vectors of `n` and `m` elements, a matrix of `n` rows and `m` columns.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let a = Array::from_slice(&[1, 2], 2)?;
    /// let b = Array::from_slice(&[3, 4, 5], 3)?;
    /// let table = a.outer(&b)?;
    /// assert_eq!(table.shape(), [2, 3]);
    /// assert_eq!(table.to_vec()?, [3, 4, 5, 6, 8, 10]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) unless both are vectors,
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn outer(&self, other: &Self) -> Result<Self> {
        vectors("outer", self, other)?;
        (self.unsqueeze(1)? * other).eval_unfused()
    }
}

/// Writes the product of two matrices to the elements of `place`, and returns whether it did: not
/// if `place` has gaps, or if there is no kernel that writes this product there. Nothing else may
/// read or write these elements; other arrays may share the memory around them.
#[track_caller]
pub(in crate::ops) fn matmul_into<T: Number>(
    left: &Array<T>,
    right: &Array<T>,
    place: &Array<T>,
) -> Result<bool> {
    let (own, others) = (left.shape(), right.shape());
    let fits = matches!((own, others, place.shape()), (&[rows, inner], &[depth, columns], &[height, width])
        if inner == depth && (rows, columns) == (height, width));
    if !fits || place.is_empty() || !place.layout().is_contiguous() {
        return Ok(false);
    }
    let updating = UpdateTargets {
        targets: &[place.buffer()],
        reading: [left.buffer(), right.buffer()],
    };
    on_device!(
        left.device(),
        touching & updating,
        order => host::multiply_into(order, left, right, place),
        cuda::multiply_into(order, left.into(), right.into(), place.into())
    )
}

#[track_caller]
fn matmul<T: Number>(left: &Array<T>, right: &Array<T>) -> Result<Array<T>> {
    same_device(
        "matmul",
        ("the left operand", left),
        ("the right operand", right),
    )?;
    let (own, others) = (left.layout().shape(), right.layout().shape());
    if own.ndim() == 0 || others.ndim() == 0 {
        return Err(mismatch(
            "matmul",
            own,
            others,
            "expected at least one axis of each",
        ));
    }
    let (rows, inner) = ends(own, 0);
    let (depth, columns) = ends(others, 1);
    if inner != depth {
        let why =
            format!("expected as many columns on the left, {inner}, as rows on the right, {depth}");
        return Err(mismatch("matmul", own, others, &why));
    }
    if own.ndim() <= 2 && others.ndim() <= 2 {
        let rows = &own.dims()[..own.ndim() - 1];
        let columns = others.dims().get(1..).unwrap_or_default();
        let shape = rows.iter().chain(columns).collect();
        check_size("matmul", &shape, T::DTYPE)?;
        return on_device!(
            left.device(),
            touching & [left.buffer(), right.buffer()],
            order => host::multiply(order, left, right, &shape),
            cuda::multiply(order, left.into(), right.into(), &shape).map(AnyArray::into_array)
        );
    }
    let left_layout = as_matrices(left.layout(), 0)?;
    let right_layout = as_matrices(right.layout(), 1)?;
    let (before, after) = (leading(&left_layout), leading(&right_layout));
    let Ok(batch) = broadcast_shapes("matmul", &[&before, &after]) else {
        let why = format!("before the last two axes, {before} and {after} do not broadcast");
        return Err(mismatch("matmul", own, others, &why));
    };
    let kept = |keeps: bool, length| keeps.then_some(length);
    let shape: Shape = (batch.dims().iter().copied())
        .chain(kept(own.ndim() > 1, rows))
        .chain(kept(others.ndim() > 1, columns))
        .collect();
    check_size("matmul", &shape, T::DTYPE)?;
    if shape.checked_len()? == 0 {
        // The operands, broadcast to an empty result, may be too long.
        return Writer::new(left.device(), &shape)?.finish();
    }
    if let Some((left_layout, right_layout)) = columns_as_one(&left_layout, &right_layout)? {
        // With the operands exchanged: the multiplication of numbers is commutative.
        return multiply_stacks((right, &right_layout), (left, &left_layout), &shape);
    }
    let (left_layout, right_layout) = match as_one(&left_layout, &right_layout)? {
        Some(one) => one,
        None => (
            left_layout.broadcast_to(&of_matrices(&batch, rows, inner))?,
            right_layout.broadcast_to(&of_matrices(&batch, inner, columns))?,
        ),
    };
    multiply_stacks((left, &left_layout), (right, &right_layout), &shape)
}

/// Returns the products of matrices with equal numbers as an array of `shape`. The last two axes of
/// a layout are a matrix.
#[track_caller]
fn multiply_stacks<T: Number>(
    left: (&Array<T>, &Layout),
    right: (&Array<T>, &Layout),
    shape: &Shape,
) -> Result<Array<T>> {
    on_device!(
        left.0.device(),
        touching & [left.0.buffer(), right.0.buffer()],
        order => host::multiply_stacks(order, left, right, shape),
        {
            let (left, right) = ((left.0.into(), left.1), (right.0.into(), right.1));
            cuda::multiply_stacks(order, left, right, shape).map(AnyArray::into_array)
        }
    )
}

/// Checks that both operands have one axis, and are on one device.
#[track_caller]
fn vectors<T: Number>(operation: &str, left: &Array<T>, right: &Array<T>) -> Result<()> {
    same_device(
        operation,
        ("the left operand", left),
        ("the right operand", right),
    )?;
    if left.ndim() == 1 && right.ndim() == 1 {
        return Ok(());
    }
    let (left, right) = (left.layout().shape(), right.layout().shape());
    Err(mismatch(operation, left, right, "expected two vectors"))
}

/// Returns the rows and columns of a matrix, or of each matrix if there are more axes. For a
/// vector, `axis` is the axis of length 1.
fn ends(shape: &Shape, axis: usize) -> (usize, usize) {
    match (shape.dims(), axis) {
        (&[length], 0) => (1, length),
        (&[length], _) => (length, 1),
        (&[.., rows, columns], _) => (rows, columns),
        ([], _) => unreachable!("a rank of 0 has been refused"),
    }
}

/// Returns the axes before rows and columns.
fn leading(layout: &Layout) -> Shape {
    layout.dims()[..layout.ndim() - 2].into()
}

/// Returns the products as a single one, of all rows on the left with the matrix on the right.
/// Returns `None` if there are several matrices on the right, or the rows have no common stride.
#[track_caller]
fn as_one(left: &Layout, right: &Layout) -> Result<Option<(Layout, Layout)>> {
    if leading(right).checked_len()? != 1 {
        return Ok(None);
    }
    let ((rows, inner), (_, columns)) = (ends(left.shape(), 0), ends(right.shape(), 1));
    let rows = leading(left).checked_len()? * rows;
    let left = left.reshape(&[rows, inner].into())?;
    let right = right.reshape(&[inner, columns].into())?;
    Ok(left.zip(right))
}

/// Returns the products of one matrix on the left with many columns on the right as a single one:
/// the columns are the rows of a product with the transposed matrix, which is its right operand.
#[track_caller]
fn columns_as_one(left: &Layout, right: &Layout) -> Result<Option<(Layout, Layout)>> {
    if ends(right.shape(), 1).1 != 1
        || leading(left).checked_len()? != 1
        || leading(right).checked_len()? == 1
    {
        return Ok(None);
    }
    let one = as_one(&right.swap_axes(-2, -1)?, &left.swap_axes(-2, -1)?)?;
    Ok(one.map(|(columns, matrix)| (matrix, columns)))
}

fn of_matrices(batch: &Shape, rows: usize, columns: usize) -> Shape {
    batch
        .dims()
        .iter()
        .copied()
        .chain([rows, columns])
        .collect()
}

#[track_caller]
fn mismatch(operation: &str, left: &Shape, right: &Shape, why: &str) -> Error {
    Error::new(
        ErrorCode::Product,
        format!("{operation}: the shapes {left} and {right} do not multiply: {why}"),
    )
}
