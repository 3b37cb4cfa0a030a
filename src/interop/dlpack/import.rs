//! Import: tensors of DLPack as arrays.

use std::ptr::NonNull;

use super::tensor::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLTensor, Deleter, Managed, kDLCPU, kDLCUDA, kDLCUDAHost, kDLCUDAManaged,
};
use crate::array::{AnyElement, Array, Buffer, Layout, MAX_RANK, Shape};
use crate::context::Device;
use crate::device::{DeviceId, Use};
use crate::error::{AtCaller, Error, ErrorCode, ErrorKind, Result};
use crate::interop::import::check_address;

impl<T: AnyElement> Array<T> {
    /// Imports a tensor of DLPack 1.x as an array, without a copy. The `__dlpack__` method of
    /// arrays of NumPy, PyTorch, JAX and CuPy returns a tensor of this version.
    ///
    /// The call takes ownership of the tensor, even if the call fails. This library calls the
    /// tensor's deleter exactly once. After an error, the deleter has been called. Otherwise, the
    /// deleter is called after the last array is dropped, like the destructor of
    /// [`from_raw_parts`](Self::from_raw_parts). The next call on the device that misses its
    /// scope's cache, imports memory, trims or synchronises calls the deleter. The drop of the last
    /// array does not call it. In Python, rename the capsule before the call.
    ///
    /// The array is on the tensor's device. If the current device has the tensor's kind of memory,
    /// this is the current device. Otherwise, it is [`Device::host`] or [`Device::cuda`]. Any
    /// strides are accepted, also negative strides and strides of 0. An array over a read-only
    /// tensor is never written in place: a write copies first. If no other *array* shares the
    /// memory of a writable tensor, a write is in place. The write then changes the producer's
    /// elements.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the tensor or its data is null, or if the
    /// elements are of another type. [`InvalidArgument`](ErrorKind::InvalidArgument) if the address
    /// is not aligned for `T`. [`InvalidShape`](ErrorKind::InvalidShape) for more than 8 axes, a
    /// negative length, or a size that overflows. [`DeviceMismatch`](ErrorKind::DeviceMismatch) for
    /// a device that is neither the host nor CUDA. [`Unsupported`](ErrorKind::Unsupported) for
    /// another major version than 1. The errors of [`Device::cuda`] and
    /// [`from_raw_parts`](Self::from_raw_parts).
    ///
    /// # Safety
    ///
    /// The pointer is null, or points to a tensor that follows the rules of DLPack and that nothing
    /// else consumes. Until its deleter is called:
    /// - The memory contains a value of `T` at each position. For `bool`, each byte is 0 or 1. The
    ///   values are written already. On a CUDA device, the thread's current stream must be ordered
    ///   after the work that writes them. Pass this stream to `__dlpack__`.
    /// - While an array over the memory is used, the producer and other code do not write to the
    ///   memory. The memory includes the bytes between the elements. While an array over the memory
    ///   is written to, the producer and other code do not read the memory. If no array over the
    ///   memory is written to, several arrays may be imported from the memory.
    ///
    /// The deleter may be called on any thread, and does not unwind.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::dlpack::{
    ///     DLDataType, DLDevice, DLManagedTensorVersioned, DLPackVersion, DLTensor, kDLCPU, kDLInt,
    /// };
    /// use cachescope::{Array, Device};
    ///
    /// /// Releases a tensor of the producer below.
    /// unsafe extern "C" fn release(tensor: *mut DLManagedTensorVersioned) {
    ///     // SAFETY: the producer leaked the tensor as a box.
    ///     drop(unsafe { Box::from_raw(tensor) });
    /// }
    ///
    /// static VALUES: [i32; 4] = [1, 2, 3, 4];
    /// let (mut shape, mut strides) = ([2_i64], [-2_i64]);
    /// let dl_tensor = DLTensor {
    ///     data: VALUES.as_ptr().cast_mut().cast(),
    ///     device: DLDevice { device_type: kDLCPU, device_id: 0 },
    ///     ndim: 1,
    ///     dtype: DLDataType { code: kDLInt, bits: 32, lanes: 1 },
    ///     shape: shape.as_mut_ptr(),
    ///     strides: strides.as_mut_ptr(),
    ///     byte_offset: 12,
    /// };
    /// let tensor = Box::into_raw(Box::new(DLManagedTensorVersioned {
    ///     version: DLPackVersion { major: 1, minor: 0 },
    ///     manager_ctx: std::ptr::null_mut(),
    ///     deleter: Some(release),
    ///     flags: cachescope::dlpack::DLPACK_FLAG_BITMASK_READ_ONLY,
    ///     dl_tensor,
    /// }));
    /// // SAFETY: the tensor has two elements from the last value down, and is read-only.
    /// let mut array = unsafe { Array::<i32>::from_dlpack(tensor)? };
    /// assert_eq!(array.to_vec()?, [4, 2]);
    /// array.fill(7)?; // to a copy
    /// assert_eq!(VALUES, [1, 2, 3, 4]);
    /// Device::host().synchronize()?; // calls the deleter
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[track_caller]
    pub unsafe fn from_dlpack(tensor: *mut DLManagedTensorVersioned) -> Result<Self> {
        let operation = "from_dlpack";
        // SAFETY: this function has the callee's contract.
        let owned = unsafe { Owned::new(operation, tensor) }?;
        // SAFETY: the tensor is valid, by this function's contract. Only the version is read,
        // because the fields after the deleter depend on the version.
        let version = unsafe { (*tensor).version };
        if version.major != DLPACK_MAJOR_VERSION {
            let text = format!(
                "{operation}: the tensor has DLPack version {}.{}, expected \
                 {DLPACK_MAJOR_VERSION}.x: request it with `max_version=(1, 1)`",
                version.major, version.minor
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        // SAFETY: the tensor is valid, by this function's contract, and its version has this
        // layout.
        let (flags, fields) = unsafe { ((*tensor).flags, (*tensor).dl_tensor) };
        let allowed = match flags & DLPACK_FLAG_BITMASK_READ_ONLY {
            0 => Use::Write,
            _ => Use::Read,
        };
        // SAFETY: this function has the callee's contract.
        unsafe { import(operation, &fields, allowed, owned) }
    }

    /// Imports a tensor of DLPack before 1.0 as an array, without a copy.
    ///
    /// The array is like an array over a read-only tensor: a write copies first. Tensors of this
    /// version have no flags, and JAX exports immutable arrays as tensors of this version.
    ///
    /// # Errors
    ///
    /// The errors of [`from_dlpack`](Self::from_dlpack), except the error for the version.
    ///
    /// # Safety
    ///
    /// The contract of [`from_dlpack`](Self::from_dlpack) must hold.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let tensor = Array::<u8>::ones([2, 2])?.to_dlpack_legacy()?;
    /// // SAFETY: the tensor is consumed once, here.
    /// let array = unsafe { Array::<u8>::from_dlpack_legacy(tensor)? };
    /// assert_eq!(array.to_vec()?, [1; 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[track_caller]
    pub unsafe fn from_dlpack_legacy(tensor: *mut DLManagedTensor) -> Result<Self> {
        let operation = "from_dlpack_legacy";
        // SAFETY: this function has the callee's contract.
        let owned = unsafe { Owned::new(operation, tensor) }?;
        // SAFETY: the tensor is valid, by this function's contract.
        let fields = unsafe { (*tensor).dl_tensor };
        // SAFETY: this function has the callee's contract.
        unsafe { import(operation, &fields, Use::Read, owned) }
    }
}

/// A tensor that is released when its owner drops.
struct Owned<M: Managed> {
    tensor: NonNull<M>,
    /// A copy of the tensor's deleter. A tensor without a deleter may be freed before this owner
    /// drops, so the drop must not read it.
    deleter: Deleter<M>,
}

// SAFETY: the contract of an import is that the deleter may be called on any thread. Nothing else
// uses the tensor after the import.
unsafe impl<M: Managed> Send for Owned<M> {}

impl<M: Managed> Owned<M> {
    /// # Safety
    ///
    /// The tensor is null or valid, and only the returned owner calls its deleter.
    #[track_caller]
    unsafe fn new(operation: &str, tensor: *mut M) -> Result<Self> {
        let Some(tensor) = NonNull::new(tensor) else {
            let text = format!("{operation}: the tensor is null");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        };
        // SAFETY: the tensor is not null, so it is valid.
        let deleter = unsafe { M::deleter(tensor.as_ptr()) };
        Ok(Self { tensor, deleter })
    }
}

impl<M: Managed> Drop for Owned<M> {
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: the tensor is valid until its deleter is called. Only this drop calls the
            // deleter, once.
            unsafe { deleter(self.tensor.as_ptr()) };
        }
    }
}

