//! Pooling: the largest element and the mean of windows.

mod gradients;

use crate::array::{AnyArray, Array, Float, Layout, Numeric, Shape};
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::ops::derivatives::RuledOperation;
use crate::ops::dispatch::Reduction;
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::expression::graph::MOST_RESULTS;
use cachescope_kernels::reduce::Max;

/// The maximum number of elements of a window that is reduced position by position. Each step
/// combines one position of all windows.
const FEW: usize = 16;

/// The maximum number of elements of a window whose gradient is computed in one pass. With more
/// elements, the expression graph would be longer than the window of its search for equal nodes.
/// Common subexpressions would then be computed again.
const MOST_APART: usize = 6;
const _: () = assert!(MOST_APART <= MOST_RESULTS);

/// The windows of the last two axes. No window is longer than its axis is without padding.
#[derive(Clone, Copy, Debug)]
struct Windows {
    size: [usize; 2],
    stride: [usize; 2],
    /// The number of rows and the number of columns of padding at each edge. Padding is never a
    /// largest element.
    padding: [usize; 2],
}

impl<T: Numeric> Array<T> {
    /// Returns the largest element of each window of `size` rows and columns, in steps of `stride`.
    /// If a window has a NaN, its result is NaN.
    ///
    /// The array is `[N, C, H, W]` or `[C, H, W]`. The last two axes of the result have the lengths
    /// `(H - size[0]) / stride[0] + 1` and `(W - size[1]) / stride[1] + 1`. Rows and columns that
    /// fill no window are left out. Like for [`max`](Self::max), all elements of the window that
    /// equal the result get equal parts of its gradient. If the result is NaN, the gradient is NaN
    /// for the whole window.
    ///
    /// Only the result needs memory, unless windows of more than 16 elements overlap. In this case,
    /// the largest elements of each window's columns are stored first. For each row of the result,
    /// these are `W` elements.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::arange(0, 16, 1)?.reshape([1, 4, 4])?;
    /// assert_eq!(x.max_pool2d([2, 2], [2, 2])?.to_vec()?, [5, 7, 13, 15]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the array has neither three axes nor four
    /// axes, or if a step is 0. [`InvalidArgument`](ErrorKind::InvalidArgument) if a window is
    /// empty, or longer than its axis. [`OutOfMemory`](ErrorKind::OutOfMemory) if the device has no
    /// memory.
    #[track_caller]
    pub fn max_pool2d(&self, size: [usize; 2], stride: [usize; 2]) -> Result<Self> {
        self.max_pool2d_padded(size, stride, [0, 0])
    }

    /// Like [`max_pool2d`](Self::max_pool2d), for an array whose edges are padded with −∞. Padding
    /// gets no gradient.
    #[track_caller]
    pub(crate) fn max_pool2d_padded(
        &self,
        size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> Result<Self> {
        let windows = Windows::of("max_pool2d", self.layout().shape(), size, stride)?;
        let windows = Windows { padding, ..windows };
        let max = const { &Reduction::of::<Max, T>() };
        largest(self.erased(), windows, max).map(Self::from_erased)
    }
}

impl<T: Float> Array<T> {
    /// Returns the mean of each window of `size` rows and columns, in steps of `stride`. Means of
    /// `f16` and `bf16` are computed in `f32`.
    ///
    /// The shapes and the memory are like for [`max_pool2d`](Self::max_pool2d), except that sums of
    /// `f16` and `bf16` are stored as `f32`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::arange(0.0, 16.0, 1.0)?.reshape([1, 4, 4])?;
    /// assert_eq!(x.avg_pool2d([2, 2], [2, 2])?.to_vec()?, [2.5, 4.5, 10.5, 12.5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`max_pool2d`](Self::max_pool2d).
    #[track_caller]
    pub fn avg_pool2d(&self, size: [usize; 2], stride: [usize; 2]) -> Result<Self> {
        let windows = Windows::of("avg_pool2d", self.layout().shape(), size, stride)?;
        mean(self.erased(), windows).map(Self::from_erased)
    }
}

impl Windows {
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the shape is neither `[N, C, H, W]` nor
    /// `[C, H, W]`, or the windows do not fit.
    #[track_caller]
    fn of(operation: &str, shape: &Shape, size: [usize; 2], stride: [usize; 2]) -> Result<Self> {
        let fits = match *shape.dims() {
            [_, height, width] | [_, _, height, width] => size[0] <= height && size[1] <= width,
            _ => {
                let why = format!(
                    "{operation}: the shape is {shape}, expected [N, C, H, W] or [C, H, W]"
                );
                return Err(Error::new(ErrorKind::InvalidArgument, why));
            }
        };
        if fits && !size.contains(&0) && !stride.contains(&0) {
            return Ok(Self {
                size,
                stride,
                padding: [0, 0],
            });
        }
        let (code, why) = match fits {
            true => (
                ErrorCode::Argument,
                "a length or a step is 0, expected at least 1",
            ),
            false => (ErrorCode::Window, "a window is longer than its axis"),
        };
        let text = format!(
            "{operation}: windows {size:?} in steps {stride:?} of the last two axes of the shape {shape}: {why}"
        );
        Err(Error::new(code, text))
    }

    /// Splits large windows that overlap, because they would read each element many times. Returns
    /// windows of one column, and windows of one row over the results of the columns. Returns
    /// `None` for small windows, and for windows that do not overlap.
    fn one_by_one(self) -> Option<[Self; 2]> {
        let [height, width] = self.size;
        let overlap = self.stride[0] < height || self.stride[1] < width;
        (overlap && height > 1 && width > 1 && height.saturating_mul(width) > FEW).then_some([
            Self {
                size: [height, 1],
                stride: [self.stride[0], 1],
                padding: self.padding,
            },
            Self {
                size: [1, width],
                stride: [1, self.stride[1]],
                padding: [0, 0],
            },
        ])
    }

