//! The driver without this library: its stream-ordered allocator and its copies.

use std::ffi::{CStr, c_int};
use std::hint::black_box;
use std::ptr;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUresult,
    CUstream, CUstream_flags,
};
use serde_json::{Value, json};

use crate::allocations::Program;
use crate::{Outcome, Work};

fn check(what: &str, result: CUresult) -> Outcome<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        other => Err(format!("{what}: {other:?}").into()),
    }
}

/// Returns the name of the device, the version of the driver, and the total bytes of the device.
pub(crate) fn describe(ordinal: usize) -> Outcome<(String, i32, u64)> {
    let mut name = [0; 128];
    let (mut device, mut version, mut bytes) = (0, 0, 0);
    // SAFETY: the library has opened this device, so the driver is loaded and initialised. Each
    // pointer refers to a local variable of the required size.
    unsafe {
        check(
            "cuDeviceGet",
            sys::cuDeviceGet(&raw mut device, ordinal as c_int),
        )?;
        let capacity = name.len() as c_int;
        check(
            "cuDeviceGetName",
            sys::cuDeviceGetName(name.as_mut_ptr(), capacity, device),
        )?;
        check(
            "cuDriverGetVersion",
            sys::cuDriverGetVersion(&raw mut version),
        )?;
        check(
            "cuDeviceTotalMem",
            sys::cuDeviceTotalMem_v2(&raw mut bytes, device),
        )?;
    }
    // SAFETY: the driver terminates the name with a zero inside of the array.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Ok((name.to_string_lossy().into_owned(), version, bytes as u64))
}

/// A context of the device, with a separate stream and a separate memory pool.
struct Driver {
    device: CUdevice,
    stream: CUstream,
    pool: CUmemoryPool,
}

impl Driver {
    fn new(ordinal: usize) -> Outcome<Self> {
        let mut driver = Self {
            device: 0,
            stream: ptr::null_mut(),
            pool: ptr::null_mut(),
        };
        let mut context: CUcontext = ptr::null_mut();
        let mut threshold = u64::MAX;
        // SAFETY: the driver is initialised, and each pointer refers to a local variable. If a call
        // fails, earlier objects are not released, because the process ends soon.
        unsafe {
            check(
                "cuDeviceGet",
                sys::cuDeviceGet(&raw mut driver.device, ordinal as c_int),
            )?;
            let properties = pool_properties(driver.device);
            check(
                "cuDevicePrimaryCtxRetain",
                sys::cuDevicePrimaryCtxRetain(&raw mut context, driver.device),
            )?;
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
            let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            check(
                "cuStreamCreate",
                sys::cuStreamCreate(&raw mut driver.stream, flags),
            )?;
            check(
                "cuMemPoolCreate",
                sys::cuMemPoolCreate(&raw mut driver.pool, &raw const properties),
            )?;
            check(
                "cuMemPoolSetAttribute",
                sys::cuMemPoolSetAttribute(
                    driver.pool,
                    CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                    (&raw mut threshold).cast(),
                ),
            )?;
        }
        Ok(driver)
    }

    fn allocate(&self, bytes: usize) -> Outcome<CUdeviceptr> {
        let mut address = 0;
        // SAFETY: the pool and the stream belong to `self`, and are alive.
        let result = unsafe {
            sys::cuMemAllocFromPoolAsync(&raw mut address, bytes, self.pool, self.stream)
        };
        check("cuMemAllocFromPoolAsync", result).map(|()| address)
    }

    /// Frees a live block of [`allocate`](Self::allocate).
    fn free(&self, address: CUdeviceptr) -> Outcome<()> {
        // SAFETY: `address` is a live block of `allocate`, and only this stream has used it.
        check("cuMemFreeAsync", unsafe {
            sys::cuMemFreeAsync(address, self.stream)
        })
    }

    fn synchronize(&self) -> Outcome<()> {
        // SAFETY: the stream belongs to `self`, and is alive.
        check("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(self.stream)
        })
    }

    fn peak_reserved_bytes(&self) -> u64 {
        let mut bytes = 0_u64;
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
        // SAFETY: the pool belongs to `self`, and the attribute has 64 bits.
        let result =
            unsafe { sys::cuMemPoolGetAttribute(self.pool, attribute, (&raw mut bytes).cast()) };
        match result {
            CUresult::CUDA_SUCCESS => bytes,
            _ => 0,
        }
    }
}