/// Returns the array of a tensor's elements.
///
/// # Safety
///
/// The contract of [`Array::from_dlpack`] must hold. If `allowed` is a write, the memory may be
/// written to.
#[track_caller]
unsafe fn import<T: AnyElement, M: Managed>(
    operation: &str,
    tensor: &DLTensor,
    allowed: Use,
    owned: Owned<M>,
) -> Result<Array<T>> {
    let expected = DLDataType::from(T::DTYPE);
    if tensor.dtype != expected {
        let text = format!(
            "{operation}: the tensor has elements of {}, an array of {} needs {expected}",
            tensor.dtype,
            T::NAME
        );
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    // SAFETY: the tensor follows the rules of DLPack.
    let layout = unsafe { layout_of::<T>(tensor) }.map_err(|error| error.of(operation))?;
    let (address, size_bytes) = memory_of::<T>(operation, tensor, &layout)?;
    let device = device_of(operation, tensor.device)?;
    let destructor = Box::new(move || drop(owned));
    // SAFETY: the memory is valid by this function's contract. `memory_of` has exposed the
    // provenance.
    let buffer = unsafe { Buffer::import(&device, address, size_bytes, allowed, destructor) }?;
    Ok(Array::from_parts(buffer, layout))
}

/// Returns the layout of a tensor from its lowest element on.
///
/// # Safety
///
/// `shape` and `strides` of the tensor are null, or point to `ndim` numbers.
#[track_caller]
unsafe fn layout_of<T>(tensor: &DLTensor) -> Result<Layout> {
    let ndim = match usize::try_from(tensor.ndim) {
        Ok(ndim) if ndim <= MAX_RANK => ndim,
        _ => {
            let text = format!(
                "the tensor has rank {}, expected 0 to {MAX_RANK}",
                tensor.ndim
            );
            return Err(Error::new(ErrorCode::Rank, text));
        }
    };
    if ndim > 0 && tensor.shape.is_null() {
        let text = format!("the tensor has rank {ndim}, but its shape is null");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let (mut lengths, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
    for axis in 0..ndim {
        // SAFETY: the axis is one of the tensor's, and the pointers are not null.
        let length = unsafe { tensor.shape.add(axis).read() };
        let length = usize::try_from(length).map_err(|_| {
            let text =
                format!("axis {axis} of the tensor has the length {length}, expected at least 0");
            Error::new(ErrorKind::InvalidShape, text)
        });
        lengths[axis] = length.at_caller()?;
        if !tensor.strides.is_null() {
            // SAFETY: the axis is one of the tensor's, and the pointer to the strides is not null.
            let stride = unsafe { tensor.strides.add(axis).read() };
            // A stride that does not fit `isize` causes an overflow, unless the stride is not used.
            strides[axis] = isize::try_from(stride).unwrap_or(isize::MIN);
        }
    }
    let shape = Shape::from(&lengths[..ndim]);
    shape.size_bytes(size_of::<T>())?;
    match tensor.strides.is_null() {
        true => Layout::contiguous(&shape),
        false => Layout::strided(&shape, &strides[..ndim]),
    }
}

/// Returns the address of the lowest element, and the bytes from this address to the end of the
/// highest element.
#[track_caller]
fn memory_of<T>(operation: &str, tensor: &DLTensor, layout: &Layout) -> Result<(u64, usize)> {
    let Some((_, highest)) = layout.bounds() else {
        return Ok((0, 0)); // Without elements, any address is valid.
    };
    let size = size_of::<T>();
    let outside = || {
        let text = format!(
            "{operation}: the elements of the shape {} exceed the address space",
            layout.shape()
        );
        Error::new(ErrorCode::Size, text)
    };
    let size_bytes = highest
        .checked_add(1)
        .and_then(|count| count.checked_mul(size));
    let size_bytes = size_bytes.filter(|&bytes| isize::try_from(bytes).is_ok());
    let size_bytes = size_bytes.ok_or_else(outside).at_caller()?;
    let data = tensor.data.expose_provenance() as u64;
    if data == 0 {
        let text = format!("{operation}: the data of the tensor is null");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let below = (layout.offset() * size) as u64;
    let address = data.checked_add(tensor.byte_offset);
    let address = address.and_then(|first| first.checked_sub(below));
    let address = address.ok_or_else(outside).at_caller()?;
    check_address::<T>(operation, address, size_bytes)?;
    Ok((address, size_bytes))
}

/// Returns the current device if the tensor is in its memory, otherwise the device of the tensor's
/// memory.
#[track_caller]
fn device_of(operation: &str, device: DLDevice) -> Result<Device> {
    let current = Device::current();
    let ordinal = usize::try_from(device.device_id);
    match (device.device_type, ordinal, current.backend().id()) {
        (kDLCPU | kDLCUDAHost, _, DeviceId::Host) => Ok(current),
        (kDLCPU | kDLCUDAHost, ..) => Ok(Device::host()),
        (kDLCUDA, Ok(ordinal), DeviceId::Cuda(own)) if own == ordinal => Ok(current),
        (kDLCUDA, Ok(ordinal), _) => Device::cuda(ordinal),
        // The index of managed memory is 0, and every device can access it.
        (kDLCUDAManaged, _, DeviceId::Cuda(_)) => Ok(current),
        (kDLCUDAManaged, ..) => Device::cuda(0),
        _ => {
            let text = format!("{operation}: the tensor is on {device}, expected CPU or CUDA");
            Err(Error::new(ErrorKind::DeviceMismatch, text))
        }
    }
}
