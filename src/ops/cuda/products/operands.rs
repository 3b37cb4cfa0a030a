//! The operands of cuBLAS: arrays in place, or copies of arrays that cuBLAS cannot read.

use super::matrix::{Matrix, Pairs, ProductTarget};
use crate::array::{AnyArray, Buffer, Layout};
use crate::device::DevicePtr;
use crate::device::cuda::{Gemm, GemmType};
use crate::error::Result;
use crate::ops::cuda::copy::{Words, copied};
use crate::ops::descriptors::Copying;
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;

/// Operands that cuBLAS can read: the arrays themselves, or copies.
pub(super) struct BlasOperands {
    left: AnyArray,
    right: AnyArray,
    pub(super) pairs: Pairs,
}

impl BlasOperands {
    #[track_caller]
    pub(super) fn new(order: CudaOrder<'_>, left: Operand<'_>, right: Operand<'_>) -> Result<Self> {
        let mut left = multipliable(order, left)?;
        let mut right = multipliable(order, right)?;
        let mut pairs = Pairs::new(&left.layout, &right.layout);
        let is_broadcast = |array: &AnyArray| Matrices::of(&array.layout) == Matrices::Broadcast;
        let most = if is_broadcast(&left) || is_broadcast(&right) {
            MANY_CALLS
        } else {
            FEW_CALLS
        };
        if pairs.calls().is_none_or(|calls| calls > most) {
            // A copy has no gaps, so that one axis numbers its matrices.
            left = uniform(order, left)?;
            right = uniform(order, right)?;
            pairs = Pairs::new(&left.layout, &right.layout);
        }
        Ok(Self { left, right, pairs })
    }

    pub(super) fn buffers(&self) -> [&Buffer; 2] {
        [&self.left.buffer, &self.right.buffer]
    }

    /// Writes the products to `target`, which must have space for them. `order` must touch the
    /// buffers of the operands and the target.
    #[track_caller]
    pub(super) fn multiply(
        &self,
        order: CudaOrder<'_>,
        element: GemmType,
        target: ProductTarget,
    ) -> Result<()> {
        for gemm in self.gemms(element, target) {
            // SAFETY: the operands have all elements that their layouts reach. The target has space
            // for all products, and nothing else uses it. The stream is ordered after all writes to
            // the operands.
            order.queue(|stream| unsafe { order.gpu.gemm(stream, &gemm) })?;
        }
        Ok(())
    }

    /// Writes the only product plus the bias at the address `bias` to `target`, like
    /// [`multiply`](Self::multiply). `order` must also touch the bias. Returns whether cublasLt has
    /// an algorithm for this product. Otherwise, nothing is written.
    #[track_caller]
    pub(super) fn multiply_with_bias(
        &self,
        order: CudaOrder<'_>,
        element: GemmType,
        target: ProductTarget,
        bias: DevicePtr,
    ) -> Result<bool> {
        let mut gemms = self.gemms(element, target);
        let (Some(gemm), None) = (gemms.next(), gemms.next()) else {
            return Ok(false);
        };
        // SAFETY: the operands have all elements that their layouts reach, and the bias has an
        // element for each column. The target has space for the product, and nothing else uses it.
        // The stream is ordered after all writes to the operands and the bias.
        order.queue(|stream| unsafe { order.gpu.gemm_with_bias(stream, &gemm, bias) })
    }

    /// Returns the cuBLAS calls that write the products to `target`.
    fn gemms(&self, element: GemmType, target: ProductTarget) -> impl Iterator<Item = Gemm> {
        let operands = [&self.left, &self.right].map(|array| Words::of(array.operand()).address);
        let gemms = self.pairs.gemms(element, operands, target);
        gemms.expect("the rows or the columns of both operands are contiguous")
    }
}

/// The maximum number of cuBLAS calls that cost less than a copy of an operand. On an H200, a call
/// of 12 matrices of 512 rows takes as long as the copies. Per matrix, this call takes twice as
/// long as one call of 96 matrices.
const FEW_CALLS: usize = 1;

/// The maximum number of cuBLAS calls that cost less than a copy that repeats broadcast elements.
const MANY_CALLS: usize = 64;

/// Returns the array, or a copy if cuBLAS cannot read its matrices.
#[track_caller]
fn multipliable(order: CudaOrder<'_>, array: Operand<'_>) -> Result<AnyArray> {
    match Matrix::of(array.layout).blas_layout() {
        Some(_) => Ok(array.share()),
        None => copied(
            order.touching(array.buffer),
            array,
            Copying::All,
            array.layout.shape(),
        ),
    }
}

/// The steps between the matrices of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matrices {
    /// All steps are equal.
    Uniform,
    /// Some matrices are repeated.
    Broadcast,
    Otherwise,
}

impl Matrices {
    fn of(layout: &Layout) -> Self {
        let places = Layout::walk([&layout.split_at(layout.ndim() - 2).0]);
        let (_, [innermost]) = places.row();
        if places.axes().len() == 1 && innermost >= 0 {
            Self::Uniform
        } else if places.axes().any(|(_, [step])| step == 0) {
            Self::Broadcast
        } else {
            Self::Otherwise
        }
    }
}

/// Returns the array, or a copy if the steps between its matrices differ.
#[track_caller]
fn uniform(order: CudaOrder<'_>, array: AnyArray) -> Result<AnyArray> {
    match Matrices::of(&array.layout) {
        Matrices::Uniform => Ok(array),
        _ => copied(
            order.touching(&array.buffer),
            array.operand(),
            Copying::All,
            array.layout.shape(),
        ),
    }
}
