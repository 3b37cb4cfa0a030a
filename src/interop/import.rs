//! Import: foreign memory as an array.

use crate::array::{AnyElement, Array, Buffer, Layout, Shape};
use crate::context::Device;
use crate::device::Use;
use crate::error::{Error, ErrorKind, Result};

impl<T: AnyElement> Array<T> {
    /// Imports foreign memory as an array, without a copy. `destructor` releases the memory.
    ///
    /// The array behaves like any other array. Its clones and views share the memory, and
    /// operations on several streams are ordered with each other. The memory belongs to no cache.
    /// It counts as live, but neither as allocated nor as reserved, and no limit bounds it.
    ///
    /// `destructor` is called once, after the last array over the memory is dropped. Every stream
    /// has then completed its work on the memory. The destructor runs in the next call on this
    /// device that misses its scope's cache, imports memory, trims or synchronises. If there is no
    /// further call, the destructor runs when the device ends. It runs on the thread of the
    /// triggering call, while the thread holds no lock. Dropping the array never calls the
    /// destructor. A panic in the destructor becomes an error of a later call
    /// ([`Panic`](ErrorKind::Panic)). If the destructor owns a handle of `device`, the handle keeps
    /// the device alive until the destructor runs.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the address is null, not aligned for `T`,
    /// or has fewer bytes after it than the elements need.
    /// [`InvalidShape`](ErrorKind::InvalidShape) if the rank is above 8 or the size overflows. An
    /// error that an earlier call could not report. After an error, the caller still owns the
    /// memory: `destructor` is dropped, and not called.
    ///
    /// # Safety
    ///
    /// Until `destructor` is called:
    /// - the memory of `device` at `address` contains the values of the shape's elements, of type
    ///   `T`, in row-major order. The values are written already, or by work that the thread's
    ///   current stream of `device` is ordered after. On the host, the provenance of the memory is
    ///   exposed, as by `expose_provenance`.
    /// - the values may be read and written. Nothing else accesses the values, with one exception.
    ///   While no array over the memory is used, work in the order of the current stream may access
    ///   the values.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Device};
    ///
    /// let device = Device::host();
    /// let mut values = vec![1.0f32, 2.0, 3.0, 4.0];
    /// let address = values.as_mut_ptr().expose_provenance() as u64;
    /// // SAFETY: the vector is not touched again until the destructor drops it.
    /// let array = unsafe { Array::<f32>::from_raw_parts(&device, address, [2, 2], move || drop(values))? };
    /// assert_eq!(array.sum()?.item()?, 10.0);
    /// drop(array);
    /// device.synchronize()?; // drops the vector
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[track_caller]
    pub unsafe fn from_raw_parts(
        device: &Device,
        address: u64,
        shape: impl Into<Shape>,
        destructor: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let shape = shape.into();
        let size_bytes = shape.size_bytes(size_of::<T>())?;
        let layout = Layout::contiguous(&shape)?;
        check_address::<T>("from_raw_parts", address, size_bytes)?;
        let destructor = Box::new(destructor);
        // SAFETY: this function has the callee's contract.
        let buffer =
            unsafe { Buffer::import(device, address, size_bytes, Use::Write, destructor) }?;
        Ok(Self::from_parts(buffer, layout))
    }
}

/// Checks the address of `size_bytes` bytes of foreign memory with elements of `T`.
#[track_caller]
pub(super) fn check_address<T>(operation: &str, address: u64, size_bytes: usize) -> Result<()> {
    let align_bytes = align_of::<T>() as u64;
    let why = if address == 0 && size_bytes > 0 {
        "is null".to_owned()
    } else if !address.is_multiple_of(align_bytes) {
        format!("is not aligned to {align_bytes} bytes, the alignment of an element")
    } else if address.checked_add(size_bytes as u64).is_none() {
        format!("leaves fewer than {size_bytes} bytes of the address space")
    } else {
        return Ok(());
    };
    let text = format!("{operation}: the address {address:#x} {why}");
    Err(Error::new(ErrorKind::InvalidArgument, text))
}
