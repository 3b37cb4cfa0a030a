//! The lengths of an array's axes.

use std::fmt;

use crate::error::{AtCaller, Error, ErrorCode, Result};

pub(crate) use cachescope_kernels::walk::MAX_RANK;

/// The length of an axis that [`Array::reshape`](crate::Array::reshape) infers from the other
/// lengths, like NumPy's `-1`.
///
/// All other functions treat `INFER` as an ordinary length. This length is too large for any array.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, INFER};
///
/// let x = Array::<f32>::zeros([4, 3, 2])?;
/// assert_eq!(x.reshape([4, INFER])?.shape(), [4, 6]);
/// assert!(Array::<f32>::zeros([4, INFER]).is_err());
/// # Ok::<(), cachescope::Error>(())
/// ```
pub const INFER: usize = usize::MAX;

/// The lengths of an array's axes, outermost first.
///
/// Any list of lengths converts to a shape. If the rank is above 8 or the size overflows, the
/// function that uses the shape returns an error.
///
/// # Examples
///
/// ```
/// use cachescope::Shape;
///
/// let shape = Shape::from([2, 3]);
/// assert_eq!(shape.dims(), [2, 3]);
/// assert_eq!(shape.checked_len()?, 6);
/// assert_eq!(shape.to_string(), "[2, 3]");
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Shape {
    // Invariant: unused lengths are 0, so that equal shapes have equal fields.
    pub(super) dims: [usize; MAX_RANK],
    // The number of axes. If the number is above MAX_RANK, `dims` holds the first MAX_RANK lengths,
    // and every use returns an error.
    pub(super) ndim: usize,
}

impl Shape {
    /// The shape of a single value: no axes.
    pub(crate) const SCALAR: Self = Self {
        dims: [0; MAX_RANK],
        ndim: 0,
    };

