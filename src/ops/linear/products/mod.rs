//! Products of matrices and vectors.

mod gradients;

use self::gradients::Multiplication;
use crate::array::{AnyArray, Array, DType, Layout, Number, Shape, broadcast_shapes};
use crate::error::{Error, ErrorCode, Result};
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::derivatives::zeros_on;
use crate::ops::descriptors::{Copying, as_matrices};
use crate::ops::dispatch::same_device;
use crate::ops::host;
use crate::ops::index::check_size;
use crate::ops::index::moves::copied;
use crate::ops::order::UpdateTargets;

impl<T: Number> Array<T> {
    /// Returns the matrix product. Operands of any strides are read without a copy.
    ///
    /// The last two axes are rows and columns. The leading axes index products, and broadcast. A
    /// vector on the left is a row, and a vector on the right is a column. The result does not have
    /// the vector's axis of length 1. Integers wrap, `f16` and `bf16` are summed in `f32`.
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
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if the summed lengths differ, if the
    /// leading axes do not broadcast, or if an operand has rank 0.
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        self.erased().matmul(other.erased()).map(Self::from_erased)
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
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) unless the operands are vectors of one
    /// length, [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn dot(&self, other: &Self) -> Result<Self> {
        vectors("dot", self.erased(), other.erased())?;
        if self.len() != other.len() {
            let (own, others) = (self.layout().shape(), other.layout().shape());
            return Err(mismatch(
                "dot",
                own,
                others,
                "expected vectors of equal length",
            ));
        }
        self.matmul(other)
    }

    /// Returns the outer product: each element of this vector times each element of `other`. For
    /// vectors of `n` and `m` elements, the result is a matrix of `n` rows and `m` columns.
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
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) unless the operands are vectors,
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn outer(&self, other: &Self) -> Result<Self> {
        vectors("outer", self.erased(), other.erased())?;
        (self.unsqueeze(1)? * other).eval_unfused()
    }
}

impl AnyArray {
    /// See [`Array::matmul`].
    #[track_caller]
    pub(crate) fn matmul(&self, other: &Self) -> Result<Self> {
        let multiplication = Multiplication::begin(self, other, None)?;
        let product = matmul(self, other, Addend::None)?;
        Ok(multiplication.finish(product))
    }

    /// Returns the matrix product of floats plus `addend`. `addend` broadcasts to the product's
    /// shape. The sum is rounded once, to the type of `addend`: the operands' type, or `f32` for
    /// operands of `f16` or `bf16`. On the host, the operands must be `f16` or `bf16`.
    #[track_caller]
    pub(crate) fn matmul_plus(&self, other: &Self, addend: &Self) -> Result<Self> {
        let multiplication = Multiplication::begin(self, other, Some(addend))?;
        let sum = matmul(self, other, Addend::Array(addend))?;
        Ok(multiplication.finish(sum))
    }

    /// Returns the matrix product of floats in the type that it is computed in. The step is not
    /// recorded on a tape.
    #[track_caller]
    pub(in crate::ops) fn matmul_unrounded(&self, other: &Self) -> Result<Self> {
        matmul(self, other, Addend::Unrounded)
    }
}

/// The array that a product is added to.
#[derive(Clone, Copy)]
enum Addend<'a> {
    /// No array: the product has the operands' type.
    None,
    /// No array: the product has the type that it is computed in.
    Unrounded,
    /// An array that broadcasts to the product's shape. The sum has its type.
    Array(&'a AnyArray),
}

impl Addend<'_> {
    /// Returns the type of the result of a product of operands of `dtype`.
    fn sum_of(self, dtype: DType) -> DType {
        match self {
            Self::None => dtype,
            Self::Unrounded => dtype.computed_in(),
            Self::Array(addend) => addend.dtype,
        }
    }
}

/// Writes the product of two matrices to the elements of `place`, and returns whether the product
/// was written. Returns `false` if `place` has gaps, or if no kernel writes this product in place.
/// No other code may read or write these elements. Other arrays may share the memory around them.
#[track_caller]
pub(in crate::ops) fn matmul_into(
    left: &AnyArray,
    right: &AnyArray,
    place: &AnyArray,
) -> Result<bool> {
    let (own, others) = (left.dims(), right.dims());
    let fits = matches!((own, others, place.dims()), (&[rows, inner], &[depth, columns], &[height, width])
        if inner == depth && (rows, columns) == (height, width));
    if !fits || place.len() == 0 || !place.layout.is_contiguous() {
        return Ok(false);
    }
    let updating = UpdateTargets {
        targets: &[&place.buffer],
        reading: [&left.buffer, &right.buffer],
    };
    on_device!(
        left.device(),
        touching & updating,
        order => host::multiply_into(order, left, right, place),
        cuda::multiply_into(order, left.operand(), right.operand(), place.operand())
    )
}

