//! Counts of the elements in each of several ranges.

use super::bincount::{check_room, occurrences};
use super::search::search;
use super::{check_size, invalid};
use crate::array::{AnyArray, Array, DType, Float, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::derivatives::is_any_tracked;
use crate::ops::descriptors::Side;
use crate::ops::host::{self, SearchLoops, search_loops_of};
use cachescope_kernels::counts::{BinLoops, bin_loops_of};

impl<T: Float> Array<T> {
    /// Returns the number of elements in each of `bins` ranges of equal width. Also returns the
    /// `bins + 1` edges of the ranges. This is NumPy's `histogram`. The edges of `f16` and `bf16`
    /// are computed in `f32`.
    ///
    /// The ranges extend from the least to the greatest element. Each range includes its lower
    /// edge. The last range includes both edges. If all elements are equal, the ranges extend from
    /// 0.5 below them to 0.5 above. For an array without elements, they extend from 0 to 1. The
    /// call waits for the least and the greatest element.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[1.0, 2.0, 1.5, 5.0, 3.0], 5)?;
    /// let (counts, edges) = x.histogram(2)?;
    /// assert_eq!(counts.to_vec()?, [3, 2]);
    /// assert_eq!(edges.to_vec()?, [1.0, 3.0, 5.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) if gradients are tracked through the array, because
    /// neither counts nor edges have a gradient.
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if there are no bins, or if an
    /// element is NaN or infinite. [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the
    /// type cannot represent `bins + 1` different edges.
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if the size overflows, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory). On CUDA devices, the call needs scratch
    /// memory of 8 bytes for each element.
    #[track_caller]
    pub fn histogram(&self, bins: usize) -> Result<(Array<i64>, Self)> {
        check(self.erased(), bins)?;
        let _device = self.device().enter();
        check_room(self.device(), bins + 1)?;
        let extremes = match self.is_empty() {
            true => None,
            false => Some([self.min()?.item()?.to_f64(), self.max()?.item()?.to_f64()]),
        };
        let loops = (bin_loops_of::<T>(), search_loops_of::<T>());
        let (counts, edges) = histogram(self.erased(), loops, extremes, bins)?;
        Ok((counts, Self::from_erased(edges)))
    }
}

/// The loops that count the elements between edges: on the host, and on a CUDA device.
type Loops = (&'static BinLoops, &'static SearchLoops);

#[track_caller]
fn check(array: &AnyArray, bins: usize) -> Result<()> {
    if bins == 0 {
        return Err(invalid(format!(
            "histogram: 0 bins for the array of shape {}, expected at least 1",
            array.shape()
        )));
    }
    if is_any_tracked(&[array])? {
        let text =
            "histogram: the edges have no gradient: write `stop_gradient(&x).histogram(bins)`";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let edges = Shape::from(bins.saturating_add(1));
    check_size("histogram", &edges, DType::I64)
}

/// Returns the counts and the edges of `bins` ranges from the least to the greatest element.
#[track_caller]
fn histogram(
    array: &AnyArray,
    loops: Loops,
    extremes: Option<[f64; 2]>,
    bins: usize,
) -> Result<(Array<i64>, AnyArray)> {
    let (element, round) = (loops.0.element, loops.0.round);
    let edges = match (extremes, element) {
        (None, _) => edges_without_elements(bins),
        (Some(extremes), DType::F64) => edges_between::<f64>(extremes, bins),
        (Some(extremes), _) => edges_between::<f32>(extremes, bins),
    };
    let edges: Vec<f64> = edges.into_iter().map(round).collect();
    if let Some([low, high]) = extremes {
        check_edges(array, [low, high], &edges)?;
    }
    let rounded = Array::from_vec(edges.clone(), bins + 1)?
        .into_erased()
        .converted(element)?;
    let counts = match array.device().backend().cuda().is_some() {
        true => counted_on_device(array, loops.1, &rounded)?,
        false => Array::from_vec(host::binned(loops.0, array, &edges)?, bins)?,
    };
    Ok((counts, rounded))
}

/// Checks that the extremes are finite, and that the edges between them differ.
#[track_caller]
fn check_edges(array: &AnyArray, [low, high]: [f64; 2], edges: &[f64]) -> Result<()> {
    let dtype = array.dtype;
    let text = |number: f64| match dtype {
        DType::F64 => number.to_string(),
        _ => (number as f32).to_string(),
    };
    let (low_text, high_text) = (text(low), text(high));
    if !(low.is_finite() && high.is_finite()) {
        return Err(invalid(format!(
            "histogram: the array of shape {} has the least element {low_text} and the greatest {high_text}, expected finite elements",
            array.shape()
        )));
    }
    if edges.is_sorted_by(|low, high| low < high) {
        return Ok(());
    }
    let bins = edges.len() - 1;
    Err(invalid(format!(
        "histogram: {bins} bins from {low_text} to {high_text} are too narrow for edges of {dtype}: pass fewer bins"
    )))
}

/// Returns the number of elements between each edge and the next edge, counted by a CUDA device.
#[track_caller]
fn counted_on_device(
    array: &AnyArray,
    loops: &'static SearchLoops,
    edges: &AnyArray,
) -> Result<Array<i64>> {
    let bins = edges.len() - 1;
    // The index of a bin is the number of inner edges that are not above the element.
    let inner = edges.range_of(0, 1..bins)?;
    let indices = search([&inner, array], loops, Side::Right)?;
    occurrences(&Array::from_erased(indices).flatten()?, bins)
}

/// Returns the edges of `bins` ranges from 0 to 1.
fn edges_without_elements(bins: usize) -> Vec<f64> {
    let width = 1.0 / bins as f64;
    let edge = |index: usize| index as f64 * width;
    (0..bins).map(edge).chain([1.0]).collect()
}

/// Returns the edges of ranges of equal width, computed in `A` and rounded as by NumPy's
/// `linspace`.
fn edges_between<A: Float>([low, high]: [f64; 2], bins: usize) -> Vec<f64> {
    let [mut first, mut last, half, count] = [low, high, 0.5, bins as f64].map(A::from_f64);
    if low == high {
        (first, last) = (first.minus(half), last.plus(half));
    }
    let span = last.minus(first);
    let step = span.over(count);
    let edge = |number: usize| {
        if !span.to_f64().is_finite() {
            // The difference overflows, but the weighted ends do not.
            let share = number as f64 / bins as f64;
            return low * (1.0 - share) + high * share;
        }
        let number = A::from_f64(number as f64);
        let along = if step == A::zero() {
            number.over(count).times(span)
        } else {
            number.times(step)
        };
        along.plus(first).to_f64()
    };
    (0..bins).map(edge).chain([last.to_f64()]).collect()
}