    /// Returns the lengths of the axes, outermost first. For a shape with more than 8 axes, returns
    /// the first 8 lengths.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Shape;
    ///
    /// assert_eq!(Shape::from([2, 3]).dims(), [2, 3]);
    /// ```
    #[inline]
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.ndim.min(MAX_RANK)]
    }

    /// Returns the number of axes.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Shape;
    ///
    /// assert_eq!((Shape::from([2, 3]).ndim(), Shape::from([]).ndim()), (2, 0));
    /// ```
    #[inline]
    pub fn ndim(&self) -> usize {
        self.ndim
    }

    /// Returns the number of elements.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Shape;
    ///
    /// assert_eq!(Shape::from([2, 3]).checked_len()?, 6);
    /// assert!(Shape::from([usize::MAX, 2]).checked_len().is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if the rank is above 8, or if the product
    /// of the lengths that are not 0 is above `isize::MAX`.
    #[track_caller]
    pub fn checked_len(&self) -> Result<usize> {
        let (mut product, mut overflows) = (1_usize, self.ndim > MAX_RANK);
        let mut is_empty = false;
        for &length in self.dims() {
            is_empty |= length == 0;
            let (next, overflow) = product.overflowing_mul(length.max(1));
            product = next;
            overflows |= overflow;
        }
        if overflows || product > isize::MAX as usize {
            return Err(self.too_large());
        }
        Ok(if is_empty { 0 } else { product })
    }

    /// Returns the error for a shape whose rank or number of elements is too large.
    #[cold]
    #[track_caller]
    fn too_large(&self) -> Error {
        if self.ndim > MAX_RANK {
            let text = format!(
                "the shape {self} has rank {}, expected at most {MAX_RANK}",
                self.ndim
            );
            return Error::new(ErrorCode::Rank, text);
        }
        Error::new(
            ErrorCode::Size,
            format!("the size of the shape {self} overflows"),
        )
    }

    /// Returns whether the shape has no elements.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Shape;
    ///
    /// assert!(Shape::from([2, 0]).checked_is_empty()?);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Like [`checked_len`](Self::checked_len).
    #[track_caller]
    pub fn checked_is_empty(&self) -> Result<bool> {
        Ok(self.checked_len()? == 0)
    }

    /// Returns the size in bytes of the shape's elements, of `element_bytes` each.
    ///
    /// # Errors
    ///
    /// As for [`checked_len`](Self::checked_len), and
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if the number of bytes overflows.
    #[track_caller]
    pub(crate) fn size_bytes(&self, element_bytes: usize) -> Result<usize> {
        self.checked_len()?
            .checked_mul(element_bytes)
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or_else(|| self.overflow(element_bytes))
            .at_caller()
    }

    /// Returns the error for a shape whose elements, of `element_bytes` each, do not fit an address
    /// space.
    #[cold]
    #[track_caller]
    pub(crate) fn overflow(&self, element_bytes: usize) -> Error {
        Error::new(
            ErrorCode::Size,
            format!(
                "the shape {self} of {element_bytes}-byte elements overflows the size of memory"
            ),
        )
    }

    /// Returns the index of `axis`. A negative `axis` counts from the end.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument), naming `operation`, the axis and the
    /// valid range.
    #[track_caller]
    pub(crate) fn axis(&self, operation: &str, axis: isize) -> Result<usize> {
        let counted = if axis < 0 {
            self.ndim.checked_sub(axis.unsigned_abs())
        } else {
            Some(axis.unsigned_abs())
        };
        match counted.filter(|&index| index < self.ndim) {
            Some(index) => Ok(index),
            None => Err(self.no_axis(operation, axis)),
        }
    }

    #[cold]
    #[track_caller]
    fn no_axis(&self, operation: &str, axis: isize) -> Error {
        let rank = self.ndim;
        let expected = match rank {
            0 => String::new(),
            _ => format!(", expected -{rank} to {}", rank - 1),
        };
        Error::new(
            ErrorCode::Axis,
            format!(
                "{operation}: axis {axis} is out of range for the shape {self} of rank {rank}{expected}"
            ),
        )
    }

    #[cold]
    #[track_caller]
    pub(crate) fn no_new_axis(&self, operation: &str, axis: isize) -> Error {
        let rank = self.ndim;
        Error::new(
            ErrorCode::Axis,
            format!(
                "{operation}: axis {axis} is out of range for a new axis of the shape {self}, expected -{} to {rank}",
                rank + 1
            ),
        )
    }

    /// Returns this shape with [`INFER`] replaced by a length. The result has as many elements as
    /// `own`.
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if several lengths are [`INFER`], or no
    /// length fits.
    #[track_caller]
    pub(crate) fn inferred(self, own: &Self) -> Result<Self> {
        let mut open = (0..self.dims().len()).filter(|&axis| self.dims[axis] == INFER);
        let Some(axis) = open.next() else {
            return Ok(self);
        };
        if let Some(other) = open.next() {
            return Err(self.not_inferred(
                own,
                format_args!("axes {axis} and {other} are both INFER, expected at most one"),
            ));
        }
        let others = match self.with(axis, 1).checked_len() {
            Ok(others) => others,
            Err(error) => return Err(error.of("reshape")),
        };
        if others == 0 {
            return Err(self.not_inferred(
                own,
                format_args!("the length of axis {axis} is ambiguous beside an axis of length 0"),
            ));
        }
        let count = own.checked_len()?;
        if !count.is_multiple_of(others) {
            return Err(self.not_inferred(
                own,
                format_args!(
                    "axis {axis} has no length, because {count} elements do not divide by {others}, the product of the other lengths"
                ),
            ));
        }
        Ok(self.with(axis, count / others))
    }

    #[cold]
    #[track_caller]
    fn not_inferred(&self, own: &Self, why: fmt::Arguments<'_>) -> Error {
        let length = |&length: &usize| match length {
            INFER => "INFER".to_owned(),
            length => length.to_string(),
        };
        let lengths: Vec<String> = self.dims().iter().map(length).collect();
        let lengths = lengths.join(", ");
        let text = format!("reshape: the shape {own} does not reshape to [{lengths}]: {why}");
        Error::new(ErrorCode::Count, text)
    }

    /// Returns this shape without `axis`, which must be below the rank.
    pub(crate) fn without(&self, axis: usize) -> Self {
        let dims = self.dims();
        dims[..axis].iter().chain(&dims[axis + 1..]).collect()
    }

    /// Returns this shape with `length` as the length of `axis`. `axis` must be below the rank.
    pub(crate) fn with(mut self, axis: usize, length: usize) -> Self {
        self.set(axis, length);
        self
    }

    /// Sets the length of `axis`, which must be below the rank.
    #[inline]
    pub(crate) fn set(&mut self, axis: usize, length: usize) {
        self.dims[..self.ndim.min(MAX_RANK)][axis] = length;
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(lengths: I) -> Self {
        let mut shape = Self::SCALAR;
        for length in lengths {
            if let Some(slot) = shape.dims.get_mut(shape.ndim) {
                *slot = length;
            }
            shape.ndim += 1;
        }
        shape
    }
}

impl<'a> FromIterator<&'a usize> for Shape {
    fn from_iter<I: IntoIterator<Item = &'a usize>>(lengths: I) -> Self {
        lengths.into_iter().copied().collect()
    }
}

impl From<usize> for Shape {
    fn from(length: usize) -> Self {
        [length].into()
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(lengths: [usize; N]) -> Self {
        lengths.as_slice().into()
    }
}

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(lengths: &[usize; N]) -> Self {
        lengths.as_slice().into()
    }
}

impl From<&[usize]> for Shape {
    fn from(lengths: &[usize]) -> Self {
        lengths.iter().collect()
    }
}

impl From<Vec<usize>> for Shape {
    fn from(lengths: Vec<usize>) -> Self {
        lengths.as_slice().into()
    }
}

impl From<&Vec<usize>> for Shape {
    fn from(lengths: &Vec<usize>) -> Self {
        lengths.as_slice().into()
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Self {
        *shape
    }
}

impl PartialEq for Shape {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // The comparison has no branch and no call, because every operation of an expression
        // compares shapes.
        let lengths = self.dims.iter().zip(&other.dims);
        lengths.fold(self.ndim == other.ndim, |same, (one, other)| {
            same & (one == other)
        })
    }
}

impl Eq for Shape {}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, length) in self.dims().iter().enumerate() {
            let separator = if axis == 0 { "" } else { ", " };
            write!(f, "{separator}{length}")?;
        }
        f.write_str(if self.ndim > MAX_RANK { ", …]" } else { "]" })
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
