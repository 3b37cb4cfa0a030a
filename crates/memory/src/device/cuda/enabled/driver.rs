//! The driver's function table, looked up once.
//!
//! cudarc looks up each function at its first call, and panics if the function is missing. cudarc
//! also converts results to a Rust enum. This enum may lack results of a newer driver. So this
//! module has its own table, and a result is an integer. cudarc locates the library and declares
//! the types.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec,
    CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemPoolProps,
    CUmemoryPool, CUmodule, CUstream,
};

use super::error::{DriverError, DriverResult};
use crate::error::{Error, ErrorCode, Result};
use crate::sync::plain::Mutex;

/// The oldest supported driver version: CUDA 12.0, in the encoding of `cuDriverGetVersion`.
const LEAST_VERSION: c_int = 12_000;

macro_rules! functions {
    ($($method:ident = $symbol:ident($($argument:ident: $type:ty),*);)*) => {
        /// The driver functions, each named without the prefix `cu` and the version.
        #[derive(Debug)]
        pub(super) struct Driver {
            $($method: unsafe extern "C" fn($($type),*) -> c_uint,)*
        }

        /// The driver of devices without data, whose functions do nothing.
        static IMITATED: Driver = Driver {
            $($method: {
                unsafe extern "C" fn succeed($(_: $type),*) -> c_uint {
                    0
                }
                succeed
            },)*
        };

        impl Driver {
            fn look_up() -> Result<Self> {
                // SAFETY: `load` has checked that the library is present, so loading does not
                // panic.
                let library = unsafe { sys::culib() };
                Ok(Self {
                    $($method: {
                        let symbol = concat!(stringify!($symbol), "\0");
                        // SAFETY: the type is what the driver's header declares for this name.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($type),*) -> c_uint>(symbol.as_bytes())
                        };
                        *found.map_err(|_| lacks(stringify!($symbol)))?
                    },)*
                })
            }

            $(
                /// # Safety
                ///
                /// The conditions of the driver's documentation for the function must hold.
                #[allow(clippy::too_many_arguments, reason = "as the driver's function has")]
                pub(super) unsafe fn $method(&self, $($argument: $type),*) -> DriverResult {
                    // SAFETY: by this function's contract.
                    let code = unsafe { (self.$method)($($argument),*) };
                    DriverError::check(stringify!($symbol), code)
                }
            )*
        }
    };
}

functions! {
    init = cuInit(flags: c_uint);
    driver_get_version = cuDriverGetVersion(version: *mut c_int);
    get_error_name = cuGetErrorName(code: c_uint, text: *mut *const c_char);
    get_error_string = cuGetErrorString(code: c_uint, text: *mut *const c_char);
    device_get_count = cuDeviceGetCount(count: *mut c_int);
    device_get = cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    device_get_attribute = cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: CUdevice);
    device_total_mem = cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    primary_context_retain = cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    context_get_current = cuCtxGetCurrent(context: *mut CUcontext);
    context_set_current = cuCtxSetCurrent(context: CUcontext);
    mem_alloc = cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    mem_free = cuMemFree_v2(address: CUdeviceptr);
    mem_host_alloc = cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    mem_free_host = cuMemFreeHost(address: *mut c_void);
    mem_host_get_device_pointer = cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, host: *mut c_void, flags: c_uint);
    mem_get_allocation_granularity = cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const CUmemAllocationProp, which: c_uint);
    mem_address_reserve = cuMemAddressReserve(address: *mut CUdeviceptr, bytes: usize, alignment: usize, wish: CUdeviceptr, flags: c_ulonglong);
    mem_address_free = cuMemAddressFree(address: CUdeviceptr, bytes: usize);
    mem_create = cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp, flags: c_ulonglong);
    mem_release = cuMemRelease(handle: CUmemGenericAllocationHandle);
    mem_map = cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong);
    mem_unmap = cuMemUnmap(address: CUdeviceptr, bytes: usize);
    mem_set_access = cuMemSetAccess(address: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize);
    mem_pool_create = cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
    mem_pool_destroy = cuMemPoolDestroy(pool: CUmemoryPool);
    mem_pool_set_attribute = cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    mem_pool_get_attribute = cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    mem_pool_trim_to = cuMemPoolTrimTo(pool: CUmemoryPool, keep_bytes: usize);
    mem_alloc_from_pool_async = cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    mem_free_async = cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    copy_to_device = cuMemcpyHtoDAsync_v2(target: CUdeviceptr, source: *const c_void, bytes: usize, stream: CUstream);
    copy_to_host = cuMemcpyDtoHAsync_v2(target: *mut c_void, source: CUdeviceptr, bytes: usize, stream: CUstream);
    copy_within_device = cuMemcpyDtoDAsync_v2(target: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream);
    set_d8 = cuMemsetD8Async(target: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream);
    set_d16 = cuMemsetD16Async(target: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream);
    set_d32 = cuMemsetD32Async(target: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);
    set_d2_d32 = cuMemsetD2D32Async(target: CUdeviceptr, pitch_bytes: usize, value: c_uint, width: usize, height: usize, stream: CUstream);
    stream_create = cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    stream_destroy = cuStreamDestroy_v2(stream: CUstream);
    stream_synchronize = cuStreamSynchronize(stream: CUstream);
    stream_wait_event = cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    stream_begin_capture = cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint);
    stream_end_capture = cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    graph_instantiate = cuGraphInstantiateWithFlags(executable: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
    graph_launch = cuGraphLaunch(executable: CUgraphExec, stream: CUstream);
    graph_destroy = cuGraphDestroy(graph: CUgraph);
    graph_exec_destroy = cuGraphExecDestroy(executable: CUgraphExec);
    event_create = cuEventCreate(event: *mut CUevent, flags: c_uint);
    event_destroy = cuEventDestroy_v2(event: CUevent);
    event_record = cuEventRecord(event: CUevent, stream: CUstream);
    event_elapsed_time = cuEventElapsedTime(milliseconds: *mut f32, first: CUevent, last: CUevent);
    event_query = cuEventQuery(event: CUevent);
    event_synchronize = cuEventSynchronize(event: CUevent);
    module_load_data = cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    module_unload = cuModuleUnload(module: CUmodule);
    module_get_function = cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    func_set_attribute = cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int);
    launch_kernel = cuLaunchKernel(function: CUfunction, blocks_x: c_uint, blocks_y: c_uint, blocks_z: c_uint, threads_x: c_uint, threads_y: c_uint, threads_z: c_uint, shared_bytes: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void);
}

