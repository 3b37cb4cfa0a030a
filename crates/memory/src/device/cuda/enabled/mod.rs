//! The CUDA backend, over the driver, which is loaded at run time.
//!
//! `driver` is the driver's function table. `context` is the state that all devices of an ordinal
//! share. Each [`Cuda`] has its own streams, events, address ranges, staging buffers and bad-index
//! report.

mod backend;
mod bad_index;
mod blas;
mod captures;
mod compiler;
mod context;
mod driver;
mod error;
#[cfg(feature = "fft")]
mod fft;
mod graphs;
pub mod headers;
mod kernels;
mod library;
mod nccl;
mod once_vec;
mod ordered;
mod progress;
mod ranges;
#[cfg(feature = "linalg")]
mod solver;
mod staging;
mod streams;
mod transfer;

pub use compiler::{KernelResources, compile_for_all, ptx_of, resources_of};

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::{CUfunction_attribute, CUstream};

use super::nccl::NcclId;
use super::{Arguments, Grid};
use crate::costs::DriverLedger;
use crate::device::handles::Handles;
use crate::device::host_streams::HostStreams;
use crate::device::simulated::SimulatedDriver;
use crate::device::{DevicePtr, StreamId, VirtualMemory};
use crate::error::{Error, Result};
use crate::sync::Arc;
use crate::sync::plain::Mutex;
use bad_index::BadIndex;
use blas::Blas;
pub use context::CurrentContext;
use context::{Context, Imitation};
use driver::Driver;
#[cfg(feature = "fft")]
use fft::Fft;
use graphs::LaunchLock;
pub use graphs::{Executable, SharedLaunchGuard};
pub(crate) use kernels::Kernel;
pub use nccl::Communicator;
pub(crate) use ordered::OrderedPool;
#[cfg(feature = "linalg")]
use solver::Solver;
use staging::StagingPool;
use streams::StreamTable;

/// A handle of a library, or an address in the memory of the device.
type Opaque = *mut c_void;

/// The maximum shared memory per block without a function attribute.
const USUAL_SHARED_BYTES: u32 = 48 << 10;

/// A CUDA device: its context, memory, streams, events and compiled kernels.
#[derive(Debug)]
pub struct Cuda {
    context: Arc<Context>,
    // `blas`, `solver` and `fft` are dropped before `streams`, because their handles use streams.
    blas: Blas,
    #[cfg(feature = "linalg")]
    solver: Solver,
    #[cfg(feature = "fft")]
    fft: Fft,
    streams: StreamTable,
    /// The address ranges; `None` if the device does not support virtual memory.
    ranges: Option<Box<dyn VirtualMemory>>,
    staging: StagingPool,
    /// The bad-index report; `None` on a device without data, which runs no kernels.
    bad_index: Option<BadIndex>,
    launch_lock: LaunchLock,
    host_streams: HostStreams,
    /// The errors of aborted exchanges, each with the key of its group. Calls that wait for the
    /// device return these errors.
    aborted: Mutex<Vec<(u64, Error)>>,
}

impl Cuda {
    /// Opens the device with this ordinal.
    pub fn open(ordinal: usize) -> Result<Self> {
        Self::over(Context::of(ordinal)?)
    }

    /// Creates a device without data, with `total_bytes` of memory. The device's driver calls are
    /// charged to `ledger`.
    pub fn meta(
        ledger: DriverLedger,
        total_bytes: u64,
        assumed_count: Option<usize>,
    ) -> Result<Self> {
        Self::over(Arc::new(Context::imitated(Imitation {
            driver: Arc::new(SimulatedDriver::new(ledger, total_bytes)),
            assumed_count,
        })))
    }

    fn over(context: Arc<Context>) -> Result<Self> {
        let ranges: Option<Box<dyn VirtualMemory>> = match &context.imitation {
            Some(imitation) => Some(Box::new(Handles::new(Arc::clone(&imitation.driver)))),
            None if context.has_ranges => Some(Box::new(ranges::ranges(&context)?)),
            None => None,
        };
        let has_kernels = !context.is_imitated();
        let bad_index = has_kernels.then(|| BadIndex::new(&context));
        Ok(Self {
            blas: Blas::new(&context),
            #[cfg(feature = "linalg")]
            solver: Solver::new(&context),
            #[cfg(feature = "fft")]
            fft: Fft::new(&context),
            streams: StreamTable::new(&context)?,
            ranges,
            staging: StagingPool::new(&context),
            bad_index: bad_index.transpose()?,
            launch_lock: LaunchLock::default(),
            host_streams: HostStreams::default(),
            aborted: Mutex::default(),
            context,
        })
    }

    /// Returns the number of devices; 0 without a usable driver.
    pub fn count() -> usize {
        Driver::get().and_then(Driver::count).unwrap_or(0)
    }

