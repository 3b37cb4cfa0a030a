//! Export: arrays as tensors of DLPack.

use std::ptr;

use super::tensor::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion, DLTensor, Deleter, Managed,
};
use crate::array::{AnyElement, Array, Buffer, MAX_RANK, refuse_tracked};
use crate::device::cuda::Cuda;
use crate::device::host::host_pointer;
use crate::device::{DeviceId, DevicePtr, Use};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// An exported tensor, with the memory that it needs until its deleter is called.
///
/// Invariant: `manager_ctx` of `managed` is the pointer that the box was leaked as.
#[repr(C)]
struct Exported<M> {
    managed: M,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
    /// A counted handle: while it lives, a write to the array copies first.
    _buffer: Buffer,
}

impl<T: AnyElement> Array<T> {
    /// Exports the array as a tensor of DLPack 1.x, without a copy. Use the tensor for
    /// `np.from_dlpack`, `torch.from_dlpack` and other libraries of this process.
    ///
    /// The tensor pins the array's memory until its deleter is called. The deleter may be called on
    /// any thread. Until this call, the scope may end, its cache may be invalidated, and the array
    /// and its device may be dropped. The tensor has the array's strides, so that any view can be
    /// exported. An axis of length 1 has a stride equal to the number of elements of the axes
    /// behind it.
    ///
    /// The tensor is read-only ([`DLPACK_FLAG_BITMASK_READ_ONLY`]), because this array and its
    /// clones share the memory. A later write to one of these arrays copies first, so the
    /// consumer's elements never change. For a tensor that the consumer may write to, call
    /// [`into_dlpack`](Self::into_dlpack).
    ///
    /// The call waits until the elements are written, so the consumer may read at once and on any
    /// stream. On a CUDA device, the consumer's work must be complete when it calls the deleter.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) if the array is tracked for gradients (export
    /// [`stop_gradient(&array)`](crate::grad::stop_gradient)).
    /// [`Unsupported`](ErrorKind::Unsupported) if the array's device has no data
    /// ([`Device::meta`](crate::Device::meta)), or during a capture. The errors of
    /// [`Device::synchronize`](crate::Device::synchronize).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::dlpack::DLPACK_FLAG_BITMASK_READ_ONLY;
    ///
    /// let array = Array::arange(0.0_f32, 6.0, 1.0)?.reshape([2, 3])?;
    /// let tensor = array.to_dlpack()?; // In Python: PyCapsule_New(tensor, "dltensor_versioned", …)
    /// // SAFETY: the tensor is consumed once, by the second call.
    /// let again = unsafe {
    ///     assert_eq!((*tensor).flags, DLPACK_FLAG_BITMASK_READ_ONLY);
    ///     Array::<f32>::from_dlpack(tensor)?
    /// };
    /// assert_eq!(again.address(), array.address());
    /// assert_eq!(again, array);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[track_caller]
    pub fn to_dlpack(&self) -> Result<*mut DLManagedTensorVersioned> {
        self.finish("to_dlpack")?;
        Ok(self.export(versioned(DLPACK_FLAG_BITMASK_READ_ONLY)))
    }

    /// Exports the array like [`to_dlpack`](Self::to_dlpack). If nothing else shares the memory,
    /// the consumer may write to the tensor.
    ///
    /// The tensor is read-only if another array, an expression or a graph shares its memory. It is
    /// also read-only if the memory was imported as read-only, or if elements of the array share
    /// memory. The call waits for all uses of the memory.
    ///
    /// # Errors
    ///
    /// The errors of [`to_dlpack`](Self::to_dlpack).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let tensor = Array::<f32>::zeros(3)?.into_dlpack()?;
    /// // SAFETY: the tensor has one consumer, which writes to its three elements before the import.
    /// let array = unsafe {
    ///     assert_eq!((*tensor).flags, 0);
    ///     (*tensor).dl_tensor.data.cast::<f32>().write(5.0);
    ///     Array::<f32>::from_dlpack(tensor)?
    /// };
    /// assert_eq!(array.to_vec()?, [5.0, 0.0, 0.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[track_caller]
    pub fn into_dlpack(self) -> Result<*mut DLManagedTensorVersioned> {
        self.finish("into_dlpack")?;
        let buffer = self.buffer();
        let is_own =
            buffer.holders() == 1 && !buffer.is_used_by_graphs() && !self.layout().repeats();
        if is_own {
            let device = buffer.device();
            let stream = device.stream();
            buffer.use_on(stream, Use::Write)?;
            device.backend().synchronize(stream).at_caller()?;
        }
        let flags = if is_own {
            0
        } else {
            DLPACK_FLAG_BITMASK_READ_ONLY
        };
        Ok(self.export(versioned(flags)))
    }

