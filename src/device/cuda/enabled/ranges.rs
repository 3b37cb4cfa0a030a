//! Ranges by the driver's virtual memory management.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1,
    CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

use super::context::Context;
use super::driver::Driver;
use super::error::DriverResult;
use crate::device::{DevicePtr, VirtualMemory};
use crate::error::Result;
use crate::sync::Arc;
use crate::sync::plain::Mutex;

/// The preferred page size.
const PAGE_BYTES: u64 = 2 << 20;

/// The ranges of a device.
///
/// The driver unmaps only what was mapped as one, so pages are mapped one by one. The memory handle of a page
/// is released as soon as it is mapped: from then on the mapping keeps the memory, and unmapping frees it.
///
/// Invariant: `mapped` lists the committed pages of every range, by address. Pages that the driver failed to
/// unmap stay listed, and are reused as they are.
#[derive(Debug)]
pub(super) struct Ranges {
    context: Arc<Context>,
    /// The driver's mapping granularity.
    granularity_bytes: u64,
    mapped: Mutex<BTreeSet<u64>>,
}

impl Ranges {
    /// The ranges of a device that supports them.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        let properties = properties(context);
        let which = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM as c_uint;
        let mut granularity_bytes = 0;
        // SAFETY: `granularity_bytes` is writable, and the properties are valid.
        context.run("querying the page size", |driver| unsafe {
            driver.mem_get_allocation_granularity(&mut granularity_bytes, &properties, which)
        })?;
        Ok(Self {
            context: Arc::clone(context),
            granularity_bytes: (granularity_bytes as u64).next_power_of_two().max(512),
            mapped: Mutex::default(),
        })
    }

    /// Maps the pages that are not mapped yet, and lists them in `fresh`.
    fn map(
        &self,
        driver: &Driver,
        mapped: &mut BTreeSet<u64>,
        (address, bytes): (u64, u64),
        fresh: &mut Vec<u64>,
    ) -> DriverResult {
        let properties = properties(&self.context);
        let step = self.granularity_bytes;
        for page in (address..address + bytes).step_by(step as usize) {
            if mapped.contains(&page) {
                continue;
            }
            let mut handle = 0;
            // SAFETY: `handle` is writable, and the properties are valid.
            unsafe { driver.mem_create(&mut handle, step as usize, &properties, 0) }?;
            // SAFETY: the page lies in a reserved range by the contract of `commit`, and is not mapped,
            // as checked above.
            let outcome = unsafe { driver.mem_map(page, step as usize, 0, handle, 0) };
            if outcome.is_ok() {
                mapped.insert(page);
                fresh.push(page);
            }
            // SAFETY: the handle was made above, and this is the only handle.
            let released = unsafe { driver.mem_release(handle) };
            outcome.and(released)?;
        }
        let access = access(&self.context);
        // SAFETY: every page of the part is mapped by now, and `access` is one description.
        unsafe { driver.mem_set_access(address, bytes as usize, &access, 1) }
    }

    /// Unmaps pages; returns the first failure after trying all.
    fn unmap(
        &self,
        driver: &Driver,
        mapped: &mut BTreeSet<u64>,
        pages: impl IntoIterator<Item = u64>,
    ) -> DriverResult {
        let mut outcome = Ok(());
        for page in pages {
            // SAFETY: the page was mapped as one, and nothing uses it: by the contract of the callers.
            let unmapped = unsafe { driver.mem_unmap(page, self.granularity_bytes as usize) };
            if unmapped.is_ok() {
                mapped.remove(&page);
            }
            outcome = outcome.and(unmapped);
        }
        outcome
    }
}

fn location(context: &Context) -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: context.device as c_int,
    }
}

/// Device memory that is not shared with other processes.
fn properties(context: &Context) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: location(context),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// Read and write access for the device.
fn access(context: &Context) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: location(context),
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    }
}

impl VirtualMemory for Ranges {
    fn page_bytes(&self) -> u64 {
        PAGE_BYTES.max(self.granularity_bytes)
    }

    fn min_page_bytes(&self) -> u64 {
        self.granularity_bytes
    }

    fn reserve_range(&self, bytes: u64) -> Result<Option<DevicePtr>> {
        let Ok(length) = usize::try_from(bytes) else {
            return Ok(None);
        };
        let alignment = self.page_bytes() as usize;
        self.context.run("reserving an address range", |driver| {
            let mut address = 0;
            // SAFETY: `address` is writable.
            let outcome =
                unsafe { driver.mem_address_reserve(&mut address, length, alignment, 0, 0) };
            match outcome {
                Ok(()) => Ok(Some(DevicePtr(address))),
                Err(failure) if failure.is_out_of_memory() => Ok(None),
                Err(failure) => Err(failure),
            }
        })
    }

    unsafe fn release_range(&self, range: DevicePtr, bytes: u64) -> Result<()> {
        let mut mapped = self.mapped.lock();
        let addresses = range.0..range.0 + bytes;
        self.context
            .release("releasing an address range", |driver| {
                let pages: Vec<u64> = mapped.range(addresses.clone()).copied().collect();
                if self.unmap(driver, &mut mapped, pages).is_err() {
                    // Retry what is left: nobody comes back for it.
                    let pages: Vec<u64> = mapped.range(addresses).copied().collect();
                    self.unmap(driver, &mut mapped, pages)?;
                }
                // SAFETY: the range was reserved with this length and nothing uses it, by this function's
                // contract; nothing of it is mapped any more.
                unsafe { driver.mem_address_free(range.0, bytes as usize) }
            })
    }

    unsafe fn commit(&self, address: DevicePtr, bytes: u64) -> Result<bool> {
        let mut mapped = self.mapped.lock();
        self.context.run("committing memory", |driver| {
            let mut fresh = Vec::new();
            let part = (address.0, bytes);
            let Err(failure) = self.map(driver, &mut mapped, part, &mut fresh) else {
                return Ok(true);
            };
            let undone = self.unmap(driver, &mut mapped, fresh);
            if failure.is_out_of_memory() {
                return undone.map(|()| false);
            }
            Err(failure)
        })
    }

    unsafe fn decommit(&self, address: DevicePtr, bytes: u64) -> Result<()> {
        let mut mapped = self.mapped.lock();
        let pages: Vec<u64> = mapped
            .range(address.0..address.0 + bytes)
            .copied()
            .collect();
        self.context.release("decommitting memory", |driver| {
            self.unmap(driver, &mut mapped, pages)
        })
    }
}
