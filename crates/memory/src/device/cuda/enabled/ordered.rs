//! A memory pool of the driver: reservations and releases in stream order.

use std::ffi::{c_int, c_uint};
use std::ptr;

use cudarc::driver::sys::{
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute, CUmemPoolHandle_st, CUmemPoolProps,
};

use super::Cuda;
use super::backend::check_alignment;
use super::context::{Context, RawHandle};
use super::error::unless_exhausted;
use crate::device::{DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;

/// A memory pool that only this library uses. The device's default pool is shared with other code.
#[derive(Debug)]
pub struct OrderedPool {
    context: Arc<Context>,
    raw: RawHandle<CUmemPoolHandle_st>,
}

impl Cuda {
    /// Creates a pool that keeps released memory until it is trimmed. By default, the driver
    /// returns a pool's unused memory to the device at every synchronisation.
    pub fn new_pool(&self) -> Result<OrderedPool> {
        let context = &self.context;
        if !context.has_pools {
            let text = format!(
                "{}: the driver has no memory pools for this device",
                context.name()
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let properties = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: CUmemLocation {
                type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: context.device as c_int,
            },
            win32SecurityAttributes: ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let mut pool = OrderedPool {
            context: Arc::clone(context),
            raw: RawHandle(ptr::null_mut()),
        };
        // SAFETY: the handle is writable, and the properties are valid.
        context.run("creating a memory pool", |driver| unsafe {
            driver.mem_pool_create(&mut pool.raw.0, &properties)
        })?;
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as c_uint;
        let mut unlimited = u64::MAX;
        // SAFETY: the pool was just created, and the attribute is a 64-bit integer.
        context.run("configuring a memory pool", |driver| unsafe {
            driver.mem_pool_set_attribute(pool.raw.0, threshold, (&raw mut unlimited).cast())
        })?;
        Ok(pool)
    }

    /// Reserves memory for later work of `stream`. Returns `None` if the device is out of memory.
    pub fn reserve_ordered(
        &self,
        pool: &OrderedPool,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<DevicePtr>> {
        let Ok(length) = usize::try_from(bytes) else {
            return Ok(None);
        };
        let reserved =
            self.streams
                .run(stream, "reserving memory from a pool", |driver, raw| {
                    let mut address = 0;
                    // SAFETY: `address` is writable. Pool and stream belong to this context and
                    // live.
                    let outcome = unsafe {
                        driver.mem_alloc_from_pool_async(&mut address, length, pool.raw.0, raw)
                    };
                    unless_exhausted(outcome.map(|()| DevicePtr(address)))
                })?;
        check_alignment(self, reserved, |address| {
            self.release_ordered(address, stream)
        })
    }

    /// Releases memory of [`reserve_ordered`](Self::reserve_ordered) once the work submitted to
    /// `stream` so far is done.
    pub fn release_ordered(&self, address: DevicePtr, stream: StreamId) -> Result<()> {
        let submission = self.streams.submit_to(stream)?;
        // SAFETY: the caller passes an address that a pool reserved, and submits no more work on
        // it.
        self.context
            .release("releasing memory to a pool", |driver| unsafe {
                driver.mem_free_async(address.0, submission.raw())
            })
    }

    /// Returns the bytes that a pool has reserved from the device, in use or not.
    pub fn pool_bytes(&self, pool: &OrderedPool) -> Result<u64> {
        let reserved = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT as c_uint;
        let mut bytes = 0u64;
        self.context.run("querying a memory pool", |driver| {
            let value = (&raw mut bytes).cast();
            // SAFETY: the pool lives, and the attribute is a 64-bit integer.
            unsafe { driver.mem_pool_get_attribute(pool.raw.0, reserved, value) }
        })?;
        Ok(bytes)
    }

    /// Releases unused memory of a pool, down to `keep_bytes` reserved bytes.
    pub fn trim_pool(&self, pool: &OrderedPool, keep_bytes: u64) -> Result<()> {
        let keep_bytes = usize::try_from(keep_bytes).unwrap_or(usize::MAX);
        // SAFETY: the pool lives.
        self.context.run("trimming a memory pool", |driver| unsafe {
            driver.mem_pool_trim_to(pool.raw.0, keep_bytes)
        })
    }
}

impl Drop for OrderedPool {
    fn drop(&mut self) {
        if self.raw.0.is_null() {
            return;
        }
        // SAFETY: nothing else has the handle. The driver keeps memory that is not released yet.
        self.context
            .discard(|driver| unsafe { driver.mem_pool_destroy(self.raw.0) });
    }
}
