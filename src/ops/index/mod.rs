//! Copies by position and by order: elements at indices, concatenated arrays, sorted elements.
//!
//! Each file checks the operands of one operation. The kernels are in [`host`](crate::ops::host)
//! and [`cuda`](crate::ops::cuda). The kernels only move the elements that the walks of
//! [`descriptors`](crate::ops::descriptors) visit.

pub(in crate::ops) mod interpolate;

mod bincount;
mod classes;
mod concat;
mod diagonal;
mod gather;
mod histogram;
mod mask;
pub(super) mod moves;
mod one_hot;
mod pad;
mod pad_with;
mod quantile;
mod repeat;
mod reshape;
mod roll;
mod scatter;
mod search;
mod sort;
mod take;
mod topk;
mod unique;

pub(super) use classes::of_classes;
pub(super) use concat::concatenated;
pub use concat::{concat, stack};
pub(super) use gather::gathered;
pub use pad_with::PadMode;

use std::ops::Range;

use ndarray::SliceInfoElem;
use smallvec::SmallVec;

use crate::array::{AnyArray, Array, DType, MAX_RANK, Shape};
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::ops::host;
use cachescope_kernels::counts::integer_loops_of;

/// Waits for the indices, and checks that they are in the range of the axis `at` of `array`. On a
/// CUDA device, only checks that the axis has elements, because the kernel checks the indices.
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument), naming the first index that is out of range.
#[track_caller]
fn check_indices(operation: &str, array: &AnyArray, at: usize, indices: &Array<i64>) -> Result<()> {
    let length = array.layout.dims()[at];
    if array.device().backend().cuda().is_some() {
        return match length {
            0 if !indices.is_empty() => Err(invalid(format!(
                "{operation}: the indices have the shape {}, expected no indices for axis {at} of \
                 length 0 of the shape {}",
                indices.layout().shape(),
                array.layout.shape()
            ))),
            _ => Ok(()),
        };
    }
    let range = -(length as i64)..length as i64;
    match host::first_outside(integer_loops_of::<i64>(), indices.erased(), range)? {
        None => Ok(()),
        Some(index) => Err(Error::new(
            ErrorCode::Index,
            format!(
                "{operation}: the index {index} is out of range for axis {at} of length {length} of the \
                 shape {}",
                array.layout.shape()
            ),
        )),
    }
}

impl AnyArray {
    /// Returns the elements in `range` along the axis `at`. The range must be within the axis.
    #[track_caller]
    fn range_of(&self, at: usize, range: Range<usize>) -> Result<Self> {
        let part = SliceInfoElem::Slice {
            start: range.start as isize,
            end: Some(range.end as isize),
            step: 1,
        };
        self.with_part(at, part)
    }

    /// Returns the elements at `index` along the axis `at`, without the axis. The index must be
    /// within the axis.
    #[track_caller]
    fn at_index(&self, at: usize, index: usize) -> Result<Self> {
        self.with_part(at, SliceInfoElem::Index(index as isize))
    }

    #[track_caller]
    fn with_part(&self, at: usize, part: SliceInfoElem) -> Result<Self> {
        const ALL: SliceInfoElem = SliceInfoElem::Slice {
            start: 0,
            end: None,
            step: 1,
        };
        let ndim = self.layout.ndim();
        let mut parts: SmallVec<[SliceInfoElem; MAX_RANK]> = SmallVec::from_elem(ALL, ndim);
        parts[at] = part;
        self.slice(&parts)
    }
}

/// # Errors
///
/// [`InvalidShape`](ErrorKind::InvalidShape), naming `operation`, if a result of `shape` has a rank
/// above 8 or a size that overflows.
#[track_caller]
pub(super) fn check_size(operation: &str, shape: &Shape, dtype: DType) -> Result<()> {
    match shape.size_bytes(dtype.size_bytes()) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.of(operation)),
    }
}

#[cold]
#[track_caller]
fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}
