//! Padding with an array's own elements.

use ndarray::SliceInfoElem;

use super::{check_size, invalid};
use crate::array::{AnyArray, AnyElement, Array, Bits, DType, MAX_RANK, Shape, Writer, bits_of};
use crate::error::Result;
use crate::ops::derivatives::is_any_tracked;

/// The elements in the margins that [`Array::pad_with`] adds, like NumPy's modes of equal names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PadMode<T> {
    /// A constant value.
    Constant(T),
    /// The elements mirrored at the edges, without a repetition of the first and the last element:
    /// `2 1 | 0 1 2 | 1 0 1`. A single element is repeated.
    Reflect,
    /// The element at the edge: `0 0 | 0 1 2 | 2 2 2`.
    Edge,
    /// The elements from the opposite edge, as in a periodic array: `1 2 | 0 1 2 | 0 1 2`.
    Wrap,
}

/// The modes that copy an array's own elements.
#[derive(Clone, Copy, Debug)]
enum Extension {
    Reflect,
    Edge,
    Wrap,
}

impl Extension {
    /// Returns the index of the element to copy to `position`. Position 0 is the first of the
    /// array's `length` elements. The position may be outside of the array.
    fn source(self, position: isize, length: usize) -> usize {
        let last = length as isize - 1;
        let source = match self {
            Self::Edge => position.clamp(0, last),
            Self::Wrap => position.rem_euclid(length as isize),
            Self::Reflect if last == 0 => 0,
            Self::Reflect => {
                // A period covers the axis forwards and backwards. If the axis fits memory with its
                // margins, the period does not overflow.
                let period = 2 * last;
                let place = position.rem_euclid(period);
                place.min(period - place)
            }
        };
        source as usize
    }
}

impl<T: AnyElement> Array<T> {
    /// Returns the array surrounded by margins. This is NumPy's `pad`. For each axis, `margins` has
    /// the numbers of elements before and after the array. The mode determines the elements of the
    /// margins.
    ///
    /// A margin may be longer than its axis. Besides the result, the method needs memory for one
    /// margin at a time, and for the indices of this margin.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, PadMode};
    ///
    /// let x = Array::from_slice(&[0, 1, 2], 3)?;
    /// let margins = [(2, 3)];
    /// assert_eq!(x.pad_with(&margins, PadMode::Constant(9))?.to_vec()?, [9, 9, 0, 1, 2, 9, 9, 9]);
    /// assert_eq!(x.pad_with(&margins, PadMode::Reflect)?.to_vec()?, [2, 1, 0, 1, 2, 1, 0, 1]);
    /// assert_eq!(x.pad_with(&margins, PadMode::Edge)?.to_vec()?, [0, 0, 0, 1, 2, 2, 2, 2]);
    /// assert_eq!(x.pad_with(&margins, PadMode::Wrap)?.to_vec()?, [1, 2, 0, 1, 2, 0, 1, 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`pad`](Self::pad), and [`InvalidArgument`](crate::ErrorKind::InvalidArgument)
    /// if an axis without elements has a margin.
    #[track_caller]
    pub fn pad_with(&self, margins: &[(usize, usize)], mode: PadMode<T>) -> Result<Self> {
        let array = self.erased();
        let padded = match mode {
            PadMode::Constant(value) => array.framed("pad_with", margins, bits_of(value)),
            PadMode::Reflect => array.extended(margins, Extension::Reflect),
            PadMode::Edge => array.extended(margins, Extension::Edge),
            PadMode::Wrap => array.extended(margins, Extension::Wrap),
        };
        padded.map(Self::from_erased)
    }
}

impl AnyArray {
    #[track_caller]
    fn extended(&self, margins: &[(usize, usize)], extension: Extension) -> Result<Self> {
        let own = self.shape();
        let mut axes = own.dims().iter().zip(margins);
        if let Some(axis) = axes.position(|(&length, &margin)| length == 0 && margin != (0, 0)) {
            return Err(invalid(format!(
                "pad_with: axis {axis} of length 0 of the shape {own} has no elements for the margins {margins:?}"
            )));
        }
        if is_any_tracked(&[self])? && margins.len() == own.ndim() {
            return self.extended_by_takes(margins, extension);
        }
        let mut padded = self.framed("pad_with", margins, Bits::default())?;
        // The axes are extended one after another, so that corners are copied from margins.
        for (axis, &(before, after)) in margins.iter().enumerate() {
            let length = self.dims()[axis];
            for (start, count) in [(0, before), (before + length, after)] {
                if count > 0 && padded.len() > 0 {
                    padded.extend_axis(axis, (before, length), (start, count), extension)?;
                }
            }
        }
        Ok(padded)
    }

    /// Extends a tracked array, one axis after another. `take` copies the source of each position,
    /// so that gradients pass through.
    #[track_caller]
    fn extended_by_takes(&self, margins: &[(usize, usize)], extension: Extension) -> Result<Self> {
        let mut padded = self.share();
        for (axis, &(before, after)) in margins.iter().enumerate() {
            let length = self.dims()[axis];
            let shape: Shape = before.saturating_add(length).saturating_add(after).into();
            check_size("pad_with", &shape, DType::I64)?;
            let mut writer = Writer::new(self.device(), &shape)?;
            writer.compute_chunks(|begun, chunk: &mut [i64]| {
                for (slot, place) in chunk.iter_mut().zip(begun..) {
                    let position = place as isize - before as isize;
                    *slot = extension.source(position, length) as i64;
                }
            })?;
            if (before, after) != (0, 0) {
                padded = padded.take(&writer.finish()?, axis as isize)?;
            }
        }
        Ok(padded)
    }

    /// Writes `count` elements of a margin along `axis`, from `start` on. The array's own `length`
    /// elements begin at `first`.
    #[track_caller]
    fn extend_axis(
        &mut self,
        axis: usize,
        (first, length): (usize, usize),
        (start, count): (usize, usize),
        extension: Extension,
    ) -> Result<()> {
        let shape: Shape = count.into();
        let mut writer = Writer::new(self.device(), &shape)?;
        writer.compute_chunks(|begun, chunk: &mut [i64]| {
            for (slot, place) in chunk.iter_mut().zip(start + begun..) {
                let position = place as isize - first as isize;
                *slot = (first + extension.source(position, length)) as i64;
            }
        })?;
        let margin = self.take(&writer.finish()?, axis as isize)?;
        let mut selection = [SliceInfoElem::from(..); MAX_RANK];
        selection[axis] = SliceInfoElem::from(start..start + count);
        let ndim = self.layout.ndim();
        self.slice_mut(&selection[..ndim])?.assign(&margin.lazy())
    }
}