    /// Returns whether windows have few elements, and no element in common. One pass can then
    /// compute a value for each position.
    fn are_apart(self) -> bool {
        let [height, width] = self.size;
        let apart = self.stride[0] >= height && self.stride[1] >= width;
        apart && height.saturating_mul(width) <= MOST_APART
    }

    fn count(self) -> f64 {
        self.size[0] as f64 * self.size[1] as f64
    }

    /// Returns the elements of all windows. The last two axes index the elements of a window.
    #[track_caller]
    fn view(self, x: &AnyArray) -> Result<AnyLazy> {
        Ok(x.viewed(self.layout(&x.layout)?).lazy())
    }

    /// Returns the layout of [`view`](Self::view).
    #[track_caller]
    fn layout(self, of: &Layout) -> Result<Layout> {
        of.windows_apart(&self.size, &self.stride, &[1, 1])
    }

    #[track_caller]
    fn shape_of(self, own: &Shape) -> Result<Shape> {
        let windows = self.layout(&Layout::contiguous(own)?)?;
        Ok(windows.dims()[..own.ndim()].iter().collect())
    }

    /// Returns the layout of [`view`](Self::view) with the axes of a window first. The last axes
    /// then index all windows, so that rows are long.
    #[track_caller]
    fn first(self, of: &Layout) -> Result<Layout> {
        let windows = self.layout(of)?;
        let own = of.ndim();
        let axes: Vec<usize> = [own, own + 1].into_iter().chain(0..own).collect();
        windows.permute(&axes)
    }

    /// Returns the row and the column of each position in a window. Returns an empty list if there
    /// are more than [`FEW`] positions.
    fn positions(self) -> Vec<[usize; 2]> {
        let [height, width] = self.size;
        if height.saturating_mul(width) > FEW {
            return Vec::new();
        }
        let row = |row| (0..width).map(move |column| [row, column]);
        (0..height).flat_map(row).collect()
    }

    /// Returns the layout of the elements at `position` of all windows of an array of layout `of`.
    #[track_caller]
    fn at(self, of: &Layout, [row, column]: [usize; 2]) -> Result<Layout> {
        let (windows, window) = self.layout(of)?.split_at(of.ndim());
        let [down, along] = [0, 1].map(|axis| window.strides()[axis]);
        let steps = row as isize * down + column as isize * along;
        Ok(windows.starting_at(windows.offset().wrapping_add_signed(steps)))
    }

    /// Returns the elements of all windows at each of the [`positions`](Self::positions).
    #[track_caller]
    fn places(self, x: &AnyArray) -> Result<Vec<AnyLazy>> {
        let positions = self.positions().into_iter();
        let places = positions.map(|position| Ok(x.viewed(self.at(&x.layout, position)?).lazy()));
        places.collect()
    }
}

/// Returns the largest elements of windows. `max` is the reduction for the type of the elements.
#[track_caller]
fn largest(x: &AnyArray, windows: Windows, max: &'static Reduction) -> Result<AnyArray> {
    let step = RuledOperation::begin("max_pool2d", &[x])?
        .computed_by(x.len() as u64, move |operands| {
            largest_of(&operands[0], windows, max)
        });
    let largest = largest_of(x, windows, max)?;
    let [largest] = step.finish_all([largest], |saved, [largest]| {
        let arrays = [x, largest].map(|own| saved.save_releasable(own));
        gradients::of_largest(arrays, windows, max)
    });
    Ok(largest)
}

#[track_caller]
fn largest_of(x: &AnyArray, windows: Windows, max: &'static Reduction) -> Result<AnyArray> {
    match windows.one_by_one() {
        Some([columns, rows]) => largest_each(&largest_each(x, columns, max)?, rows, max),
        None => largest_each(x, windows, max),
    }
}

#[track_caller]
fn largest_each(x: &AnyArray, windows: Windows, max: &'static Reduction) -> Result<AnyArray> {
    let places = windows.places(x)?;
    match places.into_iter().reduce(AnyLazy::maximum) {
        Some(largest) => largest.eval(),
        None => windows.view(x)?.reduced(max, &[-2, -1].into(), false),
    }
}

#[track_caller]
fn mean(x: &AnyArray, windows: Windows) -> Result<AnyArray> {
    let step = RuledOperation::begin("avg_pool2d", &[x])?
        .computed_by(x.len() as u64, move |operands| means(&operands[0], windows));
    let mean = means(x, windows)?;
    Ok(step.finish(mean, |_| gradients::of_mean(*x.shape(), windows)))
}

#[track_caller]
fn means(x: &AnyArray, windows: Windows) -> Result<AnyArray> {
    let sums = match windows.one_by_one() {
        Some([columns, rows]) => sums(&sums(x, columns)?.eval()?, rows)?,
        None => sums(x, windows)?,
    };
    (sums / windows.count()).cast(x.dtype).eval()
}

/// Returns the sums of all windows, in the accumulation type.
#[track_caller]
fn sums(x: &AnyArray, windows: Windows) -> Result<AnyLazy> {
    let wide = x.dtype.computed_in();
    let places = windows.places(x)?.into_iter();
    match places
        .map(|place| place.cast(wide))
        .reduce(|sum, place| sum + place)
    {
        Some(sums) => Ok(sums),
        None => Ok(windows.view(x)?.cast(wide).sum_axis([-2, -1])?.lazy()),
    }
}
