//! Elements that a mask selects, and their indices.

use super::check_size;
use super::moves::{compacted, copied, picked};
use crate::array::{AnyArray, AnyElement, Array, DType, Shape, broadcast_shapes};
use crate::error::{Error, ErrorCode, ErrorKind, Result};
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::derivatives::is_any_tracked;
use crate::ops::descriptors::{Copying, Picking};
use crate::ops::dispatch::{device_mismatch, device_of, same_device};
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::expression::elementwise::select;
use crate::ops::expression::expr::IntoExpr;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::host;

impl<T: AnyElement> Array<T> {
    /// Returns the indices of the elements that are not zero, in row-major order. This is NumPy's
    /// `argwhere`. The result has the shape `[count, rank]`. Each row has the indices of one
    /// element along all axes. NaN is not zero.
    ///
    /// The shape of the result depends on the elements, so the method waits for them. On a device
    /// without data ([`Device::meta`](crate::Device::meta)), the method assumes that no element is
    /// zero. [`MetaOptions::assumed_count`](crate::MetaOptions::assumed_count) sets another number
    /// of elements that are not zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[0, 7, 0, 5, 0, 9], [2, 3])?;
    /// let places = x.nonzero()?;
    /// assert_eq!(places.shape(), [3, 2]);
    /// assert_eq!(places.to_vec()?, [0, 1, 1, 0, 1, 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](ErrorKind::InvalidShape) if the size of the result overflows.
    /// [`OutOfMemory`](ErrorKind::OutOfMemory) if the device has no memory for the result or the
    /// scratch memory. The scratch memory has 1 byte for each element (9 bytes on CUDA devices).
    #[track_caller]
    pub fn nonzero(&self) -> Result<Array<i64>> {
        let array = self.erased();
        let flags = match T::DTYPE {
            DType::Bool => array.packed()?,
            _ => {
                let zero = AnyLazy::number(T::DTYPE, 0.0);
                array.lazy().ne(zero).eval()?.packed()?
            }
        };
        positions(&Array::from_erased(flags), array.shape())
    }

    /// Returns the elements at which `mask` is true, in row-major order. This is NumPy's `x[mask]`.
    ///
    /// The mask has the lengths of this array's leading axes. If the mask has all axes, the result
    /// has one axis. If the mask has fewer axes, each true element of the mask selects a part of
    /// the array. A mask of one axis selects rows. The shape of the result depends on the mask, so
    /// the method waits for the mask. On a device without data
    /// ([`Device::meta`](crate::Device::meta)), the method assumes that all elements of the mask
    /// are true. [`MetaOptions::assumed_count`](crate::MetaOptions::assumed_count) sets another
    /// number of true elements.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[1, 2, 3, 4, 5, 6], [3, 2])?;
    /// let large = x.select_by(&x.gt(3).eval()?)?;
    /// assert_eq!(large.to_vec()?, [4, 5, 6]);
    ///
    /// let rows = x.select_by(&Array::from_slice(&[true, false, true], 3)?)?;
    /// assert_eq!(rows.shape(), [2, 2]);
    /// assert_eq!(rows.to_vec()?, [1, 2, 5, 6]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if the mask's shape differs from the leading
    /// axes. [`DeviceMismatch`](ErrorKind::DeviceMismatch) if the mask is on another device.
    /// [`InvalidShape`](ErrorKind::InvalidShape) if the size overflows.
    /// [`OutOfMemory`](ErrorKind::OutOfMemory) if the device has no memory. On CUDA devices, the
    /// method needs scratch memory of 8 bytes for each element of the mask.
    #[track_caller]
    pub fn select_by(&self, mask: &Array<bool>) -> Result<Self> {
        select_by(self.erased(), mask).map(Self::from_erased)
    }

