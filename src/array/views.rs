//! Views: arrays with other layouts over the memory of an array.

use ndarray::SliceInfoElem;

use super::{AnyArray, AnyElement, Array, Layout, Shape};
use crate::error::Result;

impl<T: AnyElement> Array<T> {
    /// Returns a view with the axes in reverse order.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::arange(0, 6, 1)?.reshape([2, 3])?;
    /// assert_eq!(array.transpose()?.to_vec()?, [0, 3, 1, 4, 2, 5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// None: every operation on shapes returns a `Result`.
    #[track_caller]
    pub fn transpose(&self) -> Result<Self> {
        Ok(Self::from_erased(self.erased().transpose()))
    }

    /// Returns a view with the axes in reverse order. `t` is short for
    /// [`transpose`](Self::transpose).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::<f32>::zeros([2, 3, 4])?;
    /// assert_eq!(array.t()?.shape(), [4, 3, 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// None: every operation on shapes returns a `Result`.
    #[track_caller]
    pub fn t(&self) -> Result<Self> {
        self.transpose()
    }

    /// Returns a view with the axes in the order of `axes`. Axis `i` of the view is axis `axes[i]`
    /// of this array.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::<f32>::zeros([2, 3, 4])?;
    /// assert_eq!(array.permute(&[2, 0, 1])?.shape(), [4, 2, 3]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axes` does not name every axis
    /// once.
    #[track_caller]
    pub fn permute(&self, axes: &[usize]) -> Result<Self> {
        self.erased().permute(axes).map(Self::from_erased)
    }

    /// Returns a view with two axes exchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::<f32>::zeros([2, 3, 4])?;
    /// assert_eq!(array.swap_axes(0, -1)?.shape(), [4, 3, 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `first` or `second` is out of
    /// range.
    #[track_caller]
    pub fn swap_axes(&self, first: isize, second: isize) -> Result<Self> {
        self.erased()
            .swap_axes(first, second)
            .map(Self::from_erased)
    }

    /// Returns a view with a new axis of length 1. The new axis is axis `axis` of the view.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::<f32>::zeros([2, 3])?;
    /// assert_eq!(array.unsqueeze(1)?.shape(), [2, 1, 3]);
    /// assert_eq!(array.unsqueeze(-1)?.shape(), [2, 3, 1]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range for the
    /// view. [`InvalidShape`](crate::ErrorKind::InvalidShape) if the view's rank is above 8.
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Result<Self> {
        self.erased().unsqueeze(axis).map(Self::from_erased)
    }

    /// Returns a view without `axis`, which must have length 1.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::<f32>::zeros([2, 1])?.squeeze(-1)?.shape(), [2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range, or if the
    /// length of the axis is not 1.
    #[track_caller]
    pub fn squeeze(&self, axis: isize) -> Result<Self> {
        self.erased().squeeze(axis).map(Self::from_erased)
    }

    /// Returns a view that repeats the elements along axes of length 1 and along new leading axes.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::from_vec(vec![1, 2], [2, 1])?;
    /// assert_eq!(array.broadcast_to([2, 3])?.to_vec()?, [1, 1, 1, 2, 2, 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if the array does not broadcast to
    /// `shape`. [`InvalidShape`](crate::ErrorKind::InvalidShape) if `shape` has a rank above 8 or a
    /// size that overflows.
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Result<Self> {
        let view = self.erased().broadcast_to(&shape.into());
        view.map(Self::from_erased)
    }

    /// Returns a view of the selection that [`s!`](ndarray::s) makes. An index removes its axis, a
    /// range keeps its axis, and `NewAxis` inserts an axis. Negative indices and bounds count from
    /// the end.
    ///
    /// A negative step iterates over its range from the end, like in ndarray: `s![0..3;-1]` selects
    /// the elements 2, 1 and 0.
    ///
    /// A write to the view does not change this array. To write into this array, use
    /// [`slice_mut`](Self::slice_mut).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::ndarray::s;
    ///
    /// let array = Array::arange(0, 12, 1)?.reshape([3, 4])?;
    /// assert_eq!(array.slice(s![1, ..])?.to_vec()?, [4, 5, 6, 7]);
    /// assert_eq!(array.slice(s![1.., ..;-2])?.to_vec()?, [7, 5, 11, 9]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `selection` does not name every
    /// axis, or if a step is 0. [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if an index
    /// or a bound lies outside its axis. [`InvalidShape`](crate::ErrorKind::InvalidShape) if new
    /// axes raise the rank above 8.
    #[track_caller]
    pub fn slice(&self, selection: impl AsRef<[SliceInfoElem]>) -> Result<Self> {
        let view = self.erased().slice(selection.as_ref());
        view.map(Self::from_erased)
    }

