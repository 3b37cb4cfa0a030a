//! The largest element and the mean of windows.

mod gradients;

use super::derivatives::RuledOperation;
use super::expression::boxed::BoxedLazy;
use super::expression::graph::MOST_RESULTS;
use super::precompiled::precompiled;
use crate::array::{AnyElement, Array, Float, Layout, Number, Numeric, Shape};
use crate::error::{Error, ErrorCode, ErrorKind, Result};

/// The most elements of a window that is combined element by element, for all windows at once.
const FEW: usize = 16;

/// The most elements of a window whose gradient is one pass. With more, the expression graph is
/// longer than its search for equal nodes reaches, so common parts would be computed again.
const MOST_APART: usize = 6;
const _: () = assert!(MOST_APART <= MOST_RESULTS);

/// The windows of the last two axes, which fit them.
#[derive(Clone, Copy, Debug)]
struct Windows {
    size: [usize; 2],
    stride: [usize; 2],
    /// The rows and columns at each edge of the array that are padding: no largest elements.
    padding: [usize; 2],
}

impl<T: Numeric> Array<T> {
    /// Returns the largest element of each window of `size` rows and columns, in steps of `stride`;
    /// NaN if the window has one.
    ///
    /// The array is `[N, C, H, W]` or `[C, H, W]`. The last two axes of the result have the lengths
    /// `(H - size[0]) / stride[0] + 1` and `(W - size[1]) / stride[1] + 1`: rows and columns that
    /// fill no window are left out. The gradient of an element of the result passes back in equal
    /// parts to all elements of the window that equal it, as for [`max`](Self::max); if the result
    /// is NaN, it is NaN for the whole window.
    ///
    /// Only the result needs memory, unless windows of more than 16 elements overlap: then the
    /// largest of each window's columns are stored first, `W` in each row of the result.
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
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the array has neither three axes nor
    /// four, a window does not fit or is empty, or a step is 0; and
    /// [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn max_pool2d(&self, size: [usize; 2], stride: [usize; 2]) -> Result<Self> {
        let windows = Windows::of("max_pool2d", self.layout().shape(), size, stride)?;
        let x = self;
        precompiled!(largest::<T>([x]; windows: Windows))
    }

    /// Like [`max_pool2d`](Self::max_pool2d), of an array whose edges are padding of −∞, which gets
    /// no gradient.
    #[track_caller]
    pub(crate) fn max_pool2d_padded(
        &self,
        size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> Result<Self> {
        let windows = Windows::of("max_pool2d", self.layout().shape(), size, stride)?;
        let (x, windows) = (self, Windows { padding, ..windows });
        precompiled!(largest::<T>([x]; windows: Windows))
    }
}

impl<T: Float> Array<T> {
    /// Returns the mean of each window of `size` rows and columns, in steps of `stride`; means of
    /// `f16` and `bf16` are computed in `f32`.
    ///
    /// Shapes and memory are as for [`max_pool2d`](Self::max_pool2d), except that sums of `f16` and
    /// `bf16` are stored as `f32`.
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
    /// Those of [`max_pool2d`](Self::max_pool2d).
    #[track_caller]
    pub fn avg_pool2d(&self, size: [usize; 2], stride: [usize; 2]) -> Result<Self> {
        let windows = Windows::of("avg_pool2d", self.layout().shape(), size, stride)?;
        let x = self;
        precompiled!(mean::<T>([x]; windows: Windows))
    }
}

