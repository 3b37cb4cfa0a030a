//! Ranges by `mmap`: a mapping without access reserves addresses; lifting the protection commits a
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

/// Flags with which the kernel does not account a range as memory.
const ADDRESSES_ONLY: c_int = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

/// The ranges of a host device; committed pages count in its budget.
#[derive(Debug)]
pub(in crate::device::host) struct Ranges {
    budget: Arc<Budget>,
    /// The protection of a committed page.
    access: c_int,
}

impl Ranges {
    /// Creates ranges whose pages count in `budget`.
    pub(in crate::device::host) fn new(budget: &Arc<Budget>) -> Option<Self> {
        Some(Self {
            budget: Arc::clone(budget),
            access: PROT_READ | PROT_WRITE,
        })
    }

    /// Creates ranges whose pages can be read, as zeros, and not written. The pages have no memory
    /// of their own, because the kernel maps its page of zeros.
    pub(in crate::device::host) fn without_data(budget: &Arc<Budget>) -> Option<Self> {
        Some(Self {
            budget: Arc::clone(budget),
            access: PROT_READ,
        })
    }

    /// Lifts the protection of a part of a range. Returns false if the kernel is out of memory.
    pub(in crate::device::host) fn make_readable(
        &self,
        address: DevicePtr,
        bytes: u64,
    ) -> Result<bool> {
        let pages = host_pointer(address).cast();
        // SAFETY: a part of a mapping of ours, which becomes accessible.
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
        // SAFETY: a new mapping, at an address of the kernel's choice, touches no other.
        let begin = unsafe { map(ptr::null_mut(), mapped, ADDRESSES_ONLY) };
        let Some(begin) = unless_exhausted(begin)? else {
            return Ok(None);
        };
        // The kernel aligns to its own pages: unmap the addresses outside the aligned range.
        let before = begin.align_offset(PAGE_BYTES as usize);
        let range = begin.wrapping_byte_add(before);
        // SAFETY: both parts lie in the new mapping, which nothing uses yet. The mapping is one
        // page longer than the range, and `before` is less than a page.
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
        // SAFETY: by this function's contract, this is a mapping of ours that nothing uses.
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
        // A new mapping in place releases the pages and, under strict accounting, their commit
        // charge, in one step.
        // SAFETY: the replaced addresses lie in a mapping of ours that nothing uses, by this
        // function's contract.
        let replaced = unsafe { map(host_pointer(address).cast(), bytes as usize, flags) };
        replaced.map_err(refused)?;
        self.budget.unclaim(bytes);
        Ok(())
    }
}

/// Advises the kernel to use huge pages. One fault for 2 MiB, instead of 512 faults, makes filling
/// new memory five times as fast. If the kernel has no huge page, it uses small pages.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn prefer_huge_pages(pages: *mut c_void, bytes: usize) {
    // SAFETY: this advice has no visible effect.
    let _ = unsafe { libc::madvise(pages, bytes, libc::MADV_HUGEPAGE) };
}

/// Does nothing: the platform decides by itself.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn prefer_huge_pages(_pages: *mut c_void, _bytes: usize) {}

/// Unmaps a part, which may be empty.
///
/// # Safety
///
/// The part lies in a mapping of ours that nothing uses.
unsafe fn unmap(begin: *mut c_void, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: by this function's contract.
    succeeded(unsafe { libc::munmap(begin, bytes) }).map_err(refused)
}

/// Maps addresses without access. Returns their begin.
///
/// # Safety
///
/// With `MAP_FIXED`, the addresses lie in a mapping of ours that nothing uses.
unsafe fn map(at: *mut c_void, bytes: usize, flags: c_int) -> io::Result<*mut c_void> {
    // SAFETY: by this function's contract.
    match unsafe { libc::mmap(at, bytes, PROT_NONE, flags, -1, 0) } {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        begin => Ok(begin),
    }
}

fn page_size() -> u64 {
    // SAFETY: the call reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).expect("every system has pages")
}

/// Returns the error of a call that returned `status`.
fn succeeded(status: c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns `None` if the kernel is out of memory.
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
        // SAFETY: as above.
        unsafe { host_pointer(page.offset(PAGE - 1)).read() }
    }

    #[test]
    fn pages_are_committed_and_decommitted_without_their_neighbours() {
        let (ranges, budget) = ranges(1 << 40);
        let range = ranges.reserve_range(64 * PAGE).unwrap().unwrap();
        assert!(range.0.is_multiple_of(PAGE));
        let pages = [3, 4, 5].map(|page| range.offset(page * PAGE));
        // SAFETY: every part below lies in the range, and is committed or not as it has to be.
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
        // SAFETY: as above.
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
