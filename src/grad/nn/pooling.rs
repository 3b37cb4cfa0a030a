//! Pools with padding, and pools to a given size.

use std::ops::Range;
use std::panic::Location;

use crate::array::{AnyElement, Array, Float};
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};
use crate::ops::concat;

/// The windows of [`max_pool2d`] and [`avg_pool2d`]. The first entry of each pair is for rows, the
/// second for columns.
///
/// # Examples
///
/// ```
/// use cachescope::grad::nn::PoolOptions;
///
/// let options = PoolOptions { padding: [1, 1], stride: [2, 2], ..PoolOptions::of([3, 3]) };
/// assert_eq!((options.size, options.counts_padding), ([3, 3], true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// The numbers of rows and columns of a window.
    pub size: [usize; 2],
    /// The distance from one window to the next.
    pub stride: [usize; 2],
    /// The numbers of rows and columns that are added at each edge, at most half of a window.
    pub padding: [usize; 2],
    /// True if the padding of a window counts as zeros in its mean, like PyTorch's
    /// `count_include_pad`.
    pub counts_padding: bool,
}

impl PoolOptions {
    /// Returns the options of adjacent windows without padding.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::PoolOptions;
    ///
    /// assert_eq!(PoolOptions::of([2, 3]).stride, [2, 3]);
    /// ```
    #[must_use]
    pub fn of(size: [usize; 2]) -> Self {
        Self {
            size,
            stride: size,
            padding: [0, 0],
            counts_padding: true,
        }
    }

    #[track_caller]
    fn check(&self, function: &str) -> Result<()> {
        if self
            .padding
            .iter()
            .zip(self.size)
            .all(|(own, size)| *own <= size / 2)
        {
            return Ok(());
        }
        let Self { size, padding, .. } = self;
        let text = format!(
            "{function}: the padding {padding:?} is more than half of a window of {size:?}"
        );
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }

    /// Returns `x` with `value` around each image.
    #[track_caller]
    fn padded<T: Float>(&self, x: &Array<T>, value: f64) -> Result<Array<T>> {
        // The pool itself returns the error for ranks below 2.
        if self.padding == [0, 0] || x.ndim() < 2 {
            return Ok(x.clone());
        }
        let image = &x.shape()[x.ndim() - 2..];
        if image.contains(&0) {
            let text = format!(
                "the padding {:?} surrounds an image {image:?} without elements, expected lengths \
                 of at least 1",
                self.padding
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let mut margins = vec![(0, 0); x.ndim() - 2];
        margins.extend(self.padding.map(|own| (own, own)));
        x.pad(&margins, <T as AnyElement>::from_f64(value))
    }
}

/// Returns the largest element of each window of the last two axes, like [`Array::max_pool2d`], but
/// with padding. Padding is never the largest element, and gets no gradient. If all elements of a
/// window are −∞, its gradient is divided among these elements.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::nn::{PoolOptions, max_pool2d};
///
/// let x = Array::arange(0.0_f32, 16.0, 1.0)?.reshape([1, 4, 4])?;
/// let options = PoolOptions { padding: [1, 1], ..PoolOptions::of([3, 3]) };
/// assert_eq!(max_pool2d(&x, options)?.to_vec()?, [5.0, 7.0, 13.0, 15.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`Array::max_pool2d`], and [`InvalidArgument`](ErrorKind::InvalidArgument) if the
/// padding is more than half of a window.
#[track_caller]
pub fn max_pool2d<T: Float>(x: &Array<T>, options: PoolOptions) -> Result<Array<T>> {
    options.check("max_pool2d")?;
    let padded = options.padded(x, f64::NEG_INFINITY)?;
    padded.max_pool2d_padded(options.size, options.stride, options.padding)
}

/// Returns the mean of each window of the last two axes, like [`Array::avg_pool2d`], but with
/// padding.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::nn::{PoolOptions, avg_pool2d};
///
/// let x = Array::<f32>::ones([1, 2, 2])?;
/// let options = PoolOptions { padding: [1, 1], ..PoolOptions::of([2, 2]) };
/// assert_eq!(avg_pool2d(&x, options)?.to_vec()?, [0.25; 4]);
/// let without = PoolOptions { counts_padding: false, ..options };
/// assert_eq!(avg_pool2d(&x, without)?.to_vec()?, [1.0; 4]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`max_pool2d`].
#[track_caller]
pub fn avg_pool2d<T: Float>(x: &Array<T>, options: PoolOptions) -> Result<Array<T>> {
    options.check("avg_pool2d")?;
    if T::DTYPE != T::Computed::DTYPE && options.padding != [0, 0] && !options.counts_padding {
        // The result is rounded once, after the division by the fraction of the window that is
        // inside of the image.
        let means = avg_pool2d(&x.cast::<T::Computed>().eval_unfused()?, options)?;
        return means.cast::<T>().eval_unfused();
    }
    let padded = options.padded(x, 0.0)?;
    let means = padded.avg_pool2d(options.size, options.stride)?;
    if options.counts_padding || options.padding == [0, 0] {
        return Ok(means);
    }
    let _device = x.device().enter();
    let (height, width) = (x.shape()[x.ndim() - 2], x.shape()[x.ndim() - 1]);
    let inside = options.padded(&Array::<T>::ones([1, height, width])?, 0.0)?;
    let share = inside.avg_pool2d(options.size, options.stride)?;
    (means / share).eval_unfused()
}

/// Returns the means of `size` windows of the last two axes, like PyTorch's `adaptive_avg_pool2d`.
/// The windows cover the whole image. If an axis does not divide evenly, its windows overlap.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::nn::adaptive_avg_pool2d;
///
/// let x = Array::arange(0.0_f32, 10.0, 1.0)?.reshape([1, 2, 5])?;
/// assert_eq!(adaptive_avg_pool2d(&x, [1, 1])?.to_vec()?, [4.5]);
/// assert_eq!(adaptive_avg_pool2d(&x, [1, 2])?.to_vec()?, [3.5, 5.5]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if the array has fewer than two axes.
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if one of the last two axes is empty, or if a
/// number in `size` is 0.
#[track_caller]
pub fn adaptive_avg_pool2d<T: Float>(x: &Array<T>, size: [usize; 2]) -> Result<Array<T>> {
    #[track_caller]
    fn means<T: Float>(x: &Array<T>, size: [usize; 2]) -> Result<Array<T>> {
        adaptive("adaptive_avg_pool2d", x, size, |own, axis| {
            own.mean_keepdims(axis)
        })
    }
    match T::DTYPE == T::Computed::DTYPE {
        true => means(x, size),
        // The result is rounded once, not after each axis.
        false => means(&x.cast::<T::Computed>().eval_unfused()?, size)?
            .cast::<T>()
            .eval_unfused(),
    }
}

/// Returns the largest elements of `size` windows of the last two axes, like PyTorch's
/// `adaptive_max_pool2d`. The windows cover the whole image.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::nn::adaptive_max_pool2d;
///
/// let x = Array::arange(0.0_f32, 10.0, 1.0)?.reshape([1, 2, 5])?;
/// assert_eq!(adaptive_max_pool2d(&x, [1, 2])?.to_vec()?, [7.0, 9.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`adaptive_avg_pool2d`].
#[track_caller]
pub fn adaptive_max_pool2d<T: Float>(x: &Array<T>, size: [usize; 2]) -> Result<Array<T>> {
    adaptive("adaptive_max_pool2d", x, size, |own, axis| {
        own.max_keepdims(axis)
    })
}

#[track_caller]
fn adaptive<T: Float>(
    function: &str,
    x: &Array<T>,
    size: [usize; 2],
    reduce: fn(&Array<T>, isize) -> Result<Array<T>>,
) -> Result<Array<T>> {
    if let [.., height, width] = x.shape()
        && ![*height, *width, size[0], size[1]].contains(&0)
    {
        let _call_site = CallSiteOverride::at(Location::caller());
        // One axis is reduced after the other: a mean over a rectangle is a mean of means.
        let rows = by_windows(x, x.ndim() - 2, size[0], reduce);
        let pooled = rows.and_then(|rows| by_windows(&rows, x.ndim() - 1, size[1], reduce));
        return pooled.at_caller();
    }
    let shape = x.layout().shape();
    let text = format!(
        "{function}: {size:?} windows for x of shape {shape}, expected at least two axes, and \
         lengths of at least 1"
    );
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

/// Reduces `count` windows of one axis. Window i is from floor(i length / count) to ceil((i + 1)
/// length / count).
fn by_windows<T: Float>(
    x: &Array<T>,
    axis: usize,
    count: usize,
    reduce: fn(&Array<T>, isize) -> Result<Array<T>>,
) -> Result<Array<T>> {
    let length = x.shape()[axis];
    if length == count {
        return Ok(x.clone());
    }
    let window = |at: usize| -> Range<usize> {
        // A product of two lengths fits 128 bits.
        let (start, end) = (
            at as u128 * length as u128,
            (at + 1) as u128 * length as u128,
        );
        let count = count as u128;
        (start / count) as usize..end.div_ceil(count) as usize
    };
    let mut reduced = Vec::new();
    for at in 0..count {
        let part = x.viewed(x.layout().part(axis, window(at), 1)?);
        reduced.push(reduce(&part, axis as isize)?);
    }
    concat(&reduced.iter().collect::<Vec<_>>(), axis as isize)
}
