//! The driver of devices without data: it counts and charges memory, and runs no work.
//!
//! Each function has the signature of the driver's function, and counts in the current context of
//! the thread. A [`Context`](super::context::Context) makes itself current before each call.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_uint, c_ulonglong, c_void};
use std::ptr;

use cudarc::driver::sys::{
    CUcontext, CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle,
    CUresult,
};

use crate::costs::DriverLedger;
use crate::device::DevicePtr;
use crate::device::handles::{Handle, HandleDriver};
use crate::device::simulated::SimulatedDriver;
use crate::sync::Arc;
use crate::sync::plain::Mutex;

const DONE: c_uint = CUresult::CUDA_SUCCESS as c_uint;
const OUT_OF_MEMORY: c_uint = CUresult::CUDA_ERROR_OUT_OF_MEMORY as c_uint;

thread_local! {
    /// The current context, of this module's functions alone. It has no destructor.
    static CURRENT: Cell<*const Imitation> = const { Cell::new(ptr::null()) };
}

/// The context of a device without data.
#[derive(Debug)]
pub(super) struct Imitation {
    driver: Arc<SimulatedDriver>,
    lengths: Mutex<Lengths>,
    /// The number of elements that an operation finds whose result's length depends on data.
    pub(super) assumed_count: Option<usize>,
}

/// The lengths that the driver knows of what is released by its address or number alone.
#[derive(Debug, Default)]
struct Lengths {
    segments: HashMap<u64, u64>,
    handles: HashMap<u64, u64>,
    /// Page-locked memory of the host, by its address.
    pinned: HashMap<usize, Vec<u128>>,
}

impl Imitation {
    pub(super) fn new(
        ledger: DriverLedger,
        total_bytes: u64,
        assumed_count: Option<usize>,
    ) -> Self {
        Self {
            driver: Arc::new(SimulatedDriver::new(ledger, total_bytes)),
            lengths: Mutex::default(),
            assumed_count,
        }
    }

    /// Returns the ledger of the driver's calls so far.
    pub(super) fn ledger(&self) -> DriverLedger {
        self.driver.with_ledger(|ledger| ledger.clone())
    }
}

/// Calls `call` with the current context.
///
/// # Safety
///
/// The calling thread has entered a context, and holds it until this returns.
unsafe fn with_current<T>(call: impl FnOnce(&Imitation) -> T) -> T {
    // SAFETY: by this function's contract: entering a context makes its imitation the current one.
    call(unsafe { &*CURRENT.get() })
}

/// Writes a result that exists unless the device is out of memory.
///
/// # Safety
///
/// `target` must be writable.
unsafe fn output<T>(target: *mut T, value: Option<T>) -> c_uint {
    let Some(value) = value else {
        return OUT_OF_MEMORY;
    };
    // SAFETY: by this function's contract.
    unsafe { target.write(value) };
    DONE
}

pub(super) unsafe extern "C" fn get_current(context: *mut CUcontext) -> c_uint {
    // A device at the address of one that was dropped is another one: each call sets its own.
    // SAFETY: the caller's variable is writable.
    unsafe { output(context, Some(ptr::null_mut())) }
}

pub(super) unsafe extern "C" fn set_current(context: CUcontext) -> c_uint {
    CURRENT.set(context.cast_const().cast());
    DONE
}

pub(super) unsafe extern "C" fn allocate(address: *mut CUdeviceptr, bytes: usize) -> c_uint {
    // SAFETY: the caller has entered the context, and its variable is writable.
    unsafe {
        let allocated = with_current(|own| {
            let segment = own.driver.allocate(bytes as u64)?;
            own.lengths.lock().segments.insert(segment.0, bytes as u64);
            Some(segment.0)
        });
        output(address, allocated)
    }
}

pub(super) unsafe extern "C" fn free(address: CUdeviceptr) -> c_uint {
    // SAFETY: the caller has entered the context.
    unsafe {
        with_current(|own| {
            let bytes = own.lengths.lock().segments.remove(&address);
            bytes.inspect(|&bytes| own.driver.free(bytes));
        });
    }
    DONE
}

pub(super) unsafe extern "C" fn allocate_host(
    address: *mut *mut c_void,
    bytes: usize,
    _flags: c_uint,
) -> c_uint {
    let mut memory = vec![0_u128; bytes.div_ceil(size_of::<u128>())];
    let pointer = memory.as_mut_ptr();
    // SAFETY: the caller has entered the context, and its variable is writable.
    unsafe {
        with_current(|own| {
            let pinned = &mut own.lengths.lock().pinned;
            pinned.insert(pointer.addr(), memory);
        });
        output(address, Some(pointer.cast()))
    }
}

