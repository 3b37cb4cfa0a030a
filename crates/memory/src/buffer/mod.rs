//! Untyped device memory with reference-counted handles.

pub(crate) mod captured;
mod shared_at;
pub(crate) mod value_id;

use std::fmt;
use std::panic::Location;
use std::ptr;

use crate::cache::BlockHandle;
use crate::context::Device;
use crate::device::host::host_pointer;
use crate::device::{DeviceId, DevicePtr, StreamId, Use};
use crate::error::{AtCaller, Error, ErrorCode, Result};
use crate::memory::Destructor;
use crate::memory::uses::StreamUse;

use self::shared_at::SharedAt;
use self::value_id::ValueId;

/// Untyped device memory, allocated like the memory of an array. The enclosing scope provides the
/// memory, and reuses it after the last handle drops. The contents of the memory are not
/// initialised.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, cache_scope};
///
/// let device = Device::current();
/// cache_scope!("buffers", {
///     let first = Buffer::new(&device, 4096)?;
///     let address = first.address();
///     drop(first);
///     assert_eq!(Buffer::new(&device, 4096)?.address(), address);
/// });
/// # Ok::<(), cachescope::Error>(())
/// ```
pub struct Buffer {
    // This field is declared first, so that it drops first. Its drop removes this handle's entry
    // from the table of shared blocks. The entry must be gone before the block can be reused.
    shared_at: SharedAt,
    block: BlockHandle,
    /// The identity of the values on a tape, if a tape tracks them.
    value_id: Option<ValueId>,
}

impl Buffer {
    /// Allocates `size_bytes` bytes on `device`. A size of 0 allocates nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, ErrorKind};
    ///
    /// let device = Device::host();
    /// assert_eq!(Buffer::new(&device, 4096)?.size_bytes(), 4096);
    /// let error = Buffer::new(&device, usize::MAX).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidShape);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the reclaim ladder frees too little
    /// memory. [`InvalidShape`](crate::ErrorKind::InvalidShape) for a size that cannot be
    /// addressed.
    #[inline]
    #[track_caller]
    pub fn new(device: &Device, size_bytes: usize) -> Result<Self> {
        Self::new_at(device, size_bytes, Location::caller())
    }

    /// Like [`new`](Self::new), but reports `call_site` as the call site.
    #[inline]
    #[doc(hidden)]
    pub fn new_at(
        device: &Device,
        size_bytes: usize,
        call_site: &'static Location<'static>,
    ) -> Result<Self> {
        let block = device.caches().allocate(size_bytes as u64, call_site)?;
        Ok(Self::first(block))
    }

    /// Like [`new`](Self::new), but outside every cache.
    #[track_caller]
    #[doc(hidden)]
    pub fn new_detached(device: &Device, size_bytes: usize) -> Result<Self> {
        let call_site = Location::caller();
        let caches = device.caches();
        let block = caches.allocate_uncached(size_bytes as u64, call_site)?;
        Ok(Self::first(block))
    }

    /// Imports foreign memory of `device`. Calls `destructor` once, after the last handle has
    /// dropped and every stream has finished its uses of the memory. If this function fails, it
    /// drops `destructor` without a call. If `allowed` is [`Use::Read`], the memory always counts
    /// as shared, so every write copies first.
    ///
    /// # Safety
    ///
    /// Until `destructor` is called, the `size_bytes` bytes at `address` are memory of the device
    /// that may be read. If `allowed` is [`Use::Write`], the bytes may also be written. Foreign
    /// writes to the bytes are ordered by the thread's current stream. If `allowed` is
    /// [`Use::Write`], foreign reads are ordered by this stream too.
    #[track_caller]
    #[doc(hidden)]
    pub unsafe fn import(
        device: &Device,
        address: u64,
        size_bytes: usize,
        allowed: Use,
        destructor: Destructor,
    ) -> Result<Self> {
        check_size(size_bytes)?;
        let (address, bytes) = (DevicePtr(address), size_bytes as u64);
        let caches = device.caches();
        let block = caches
            .import(address, bytes, allowed, destructor)
            .at_caller()?;
        Ok(Self::first(block))
    }

    /// Returns the address of the first byte in the device's memory; 0 for an empty buffer. Unless
    /// the memory is imported, the address is aligned to 512 bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device};
    ///
    /// let device = Device::host();
    /// assert_eq!(Buffer::new(&device, 100)?.address() % 512, 0);
    /// assert_eq!(Buffer::new(&device, 0)?.address(), 0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[inline]
    pub fn address(&self) -> u64 {
        self.block.block.address.0
    }