    /// Launches a kernel in the order of `stream`.
    ///
    /// # Safety
    ///
    /// The arguments must match the kernel's parameters. The kernel must access only memory of this
    /// device. Work that is not ordered with `stream` must not write memory that the kernel reads.
    /// It must not use memory that the kernel writes.
    pub unsafe fn launch(
        &self,
        stream: StreamId,
        kernel: Kernel,
        grid: Grid,
        arguments: &Arguments,
    ) -> Result<()> {
        let mut pointers: Vec<*mut c_void> = arguments
            .pointers()
            .into_iter()
            .map(|pointer| pointer.cast_mut().cast())
            .collect();
        self.streams
            .run(stream, "launching a kernel", |driver, raw| {
                let function = kernel.function.0;
                if grid.shared_bytes > USUAL_SHARED_BYTES {
                    let attribute =
                        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                    let bytes = c_int::try_from(grid.shared_bytes).unwrap_or(c_int::MAX);
                    // SAFETY: the function belongs to a module of this context, which stays loaded.
                    unsafe { driver.func_set_attribute(function, attribute as c_uint, bytes) }?;
                }
                let [x, y] = grid.blocks;
                // SAFETY: function and stream belong to this context and live. The driver copies
                // the arguments. The arguments match the kernel's parameters by this function's
                // contract.
                unsafe {
                    driver.launch_kernel(
                        function,
                        x,
                        y,
                        1,
                        grid.threads,
                        1,
                        1,
                        grid.shared_bytes,
                        raw,
                        pointers.as_mut_ptr(),
                        std::ptr::null_mut(),
                    )
                }
            })
    }

    /// Copies `bytes` from `source` to `target` in the order of `stream`.
    ///
    /// # Safety
    ///
    /// `source` and `target` must point to `bytes` bytes of this device's reserved memory. The two
    /// ranges must not overlap. Only work that is ordered with `stream` may write the source or use
    /// the target.
    pub unsafe fn copy(
        &self,
        stream: StreamId,
        source: DevicePtr,
        target: DevicePtr,
        bytes: u64,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: by this function's contract.
        self.streams
            .run(stream, "copying within the device", |driver, raw| unsafe {
                driver.copy_within_device(target.0, source.0, bytes as usize, raw)
            })
    }

    /// Sets whether products of `f32` may round their operands to TF32; off by default.
    pub fn allow_tf32(&mut self, allow: bool) {
        self.blas.tf32 = allow;
    }

    /// Returns whether products of `f32` may round their operands to TF32.
    pub fn allows_tf32(&self) -> bool {
        self.blas.tf32
    }

    /// Returns the unique id of a new communicator. All its ranks pass the id to
    /// [`join`](Self::join).
    pub fn new_nccl_id() -> Result<NcclId> {
        nccl::new_id()
    }

    /// Exports the driver's handle of a stream to foreign code. The handle is valid until the
    /// process ends.
    pub fn export_stream(&self, stream: StreamId) -> Result<CUstream> {
        self.streams.export(stream)
    }

    /// Returns an id for a stream of foreign code. The handle 0 is the legacy default stream.
    ///
    /// # Safety
    ///
    /// `raw` is 0, or a stream of this device's primary context that lives as long as this device.
    pub unsafe fn import_stream(&self, raw: usize) -> Result<StreamId> {
        self.streams
            .import(std::ptr::with_exposed_provenance_mut(raw))
    }

    /// Records `error` for the group `key`. An exchange of the group is about to be aborted, and
    /// its target is not written. Calls that wait for the device return `error` until the group is
    /// forgotten.
    pub fn fail_communication(&self, key: u64, error: Error) {
        self.aborted.lock().push((key, error));
    }

    /// Forgets the failures of the group `key`, which has no more handles.
    pub fn forget_communication(&self, key: u64) {
        self.aborted.lock().retain(|(own, _)| *own != key);
    }

    /// Returns the first failure of an aborted exchange, else the unreported bad index of a kernel.
    /// Failures of exchanges stay until their group is forgotten.
    fn take_failure(&self) -> Result<()> {
        if let Some((_, error)) = self.aborted.lock().first() {
            return Err(error.clone());
        }
        self.bad_index.as_ref().map_or(Ok(()), BadIndex::take_error)
    }

    /// Returns the number of multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.context.multiprocessors
    }

    /// Returns the compute capability: major and minor.
    pub fn capability(&self) -> (u32, u32) {
        self.context.capability
    }

    /// Returns the maximum dynamic shared memory of a block, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.context.shared_bytes
    }

    /// Returns the address of three 64-bit words, at which kernels report an index out of range.
    /// The host can read the words. The first word is 0, or the number of the operation, an
    /// [`Indexing`](super::Indexing). A kernel sets the first word by compare-and-swap, so that a
    /// later report does not overwrite an earlier report. The second word is the index, the third
    /// word is the length of the axis. Synchronising calls check the words and return the error.
    pub fn bad_index_address(&self) -> DevicePtr {
        let report = self.bad_index.as_ref();
        report.map_or(DevicePtr(0), BadIndex::address)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // Streams, staging and the bad-index report must be idle when they are destroyed.
        for number in 0..self.streams.count() {
            let _ = self.streams.synchronize(StreamId(number));
        }
    }
}