pub(super) unsafe extern "C" fn free_host(address: *mut c_void) -> c_uint {
    // SAFETY: the caller has entered the context.
    unsafe { with_current(|own| own.lengths.lock().pinned.remove(&address.addr())) };
    DONE
}

pub(super) unsafe extern "C" fn host_address(
    address: *mut CUdeviceptr,
    host: *mut c_void,
    _flags: c_uint,
) -> c_uint {
    // SAFETY: the caller's variable is writable.
    unsafe { output(address, Some(host.addr() as u64)) }
}

pub(super) unsafe extern "C" fn granularity(
    bytes: *mut usize,
    _properties: *const CUmemAllocationProp,
    _which: c_uint,
) -> c_uint {
    // SAFETY: the caller has entered the context, and its variable is writable.
    unsafe {
        let granularity_bytes = with_current(|own| own.driver.granularity_bytes());
        output(bytes, Some(granularity_bytes as usize))
    }
}

pub(super) unsafe extern "C" fn reserve_addresses(
    address: *mut CUdeviceptr,
    bytes: usize,
    alignment: usize,
    _wish: CUdeviceptr,
    _flags: c_ulonglong,
) -> c_uint {
    // SAFETY: the caller has entered the context, and its variable is writable.
    unsafe {
        let reserve = |own: &Imitation| {
            let range = own.driver.reserve_addresses(bytes as u64, alignment as u64);
            range.ok().flatten().map(|range| range.0)
        };
        output(address, with_current(reserve))
    }
}

pub(super) unsafe extern "C" fn free_addresses(address: CUdeviceptr, bytes: usize) -> c_uint {
    // SAFETY: the caller has entered the context; the range is the caller's, and nothing is mapped.
    unsafe {
        let _ = with_current(|own| own.driver.free_addresses(DevicePtr(address), bytes as u64));
    }
    DONE
}

pub(super) unsafe extern "C" fn create(
    handle: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    _properties: *const CUmemAllocationProp,
    _flags: c_ulonglong,
) -> c_uint {
    // SAFETY: the caller has entered the context, and its variable is writable.
    unsafe {
        let created = with_current(|own| {
            let handle = own.driver.create(bytes as u64).ok().flatten()?;
            own.lengths
                .lock()
                .handles
                .insert(handle.number, handle.bytes);
            Some(handle.number)
        });
        output(handle, created)
    }
}

pub(super) unsafe extern "C" fn release(number: CUmemGenericAllocationHandle) -> c_uint {
    // SAFETY: the caller has entered the context, and releases a handle that it uses no longer.
    unsafe {
        with_current(|own| {
            let bytes = own.lengths.lock().handles.remove(&number);
            bytes.map(|bytes| own.driver.release(Handle { number, bytes }))
        });
    }
    DONE
}

pub(super) unsafe extern "C" fn map(
    address: CUdeviceptr,
    bytes: usize,
    _offset: usize,
    number: CUmemGenericAllocationHandle,
    _flags: c_ulonglong,
) -> c_uint {
    let handle = Handle {
        number,
        bytes: bytes as u64,
    };
    // SAFETY: the caller has entered the context, and maps a handle of its own into its range.
    unsafe {
        let _ = with_current(|own| own.driver.map(DevicePtr(address), handle));
    }
    DONE
}

pub(super) unsafe extern "C" fn unmap(address: CUdeviceptr, bytes: usize) -> c_uint {
    // The driver knows a mapping by its address.
    let handle = Handle {
        number: 0,
        bytes: bytes as u64,
    };
    // SAFETY: the caller has entered the context, and unmaps a whole mapping.
    unsafe {
        let _ = with_current(|own| own.driver.unmap(DevicePtr(address), handle));
    }
    DONE
}

pub(super) unsafe extern "C" fn allow_access(
    address: CUdeviceptr,
    bytes: usize,
    _access: *const CUmemAccessDesc,
    _count: usize,
) -> c_uint {
    // SAFETY: the caller has entered the context; the part consists of whole mappings.
    unsafe {
        let _ = with_current(|own| own.driver.allow_access(DevicePtr(address), bytes as u64));
    }
    DONE
}