    /// Exports the array like [`to_dlpack`](Self::to_dlpack), as a tensor of DLPack before 1.0.
    ///
    /// A tensor of this version has no flags. The consumer must not write to the tensor, because
    /// other arrays may share its memory. NumPy treats the tensor as read-only. PyTorch has no
    /// read-only tensors.
    ///
    /// # Errors
    ///
    /// The errors of [`to_dlpack`](Self::to_dlpack).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::arange(0, 3, 1)?;
    /// let tensor = array.to_dlpack_legacy()?; // In Python: PyCapsule_New(tensor, "dltensor", …)
    /// // SAFETY: the tensor is consumed once, here.
    /// let again = unsafe { Array::<i32>::from_dlpack_legacy(tensor)? };
    /// assert_eq!(again.address(), array.address());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[track_caller]
    pub fn to_dlpack_legacy(&self) -> Result<*mut DLManagedTensor> {
        self.finish("to_dlpack_legacy")?;
        Ok(self.export(legacy))
    }

    /// Checks that foreign code may read the elements, and waits until they are written.
    #[track_caller]
    fn finish(&self, operation: &str) -> Result<()> {
        let buffer = self.buffer();
        refuse_tracked(operation, buffer.value_id())?;
        let backend = buffer.device().backend();
        if backend.is_meta() {
            let text = format!("{operation}: the device `meta` has no data");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        // Until the elements are written, no launch of a graph may write over them.
        let gpu = backend.cuda().filter(|_| buffer.is_used_by_graphs());
        let _no_launches = gpu.map(Cuda::lock_launches_shared);
        // Each write waited for the earlier write, so the last write completes after all other
        // writes.
        let writer = buffer.wait_for_last_write()?;
        if backend.id() != DeviceId::Host {
            buffer.take_deferred_error()?;
            backend.synchronize(writer).at_caller()?;
        }
        Ok(())
    }

    /// Returns the tensor of the array. `managed` makes the tensor from its fields, except the
    /// addresses.
    #[track_caller]
    fn export<M: Managed>(&self, managed: impl FnOnce(DLTensor, Deleter<M>) -> M) -> *mut M {
        let (layout, device) = (self.layout(), self.device().backend().id());
        let data = match self.is_empty() {
            true => ptr::null_mut(),
            false => host_pointer(DevicePtr(self.address())).cast(),
        };
        let tensor = DLTensor {
            data,
            device: DLDevice::from(device),
            ndim: layout.ndim() as i32,
            dtype: DLDataType::from(T::DTYPE),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        let mut exported = Box::new(Exported {
            managed: managed(tensor, Some(delete::<M>)),
            shape: [0; MAX_RANK],
            strides: [0; MAX_RANK],
            _buffer: self.buffer().share(),
        });
        // An axis of length 1 does not use its stride, but some readers expect the stride of a
        // row-major layout.
        let mut behind: i64 = 1;
        for axis in (0..layout.ndim()).rev() {
            // A layout's lengths and strides are at most `isize::MAX`.
            let (length, stride) = (layout.dims()[axis] as i64, layout.strides()[axis] as i64);
            exported.shape[axis] = length;
            exported.strides[axis] = if length == 1 { behind } else { stride };
            behind = behind.saturating_mul(length.max(1));
        }
        let exported = Box::into_raw(exported);
        // SAFETY: the box was just leaked, and nothing else refers to it yet. The box's fields are
        // disjoint, and are not moved until `delete` frees the box.
        unsafe {
            let (tensor, context) = (*exported).managed.parts();
            tensor.shape = (&raw mut (*exported).shape).cast();
            tensor.strides = (&raw mut (*exported).strides).cast();
            *context = exported.cast();
            &raw mut (*exported).managed
        }
    }
}

/// Releases a tensor that [`Array::export`] made. Drops the tensor's handle, which is allowed on
/// any thread and does not unwind.
///
/// # Safety
///
/// The pointer is null, or [`Array::export`] returned it. The tensor is not used again, and no work
/// of the consumer still uses its memory.
unsafe extern "C" fn delete<M: Managed>(tensor: *mut M) {
    if tensor.is_null() {
        return;
    }
    // SAFETY: `export` leaked the box that the context points to, and the caller releases it once.
    unsafe {
        let exported = *(*tensor).parts().1;
        drop(Box::from_raw(exported.cast::<Exported<M>>()));
    }
}

fn versioned(
    flags: u64,
) -> impl FnOnce(DLTensor, Deleter<DLManagedTensorVersioned>) -> DLManagedTensorVersioned {
    move |dl_tensor, deleter| DLManagedTensorVersioned {
        version: DLPackVersion {
            major: DLPACK_MAJOR_VERSION,
            minor: DLPACK_MINOR_VERSION,
        },
        manager_ctx: ptr::null_mut(),
        deleter,
        flags,
        dl_tensor,
    }
}

fn legacy(dl_tensor: DLTensor, deleter: Deleter<DLManagedTensor>) -> DLManagedTensor {
    DLManagedTensor {
        dl_tensor,
        manager_ctx: ptr::null_mut(),
        deleter,
    }
}
