//! Ranges from `mmap`. A mapping without access reserves addresses, and granting access commits a
//! page.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;

use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE,
};

use crate::device::budget::Budget;
use crate::device::host::host_pointer;
use crate::device::{Destination, DevicePtr, PageCost, VirtualMemory};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;

/// The huge-page size of x86-64 and AArch64, and CUDA's usual mapping granularity.
const PAGE_BYTES: u64 = 2 << 20;

/// Flags of a mapping that the kernel does not account as memory.
const ADDRESSES_ONLY: c_int = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

/// The ranges of a host device. Committed pages count in the device's budget.
#[derive(Debug)]
pub(in crate::device::host) struct Ranges {
    budget: Arc<Budget>,
    /// The protection of a committed page.
    access: c_int,
}

impl Ranges {
    pub(in crate::device::host) fn new(budget: &Arc<Budget>) -> Option<Self> {
        Some(Self {
            budget: Arc::clone(budget),
            access: PROT_READ | PROT_WRITE,
        })
    }

    /// Creates ranges of read-only pages that contain zeros. The pages use no memory, because the
    /// kernel maps its zero page.
    pub(in crate::device::host) fn without_data(budget: &Arc<Budget>) -> Option<Self> {
        Some(Self {
            budget: Arc::clone(budget),
            access: PROT_READ,
        })
    }

    /// Grants access to a part of a range. Returns false if the kernel is out of memory.
    pub(in crate::device::host) fn make_readable(
        &self,
        address: DevicePtr,
        bytes: u64,
    ) -> Result<bool> {
        let pages = host_pointer(address).cast();
        // SAFETY: the part lies in a range that `reserve_range` mapped. The call only grants
        // access.
        let changed = unsafe { libc::mprotect(pages, bytes as usize, self.access) };
        Ok(unless_exhausted(succeeded(changed))?.is_some())
    }
}

impl VirtualMemory for Ranges {
    fn page_bytes(&self) -> u64 {
        PAGE_BYTES
    }

    fn min_page_bytes(&self) -> u64 {
        PAGE_BYTES.min(page_size())
    }

    fn page_cost(&self) -> PageCost {
        PageCost::Low
    }

    fn reserve_range(&self, bytes: u64) -> Result<Option<DevicePtr>> {
        let Some(mapped) = bytes
            .checked_add(PAGE_BYTES)
            .and_then(|mapped| usize::try_from(mapped).ok())
        else {
            return Ok(None);
        };
        // SAFETY: the flags lack `MAP_FIXED`, so the new mapping replaces no other mapping.
        let begin = unsafe { map(ptr::null_mut(), mapped, ADDRESSES_ONLY) };
        let Some(begin) = unless_exhausted(begin)? else {
            return Ok(None);
        };
        // The kernel aligns a mapping to its own page size only. So the addresses outside the
        // aligned range are unmapped.
        let before = begin.align_offset(PAGE_BYTES as usize);
        let range = begin.wrapping_byte_add(before);
        // SAFETY: the two unmapped parts lie in the new mapping, which nothing uses yet. The
        // mapping is one page longer than the range, and `before` is less than a page.
        unsafe {
            unmap(begin, before)?;
            unmap(
                range.wrapping_byte_add(bytes as usize),
                PAGE_BYTES as usize - before,
            )?;
        }
        Ok(Some(DevicePtr(range.expose_provenance() as u64)))
    }

    unsafe fn release_range(&self, range: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: by this function's contract, `reserve_range` mapped the range, and nothing uses
        // it.
        unsafe { unmap(host_pointer(range).cast(), bytes as usize) }
    }

    unsafe fn commit(
        &self,
        address: DevicePtr,
        bytes: u64,
        _max_handle_bytes: u64,
    ) -> Result<bool> {
        if !self.budget.claim(bytes) {
            return Ok(false);
        }
        let committed = self.make_readable(address, bytes);
        if !matches!(committed, Ok(true)) {
            self.budget.unclaim(bytes);
            return committed;
        }
        if bytes >= PAGE_BYTES && self.access & PROT_WRITE != 0 {
            prefer_huge_pages(host_pointer(address).cast(), bytes as usize);
        }
        Ok(true)
    }

    unsafe fn decommit(&self, address: DevicePtr, bytes: u64, _to: Destination) -> Result<()> {
        let flags = ADDRESSES_ONLY | MAP_FIXED;
        // A new mapping at these addresses releases the pages in one step. Under strict accounting,
        // it also releases their commit charge.
        // SAFETY: by this function's contract, the replaced addresses lie in a reserved range, and
        // nothing uses them.
        let replaced = unsafe { map(host_pointer(address).cast(), bytes as usize, flags) };
        replaced.map_err(refused)?;
        self.budget.unclaim(bytes);
        Ok(())
    }
}

/// Advises the kernel to use huge pages. With one page fault for 2 MiB instead of 512 faults,
/// filling new memory is five times as fast. If no huge page is free, the kernel uses small pages.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn prefer_huge_pages(pages: *mut c_void, bytes: usize) {
    // SAFETY: this advice does not change the contents of memory.
    let _ = unsafe { libc::madvise(pages, bytes, libc::MADV_HUGEPAGE) };
}

