//! Padding with a value.

use super::moves::padded;
use super::{check_size, invalid};
use crate::array::{AnyArray, AnyElement, Array, Bits, Shape, bits_of};
use crate::error::Result;
use crate::ops::derivatives::RuledOperation;

impl<T: AnyElement> Array<T> {
    /// Returns the array surrounded by elements of `value`. This is NumPy's `pad` with the mode
    /// `constant`. For each axis, `margins` has the numbers of elements before and after the array.
    /// [`pad_with`](Self::pad_with) supports the other modes.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let row = Array::from_slice(&[1, 2], [1, 2])?;
    /// let padded = row.pad(&[(0, 1), (1, 0)], 9)?;
    /// assert_eq!(padded.shape(), [2, 3]);
    /// assert_eq!(padded.to_vec()?, [9, 1, 2, 9, 9, 9]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the number of margins differs from
    /// the number of axes, [`InvalidShape`](crate::ErrorKind::InvalidShape) if the size overflows,
    /// and [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn pad(&self, margins: &[(usize, usize)], value: T) -> Result<Self> {
        let framed = self.erased().framed("pad", margins, bits_of(value));
        framed.map(Self::from_erased)
    }
}

impl AnyArray {
    /// See [`Array::pad`]. Error messages name `operation`.
    #[track_caller]
    pub(in crate::ops) fn framed(
        &self,
        operation: &str,
        margins: &[(usize, usize)],
        value: Bits,
    ) -> Result<Self> {
        let array = self;
        let own = array.shape();
        if margins.len() != own.ndim() {
            return Err(invalid(format!(
                "{operation}: the list of margins {margins:?} has length {}, expected {}, one for each axis of the \
                 shape {own}",
                margins.len(),
                own.ndim()
            )));
        }
        let axes = own.dims().iter().zip(margins);
        // `check_size` rejects a length that saturates.
        let shape: Shape = axes
            .map(|(&length, &(before, after))| length.saturating_add(before).saturating_add(after))
            .collect();
        check_size(operation, &shape, array.dtype)?;
        let before: Shape = margins.iter().map(|(before, _)| before).collect();
        let whole = shape;
        let step = RuledOperation::begin("pad", &[array])?.computed_by(0, move |operands| {
            padded(&operands[0], &before, value, &whole)
        });
        let padded = padded(array, &before, value, &shape)?;
        let own = *array.layout.shape();
        Ok(step.finish(padded, |_| {
            move |gradient: AnyArray| {
                let ranges = before.dims().iter().zip(own.dims());
                let inner = ranges
                    .enumerate()
                    .try_fold(gradient.layout, |inner, (axis, range)| {
                        inner.part(axis, *range.0..range.0 + range.1, 1)
                    })?;
                Ok(vec![gradient.seen(inner)])
            }
        }))
    }
}
