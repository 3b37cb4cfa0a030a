//! The context of a device ordinal, shared by all [`Cuda`](super::Cuda) values of the ordinal.
//!
//! A device without data has a context over an imitated driver. The functions of this driver do
//! nothing. `SimulatedDriver` models the device's segments and pages. The driver is the lowest
//! layer at which a GPU can be imitated. So all code above the driver also runs with a real GPU. No
//! operation needs a separate model of its memory use.

use std::ffi::{c_int, c_uint};
use std::ptr;

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute, CUstream, CUstream_st};

use super::captures::CaptureGate;
use super::driver::Driver;
use super::error::{DriverResult, ignore_at_exit};
use super::kernels::Kernels;
use crate::device::DeviceId;
use crate::device::simulated::SimulatedDriver;
use crate::error::{Error, ErrorCode, Result};
use crate::sync::Arc;
use crate::sync::plain::Mutex;

/// The number of multiprocessors of a device without data, as on an H100.
const IMITATED_MULTIPROCESSORS: u32 = 132;
const IMITATED_CAPABILITY: (u32, u32) = (9, 0);
const IMITATED_SHARED_BYTES: u32 = 227 << 10;

/// A driver handle, usable by any thread.
#[derive(Debug)]
pub(super) struct RawHandle<T>(pub(super) *mut T);

impl<T> Clone for RawHandle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RawHandle<T> {}

// SAFETY: the driver's handles are opaque values. Any thread may pass them to the driver. The
// driver takes its own locks.
unsafe impl<T> Send for RawHandle<T> {}
// SAFETY: as for `Send`.
unsafe impl<T> Sync for RawHandle<T> {}

/// A primary context, retained until the process ends. Other libraries share the context. The
/// kernels loaded in the context serve every later device of the ordinal.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) driver: &'static Driver,
    pub(super) ordinal: usize,
    pub(super) device: CUdevice,
    raw: RawHandle<cudarc::driver::sys::CUctx_st>,
    pub(super) total_bytes: u64,
    pub(super) multiprocessors: u32,
    /// The compute capability: major and minor.
    pub(super) capability: (u32, u32),
    /// The maximum shared memory of a block, in bytes.
    pub(super) shared_bytes: u32,
    pub(super) has_ranges: bool,
    pub(super) has_pools: bool,
    pub(super) kernels: Kernels,
    pub(super) captures: CaptureGate,
    pub(super) imitation: Option<Imitation>,
    /// Streams of dropped devices. Foreign code may still have the handles of these streams.
    pub(super) exported_streams: Mutex<Vec<RawHandle<CUstream_st>>>,
}

/// The memory of a device without data: addresses without contents.
#[derive(Debug)]
pub(super) struct Imitation {
    pub(super) driver: Arc<SimulatedDriver>,
    /// The assumed length of each result whose length depends on data.
    pub(super) assumed_count: Option<usize>,
}

impl Context {
    /// Returns the process's context of an ordinal.
    pub(super) fn of(ordinal: usize) -> Result<Arc<Self>> {
        static CONTEXTS: Mutex<Vec<Arc<Context>>> = Mutex::new(Vec::new());
        let mut contexts = CONTEXTS.lock();
        if let Some(known) = contexts.iter().find(|context| context.ordinal == ordinal) {
            return Ok(Arc::clone(known));
        }
        let context = Self::open(ordinal).map_err(|error| error.of(&named(ordinal)))?;
        let context = Arc::new(context);
        contexts.push(Arc::clone(&context));
        Ok(context)
    }