/// Returns the matrix product, plus `addend` if there is one.
#[track_caller]
fn matmul(left: &AnyArray, right: &AnyArray, addend: Addend<'_>) -> Result<AnyArray> {
    same_device(
        "matmul",
        ("the left operand", left),
        ("the right operand", right),
    )?;
    let (own, others) = (left.shape(), right.shape());
    if own.ndim() == 0 || others.ndim() == 0 {
        return Err(mismatch(
            "matmul",
            own,
            others,
            "expected at least one axis in each",
        ));
    }
    let (rows, inner) = ends(own, 0);
    let (depth, columns) = ends(others, 1);
    if inner != depth {
        let why =
            format!("the left operand has {inner} columns, the right operand has {depth} rows");
        return Err(mismatch("matmul", own, others, &why));
    }
    if own.ndim() <= 2 && others.ndim() <= 2 {
        let rows = &own.dims()[..own.ndim() - 1];
        let columns = others.dims().get(1..).unwrap_or_default();
        let shape = rows.iter().chain(columns).collect();
        check_size("matmul", &shape, left.dtype)?;
        if let Addend::None = addend {
            return on_device!(
                left.device(),
                touching & [&left.buffer, &right.buffer],
                order => host::multiply(order, left, right, &shape),
                cuda::multiply(order, left.operand(), right.operand(), &shape)
            );
        }
        let left_layout = as_matrices(&left.layout, 0)?;
        let right_layout = as_matrices(&right.layout, 1)?;
        return multiply_stacks((left, &left_layout), (right, &right_layout), &shape, addend);
    }
    let left_layout = as_matrices(&left.layout, 0)?;
    let right_layout = as_matrices(&right.layout, 1)?;
    let (before, after) = (leading(&left_layout), leading(&right_layout));
    let Ok(batch) = broadcast_shapes("matmul", &[&before, &after]) else {
        let why = format!("the axes before the last two, {before} and {after}, do not broadcast");
        return Err(mismatch("matmul", own, others, &why));
    };
    let kept = |keeps: bool, length| keeps.then_some(length);
    let shape: Shape = (batch.dims().iter().copied())
        .chain(kept(own.ndim() > 1, rows))
        .chain(kept(others.ndim() > 1, columns))
        .collect();
    check_size("matmul", &shape, left.dtype)?;
    if shape.checked_len()? == 0 {
        // The result is empty, but the size of the broadcast operands may overflow.
        return zeros_on(left.device(), &shape, addend.sum_of(left.dtype));
    }
    if let Some((left_layout, right_layout)) = columns_as_one(&left_layout, &right_layout)? {
        // The operands are exchanged, because (AB)ᵀ = BᵀAᵀ.
        return multiply_stacks((right, &right_layout), (left, &left_layout), &shape, addend);
    }
    let (left_layout, right_layout) = match as_one(&left_layout, &right_layout)? {
        Some(one) => one,
        None => (
            left_layout.broadcast_to(&of_matrices(&batch, rows, inner))?,
            right_layout.broadcast_to(&of_matrices(&batch, inner, columns))?,
        ),
    };
    multiply_stacks((left, &left_layout), (right, &right_layout), &shape, addend)
}

/// Returns the products of corresponding matrices of two stacks, plus `addend`, as an array of
/// `shape`. If the addend is a bias on a CUDA device, the product adds it. Otherwise, the memory is
/// filled with the addend, and the products are added to it.
#[track_caller]
fn add_stacks(
    left: (&AnyArray, &Layout),
    right: (&AnyArray, &Layout),
    shape: &Shape,
    addend: &AnyArray,
) -> Result<AnyArray> {
    same_device(
        "matmul",
        ("the left operand", left.0),
        ("the addend", addend),
    )?;
    // This check precedes `broadcast_to`, so that an addend that does not broadcast gives the error
    // of an addition.
    broadcast_shapes("add", &[shape, addend.shape()])?;
    if let Some(sums) = multiply_with_bias(left, right, shape, addend)? {
        return Ok(sums);
    }
    let sums = copied(&addend.broadcast_to(shape)?, Copying::All, shape)?;
    added_to(sums, left, right)
}

/// Adds the products of corresponding matrices of two stacks to `sums`, which nothing else uses.
#[track_caller]
fn added_to(
    sums: AnyArray,
    left: (&AnyArray, &Layout),
    right: (&AnyArray, &Layout),
) -> Result<AnyArray> {
    let (_, inner) = ends(left.1.shape(), 0);
    if sums.len() == 0 || inner == 0 {
        return Ok(sums);
    }
    let updating = UpdateTargets {
        targets: &[&sums.buffer],
        reading: [&left.0.buffer, &right.0.buffer],
    };
    on_device!(
        left.0.device(),
        touching & updating,
        order => host::add_stacks(order, left, right, &sums),
        {
            let (left, right) = ((left.0.operand(), left.1), (right.0.operand(), right.1));
            cuda::add_stacks(order, left, right, sums.operand())
        }
    )?;
    Ok(sums)
}

