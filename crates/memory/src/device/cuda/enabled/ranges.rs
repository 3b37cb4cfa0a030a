//! Virtual memory management by the driver: the calls that [`Handles`] makes.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1,
    CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

use super::context::Context;
use super::driver::Driver;
use super::error::{DriverResult, unless_exhausted};
use crate::device::DevicePtr;
use crate::device::handles::{Handle, HandleDriver, Handles};
use crate::error::Result;
use crate::sync::Arc;

/// The driver of a context as a [`HandleDriver`].
#[derive(Debug)]
pub(super) struct DriverHandles {
    context: Arc<Context>,
    granularity_bytes: u64,
}

/// Returns the address ranges of a device that supports virtual memory.
pub(super) fn ranges(context: &Arc<Context>) -> Result<Handles<DriverHandles>> {
    let properties = properties(context);
    let which = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM as c_uint;
    let mut granularity_bytes = 0;
    // SAFETY: `granularity_bytes` is writable, and the properties are valid.
    context.run("querying the page size", |driver| unsafe {
        driver.mem_get_allocation_granularity(&mut granularity_bytes, &properties, which)
    })?;
    Ok(Handles::new(DriverHandles {
        context: Arc::clone(context),
        granularity_bytes: (granularity_bytes as u64).next_power_of_two().max(512),
    }))
}

impl DriverHandles {
    /// Runs a call that allocates device memory. Returns `None` if the device is out of memory.
    fn commit<T>(
        &self,
        call: impl FnOnce(&'static Driver) -> DriverResult<T>,
    ) -> Result<Option<T>> {
        let call = |driver| unless_exhausted(call(driver));
        self.context.run("committing memory", call)
    }
}

impl HandleDriver for DriverHandles {
    fn granularity_bytes(&self) -> u64 {
        self.granularity_bytes
    }

    fn reserve_addresses(&self, bytes: u64, alignment_bytes: u64) -> Result<Option<DevicePtr>> {
        let Ok(length) = usize::try_from(bytes) else {
            return Ok(None);
        };
        let alignment = alignment_bytes as usize;
        self.context.run("reserving an address range", |driver| {
            let mut address = 0;
            // SAFETY: `address` is writable.
            let outcome =
                unsafe { driver.mem_address_reserve(&mut address, length, alignment, 0, 0) };
            unless_exhausted(outcome.map(|()| DevicePtr(address)))
        })
    }

    unsafe fn free_addresses(&self, address: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: by this function's contract.
        self.context
            .release("releasing an address range", |driver| unsafe {
                driver.mem_address_free(address.0, bytes as usize)
            })
    }

    fn create(&self, bytes: u64) -> Result<Option<Handle>> {
        let properties = properties(&self.context);
        self.commit(|driver| {
            let mut number = 0;
            // SAFETY: `number` is writable, and the properties are valid.
            unsafe { driver.mem_create(&mut number, bytes as usize, &properties, 0) }?;
            Ok(Handle { number, bytes })
        })
    }

    unsafe fn map(&self, address: DevicePtr, handle: Handle) -> Result<bool> {
        // SAFETY: by this function's contract.
        let mapped = self.commit(|driver| unsafe {
            driver.mem_map(address.0, handle.bytes as usize, 0, handle.number, 0)
        });
        mapped.map(|mapped| mapped.is_some())
    }

    unsafe fn allow_access(&self, address: DevicePtr, bytes: u64) -> Result<bool> {
        let access = access(&self.context);
        // SAFETY: by this function's contract. The count of descriptions is 1.
        let allowed = self.commit(|driver| unsafe {
            driver.mem_set_access(address.0, bytes as usize, &access, 1)
        });
        allowed.map(|allowed| allowed.is_some())
    }

    unsafe fn unmap(&self, address: DevicePtr, handle: Handle) -> Result<()> {
        // SAFETY: by this function's contract.
        self.context
            .release("decommitting memory", |driver| unsafe {
                driver.mem_unmap(address.0, handle.bytes as usize)
            })
    }

    unsafe fn release(&self, handle: Handle) -> Result<()> {
        // SAFETY: by this function's contract.
        self.context
            .release("decommitting memory", |driver| unsafe {
                driver.mem_release(handle.number)
            })
    }
}

fn location(context: &Context) -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: context.device as c_int,
    }
}

/// Returns the properties of device memory that is not shared with other processes.
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

fn access(context: &Context) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: location(context),
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    }
}