fn pool_properties(device: CUdevice) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: device,
        },
        win32SecurityAttributes: ptr::null_mut(),
        maxSize: 0,
        usage: 0,
        reserved: [0; 54],
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SAFETY: `new` created the stream, the pool and the context reference. After the
        // synchronisation, no work uses the stream or the memory of the pool.
        unsafe {
            let _ = sys::cuStreamSynchronize(self.stream);
            let _ = sys::cuMemPoolDestroy(self.pool);
            let _ = sys::cuStreamDestroy_v2(self.stream);
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

pub(crate) struct DriverPairs {
    driver: Driver,
    bytes: usize,
}

impl DriverPairs {
    pub(crate) fn new(ordinal: usize, bytes: usize) -> Outcome<Self> {
        Ok(Self {
            driver: Driver::new(ordinal)?,
            bytes,
        })
    }
}

impl Work for DriverPairs {
    fn run(&mut self, times: u64) -> Outcome<Duration> {
        let start = Instant::now();
        for _ in 0..times {
            let address = self.driver.allocate(black_box(self.bytes))?;
            self.driver.free(black_box(address))?;
        }
        let elapsed = start.elapsed();
        // The next measurement must not include pending work of the device.
        self.driver.synchronize()?;
        Ok(elapsed)
    }
}

/// The random program, on the driver's allocator.
pub(crate) struct DriverRandom {
    driver: Driver,
    program: Program,
    live: Vec<CUdeviceptr>,
}

impl DriverRandom {
    pub(crate) fn new(ordinal: usize, most_live_bytes: u64, most_bytes: u64) -> Outcome<Self> {
        let program = Program::new(most_live_bytes, most_bytes);
        Ok(Self {
            driver: Driver::new(ordinal)?,
            live: vec![0; program.slots],
            program,
        })
    }
}

impl Work for DriverRandom {
    fn run(&mut self, times: u64) -> Outcome<Duration> {
        let start = Instant::now();
        for _ in 0..times {
            for &(slot, bytes) in &self.program.steps {
                match bytes {
                    0 => self.driver.free(self.live[slot])?,
                    bytes => self.live[slot] = self.driver.allocate(black_box(bytes))?,
                }
            }
        }
        let elapsed = start.elapsed();
        self.driver.synchronize()?;
        Ok(elapsed)
    }

    fn pieces(&self) -> u64 {
        self.program.steps.len() as u64
    }

    fn extra(&self) -> Value {
        json!({
            "peak_reserved_bytes": self.driver.peak_reserved_bytes(),
            "peak_live_bytes": self.program.peak_live_bytes,
        })
    }
}

/// Copies within device memory. Their bandwidth is the reference for other tasks.
pub(crate) struct Copies {
    driver: Driver,
    from: CUdeviceptr,
    to: CUdeviceptr,
    bytes: usize,
}

impl Copies {
    pub(crate) fn new(ordinal: usize, bytes: usize) -> Outcome<Self> {
        let driver = Driver::new(ordinal)?;
        let (from, to) = (driver.allocate(bytes)?, driver.allocate(bytes)?);
        // SAFETY: the two blocks have `bytes` bytes, and were allocated on this stream.
        let cleared = unsafe {
            check(
                "cuMemsetD8Async",
                sys::cuMemsetD8Async(from, 0, bytes, driver.stream),
            )
        };
        cleared.and_then(|()| driver.synchronize())?;
        Ok(Self {
            driver,
            from,
            to,
            bytes,
        })
    }
}

impl Work for Copies {
    fn run(&mut self, times: u64) -> Outcome<Duration> {
        let Self {
            from, to, bytes, ..
        } = *self;
        let start = Instant::now();
        for _ in 0..times {
            // SAFETY: the two blocks have `bytes` bytes, and live until `self` is dropped.
            let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.driver.stream) };
            check("cuMemcpyDtoDAsync", result)?;
        }
        self.driver.synchronize()?;
        Ok(start.elapsed())
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let _ = self.driver.free(self.from);
        let _ = self.driver.free(self.to);
    }
}
