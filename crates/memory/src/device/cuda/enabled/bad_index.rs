//! Reports of indices out of range, written by kernels.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE};

use super::context::{Context, RawHandle};
use crate::device::DevicePtr;
use crate::device::cuda::Indexing;
use crate::error::Result;
use crate::sync::Arc;
use crate::sync::plain::{AtomicU64, Ordering};

/// The operation's number or 0, the index, and the length of the axis.
type ReportWords = [AtomicU64; 3];

/// A report of a bad index, in page-locked memory that host and device share.
///
/// Invariant: until the drop, `words` points to this memory.
#[derive(Debug)]
pub(super) struct BadIndex {
    context: Arc<Context>,
    words: RawHandle<ReportWords>,
    address: DevicePtr,
}

impl BadIndex {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        let mut words: *mut c_void = ptr::null_mut();
        let flags = CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: `words` is writable.
        context.run("pinning memory for bad-index reports", |driver| unsafe {
            driver.mem_host_alloc(&mut words, size_of::<ReportWords>(), flags)
        })?;
        let mut this = Self {
            context: Arc::clone(context),
            words: RawHandle(words.cast()),
            address: DevicePtr(0),
        };
        // SAFETY: the memory has the size of a report, and is aligned to a page. Nothing else has
        // its address.
        unsafe { this.words.0.write(ReportWords::default()) };
        // SAFETY: the address is writable, and the memory is mapped for the device.
        context.run("mapping memory for bad-index reports", |driver| unsafe {
            driver.mem_host_get_device_pointer(&mut this.address.0, words, 0)
        })?;
        Ok(this)
    }

    pub(super) fn address(&self) -> DevicePtr {
        self.address
    }

    /// Returns and clears the reported error. If a kernel is writing its report, the error may
    /// contain the index and length of an earlier report.
    pub(super) fn take_error(&self) -> Result<()> {
        // SAFETY: the words live as long as `self`. Host and device access them atomically.
        let [operation, index, length] = unsafe { &*self.words.0 };
        let number = operation.load(Ordering::Acquire);
        if number == 0 {
            return Ok(());
        }
        let (index, length) = (
            index.load(Ordering::Relaxed),
            length.load(Ordering::Relaxed),
        );
        operation.store(0, Ordering::Release);
        Err(Indexing::error(number, index.cast_signed(), length))
    }
}

impl Drop for BadIndex {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the words. No kernel runs, because the device is being dropped.
        self.context
            .discard(|driver| unsafe { driver.mem_free_host(self.words.0.cast()) });
    }
}
