//! Layouts of views: the same elements, or some of them, in another arrangement.

use super::Layout;
use super::slices::count_from;
use crate::array::shape::{MAX_RANK, Shape};
use crate::error::{Error, ErrorCode, ErrorKind, Result};

impl Layout {
    /// Returns the layout with the axes in reverse order.
    pub(crate) fn transpose(&self) -> Self {
        let mut axes = [0; MAX_RANK];
        let axes = &mut axes[..self.ndim()];
        for (position, axis) in axes.iter_mut().rev().enumerate() {
            *axis = position;
        }
        self.reordered(axes)
    }

    /// Returns the layout with the axes in the order of `axes`.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where `axes` does not name every axis once.
    #[track_caller]
    pub(crate) fn permute(&self, axes: &[usize]) -> Result<Self> {
        let mut seen = [false; MAX_RANK];
        let once = axes
            .iter()
            .all(|&axis| axis < self.ndim() && !std::mem::replace(&mut seen[axis], true));
        if once && axes.len() == self.ndim() {
            return Ok(self.reordered(axes));
        }
        let text = format!(
            "permute: the axes {axes:?} do not name each of the {} axes of the shape {} once",
            self.ndim(),
            self.shape
        );
        Err(Error::new(ErrorCode::Axis, text))
    }

    /// Returns the layout with two axes exchanged.
    #[track_caller]
    pub(crate) fn swap_axes(&self, first: isize, second: isize) -> Result<Self> {
        let first = self.shape.axis("swap_axes", first)?;
        let second = self.shape.axis("swap_axes", second)?;
        let mut axes = [0, 1, 2, 3, 4, 5, 6, 7];
        axes.swap(first, second);
        Ok(self.reordered(&axes[..self.ndim()]))
    }

    /// Returns the layout with a new axis of length 1. The new axis is axis `axis` of the result.
    #[track_caller]
    pub(crate) fn unsqueeze(&self, axis: isize) -> Result<Self> {
        // `axis` is an axis of the result. The result has one axis more than this layout.
        let rank = self.ndim() + 1;
        match count_from(axis, rank).filter(|&at| at < rank) {
            Some(at) => self.inserted(at).map_err(|error| error.of("unsqueeze")),
            None => Err(self.shape.no_new_axis("unsqueeze", axis)),
        }
    }

    /// Returns the layout without `axis`, which must have length 1.
    #[track_caller]
    pub(crate) fn squeeze(&self, axis: isize) -> Result<Self> {
        let at = self.shape.axis("squeeze", axis)?;
        if self.dims()[at] != 1 {
            return Err(invalid(format!(
                "squeeze: axis {axis} of the shape {} has length {}, expected 1",
                self.shape,
                self.dims()[at]
            )));
        }
        Ok(self.removed(at))
    }

    #[track_caller]
    pub(crate) fn flip(&self, axis: isize) -> Result<Self> {
        let at = self.shape.axis("flip", axis)?;
        let mut flipped = *self;
        if self.len() > 0 {
            let reach = (self.dims()[at] - 1) as isize * self.strides[at];
            flipped.offset = self.offset.wrapping_add_signed(reach);
        }
        flipped.strides[at] = -self.strides[at];
        Ok(flipped)
    }

