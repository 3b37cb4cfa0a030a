//! The greatest elements along an axis.

use super::concat::concatenated;
use super::gather::gathered;
use super::moves::picked;
use super::{check_size, invalid};
use crate::array::{AnyArray, Array, DType, Element, MAX_RANK, Shape};
use crate::error::Result;
use crate::ops::derivatives::is_any_tracked;
use crate::ops::descriptors::{Direction, Picking};
use crate::ops::host::{SortLoops, sort_loops_of};

/// The length of the parts that an axis is divided into. A CUDA device sorts a part at once.
const PART: usize = 2048;

/// The maximum number of elements to select from a part for which selection is faster than a sort.
const FEW: usize = PART / 8;

impl<T: Element> Array<T> {
    /// Returns the `k` greatest elements along `axis`, the greatest first, and their indices.
    ///
    /// NaN counts as greater than every number, as in PyTorch. Among equal elements, the element
    /// with the lower index is first, and gets the gradient.
    ///
    /// If `k` is small compared with the length of the axis, the elements are selected instead of
    /// sorted. Selection reads the elements once and sorts `k` of them. Besides the result,
    /// selection needs memory for a few times `k` elements. On CUDA devices, the elements are
    /// selected only if `k` is at most 256. This selection needs memory for `k` / 1024 times the
    /// number of elements.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::from_slice(&[3, 9, 4, 9], 4)?;
    /// let (values, indices) = array.topk(3, 0)?;
    /// assert_eq!(values.to_vec()?, [9, 9, 4]);
    /// assert_eq!(indices.to_vec()?, [1, 3, 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range or has
    /// fewer than `k` elements, and the errors of [`argsort`](Self::argsort).
    #[track_caller]
    pub fn topk(&self, k: usize, axis: isize) -> Result<(Self, Array<i64>)> {
        let (values, positions) = self.erased().topk(sort_loops_of::<T>(), k, axis)?;
        Ok((Self::from_erased(values), positions))
    }
}

/// Selection of elements. `loops` are the loops for the type of the elements.
impl AnyArray {
    /// See [`Array::topk`].
    #[track_caller]
    fn topk(&self, loops: &'static SortLoops, k: usize, axis: isize) -> Result<(Self, Array<i64>)> {
        let shape = self.shape();
        let at = shape.axis("topk", axis)?;
        let length = shape.dims()[at];
        if k > length {
            return Err(invalid(format!(
                "topk: k is {k}, expected at most {length}, the length of axis {axis} of the \
                 shape {shape}"
            )));
        }
        let shape = shape.with(at, k);
        check_size("topk", &shape, DType::I64)?;
        let positions = self.share().untracked().leading(loops, at, &shape)?;
        let positions = Array::from_erased(positions);
        let values = match is_any_tracked(&[self])? {
            true => gathered(self, &positions, at as isize)?,
            false => picked(self, &positions, Picking::Elements, at, &shape)?,
        };
        Ok((values, positions))
    }

    /// Returns the indices of the greatest elements along the axis `at`, in the shape `shape`.
    #[track_caller]
    fn leading(&self, loops: &'static SortLoops, at: usize, shape: &Shape) -> Result<Self> {
        let (length, kept) = (self.dims()[at], shape.dims()[at]);
        let is_cuda = self.device().backend().cuda().is_some();
        let is_long = length > 2 * PART && 0 < kept && kept <= FEW;
        if is_cuda && is_long && self.layout.ndim() < MAX_RANK && self.len() > 0 {
            return by_parts(self, loops, at, shape);
        }
        self.in_order(loops, at, Direction::Descending, shape)
    }

    /// Returns the elements at `positions` along the axis `at`. The positions must be valid and
    /// have the shape `shape`.
    #[track_caller]
    fn picked_along(&self, positions: Self, at: usize, shape: &Shape) -> Result<Self> {
        let positions = Array::from_erased(positions);
        picked(self, &positions, Picking::Elements, at, shape)
    }
}

/// Computes [`leading`](AnyArray::leading) in two steps. The first step selects the greatest
/// elements of each part of the axis. The second step selects the greatest of the selected
/// elements. Equal elements keep their order, because the parts are in order.
#[track_caller]
fn by_parts(
    array: &AnyArray,
    loops: &'static SortLoops,
    at: usize,
    shape: &Shape,
) -> Result<AnyArray> {
    let _device = array.device().enter();
    let (length, kept) = (array.dims()[at], shape.dims()[at]);
    let (before, after) = (&array.dims()[..at], &array.dims()[at + 1..]);
    let around = |own: &[usize]| -> Shape { before.iter().chain(own).chain(after).collect() };
    let parts = length / PART;
    let whole = array.range_of(at, 0..parts * PART)?;
    let whole = whole.reshape(&around(&[parts, PART]))?;
    let of_parts = around(&[parts, kept]);
    let places = whole.in_order(loops, at + 1, Direction::Descending, &of_parts)?;
    let values = whole.picked_along(places.share(), at + 1, &of_parts)?;
    // Converts positions in a part to positions in the axis.
    let beside =
        |own: usize| -> Shape { [own].into_iter().chain(after.iter().map(|_| 1)).collect() };
    let starts = Array::arange(0, (parts * PART) as i64, PART as i64)?;
    let starts = starts.reshape(beside(parts))?.unsqueeze(1)?;
    let places = (places.lazy() + starts.erased().lazy()).eval()?;
    let chosen = around(&[parts * kept]);
    let (values, places) = (values.reshape(&chosen)?, places.reshape(&chosen)?);
    let rest = array.range_of(at, parts * PART..length)?;
    let own = Array::arange((parts * PART) as i64, length as i64, 1)?;
    let own = own.reshape(beside(rest.dims()[at]))?;
    let own = own.erased().broadcast_to(rest.shape())?;
    let values = concatenated(&[values, rest], at as isize)?;
    let places = concatenated(&[places, own], at as isize)?;
    let first = values.leading(loops, at, shape)?;
    places.picked_along(first, at, shape)
}