/// Does nothing, because the platform chooses the page size itself.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn prefer_huge_pages(_pages: *mut c_void, _bytes: usize) {}

/// Unmaps a part of a mapping. The part may be empty.
///
/// # Safety
///
/// The part lies in a mapping that [`map`] created, and nothing uses the part.
unsafe fn unmap(begin: *mut c_void, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: by this function's contract, the part lies in a mapping that nothing uses.
    succeeded(unsafe { libc::munmap(begin, bytes) }).map_err(refused)
}

/// Maps addresses without access. Returns the first address.
///
/// # Safety
///
/// If `flags` has `MAP_FIXED`, the addresses lie in a mapping that this function created, and
/// nothing uses them.
unsafe fn map(at: *mut c_void, bytes: usize, flags: c_int) -> io::Result<*mut c_void> {
    // SAFETY: by this function's contract, a fixed mapping replaces only unused addresses.
    match unsafe { libc::mmap(at, bytes, PROT_NONE, flags, -1, 0) } {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        begin => Ok(begin),
    }
}

fn page_size() -> u64 {
    // SAFETY: the call reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).expect("the page size is positive")
}

fn succeeded(status: c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Converts an out-of-memory error of the kernel to `None`.
fn unless_exhausted<T>(outcome: io::Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN)) => Ok(None),
        Err(error) => Err(refused(error)),
    }
}

fn refused(error: io::Error) -> Error {
    Error::new(ErrorKind::Driver, format!("host: virtual memory: {error}")).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_BYTES;

    fn ranges(total_bytes: u64) -> (Ranges, Arc<Budget>) {
        let budget = Arc::new(Budget::new(total_bytes));
        (Ranges::new(&budget).unwrap(), budget)
    }

    fn fill(page: DevicePtr, value: u8) {
        // SAFETY: the page is committed, and no other test uses it.
        unsafe { host_pointer(page).write_bytes(value, PAGE as usize) };
    }

    fn last_byte(page: DevicePtr) -> u8 {
        // SAFETY: the page is committed, and no other test uses it.
        unsafe { host_pointer(page.offset(PAGE - 1)).read() }
    }

    #[test]
    fn pages_are_committed_and_decommitted_without_their_neighbours() {
        let (ranges, budget) = ranges(1 << 40);
        let range = ranges.reserve_range(64 * PAGE).unwrap().unwrap();
        assert!(range.0.is_multiple_of(PAGE));
        let pages = [3, 4, 5].map(|page| range.offset(page * PAGE));
        // SAFETY: each part lies in the range. `commit` gets uncommitted parts, and `decommit` gets
        // committed parts.
        unsafe {
            assert!(ranges.commit(pages[0], 3 * PAGE, PAGE).unwrap());
            for (value, page) in (1..).zip(pages) {
                fill(page, value);
            }
            ranges
                .decommit(pages[1], PAGE, Destination::Device)
                .unwrap();
            assert_eq!((last_byte(pages[0]), last_byte(pages[2])), (1, 3));
            assert!(ranges.commit(pages[1], PAGE, PAGE).unwrap());
            fill(pages[1], 7);
            assert_eq!(pages.map(last_byte), [1, 7, 3]);
            ranges
                .decommit(pages[0], 3 * PAGE, Destination::Device)
                .unwrap();
            assert!(budget.claim(1 << 40), "all is back");
            ranges.release_range(range, 64 * PAGE).unwrap();
        }
    }

    #[test]
    fn no_more_is_committed_than_the_machine_has() {
        let (ranges, _) = ranges(3 * PAGE);
        let range = ranges.reserve_range(8 * PAGE).unwrap().unwrap();
        // SAFETY: each part lies in the range. `commit` gets uncommitted parts, and `decommit` gets
        // committed parts.
        unsafe {
            assert!(ranges.commit(range, 2 * PAGE, PAGE).unwrap());
            assert!(
                !ranges
                    .commit(range.offset(2 * PAGE), 2 * PAGE, PAGE)
                    .unwrap()
            );
            assert!(ranges.commit(range.offset(2 * PAGE), PAGE, PAGE).unwrap());
            assert!(!ranges.commit(range.offset(3 * PAGE), PAGE, PAGE).unwrap());
            ranges.decommit(range, PAGE, Destination::Device).unwrap();
            assert!(ranges.commit(range.offset(3 * PAGE), PAGE, PAGE).unwrap());
            ranges.release_range(range, 8 * PAGE).unwrap();
        }
    }

    #[test]
    fn more_addresses_than_there_are_is_a_refusal() {
        let (ranges, _) = ranges(1 << 40);
        for bytes in [u64::MAX - PAGE + 1, 1 << 62, u64::MAX] {
            assert_eq!(ranges.reserve_range(bytes).unwrap(), None, "{bytes}");
        }
    }
}