    /// Returns the requested size in bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device};
    ///
    /// assert_eq!(Buffer::new(&Device::host(), 100)?.size_bytes(), 100); // Its block has 512.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.block.requested_bytes as usize
    }

    /// Returns the device that the memory is on.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device};
    ///
    /// assert_eq!(Buffer::new(&Device::host(), 100)?.device(), &Device::host());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[inline]
    pub fn device(&self) -> &Device {
        Device::from_caches(self.block.home().device())
    }

    /// Sets each element of this host memory to `value`, and returns the elements. Waits for work
    /// that uses the memory. Trailing bytes that are too few for an element do not change.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, cache_scope};
    ///
    /// let device = Device::host();
    /// cache_scope!("scratch", {
    ///     let mut buffer = Buffer::new(&device, 4096)?;
    ///     let sums: &mut [f64] = buffer.fill_host(0.0)?;
    ///     sums[1] = sums[0] + 0.5;
    ///     assert_eq!((sums.len(), sums[1]), (512, 0.5));
    /// });
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the device has no data. Also if the memory
    /// is not host memory, is shared, or is not aligned for `T`.
    #[track_caller]
    pub fn fill_host<T: Copy>(&mut self, value: T) -> Result<&mut [T]> {
        let backend = self.device().backend();
        let reason = if backend.id() != DeviceId::Host || backend.is_meta() {
            Some("the memory is not host memory")
        } else if self.holders() != 1 {
            Some("another handle shares the memory")
        } else if !self.address().is_multiple_of(align_of::<T>() as u64) {
            Some("the elements need a larger alignment than the memory has")
        } else {
            None
        };
        if let Some(reason) = reason {
            let text = format!("fill_host: {reason}");
            return Err(Error::new(ErrorCode::Support, text).at(Location::caller()));
        }
        if size_of::<T>() == 0 || self.size_bytes() == 0 {
            return Ok(&mut []);
        }
        let stream = self.stream();
        self.use_on(stream, Use::Write)?;
        backend.synchronize(stream).at_caller()?;
        let first: *mut T = host_pointer(DevicePtr(self.address())).cast();
        let count = self.size_bytes() / size_of::<T>();
        for index in 0..count {
            // SAFETY: the element lies in this host block. The checks above ensure that the block
            // is aligned for `T` and has one handle. This handle is borrowed mutably. `synchronize`
            // waited for all work that used the block.
            unsafe { first.add(index).write(value) };
        }
        // SAFETY: the loop has written all `count` elements. The result borrows the block's only
        // handle mutably.
        Ok(unsafe { std::slice::from_raw_parts_mut(first, count) })
    }

    /// Orders the next use of the memory by the stream `user`. A read is ordered after the writes
    /// by other streams. A write is ordered after all uses by other streams. During a write, no
    /// other thread may begin to use the memory.
    #[track_caller]
    #[doc(hidden)]
    pub fn use_on(&self, user: impl Into<StreamUse>, used: Use) -> Result<()> {
        self.track_use(used);
        let streams = self.device().ordered_streams();
        let ordered = match used {
            Use::Read => self.block.read_on(streams, user.into()),
            Use::Write => self.block.write_on(streams, user.into()),
        };
        ordered.at_caller()
    }

    /// Returns whether a graph may use the memory. The graph may still be in capture.
    #[doc(hidden)]
    pub fn is_used_by_graphs(&self) -> bool {
        self.block.is_used_by_graphs()
    }

    /// Fails with the first deferred error of the device, if there is one.
    #[track_caller]
    #[doc(hidden)]
    pub fn take_deferred_error(&self) -> Result<()> {
        let memory = self.device().caches().memory();
        memory.take_deferred_error().at_caller()
    }

    /// Returns the stream that the memory was allocated on.
    #[doc(hidden)]
    pub fn stream(&self) -> StreamId {
        self.block.block.stream
    }

    /// Returns the stream of the last write to the memory. Waits for the write if the host executes
    /// it, or if the memory is host memory.
    #[track_caller]
    #[doc(hidden)]
    pub fn wait_for_last_write(&self) -> Result<StreamId> {
        let streams = self.device().ordered_streams();
        let write = self.block.last_write(streams).at_caller()?;
        if write.event().is_some() || streams.backend.id() == DeviceId::Host {
            streams.wait_for(write).at_caller()?;
        }
        Ok(write.stream())
    }

    /// Returns whether the host can read the memory without a wait or a copy. The memory must be
    /// host memory whose last write has completed.
    #[doc(hidden)]
    pub fn is_readable_now(&self) -> bool {
        let backend = self.device().backend();
        if backend.id() != DeviceId::Host || backend.delayed().is_some() {
            return false;
        }
        let write = self.block.latest_write();
        match (write.event(), backend.host_stream(write.stream())) {
            (Some(event), Some(host_stream)) => host_stream.has_written(&event),
            _ => true,
        }
    }

    fn first(block: BlockHandle) -> Self {
        Self {
            shared_at: SharedAt::first(),
            block,
            value_id: None,
        }
    }

    /// Returns another handle on this memory.
    #[inline]
    #[track_caller]
    #[doc(hidden)]
    pub fn share(&self) -> Self {
        Self {
            shared_at: self.shared_at.share(self.header_address()),
            block: self.block.clone(),
            value_id: self.value_id,
        }
    }

    /// Returns another handle on this memory, for a view of the elements.
    #[inline]
    #[track_caller]
    #[doc(hidden)]
    pub fn share_as_view(&self) -> Self {
        Self {
            shared_at: self.shared_at.share_as_view(self.header_address()),
            block: self.block.clone(),
            value_id: self.value_id,
        }
    }

    /// Returns whether this handle belongs to a view, while another handle on the memory does not.
    /// Clones of a view count as views. In builds without debug assertions, returns false.
    #[doc(hidden)]
    pub fn is_view(&self) -> bool {
        self.shared_at.is_view(self.block.holders())
    }

    /// Returns the identity of this handle's values on a tape, if a tape tracks them.
    #[inline]
    #[doc(hidden)]
    pub fn value_id(&self) -> Option<ValueId> {
        self.value_id
    }

    /// If the value is a constant, removes its identity before a write. Otherwise, the tape would
    /// recompute the values from before the write.
    #[inline]
    #[doc(hidden)]
    pub fn forget_constant(&mut self) {
        self.value_id = self.value_id.filter(|value_id| !value_id.is_constant());
    }

    /// Returns this handle with the identity `value_id`. If no tape tracks the values, `value_id`
    /// is `None`.
    #[doc(hidden)]
    pub fn with_value_id(self, value_id: Option<ValueId>) -> Self {
        Self { value_id, ..self }
    }

    /// Returns the call site that created another handle on this memory. Ignores this handle and
    /// the handles in `except`. Returns `None` if the call site is not known, and in builds without
    /// debug assertions.
    #[doc(hidden)]
    pub fn shared_at(&self, except: &[&Self]) -> Option<&'static Location<'static>> {
        let except = except.iter().filter(|other| other.is_same(self));
        let except = except.map(|other| &other.shared_at);
        self.shared_at.other(self.header_address(), except)
    }

    /// Counts this memory as a copy-on-write copy, and marks it in the record of its entry.
    /// `shared_at` is the call site that created the handle which forced the copy.
    #[doc(hidden)]
    pub fn note_copy_on_write(&self, shared_at: Option<&'static Location<'static>>) {
        let caches = self.device().caches();
        caches.note_copy_on_write(&self.block, shared_at);
    }

    /// Returns the address of the block's header. The address identifies the memory while the
    /// memory has a handle.
    #[inline]
    fn header_address(&self) -> usize {
        ptr::from_ref(&*self.block).addr()
    }

    /// Returns the number of handles that share the memory. The owner of read-only memory counts as
    /// a handle. If the memory has more than one holder, a write first copies the memory.
    #[inline]
    #[doc(hidden)]
    pub fn holders(&self) -> usize {
        self.block.holders() + usize::from(self.is_read_only())
    }

    /// Returns whether the memory is imported and may only be read.
    #[inline]
    #[doc(hidden)]
    pub fn is_read_only(&self) -> bool {
        self.block.block.is_read_only()
    }

    /// Returns whether `self` and `other` are handles on one memory block.
    #[inline]
    #[doc(hidden)]
    pub fn is_same(&self, other: &Self) -> bool {
        self.block.is_same(&other.block)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("device", self.device())
            .field("address", &format_args!("{:#x}", self.address()))
            .field("size_bytes", &self.size_bytes())
            .finish()
    }
}

#[inline]
#[track_caller]
fn check_size(size_bytes: usize) -> Result<()> {
    if size_bytes > isize::MAX as usize {
        return Err(unaddressable(size_bytes));
    }
    Ok(())
}

#[cold]
#[track_caller]
fn unaddressable(size_bytes: usize) -> Error {
    let text = format!("a buffer of {size_bytes} bytes exceeds the address space");
    Error::new(ErrorCode::Size, text)
}
