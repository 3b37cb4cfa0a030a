//! Conversions from and to arrays of the ndarray crate. Each conversion copies, because one of the
//! arrays may be in device memory. A conversion may fail, because copying allocates. Therefore the
//! types implement `TryFrom`, but not `From`.

use ndarray::{Array as HostArray, ArrayBase, ArrayD, Data, Dimension, IxDyn, ShapeError};

use crate::array::{AnyElement, Array, Shape, Writer};
use crate::error::{AtCaller, Error, ErrorKind, Result};

impl<T: AnyElement> Array<T> {
    /// Copies `array` to the current device, in row-major order. `array` may have any strides.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::ndarray::array;
    ///
    /// let host = array![[1.0f32, 2.0], [3.0, 4.0]];
    /// assert_eq!(Array::from_ndarray(&host.t())?.to_vec()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](ErrorKind::InvalidShape) if the rank is above 8 or the size overflows,
    /// [`OutOfMemory`](ErrorKind::OutOfMemory) if the device has not enough memory.
    #[track_caller]
    pub fn from_ndarray<S, D>(array: &ArrayBase<S, D>) -> Result<Self>
    where
        S: Data<Elem = T>,
        D: Dimension,
    {
        let shape = Shape::from(array.shape());
        let mut writer = Writer::on_current(&shape)?;
        match array.as_slice() {
            Some(elements) => writer.extend_from_slice(elements)?,
            None => writer.extend(array.iter().copied())?,
        }
        writer.finish()
    }

    /// Copies the array to an array of ndarray with dynamic rank, in row-major order.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let host = Array::<f32>::ones([2, 3])?.to_ndarray()?;
    /// assert_eq!(host[[1, 2]], 1.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Driver`](ErrorKind::Driver) if the device fails to deliver the elements.
    #[track_caller]
    pub fn to_ndarray(&self) -> Result<ArrayD<T>> {
        ArrayD::from_shape_vec(IxDyn(self.shape()), self.to_vec()?)
            .map_err(refused)
            .at_caller()
    }
}

fn refused(error: ShapeError) -> Error {
    Error::new(ErrorKind::InvalidShape, format!("to_ndarray: {error}")).caused_by(error)
}

/// Converts an array like [`Array::to_ndarray`], with dynamic rank or a rank that is known at
/// compile time.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, ndarray::Array2};
///
/// let host = Array2::try_from(&Array::arange(0, 6, 1)?.reshape([2, 3])?)?;
/// assert_eq!(host.row(1).to_vec(), [3, 4, 5]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`Array::to_ndarray`], and [`InvalidShape`](ErrorKind::InvalidShape) if the array
/// has another rank.
impl<T: AnyElement, D: Dimension> TryFrom<&Array<T>> for HostArray<T, D> {
    type Error = Error;

    #[track_caller]
    fn try_from(array: &Array<T>) -> Result<Self> {
        if let Some(rank) = D::NDIM.filter(|&rank| rank != array.ndim()) {
            return Err(Error::new(
                ErrorKind::InvalidShape,
                format!(
                    "to_ndarray: the shape {} has rank {}, expected {rank}",
                    array.layout().shape(),
                    array.ndim()
                ),
            ));
        }
        let host = array.to_ndarray()?.into_dimensionality();
        host.map_err(refused).at_caller()
    }
}

/// Converts an array like the conversion from a borrowed array.
impl<T: AnyElement, D: Dimension> TryFrom<Array<T>> for HostArray<T, D> {
    type Error = Error;

    #[track_caller]
    fn try_from(array: Array<T>) -> Result<Self> {
        Self::try_from(&array)
    }
}

/// Converts an array like [`Array::from_ndarray`].
impl<T, S, D> TryFrom<ArrayBase<S, D>> for Array<T>
where
    T: AnyElement,
    S: Data<Elem = T>,
    D: Dimension,
{
    type Error = Error;

    #[track_caller]
    fn try_from(array: ArrayBase<S, D>) -> Result<Self> {
        Self::from_ndarray(&array)
    }
}

/// Converts an array like [`Array::from_ndarray`].
impl<T, S, D> TryFrom<&ArrayBase<S, D>> for Array<T>
where
    T: AnyElement,
    S: Data<Elem = T>,
    D: Dimension,
{
    type Error = Error;

    #[track_caller]
    fn try_from(array: &ArrayBase<S, D>) -> Result<Self> {
        Self::from_ndarray(array)
    }
}
