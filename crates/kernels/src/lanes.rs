//! Lanes: the elements along one axis of a shape, one lane for each index of the other axes. A
//! *row-major index* is the position of an element in row-major order. (In the source of kernels a
//! lane is named a line, because CUDA's lanes are the threads of a warp.)

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::blocks::RUN;
use crate::output::Untyped;
use crate::{AnyElement, DType};

/// Lanes of equal length. A reduction reduces each lane to one output.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    /// The product of the lengths before the axis.
    pub outer: usize,
    /// The length of the axis: the number of elements of a lane.
    pub length: usize,
    /// The product of the lengths after the axis: the stride within a lane.
    pub inner: usize,
}

impl Lanes {
    /// Returns the lanes along axis `axis` of an array of shape `dims`.
    pub fn along(axis: usize, dims: &[usize]) -> Self {
        Self {
            outer: dims[..axis].iter().product(),
            length: dims[axis],
            inner: dims[axis + 1..].iter().product(),
        }
    }

    /// Returns the number of lanes.
    pub fn count(&self) -> usize {
        self.outer * self.inner
    }

    /// Returns the number of jobs. If lanes are contiguous, a job is one lane. Otherwise, a job is
    /// up to [`RUN`] adjacent lanes.
    pub fn jobs(&self) -> usize {
        self.outer * self.inner.div_ceil(RUN)
    }

    /// Returns the job with index `number`.
    #[inline(always)]
    pub fn job(&self, number: usize) -> Job {
        let blocks = self.inner.div_ceil(RUN);
        let (outer, block) = (number / blocks, number % blocks);
        Job {
            start: outer * self.length * self.inner + block * RUN,
            width: RUN.min(self.inner - block * RUN),
            lanes: *self,
        }
    }
}

/// The adjacent lanes of a job.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    start: usize,
    /// The number of lanes.
    pub width: usize,
    lanes: Lanes,
}

impl Job {
    /// If the job is one contiguous lane, returns the row-major indices of its elements.
    #[inline(always)]
    pub fn whole(&self) -> Option<Range<usize>> {
        (self.lanes.inner == 1).then(|| self.start..self.start + self.lanes.length)
    }

    /// Returns the row-major indices of the elements at position `index` of each lane.
    #[inline(always)]
    pub fn at(&self, index: usize) -> Range<usize> {
        let start = self.start + index * self.lanes.inner;
        start..start + self.width
    }
}

/// The elements that a loop over lanes reads, by row-major index.
///
/// # Safety
///
/// The elements at a returned address must be readable until the next call of a method. Meanwhile,
/// no code may write to them.
pub unsafe trait Elements {
    /// Returns the size of an element.
    fn element_bytes(&self) -> usize;

    /// Returns the address of the elements of `range`, which has at most
    /// [`BLOCK`](crate::blocks::BLOCK) elements.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer elements than `range` requires.
    fn address(&mut self, range: Range<usize>) -> *const u8;

    /// Writes the elements of `range`, of any length, to the memory at `to`.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer elements than `range` requires.
    ///
    /// # Safety
    ///
    /// `to` must be aligned and writable for the elements. No other code may access this memory
    /// during the call.
    unsafe fn write(&mut self, range: Range<usize>, to: *mut u8);
}

/// Returns the elements of `range`, which has at most [`BLOCK`](crate::blocks::BLOCK) elements.
///
/// # Safety
///
/// The elements must be of `T`.
#[inline(always)]
pub(crate) unsafe fn values<T: AnyElement>(
    elements: &mut dyn Elements,
    range: Range<usize>,
) -> &[T] {
    let count = range.len();
    let first = elements.address(range).cast();
    // SAFETY: by the contract of [`Elements`], the address has `count` elements. By this function's
    // contract, they are of `T`.
    unsafe { std::slice::from_raw_parts(first, count) }
}

/// Fills `out` with the elements from row-major index `start` on.
///
/// # Safety
///
/// The elements must be of `T`.
#[inline(always)]
pub(crate) unsafe fn write<T: AnyElement>(
    elements: &mut dyn Elements,
    start: usize,
    out: &mut [MaybeUninit<T>],
) {
    let range = start..start + out.len();
    // SAFETY: `out` is borrowed exclusively and is as long as `range`. By this function's contract,
    // the elements have type `T`.
    unsafe { elements.write(range, out.as_mut_ptr().cast()) };
}

/// A function that computes the lanes of some jobs from elements, and writes the results to the
/// lanes' output.
/// The elements and the output must be of the loop's types. No other code may access the jobs'
/// lanes of the output.
pub type LaneLoop = unsafe fn(&mut dyn Elements, Untyped, &Lanes, Range<usize>);

/// A loop over lanes, with the types of its elements and results.
#[derive(Debug)]
pub struct LaneLoops {
    /// The type of the elements.
    pub element: DType,
    /// The type of the results.
    pub output: DType,
    /// The function that writes all lanes of some jobs.
    pub run: LaneLoop,
    /// The time to compute an element, divided by the time to read and write it.
    pub effort: usize,
}

/// Returns whether running sums of `dtype` are compensated for rounding errors. This is the case
/// for `f64` and `Complex<f64>`, because no wider type exists.
pub const fn is_compensated(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::C64)
}