/// Returns the product plus `addend` if a CUDA device adds it in one call. Otherwise, returns
/// `None`.
#[track_caller]
fn multiply_with_bias(
    left: (&AnyArray, &Layout),
    right: (&AnyArray, &Layout),
    shape: &Shape,
    addend: &AnyArray,
) -> Result<Option<AnyArray>> {
    if !is_bias(left, right, shape, addend) {
        return Ok(None);
    }
    on_device!(
        left.0.device(),
        touching & [&left.0.buffer, &right.0.buffer, &addend.buffer],
        _order => Ok(None),
        {
            let (left, right) = ((left.0.operand(), left.1), (right.0.operand(), right.1));
            cuda::multiply_with_bias(_order, left, right, addend.operand(), shape).map(Some)
        }
    )
}

/// Returns whether `addend` is a vector without gaps that has an element for each column. The
/// operands must be on a CUDA device, and have one product of several rows and columns.
fn is_bias(
    left: (&AnyArray, &Layout),
    right: (&AnyArray, &Layout),
    shape: &Shape,
    addend: &AnyArray,
) -> bool {
    let ((rows, inner), (_, columns)) = (ends(left.1.shape(), 0), ends(right.1.shape(), 1));
    let mut stacked = [left.1, right.1].into_iter().map(leading);
    let is_single = stacked.all(|stack| stack.dims().iter().all(|&length| length == 1));
    let is_last_axis = |dims: &[usize]| dims.last() == Some(&columns);
    let has_all_columns = is_last_axis(shape.dims()) && is_last_axis(addend.dims());
    let is_vector = addend.len() == columns && addend.layout.is_contiguous();
    left.0.device().backend().cuda().is_some()
        && is_single
        && rows > 1
        && columns > 1
        && inner > 0
        && has_all_columns
        && is_vector
        && addend.dims().len() <= shape.ndim()
}

/// Returns the products of corresponding matrices of two stacks, plus `addend` if there is one, as
/// an array of `shape`. The last two axes of a layout are a matrix.
#[track_caller]
fn multiply_stacks(
    left: (&AnyArray, &Layout),
    right: (&AnyArray, &Layout),
    shape: &Shape,
    addend: Addend<'_>,
) -> Result<AnyArray> {
    if let Addend::Array(addend) = addend {
        return add_stacks(left, right, shape, addend);
    }
    let (device, dtype) = (left.0.device(), addend.sum_of(left.0.dtype));
    if dtype != left.0.dtype && device.backend().cuda().is_none() {
        return added_to(zeros_on(device, shape, dtype)?, left, right);
    }
    on_device!(
        device,
        touching & [&left.0.buffer, &right.0.buffer],
        order => host::multiply_stacks(order, left, right, shape),
        {
            let (left, right) = ((left.0.operand(), left.1), (right.0.operand(), right.1));
            cuda::multiply_stacks(order, left, right, (shape, dtype))
        }
    )
}

/// Checks that the two operands have one axis, and are on one device.
#[track_caller]
fn vectors(operation: &str, left: &AnyArray, right: &AnyArray) -> Result<()> {
    same_device(
        operation,
        ("the left operand", left),
        ("the right operand", right),
    )?;
    if left.layout.ndim() == 1 && right.layout.ndim() == 1 {
        return Ok(());
    }
    let (left, right) = (left.shape(), right.shape());
    Err(mismatch(operation, left, right, "expected two vectors"))
}

/// Returns the numbers of rows and columns of the matrices in the last two axes. For a vector,
/// `axis` is the axis of length 1.
fn ends(shape: &Shape, axis: usize) -> (usize, usize) {
    match (shape.dims(), axis) {
        (&[length], 0) => (1, length),
        (&[length], _) => (length, 1),
        (&[.., rows, columns], _) => (rows, columns),
        ([], _) => unreachable!("an operand has at least one axis"),
    }
}

/// Returns the lengths of the axes before rows and columns.
fn leading(layout: &Layout) -> Shape {
    layout.dims()[..layout.ndim() - 2].into()
}

/// Returns the layouts that compute all products as one: all rows on the left times the right
/// matrix. Returns `None` if there are several matrices on the right, or the rows have no common
/// stride.
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

/// Returns the layouts that compute the products of one matrix with many columns as one product.
/// The left operand of this product has the columns as rows. The right operand is the transposed
/// matrix.
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