    /// Returns the layout of the elements, repeated along axes of length 1 and along new leading
    /// axes.
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) where the shape does not broadcast to `target`,
    /// [`InvalidShape`](ErrorKind::InvalidShape) where `target` overflows.
    #[track_caller]
    pub(crate) fn broadcast_to(&self, target: &Shape) -> Result<Self> {
        let mut broadcast = Self::contiguous(target).map_err(|error| error.of("broadcast_to"))?;
        if !self.broadcasts_to(target) {
            return Err(Error::new(
                ErrorCode::Broadcast,
                format!(
                    "broadcast_to: the shape {} does not broadcast to {target}",
                    self.shape
                ),
            ));
        }
        let lead = target.ndim() - self.ndim();
        broadcast.strides = [0; MAX_RANK];
        broadcast.offset = self.offset;
        for (axis, (&length, &stride)) in self.dims().iter().zip(self.strides()).enumerate() {
            broadcast.strides[lead + axis] = if length == 1 { 0 } else { stride };
        }
        Ok(broadcast)
    }

    pub(crate) fn broadcasts_to(&self, target: &Shape) -> bool {
        let lead = target.ndim().checked_sub(self.ndim());
        lead.is_some_and(|lead| {
            let mut pairs = self.dims().iter().zip(&target.dims()[lead..]);
            pairs.all(|(&own, &target)| own == target || own == 1)
        })
    }

    /// Returns the layout of the elements at index 0 of `axis`, repeated over `target`. The other
    /// axes must broadcast to `target`.
    ///
    /// # Errors
    ///
    /// As for [`broadcast_to`](Self::broadcast_to).
    #[track_caller]
    pub(crate) fn fixed(&self, axis: usize, target: &Shape) -> Result<Self> {
        let mut fixed = *self;
        fixed.shape = self.shape.with(axis, 1);
        fixed.broadcast_to(target)
    }

    /// Returns the layouts of `parts` equal parts along `axis`, in order.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the layout does not have the axis, or if
    /// `parts` does not divide the length of the axis.
    #[track_caller]
    pub(crate) fn split(&self, parts: usize, axis: isize) -> Result<Vec<Self>> {
        let at = self.shape.axis("split", axis)?;
        let length = self.dims()[at];
        let mut split = Vec::new();
        // An axis of length 0 divides into any number of parts, even more than fit in memory.
        if !length.is_multiple_of(parts) || split.try_reserve_exact(parts).is_err() || parts == 0 {
            return Err(invalid(format!(
                "split: axis {axis} of length {length} of the shape {} does not divide into \
                 {parts} parts",
                self.shape
            )));
        }
        let each = (length / parts) as isize;
        for part in 0..parts as isize {
            let end = Some((part + 1) * each);
            let mut layout = *self;
            layout.select_range(("split", &self.shape), at, (part * each, end, 1))?;
            split.push(layout);
        }
        Ok(split)
    }

    /// Returns the layout of these elements in the shape `target`. Returns `None` if no strides
    /// produce the elements in row-major order, so that a copy is needed.
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](ErrorKind::InvalidShape) where `target` has another length or overflows.
    #[track_caller]
    pub(crate) fn reshape(&self, target: &Shape) -> Result<Option<Self>> {
        let mut reshaped = Self::contiguous(target).map_err(|error| error.of("reshape"))?;
        if reshaped.len() != self.len() {
            return Err(Error::new(
                ErrorCode::Count,
                format!(
                    "reshape: the shape {} of {} elements does not reshape to {target} of {} \
                     elements",
                    self.shape,
                    self.len(),
                    reshaped.len()
                ),
            ));
        }
        reshaped.offset = self.offset;
        if self.is_contiguous() {
            return Ok(Some(reshaped));
        }
        Ok(self.regrouped(target.dims()).map(|strides| {
            reshaped.strides = strides;
            reshaped
        }))
    }

    /// Returns the layout of all windows of `sizes` elements along the last `sizes.len()` axes. In
    /// the result, these axes index the windows. New axes at the end index the elements of a
    /// window.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if there are more sizes than axes, or if a
    /// size is longer than its axis. [`InvalidShape`](ErrorKind::InvalidShape) if the rank would be
    /// above 8, or if the size overflows.
    #[track_caller]
    pub(crate) fn windows(&self, sizes: &[usize]) -> Result<Self> {
        let Some(lead) = self.ndim().checked_sub(sizes.len()) else {
            return Err(invalid(format!(
                "windows: the {} sizes {sizes:?} are more than the {} axes of the shape {}",
                sizes.len(),
                self.ndim(),
                self.shape
            )));
        };
        for (axis, &size) in (lead..).zip(sizes) {
            let length = self.dims()[axis];
            if size > length {
                return Err(Error::new(
                    ErrorCode::Window,
                    format!(
                        "windows: a window of length {size} is longer than axis {axis} of length {length} of the \
                         shape {}",
                        self.shape
                    ),
                ));
            }
        }
        let ones = [1; MAX_RANK];
        let windows = self.windows_apart(sizes, &ones, &ones);
        windows.map_err(|error| error.of("windows"))
    }

    /// Returns the layout of [`windows`](Self::windows) with steps and dilations along each of the
    /// last axes. The first elements of adjacent windows are `steps` apart, and adjacent elements
    /// of a window are `dilations` apart. Windows must not reach beyond these axes.
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](ErrorKind::InvalidShape) where the rank would be above 8, or the size
    /// overflows.
    #[track_caller]
    pub(crate) fn windows_apart(
        &self,
        sizes: &[usize],
        steps: &[usize],
        dilations: &[usize],
    ) -> Result<Self> {
        let (lead, own) = (self.ndim() - sizes.len(), self.ndim());
        let mut shape = self.shape;
        for (index, &size) in sizes.iter().enumerate() {
            let extent = size.saturating_sub(1) * dilations[index] + size.min(1);
            let length = (self.dims()[lead + index] - extent) / steps[index] + 1;
            shape = shape.with(lead + index, length);
        }
        let shape: Shape = shape.dims().iter().chain(sizes).collect();
        let mut windows = Self::contiguous(&shape)?;
        if windows.len() == 0 {
            // A layout without elements may have any strides.
            return Ok(windows);
        }
        windows.offset = self.offset;
        windows.strides[..lead].copy_from_slice(&self.strides[..lead]);
        for (index, axis) in (lead..own).enumerate() {
            // If a stride overflows, its axis has one element, and the stride is not used.
            let stride = self.strides[axis];
            windows.strides[axis] = stride.wrapping_mul(steps[index] as isize);
            windows.strides[own + index] = stride.wrapping_mul(dilations[index] as isize);
        }
        for (stride, &length) in windows.strides.iter_mut().zip(shape.dims()) {
            *stride = if length == 1 { 0 } else { *stride };
        }
        Ok(windows)
    }

    /// Returns the strides that produce the elements in the shape `target` without moving them,
    /// after NumPy's `_attempt_nocopy_reshape`. Matches groups of this layout's axes with groups of
    /// target axes that span equal numbers of elements. Returns `None` unless this layout's axes in
    /// each group are equivalent to one axis with one stride.
    fn regrouped(&self, target: &[usize]) -> Option<[isize; MAX_RANK]> {
        // Axes of length 1 are skipped, because their strides are not used.
        let mut own = [(0usize, 0isize); MAX_RANK];
        let mut owned = 0;
        for (&length, &stride) in self.dims().iter().zip(self.strides()) {
            if length != 1 {
                own[owned] = (length, stride);
                owned += 1;
            }
        }
        let mut strides = [0; MAX_RANK];
        let (mut at_own, mut at_target) = (0, 0);
        while at_own < owned && at_target < target.len() {
            let (mut end_own, mut end_target) = (at_own + 1, at_target + 1);
            let (mut span_own, mut span_target) = (own[at_own].0, target[at_target]);
            while span_own != span_target {
                if span_own < span_target {
                    span_own *= own[end_own].0;
                    end_own += 1;
                } else {
                    span_target *= target[end_target];
                    end_target += 1;
                }
            }
            let group = &own[at_own..end_own];
            if group
                .windows(2)
                .any(|pair| pair[0].1 != pair[1].1 * pair[1].0 as isize)
            {
                return None;
            }
            let mut stride = group[group.len() - 1].1;
            for axis in (at_target..end_target).rev() {
                strides[axis] = stride;
                stride *= target[axis] as isize;
            }
            (at_own, at_target) = (end_own, end_target);
        }
        Some(strides)
    }

    /// Returns the layout with the axes in the order of `axes`, a permutation.
    fn reordered(&self, axes: &[usize]) -> Self {
        let mut strides = [0; MAX_RANK];
        for (stride, &axis) in strides.iter_mut().zip(axes) {
            *stride = self.strides[axis];
        }
        Self {
            shape: axes.iter().map(|&axis| self.dims()[axis]).collect(),
            strides,
            offset: self.offset,
        }
    }

    /// Returns the layout with an axis of length 1 inserted before `at`.
    #[track_caller]
    pub(super) fn inserted(&self, at: usize) -> Result<Self> {
        let (before, after) = self.dims().split_at(at);
        let lengths = before.iter().chain(&[1]).chain(after);
        let shape: Shape = lengths.collect();
        shape.checked_len()?;
        let mut strides = self.strides;
        strides.copy_within(at..MAX_RANK - 1, at + 1);
        strides[at] = 0;
        Ok(Self {
            shape,
            strides,
            offset: self.offset,
        })
    }

    /// Returns the layout of the elements at equal indices on two axes of one length. The axis
    /// `first` then indexes the diagonal, and the axis `second` is removed. `first` must be before
    /// `second`.
    pub(crate) fn diagonal(&self, first: usize, second: usize) -> Self {
        debug_assert!(first < second && self.dims()[first] == self.dims()[second]);
        let mut diagonal = *self;
        diagonal.strides[first] += self.strides[second];
        diagonal.removed(second)
    }

    /// Returns the layout of the elements at index 0 of the axis `at`, without this axis.
    pub(super) fn removed(&self, at: usize) -> Self {
        let mut strides = self.strides;
        strides.copy_within(at + 1.., at);
        strides[MAX_RANK - 1] = 0;
        Self {
            shape: self.shape.without(at),
            strides,
            offset: self.offset,
        }
    }
}

#[cold]
#[track_caller]
pub(super) fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}