/// The loaded driver; `None` until a driver is found. A loaded driver is never unloaded.
static LOADED: Mutex<Option<&'static Driver>> = Mutex::new(None);

impl Driver {
    /// Returns the driver, loaded and initialised.
    ///
    /// A failed search is not cached: another search is cheap, and a driver may be installed
    /// meanwhile.
    pub(super) fn get() -> Result<&'static Self> {
        let driver = Self::load()?;
        let mut version = 0;
        // SAFETY: `version` is writable, and `cuDriverGetVersion` may be called at any time.
        unsafe { driver.driver_get_version(&mut version) }
            .map_err(|failure| failure.error("querying the version of the CUDA driver"))?;
        if version < LEAST_VERSION {
            return Err(too_old(version));
        }
        // SAFETY: `cuInit` may be called at any time.
        unsafe { driver.init(0) }
            .map_err(|failure| failure.error("initialising the CUDA driver"))?;
        Ok(driver)
    }

    /// Returns the driver of devices without data, which needs no library.
    pub(super) fn imitated() -> &'static Self {
        &IMITATED
    }

    /// Returns the newest CUDA version that the driver supports, in the encoding of
    /// `cuDriverGetVersion`: 12040 for 12.4. If the driver does not report its version, returns 0.
    pub(super) fn version(&self) -> c_int {
        let mut version = 0;
        // SAFETY: `version` is writable, and this function may be called at any time.
        let outcome = unsafe { self.driver_get_version(&mut version) };
        outcome.map_or(0, |()| version)
    }

    pub(super) fn loaded() -> Option<&'static Self> {
        *LOADED.lock()
    }

    fn load() -> Result<&'static Self> {
        let mut loaded = LOADED.lock();
        if let Some(driver) = *loaded {
            return Ok(driver);
        }
        // SAFETY: loading the driver's library runs its initialisers, which NVIDIA supports at any
        // time.
        if !unsafe { sys::is_culib_present() } {
            let text =
                "no CUDA driver was found: install NVIDIA's driver (libcuda.so.1, nvcuda.dll)";
            return Err(Error::new(ErrorCode::Library, text));
        }
        let driver: &'static Self = Box::leak(Box::new(Self::look_up()?));
        *loaded = Some(driver);
        Ok(driver)
    }

    pub(super) fn count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: `count` is writable, and the driver is initialised.
        unsafe { self.device_get_count(&mut count) }
            .map_err(|failure| failure.error("counting the CUDA devices"))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

fn lacks(symbol: &str) -> Error {
    let text = format!(
        "the CUDA driver has no function {symbol}: update NVIDIA's driver to one for CUDA {} or later",
        version_text(LEAST_VERSION)
    );
    Error::new(ErrorCode::Library, text)
}

fn too_old(version: c_int) -> Error {
    let text = format!(
        "the CUDA driver is for CUDA {}, and {} or later is needed: update NVIDIA's driver",
        version_text(version),
        version_text(LEAST_VERSION)
    );
    Error::new(ErrorCode::Library, text)
}

pub(super) fn version_text(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_lacks_is_named_with_what_to_install() {
        let text = lacks("cuMemMap").to_string();
        assert!(
            text.contains("cuMemMap") && text.contains("12.0") && text.contains("update"),
            "{text}"
        );
        let text = too_old(11_080).to_string();
        assert!(
            text.contains("CUDA 11.8,") && text.contains("12.0"),
            "{text}"
        );
    }
}
