//! Counts of the elements in each of several ranges.

use super::bincount::{check_room, occurrences, tally};
use super::search::search;
use super::{check_size, invalid};
use crate::array::{Array, DType, Elements, Float, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::derivatives::is_tracked;
use crate::ops::descriptors::Side;
use crate::ops::host::search_loops_of;

impl<T: Float> Array<T> {
    /// Returns the number of elements in each of `bins` ranges of equal width, and the `bins + 1`
    /// edges of the ranges: NumPy's `histogram`. The edges of `f16` and `bf16` are computed in
    /// `f32`.
    ///
    /// The ranges extend from the least to the greatest element. Each range includes its lower
    /// edge. The last range includes both edges. If all elements are equal, the ranges extend from
    /// 0.5 below them to 0.5 above. For an array without elements, they cover the numbers from 0 to
    /// 1. The call waits for the least and the greatest element.
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
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if there are no bins, an element is
    /// NaN or infinite, or the type cannot represent `bins + 1` different edges;
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if the size overflows, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory); on CUDA devices, the call needs scratch
    /// memory of 8 bytes for each element.
    #[track_caller]
    pub fn histogram(&self, bins: usize) -> Result<(Array<i64>, Self)> {
        let shape = self.layout().shape();
        if bins == 0 {
            return Err(invalid(format!(
                "histogram: 0 bins for the array of shape {shape}, expected at least 1"
            )));
        }
        if is_tracked(self)? {
            let text =
                "histogram: the edges have no gradient: write `stop_gradient(&x).histogram(bins)`";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        check_size(
            "histogram",
            &Shape::from(bins.saturating_add(1)),
            DType::I64,
        )?;
        let _device = self.device().enter();
        check_room(self.device(), bins + 1)?;
        let edges = self.edges(bins)?;
        Ok((counted(self, &edges)?, edges))
    }

    /// Returns the edges of `bins` ranges that contain all elements.
    #[track_caller]
    fn edges(&self, bins: usize) -> Result<Self> {
        let shape = self.layout().shape();
        if self.is_empty() {
            let edge = |number: usize| T::from_f64(number as f64 * (1.0 / bins as f64));
            let edges: Vec<T> = (0..bins).map(edge).chain([T::one()]).collect();
            return Self::from_vec(edges, bins + 1);
        }
        let (low, high) = (self.min()?.item()?, self.max()?.item()?);
        if !(low.to_f64().is_finite() && high.to_f64().is_finite()) {
            return Err(invalid(format!(
                "histogram: the elements of the array of shape {shape} reach from {low} to {high}, expected finite numbers"
            )));
        }
        let edges = edges_between::<T::Computed>(low.to_f64(), high.to_f64(), bins);
        let edges: Vec<T> = edges.into_iter().map(T::from_f64).collect();
        if edges
            .windows(2)
            .any(|pair| !matches!(pair, [low, high] if low < high))
        {
            return Err(invalid(format!(
                "histogram: {bins} bins from {low} to {high} are too narrow for edges of {}: pass fewer bins",
                T::NAME
            )));
        }
        Self::from_vec(edges, bins + 1)
    }
}

/// Returns the number of elements of `array` between each of the `edges` and the next.
#[track_caller]
fn counted<T: Float>(array: &Array<T>, edges: &Array<T>) -> Result<Array<i64>> {
    let bins = edges.len() - 1;
    if array.device().backend().cuda().is_none() {
        let edges = Elements::of(edges)?.to_vec();
        let edges: Vec<f64> = edges.into_iter().map(T::to_f64).collect();
        let counts = tally(&Elements::of(array)?, bins, bin_among(&edges));
        let counts = counts.unwrap_or_else(|value| unreachable!("{value} is beyond all edges"));
        return Array::from_vec(counts, bins);
    }
    // The bin's number is the number of inner edges that are not above the value.
    let inner = edges.erased().range_of(0, 1..bins)?;
    let places = search(
        [&inner, array.erased()],
        search_loops_of::<T>(),
        Side::Right,
    )?;
    occurrences(&Array::from_erased(places).flatten()?, bins)
}

/// Returns a function that finds the bin of a value. The function estimates the bin from the common
/// width of the bins, and corrects the estimate by the edges.
fn bin_among<T: Float>(edges: &[f64]) -> impl Fn(T) -> usize {
    let last = edges.len() - 2;
    let scale = edges.len().saturating_sub(1) as f64 / (edges[last + 1] - edges[0]);
    move |value: T| {
        let value = value.to_f64();
        // Rust's `as` converts negative numbers to 0.
        let mut bin = (((value - edges[0]) * scale) as usize).min(last);
        while bin > 0 && value < edges[bin] {
            bin -= 1;
        }
        while bin < last && value >= edges[bin + 1] {
            bin += 1;
        }
        bin
    }
}

/// Returns the edges of ranges of equal width, computed in `A` and rounded as by NumPy's
/// `linspace`.
fn edges_between<A: Float>(low: f64, high: f64, bins: usize) -> Vec<f64> {
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