    /// Sets the elements at which `mask` is true to the elements of `value`. Other elements do not
    /// change. This is NumPy's `np.copyto(x, value, where=mask)`. `mask` and `value` broadcast to
    /// this array's shape. NumPy's `x[mask] = values` differs: it assigns the values in order.
    ///
    /// The method is equivalent to [`assign`](Self::assign) of a [`select`](crate::select). The
    /// write is in place, unless other arrays or expressions share the memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let mut x = Array::from_slice(&[-2.0, 3.0, -4.0, 5.0], [2, 2])?;
    /// let below = x.lt(0.0).eval()?;
    /// x.masked_assign(&below, 0.0)?;
    /// assert_eq!(x.to_vec()?, [0.0, 3.0, 0.0, 5.0]);
    ///
    /// let row = Array::from_slice(&[10.0, 20.0], 2)?;
    /// x.masked_assign(&below, &row + 1.0)?;
    /// assert_eq!(x.to_vec()?, [11.0, 3.0, 11.0, 5.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`assign`](Self::assign), and [`ShapeMismatch`](ErrorKind::ShapeMismatch) if
    /// the mask's shape does not broadcast to this array's shape. After an error, the array is
    /// unchanged.
    #[track_caller]
    pub fn masked_assign<R: IntoExpr<T>>(&mut self, mask: &Array<bool>, value: R) -> Result<()> {
        same_device(
            "masked_assign",
            ("the array", self.erased()),
            ("the mask", mask.erased()),
        )?;
        let value = value.into_lazy();
        let own = self.layout().shape();
        check_broadcast("mask", mask.layout().shape(), own)?;
        let graph = ExpressionGraph::of(&value.expr)?;
        check_broadcast("value", graph.shape(), own)?;
        if let Some(device) = device_of("masked_assign", &graph)?
            && device != self.device()
        {
            let array = ("the array", self.device(), own);
            let value = ("the value", device, graph.shape());
            return Err(device_mismatch("masked_assign", array, value));
        }
        let chosen = select(mask, value, &*self);
        self.assign(chosen)
    }
}

impl AnyArray {
    /// Returns the elements in an array of one axis, contiguous in memory.
    #[track_caller]
    pub(super) fn packed(&self) -> Result<Self> {
        let flat = self.reshape(&self.len().into())?;
        match flat.layout.is_contiguous() {
            true => Ok(flat),
            false => copied(&flat, Copying::All, flat.shape()),
        }
    }
}

#[track_caller]
fn check_broadcast(what: &str, shape: &Shape, own: &Shape) -> Result<()> {
    if broadcast_shapes("masked_assign", &[own, shape]).is_ok_and(|to| to == *own) {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::Broadcast,
        format!("masked_assign: the {what} {shape} does not broadcast to the array {own}"),
    ))
}

/// Returns a row for each true flag: the indices of the flag's element in an array of `shape`.
/// `flags` is contiguous, with one flag for each element.
#[track_caller]
fn positions(flags: &Array<bool>, shape: &Shape) -> Result<Array<i64>> {
    on_device!(
        flags.device(),
        touching flags.buffer(),
        order => host::positions(order, flags, shape),
        cuda::positions(order, flags.into(), shape).map(AnyArray::into_array)
    )
}

/// See [`Array::select_by`].
#[track_caller]
pub(super) fn select_by(array: &AnyArray, mask: &Array<bool>) -> Result<AnyArray> {
    let flags = ("the mask", mask.erased());
    same_device("select_by", ("the array", array), flags)?;
    let (own, shape) = (array.shape(), mask.layout().shape());
    if !own.dims().starts_with(shape.dims()) {
        return Err(Error::new(
            ErrorKind::ShapeMismatch,
            format!(
                "select_by: the mask {shape} does not fit the array {own}: expected the lengths of its leading axes"
            ),
        ));
    }
    let flags: Array<bool> = Array::from_erased(mask.erased().packed()?);
    let rest = &own.dims()[shape.ndim()..];
    let parts: Shape = [flags.len()].iter().chain(rest).collect();
    if is_any_tracked(&[array])? {
        let rows = positions(&flags, flags.layout().shape())?.flatten()?;
        return array.reshape(&parts)?.take(&rows, 0);
    }
    if shape.ndim() == own.ndim() {
        return compacted(&array.packed()?, &flags);
    }
    let rows = positions(&flags, flags.layout().shape())?.flatten()?;
    let array = array.reshape(&parts)?;
    let shape: Shape = [rows.len()].iter().chain(rest).collect();
    check_size("select_by", &shape, array.dtype)?;
    picked(&array, &rows, Picking::Parts, 0, &shape)
}