impl Windows {
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the shape is not one of images, or the
    /// windows do not fit.
    #[track_caller]
    fn of(operation: &str, shape: &Shape, size: [usize; 2], stride: [usize; 2]) -> Result<Self> {
        let fits = match *shape.dims() {
            [_, height, width] | [_, _, height, width] => size[0] <= height && size[1] <= width,
            _ => {
                let why =
                    format!("{operation}: the shape {shape} is neither [N, C, H, W] nor [C, H, W]");
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

    /// Splits large windows that overlap, which would read each element many times: returns windows
    /// of one column, and windows of one row to take of their results.
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

    /// Returns whether the windows have no element in common, and few elements each, so that one
    /// pass computes a value for each position.
    fn are_apart(self) -> bool {
        let [height, width] = self.size;
        let apart = self.stride[0] >= height && self.stride[1] >= width;
        apart && height.saturating_mul(width) <= MOST_APART
    }

    /// Returns the number of elements of a window.
    fn count(self) -> f64 {
        self.size[0] as f64 * self.size[1] as f64
    }

    /// Returns the elements of all windows, whose axes are the last.
    #[track_caller]
    fn view<T: AnyElement>(self, x: &Array<T>) -> Result<Array<T>> {
        Ok(x.viewed(self.layout(x.layout())?))
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

    /// Returns the layout of [`view`](Self::view) with the axes of a window first, so that the last
    /// axes go over all windows and rows are long.
    #[track_caller]
    fn first(self, of: &Layout) -> Result<Layout> {
        let windows = self.layout(of)?;
        let own = of.ndim();
        let axes: Vec<usize> = [own, own + 1].into_iter().chain(0..own).collect();
        windows.permute(&axes)
    }

    /// Returns the row and the column of each position in a window; none if there are more than
    /// [`FEW`].
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

    /// Returns, for each of the [`positions`](Self::positions), the elements there of all windows.
    #[track_caller]
    fn places<T: AnyElement>(self, x: &Array<T>) -> Result<Vec<Array<T>>> {
        let positions = self.positions().into_iter();
        let places = positions.map(|position| Ok(x.viewed(self.at(x.layout(), position)?)));
        places.collect()
    }
}

#[track_caller]
fn largest<T: Numeric>(x: &Array<T>, windows: Windows) -> Result<Array<T>> {
    let step = RuledOperation::begin("max_pool2d", &[x])?
        .computed_from(x.len() as u64, move |[x]| largest_of::<T>(x, windows));
    let largest = largest_of(x, windows)?;
    let [largest] = step.finish_all([largest], |saved, [largest]| {
        gradients::of_largest(
            [saved.save_releasable(x), saved.save_releasable(largest)],
            windows,
        )
    });
    Ok(largest)
}

#[track_caller]
fn largest_of<T: Numeric>(x: &Array<T>, windows: Windows) -> Result<Array<T>> {
    match windows.one_by_one() {
        Some([columns, rows]) => largest_each(&largest_each(x, columns)?, rows),
        None => largest_each(x, windows),
    }
}

#[track_caller]
fn largest_each<T: Numeric>(x: &Array<T>, windows: Windows) -> Result<Array<T>> {
    let places = windows.places(x)?;
    let [first, rest @ ..] = &places[..] else {
        return windows.view(x)?.max_axis([-2, -1]);
    };
    let mut largest = first.lazy().boxed();
    for place in rest {
        largest = largest.maximum(place).boxed();
    }
    largest.eval_unfused()
}

#[track_caller]
fn mean<T: Float>(x: &Array<T>, windows: Windows) -> Result<Array<T>> {
    let step = RuledOperation::begin("avg_pool2d", &[x])?
        .computed_from(x.len() as u64, move |[x]| means::<T>(x, windows));
    let mean = means(x, windows)?;
    Ok(step.finish(mean, |_| gradients::of_mean(*x.layout().shape(), windows)))
}

#[track_caller]
fn means<T: Float>(x: &Array<T>, windows: Windows) -> Result<Array<T>> {
    let count = windows.count();
    let sums: BoxedLazy<T::Accumulator> = match windows.one_by_one() {
        Some([columns, rows]) => {
            let sums = summed::<T, T::Accumulator>(x, columns)?.eval_unfused()?;
            summed(&sums, rows)?
        }
        None => summed(x, windows)?,
    };
    let mean = sums / T::Accumulator::from_f64(count);
    match T::DTYPE == T::Accumulator::DTYPE {
        true => mean.eval_unfused().map(Array::downcast),
        false => mean.cast::<T>().eval_unfused(),
    }
}

/// Returns the sums of all windows, in the type `A`.
#[track_caller]
fn summed<T: AnyElement, A: Number>(x: &Array<T>, windows: Windows) -> Result<BoxedLazy<A>> {
    let places = windows.places(x)?;
    let [first, rest @ ..] = &places[..] else {
        let sums: Array<A> = widened::<T, A>(&windows.view(x)?)
            .sum_axis([-2, -1])?
            .downcast();
        return Ok(sums.lazy().boxed());
    };
    let mut sum = widened::<T, A>(first);
    for place in rest {
        sum = (sum + widened::<T, A>(place)).boxed();
    }
    Ok(sum)
}

fn widened<T: AnyElement, A: Number>(x: &Array<T>) -> BoxedLazy<A> {
    match T::DTYPE == A::DTYPE {
        true => x.clone().downcast().lazy().boxed(),
        false => x.cast().boxed(),
    }
}