    /// Returns a view of all windows of `sizes` elements, in steps of one. This is NumPy's
    /// `sliding_window_view`.
    ///
    /// `sizes` are the lengths of a window along the last `sizes.len()` axes. In the view, these
    /// axes index the windows. New axes at the end index the elements of a window. Windows `[3, 2]`
    /// of an array of shape `[8, 6, 5]` have the shape `[8, 4, 4, 3, 2]`. For windows in longer
    /// steps, take a [slice](Self::slice) of the view.
    ///
    /// Windows overlap, so an element may be at several positions of the view. A write to the view
    /// first copies the view's elements.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::ndarray::s;
    ///
    /// let x = Array::from_slice(&[1.0, 2.0, 4.0, 8.0, 16.0], 5)?;
    /// let windows = x.windows(&[3])?;
    /// assert_eq!(windows.shape(), [3, 3]);
    /// assert_eq!(windows.sum_axis(-1)?.to_vec()?, [7.0, 14.0, 28.0]);
    /// let apart = windows.slice(s![..;2, ..])?;
    /// assert_eq!(apart.to_vec()?, [1.0, 2.0, 4.0, 4.0, 8.0, 16.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if there are more sizes than axes, or
    /// if a window is longer than its axis. [`InvalidShape`](crate::ErrorKind::InvalidShape) if the
    /// view's rank is above 8, or if its size overflows.
    #[track_caller]
    pub fn windows(&self, sizes: &[usize]) -> Result<Self> {
        self.erased().windows(sizes).map(Self::from_erased)
    }

    /// Returns a view with the elements along `axis` in reverse order.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::arange(0, 3, 1)?.flip(-1)?.to_vec()?, [2, 1, 0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range.
    #[track_caller]
    pub fn flip(&self, axis: isize) -> Result<Self> {
        self.erased().flip(axis).map(Self::from_erased)
    }

    /// Returns views of `parts` equal parts along `axis`, in order. This is NumPy's `split`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let halves = Array::arange(0, 6, 1)?.split(2, 0)?;
    /// assert_eq!(halves[0].to_vec()?, [0, 1, 2]);
    /// assert_eq!(halves[1].to_vec()?, [3, 4, 5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range, or if
    /// `parts` does not divide the length of the axis.
    #[track_caller]
    pub fn split(&self, parts: usize, axis: isize) -> Result<Vec<Self>> {
        let parts = self.erased().split(parts, axis)?.into_iter();
        Ok(parts.map(Self::from_erased).collect())
    }

    /// Returns a view for the user. Writes to the view are reported as writes to a view.
    #[track_caller]
    pub(crate) fn view(&self, layout: Layout) -> Self {
        Self::from_parts(self.buffer().share_as_view(), layout)
    }

    /// Returns a view with the layout `layout`, for internal use. Writes to the view are not
    /// reported as writes to a view.
    #[track_caller]
    pub(crate) fn viewed(&self, layout: Layout) -> Self {
        Self::from_parts(self.buffer().share(), layout)
    }
}

/// Type-erased implementations of the views of [`Array`].
impl AnyArray {
    #[track_caller]
    pub(crate) fn transpose(&self) -> Self {
        self.view(self.layout.transpose())
    }

    #[track_caller]
    pub(crate) fn permute(&self, axes: &[usize]) -> Result<Self> {
        Ok(self.view(self.layout.permute(axes)?))
    }

    #[track_caller]
    pub(crate) fn swap_axes(&self, first: isize, second: isize) -> Result<Self> {
        Ok(self.view(self.layout.swap_axes(first, second)?))
    }

    #[track_caller]
    pub(crate) fn unsqueeze(&self, axis: isize) -> Result<Self> {
        Ok(self.view(self.layout.unsqueeze(axis)?))
    }

    #[track_caller]
    pub(crate) fn squeeze(&self, axis: isize) -> Result<Self> {
        Ok(self.view(self.layout.squeeze(axis)?))
    }

    #[track_caller]
    pub(crate) fn broadcast_to(&self, shape: &Shape) -> Result<Self> {
        let bytes = shape.size_bytes(self.dtype.size_bytes());
        bytes.map_err(|error| error.of("broadcast_to"))?;
        Ok(self.view(self.layout.broadcast_to(shape)?))
    }

    // The function is inlined, so that the view is constructed in the caller's memory. A copy of
    // the view would take 8 % of the time of a slice.
    #[inline]
    #[track_caller]
    pub(crate) fn slice(&self, selection: &[SliceInfoElem]) -> Result<Self> {
        Ok(self.view(self.layout.slice("slice", selection)?))
    }

    #[track_caller]
    fn windows(&self, sizes: &[usize]) -> Result<Self> {
        let layout = self.layout.windows(sizes)?;
        match layout.shape().size_bytes(self.dtype.size_bytes()) {
            Ok(_) => Ok(self.view(layout)),
            Err(error) => Err(error.of("windows")),
        }
    }

    #[track_caller]
    pub(crate) fn flip(&self, axis: isize) -> Result<Self> {
        Ok(self.view(self.layout.flip(axis)?))
    }

    #[track_caller]
    fn split(&self, parts: usize, axis: isize) -> Result<Vec<Self>> {
        let layouts = self.layout.split(parts, axis)?;
        let mut parts = Vec::with_capacity(layouts.len());
        for layout in layouts {
            parts.push(self.view(layout)); // In a closure, the call site would be the closure.
        }
        Ok(parts)
    }
}
