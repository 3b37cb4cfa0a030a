//! The Kronecker product.

use smallvec::SmallVec;

use crate::array::{AnyArray, Array, MAX_RANK, Number, Shape};
use crate::error::Result;
use crate::ops::derivatives::RuledOperation;
use crate::ops::dispatch::same_device;
use crate::ops::index::{check_size, concatenated};

impl<T: Number> Array<T> {
    /// Returns the Kronecker product: each element of this array is replaced by its product with
    /// `other`. The length of each axis is the product of the two operands' lengths. The array with
    /// fewer axes gets leading axes of length 1. Integers wrap.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let a = Array::from_slice(&[1, 10], [1, 2])?;
    /// let b = Array::from_slice(&[1, 2, 3, 4], [2, 2])?;
    /// assert_eq!(a.kron(&b)?.shape(), [2, 4]);
    /// assert_eq!(a.kron(&b)?.to_vec()?, [1, 2, 10, 20, 3, 4, 30, 40]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if the size overflows,
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn kron(&self, other: &Self) -> Result<Self> {
        kron(self.erased(), other.erased()).map(Self::from_erased)
    }
}

#[track_caller]
fn kron(one: &AnyArray, other: &AnyArray) -> Result<AnyArray> {
    same_device(
        "kron",
        ("the left operand", one),
        ("the right operand", other),
    )?;
    let rank = one.layout.ndim().max(other.layout.ndim());
    let (mut left, mut right) = (with_rank(one, rank)?, with_rank(other, rank)?);
    let lengths = left.dims().iter().zip(right.dims());
    // `check_size` rejects a length that saturates.
    let shape: Shape = lengths.map(|(&a, &b)| a.saturating_mul(b)).collect();
    check_size("kron", &shape, one.dtype)?;
    if shape.checked_len()? == 0 {
        let step = RuledOperation::begin("kron", &[one, other])?;
        let [empty] = step.finish_empty([one.zeros(&shape)?]);
        return Ok(empty);
    }
    // If both operands have several elements along an axis, the axis becomes two axes, one for each
    // operand. The maximum rank limits the number of these axes. Along the other axes, elements are
    // copied.
    let shared: SmallVec<[usize; MAX_RANK]> = (0..rank)
        .filter(|&axis| left.dims()[axis] != 1 && right.dims()[axis] != 1)
        .collect();
    let excess = (rank + shared.len()).saturating_sub(MAX_RANK);
    let (copied, split) = shared.split_at(excess);
    for &axis in copied {
        let (own, others) = (left.dims()[axis], right.dims()[axis]);
        left = left.repeat(others, axis as isize)?;
        right = concatenated(&vec![right; own], axis as isize)?;
    }
    for &axis in split.iter().rev() {
        left = left.unsqueeze(axis as isize + 1)?;
        right = right.unsqueeze(axis as isize)?;
    }
    (left.lazy() * right.lazy()).eval()?.reshape(&shape)
}

/// Returns a view of rank `rank`, with new leading axes of length 1.
#[track_caller]
fn with_rank(array: &AnyArray, rank: usize) -> Result<AnyArray> {
    let mut view = array.share();
    while view.layout.ndim() < rank {
        view = view.unsqueeze(0)?;
    }
    Ok(view)
}
