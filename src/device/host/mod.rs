//! The host device: the reference backend, on the process's own memory. Its one stream runs
//! everything at once on the calling thread.

mod ranges;

use std::alloc::{Layout, alloc, dealloc};

use super::{Backend, DeviceId, DevicePtr, StreamId, VirtualMemory};
use crate::error::{Error, ErrorKind, Result};
use ranges::Ranges;

/// Reservations begin on a page, so that no array shares one with foreign data.
const ALIGNMENT_BYTES: usize = 4096;

/// The embedded device.
#[derive(Debug)]
pub(crate) struct HostBackend {
    total_bytes: u64,
    /// None where the platform has none.
    ranges: Option<Ranges>,
}

impl HostBackend {
    pub(crate) fn new() -> Self {
        let total_bytes = physical_memory_bytes();
        Self {
            total_bytes,
            ranges: Ranges::new(total_bytes),
        }
    }
}

/// The layout of a reservation, or `None` where this platform cannot address it.
fn layout(bytes: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(bytes).ok()?, ALIGNMENT_BYTES).ok()
}

impl Backend for HostBackend {
    fn id(&self) -> DeviceId {
        DeviceId::Host
    }

    fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>> {
        // An overcommitting kernel would promise more than the machine has and kill us later.
        if bytes == 0 || bytes > self.total_bytes {
            return Ok(None);
        }
        let Some(layout) = layout(bytes) else {
            return Ok(None);
        };
        // SAFETY: `layout` has a size above 0, checked on entry.
        let address = unsafe { alloc(layout) };
        Ok((!address.is_null()).then_some(DevicePtr(address.expose_provenance() as u64)))
    }

    fn release(&self, address: DevicePtr, bytes: u64) -> Result<()> {
        let layout = layout(bytes).ok_or_else(|| {
            Error::new(
                ErrorKind::Driver,
                "released a segment that was never reserved",
            )
        })?;
        // SAFETY: the caller passes back an address that `reserve` gave for the same `bytes`, hence
        // for the same layout.
        unsafe { dealloc(host_pointer(address), layout) };
        Ok(())
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        let ranges = self.ranges.as_ref()?;
        Some(ranges)
    }

    unsafe fn upload(&self, _stream: StreamId, target: DevicePtr, source: &[u8]) -> Result<()> {
        // SAFETY: `target` begins `source.len()` writable bytes, and `source` cannot overlap them
        // because nothing else refers to them: both by this function's contract.
        unsafe { host_pointer(target).copy_from_nonoverlapping(source.as_ptr(), source.len()) };
        Ok(())
    }

    unsafe fn download(
        &self,
        _stream: StreamId,
        source: DevicePtr,
        target: &mut [u8],
    ) -> Result<()> {
        // SAFETY: `source` begins `target.len()` initialised bytes by this function's contract, and
        // a `&mut` overlaps nothing.
        unsafe {
            target
                .as_mut_ptr()
                .copy_from_nonoverlapping(host_pointer(source), target.len());
        }
        Ok(())
    }

    unsafe fn fill(
        &self,
        _stream: StreamId,
        target: DevicePtr,
        bytes: u64,
        value: u8,
    ) -> Result<()> {
        // SAFETY: `target` begins `bytes` writable bytes by this function's contract; a reserved
        // size fits `usize`.
        unsafe { host_pointer(target).write_bytes(value, bytes as usize) };
        Ok(())
    }

    fn synchronize(&self, _stream: StreamId) -> Result<()> {
        Ok(())
    }
}

/// The pointer behind an address of the host device.
pub(crate) fn host_pointer(address: DevicePtr) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address.0 as usize)
}

/// The machine's memory; where the platform does not tell, what its addresses can name.
fn physical_memory_bytes() -> u64 {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            kib.checked_mul(1024)
        })
        .unwrap_or(isize::MAX as u64)
}