    fn open(ordinal: usize) -> Result<Self> {
        let driver = Driver::get()?;
        let count = driver.count()?;
        let Some(number) = c_int::try_from(ordinal).ok().filter(|_| ordinal < count) else {
            return Err(out_of_range(count));
        };
        let mut device = 0;
        // SAFETY: `device` is writable, and `number` is below the driver's count.
        unsafe { driver.device_get(&mut device, number) }
            .map_err(|failure| failure.error("looking up the device"))?;
        let attribute = |attribute: CUdevice_attribute| {
            let mut value = 0;
            // SAFETY: `value` is writable, and the driver returned `device`.
            unsafe { driver.device_get_attribute(&mut value, attribute as c_uint, device) }
                .map_err(|failure| failure.error("querying the device"))?;
            Ok::<_, Error>(u32::try_from(value).unwrap_or(0))
        };
        use CUdevice_attribute as Attribute;
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let mut total_bytes = 0;
        // SAFETY: `total_bytes` is writable, and the driver returned `device`.
        unsafe { driver.device_total_mem(&mut total_bytes, device) }
            .map_err(|failure| failure.error("querying the total memory"))?;
        let mut context = Self {
            driver,
            ordinal,
            device,
            raw: RawHandle(ptr::null_mut()),
            total_bytes: total_bytes as u64,
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            capability,
            shared_bytes: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            has_ranges: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            )? != 0,
            has_pools: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0,
            kernels: Kernels::new(capability),
            captures: CaptureGate::default(),
            imitation: None,
            exported_streams: Mutex::default(),
        };
        // This step is the last step that can fail, because a later failure would not release the
        // context.
        // SAFETY: the field is writable, and the driver returned `device`.
        unsafe { driver.primary_context_retain(&mut context.raw.0, device) }
            .map_err(|failure| failure.error("retaining the device's primary context"))?;
        Ok(context)
    }

    /// Creates the context of a device without data. No other device shares the context.
    pub(super) fn imitated(imitation: Imitation) -> Self {
        Self {
            driver: Driver::imitated(),
            ordinal: 0,
            device: 0,
            raw: RawHandle(ptr::null_mut()),
            total_bytes: imitation.driver.total_bytes(),
            multiprocessors: IMITATED_MULTIPROCESSORS,
            capability: IMITATED_CAPABILITY,
            shared_bytes: IMITATED_SHARED_BYTES,
            has_ranges: true,
            has_pools: false,
            kernels: Kernels::new(IMITATED_CAPABILITY),
            captures: CaptureGate::default(),
            imitation: Some(imitation),
            exported_streams: Mutex::default(),
        }
    }

    pub(super) fn is_imitated(&self) -> bool {
        self.imitation.is_some()
    }

    pub(super) fn name(&self) -> String {
        match self.imitation {
            Some(_) => "meta".to_owned(),
            None => named(self.ordinal),
        }
    }

    pub(super) fn id(&self) -> DeviceId {
        DeviceId::Cuda(self.ordinal)
    }

    /// Makes the context current for the calling thread, as most driver calls require.
    #[inline]
    pub(super) fn enter(&self) -> DriverResult<&'static Driver> {
        let mut current: CUcontext = ptr::null_mut();
        // SAFETY: `current` is writable, and the context is retained.
        unsafe {
            let outcome = self.driver.context_get_current(&mut current);
            if outcome.is_err() || current != self.raw.0 {
                self.driver.context_set_current(self.raw.0)?;
            }
        }
        Ok(self.driver)
    }

    /// Runs a driver call in this context. An error's text begins with the device and `attempting`.
    #[inline]
    pub(super) fn run<T>(
        &self,
        attempting: &str,
        call: impl FnOnce(&'static Driver) -> DriverResult<T>,
    ) -> Result<T> {
        self.run_outcome(attempting, self.enter().and_then(call))
    }

    /// Makes the context current for the calling thread, for a library that uses the current
    /// context.
    pub(super) fn make_current(&self, attempting: &str) -> Result<()> {
        self.run(attempting, |_| Ok(()))
    }

    /// Like [`run`](Self::run), for a release. If the driver has already shut down, succeeds.
    pub(super) fn release(
        &self,
        attempting: &str,
        call: impl FnOnce(&'static Driver) -> DriverResult,
    ) -> Result<()> {
        self.run_outcome(attempting, ignore_at_exit(self.enter().and_then(call)))
    }

    /// Like [`run`](Self::run), for a drop: errors are ignored.
    pub(super) fn discard(&self, call: impl FnOnce(&'static Driver) -> DriverResult) {
        let _ = self.enter().and_then(call);
    }

    fn run_outcome<T>(&self, attempting: &str, outcome: DriverResult<T>) -> Result<T> {
        outcome.map_err(|failure| failure.error(attempting).of(&self.name()))
    }

    /// Waits for a stream of this context.
    ///
    /// # Safety
    ///
    /// The stream must not be destroyed.
    pub(super) unsafe fn wait_for_stream(&self, stream: CUstream) -> Result<()> {
        // SAFETY: by this function's contract.
        self.run("waiting for a stream", |driver| unsafe {
            driver.stream_synchronize(stream)
        })
    }
}

/// A guard that restores a thread's current context when it drops. Calls of this crate may make
/// another context current, but foreign callers expect their own context to stay current.
#[derive(Debug)]
pub struct CurrentContext(Option<(&'static Driver, CUcontext)>);

impl CurrentContext {
    /// Returns a guard for the context that is current now. Loads the driver.
    pub fn get() -> Self {
        let current = Driver::get().ok().and_then(|driver| {
            let mut current: CUcontext = ptr::null_mut();
            // SAFETY: `current` is writable.
            unsafe { driver.context_get_current(&mut current) }.ok()?;
            Some((driver, current))
        });
        Self(current)
    }
}

impl Drop for CurrentContext {
    fn drop(&mut self) {
        let Some((driver, context)) = self.0 else {
            return;
        };
        let mut current: CUcontext = ptr::null_mut();
        // SAFETY: `current` is writable. `context` was current when the guard was created, and the
        // foreign caller does not destroy it meanwhile.
        unsafe {
            let outcome = driver.context_get_current(&mut current);
            if outcome.is_err() || current != context {
                let _ = driver.context_set_current(context);
            }
        }
    }
}

fn named(ordinal: usize) -> String {
    DeviceId::Cuda(ordinal).to_string()
}

fn out_of_range(count: usize) -> Error {
    let there_are = match count {
        0 => "the driver found no device".to_owned(),
        1 => "there is one device, cuda:0".to_owned(),
        _ => format!("there are {count} devices, cuda:0 to cuda:{}", count - 1),
    };
    Error::new(ErrorCode::NoDevice, format!("no such device: {there_are}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn an_ordinal_out_of_range_is_an_error_with_the_count() {
        for (count, says) in [(0, "no device"), (1, "one device"), (4, "cuda:0 to cuda:3")] {
            let error = out_of_range(count);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
