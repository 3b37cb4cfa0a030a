//! Constructors of arrays from values, on the current device.

use super::{AnyElement, Array, MAX_RANK, Shape, Writer};
use crate::error::{Error, ErrorCode, Result};

impl<T: AnyElement> Array<T> {
    /// Returns an array of zeros, or of `false` if `T` is `bool`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::<f32>::zeros([2, 2])?.to_vec()?, [0.0; 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if the rank is above 8 or the size
    /// overflows, and [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn zeros(shape: impl Into<Shape>) -> Result<Self> {
        Self::full(shape, T::zero())
    }

    /// Returns an array of ones, or of `true` if `T` is `bool`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::<i32>::ones(3)?.to_vec()?, [1, 1, 1]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`zeros`](Self::zeros).
    #[track_caller]
    pub fn ones(shape: impl Into<Shape>) -> Result<Self> {
        Self::full(shape, T::one())
    }

    /// Returns an array in which every element is `value`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::full([1, 2], 0.5f32)?.to_vec()?, [0.5, 0.5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`zeros`](Self::zeros).
    #[track_caller]
    pub fn full(shape: impl Into<Shape>, value: T) -> Result<Self> {
        let shape = shape.into();
        let mut writer = Writer::on_current(&shape)?;
        writer.repeat(value, writer.remaining())?;
        writer.finish()
    }

    /// Returns an array of zeros (of `false` if `T` is `bool`), with the shape and the device of
    /// this array.
    ///
    /// The new array is row-major without gaps, whatever the strides of this array.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::full([2, 3], 7.0f32)?;
    /// let zeros = array.t()?.zeros_like()?;
    /// assert_eq!(zeros, Array::zeros([3, 2])?);
    /// assert_eq!(zeros.strides(), [2, 1]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the device has no memory.
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if this array is a broadcast view, and the
    /// size of the new array overflows.
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Self> {
        self.full_like(T::zero())
    }

    /// Returns an array of ones (of `true` if `T` is `bool`), with the shape and the device of this
    /// array.
    ///
    /// The new array is row-major without gaps, whatever the strides of this array.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::<i32>::zeros(3)?;
    /// assert_eq!(array.ones_like()?.to_vec()?, [1, 1, 1]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`zeros_like`](Self::zeros_like).
    #[track_caller]
    pub fn ones_like(&self) -> Result<Self> {
        self.full_like(T::one())
    }

    /// Returns an array of copies of `value`, with the shape and the device of this array.
    ///
    /// The new array is row-major without gaps, whatever the strides of this array.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::<f32>::zeros([1, 2])?;
    /// assert_eq!(array.full_like(0.5)?.to_vec()?, [0.5, 0.5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`zeros_like`](Self::zeros_like).
    #[track_caller]
    pub fn full_like(&self, value: T) -> Result<Self> {
        let mut writer = Writer::new(self.device(), self.layout().shape())?;
        writer.repeat(value, writer.remaining())?;
        writer.finish()
    }

    /// Returns an array of the elements of `values` in row-major order.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
    /// assert_eq!(array.transpose()?.to_vec()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`zeros`](Self::zeros), and [`InvalidShape`](crate::ErrorKind::InvalidShape) if the
    /// shape and `values` differ in the number of elements.
    #[track_caller]
    pub fn from_vec(values: Vec<T>, shape: impl Into<Shape>) -> Result<Self> {
        Self::from_slice(&values, shape)
    }

    /// Returns an array of copies of the elements of `values` in row-major order.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::from_slice(&[true, false], 2)?;
    /// assert_eq!(array.to_vec()?, [true, false]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`from_vec`](Self::from_vec).
    #[track_caller]
    pub fn from_slice(values: &[T], shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let expected = shape.checked_len()?;
        if expected != values.len() {
            return Err(Error::new(
                ErrorCode::Count,
                format!(
                    "{} elements are given, the shape {shape} has {expected}",
                    values.len()
                ),
            ));
        }
        let mut writer = Writer::on_current(&shape)?;
        writer.extend_from_slice(values)?;
        writer.finish()
    }

    /// Returns an array whose element at each index is the result of `value` for this index. Calls
    /// `value` in row-major order.
    ///
    /// `value` runs on the host. The elements are then copied to the device.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let table = Array::from_fn([2, 3], |index| 10 * index[0] + index[1] == 11)?;
    /// assert_eq!(table.to_vec()?, [false, false, false, false, true, false]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`zeros`](Self::zeros).
    #[track_caller]
    pub fn from_fn(shape: impl Into<Shape>, mut value: impl FnMut(&[usize]) -> T) -> Result<Self> {
        let shape = shape.into();
        let mut writer = Writer::on_current(&shape)?;
        let dims = shape.dims();
        let mut index = [0; MAX_RANK];
        let index = &mut index[..dims.len()];
        writer.fill_chunks(|_, chunk| fill_from_fn(chunk, index, dims, &mut value))?;
        writer.finish()
    }

    /// Returns the identity matrix of `n` rows and columns.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::<u8>::eye(2)?.to_vec()?, [1, 0, 0, 1]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`zeros`](Self::zeros).
    #[track_caller]
    pub fn eye(n: usize) -> Result<Self> {
        let shape = [n, n].into();
        let mut writer = Writer::on_current(&shape)?;
        for row in 0..n {
            writer.repeat(T::zero(), row)?;
            writer.push(T::one())?;
            writer.repeat(T::zero(), n - row - 1)?;
        }
        writer.finish()
    }
}

/// Fills `chunk` with the results of `value` for successive indices of the shape `dims`, from
/// `index` on. Advances `index` to the first index after the chunk.
fn fill_from_fn<T>(
    chunk: &mut [T],
    index: &mut [usize],
    dims: &[usize],
    value: &mut impl FnMut(&[usize]) -> T,
) {
    let Some(last) = index.len().checked_sub(1) else {
        chunk.fill_with(|| value(&[]));
        return;
    };
    let mut rest = chunk;
    while !rest.is_empty() {
        let begun = index[last];
        let (row, others) = rest.split_at_mut(rest.len().min(dims[last] - begun));
        for (slot, place) in row.iter_mut().zip(begun..) {
            index[last] = place;
            *slot = value(index);
        }
        // Advances `index` to the next index in row-major order.
        for (own, &length) in index.iter_mut().zip(dims).rev() {
            *own += 1;
            if *own < length {
                break;
            }
            *own = 0;
        }
        rest = others;
    }
}
