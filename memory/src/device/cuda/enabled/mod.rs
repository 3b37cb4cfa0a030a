//! The CUDA backend, over the driver, which is loaded at run time.
//!
//! `driver` is the driver's function table, `context` the state shared by all devices of an
//! ordinal. A [`Cuda`] has streams and events, ranges, staging and bad-index reports of its own.

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

pub use compiler::{compile_for_all, ptx_of};

use std::ffi::{c_int, c_uint, c_void};
use std::time::Duration;

use cudarc::driver::sys::{CUfunction_attribute, CUstream};

#[cfg(feature = "fft")]
use super::fft::{FftCall, FftPlan};
use super::nccl::{NcclCall, NcclId};
#[cfg(feature = "linalg")]
use super::solver::SolverCall;
use super::{Arguments, Gemm, Grid, KernelKey, KernelSource};
use crate::costs::DriverLedger;
use crate::device::handles::Handles;
use crate::device::host_streams::HostStreams;
use crate::device::simulated::SimulatedDriver;
use crate::device::{Backend, DevicePtr, StreamId, VirtualMemory};
use crate::error::{Error, ErrorKind, Result};
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
use kernels::KernelSources;
pub use nccl::Communicator;
pub(crate) use ordered::OrderedPool;
#[cfg(feature = "linalg")]
use solver::Solver;
use staging::StagingPool;
use streams::StreamTable;

/// A handle of a library, or an address in the memory of the device.
type Opaque = *mut c_void;

/// Shared memory per block that needs no attribute.
const USUAL_SHARED_BYTES: u32 = 48 << 10;

/// A CUDA device: its context, memory, streams, events and compiled kernels.
#[derive(Debug)]
pub struct Cuda {
    context: Arc<Context>,
    // Dropped before the streams, which it uses.
    blas: Blas,
    #[cfg(feature = "linalg")]
    solver: Solver,
    #[cfg(feature = "fft")]
    fft: Fft,
    streams: StreamTable,
    /// `None` if the device does not support virtual memory.
    ranges: Option<Box<dyn VirtualMemory>>,
    staging: StagingPool,
    /// `None` on a device without data, which runs no kernels.
    bad_index: Option<BadIndex>,
    launch_lock: LaunchLock,
    host_streams: HostStreams,
    /// The errors of aborted exchanges, by the keys of their groups. Calls that wait for the device
    /// return them.
    aborted: Mutex<Vec<(u64, Error)>>,
}

impl Cuda {
    /// Opens the device with this ordinal.
    pub fn open(ordinal: usize) -> Result<Self> {
        Self::over(Context::of(ordinal)?)
    }

    /// Creates a device without data, with `total_bytes` of memory, whose calls `ledger` charges.
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

    /// The number of devices; 0 without a usable driver.
    pub fn count() -> usize {
        Driver::get().and_then(Driver::count).unwrap_or(0)
    }

    /// Returns the kernel of `key`. If it is not known yet, calls `source`, compiles and loads it.
    pub fn kernel(&self, key: KernelKey, source: &dyn Fn() -> KernelSource) -> Result<Kernel> {
        self.context.kernels.get(&self.context, key, source)
    }

    /// Compiles the kernels of `wanted` that are not known yet, concurrently.
    pub fn prepare(&self, wanted: &KernelSources<'_>) {
        self.context.kernels.prepare(&self.context, wanted);
    }

    /// Launches a kernel in the order of `stream`.
    ///
    /// # Safety
    ///
    /// The arguments must match the kernel's parameters. The kernel must access only memory of this
    /// device. Outside the stream's order nothing else may write memory that it reads, or use
    /// memory that it writes.
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
                // SAFETY: function and stream belong to this context and live; the driver copies
                // the arguments, which match the kernel's parameters by this function's contract.
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
    /// Both must point to `bytes` bytes of this device's reserved memory that do not overlap.
    /// Outside the stream's order nothing else may write the source or use the target.
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

    /// Computes matrix products in the order of `stream`.
    ///
    /// # Safety
    ///
    /// The lengths and steps must stay within memory of this device. Outside the stream's order
    /// nothing else may write the operands or use the product.
    pub unsafe fn gemm(&self, stream: StreamId, gemm: &Gemm) -> Result<()> {
        if self.context.is_imitated() {
            return gemm.calls().map(drop);
        }
        let submission = self.streams.submit_to(stream)?;
        let raw = submission.raw();
        // SAFETY: by this function's contract; streams live as long as this.
        unsafe { self.blas.gemm(stream, raw, gemm) }
    }

    /// Returns the elements of workspace that [`factorize`](Self::factorize) needs for a call.
    ///
    /// # Safety
    ///
    /// The addresses of the call must be of memory of this device.
    #[cfg(feature = "linalg")]
    pub unsafe fn solver_workspace(&self, stream: StreamId, call: &SolverCall) -> Result<usize> {
        if self.context.is_imitated() {
            return Ok(0);
        }
        let submission = self.streams.submit_to(stream)?;
        // SAFETY: by this function's contract; streams live as long as this.
        unsafe { self.solver.workspace(stream, submission.raw(), call) }
    }

    /// Factorizes a matrix in the order of `stream`.
    ///
    /// # Safety
    ///
    /// The addresses must be of memory of this device that is as long as the call says. The
    /// workspace must be as long as [`solver_workspace`](Self::solver_workspace) returns. Outside
    /// the stream's order nothing else may use memory that is written.
    #[cfg(feature = "linalg")]
    pub unsafe fn factorize(
        &self,
        stream: StreamId,
        call: &SolverCall,
        workspace: (DevicePtr, usize),
    ) -> Result<()> {
        if self.context.is_imitated() {
            return Ok(());
        }
        let submission = self.streams.submit_to(stream)?;
        // SAFETY: by this function's contract; streams live as long as this.
        unsafe { self.solver.run(stream, submission.raw(), call, workspace) }
    }

    /// Returns the bytes of work area that [`transform`](Self::transform) needs for a plan.
    #[cfg(feature = "fft")]
    pub fn fft_workspace(&self, plan: &FftPlan) -> Result<usize> {
        if self.context.is_imitated() {
            return Ok(0);
        }
        self.fft.workspace(plan)
    }

    /// Transforms rows or matrices in the order of `stream`.
    ///
    /// # Safety
    ///
    /// The addresses must be of memory of this device that reaches as far as the plan says. The
    /// work area must be as long as [`fft_workspace`](Self::fft_workspace) returns. Outside the
    /// stream's order nothing else may use memory that is written.
    #[cfg(feature = "fft")]
    pub unsafe fn transform(
        &self,
        stream: StreamId,
        call: &FftCall,
        workspace: DevicePtr,
    ) -> Result<()> {
        if self.context.is_imitated() {
            return Ok(());
        }
        let submission = self.streams.submit_to(stream)?;
        let place = (submission.raw(), self.streams.capture.captures(stream));
        // SAFETY: by this function's contract; streams live as long as this.
        unsafe { self.fft.run(place, call, workspace) }
    }

    /// Returns the unique id of a new communicator, which all its ranks pass to
    /// [`join`](Self::join).
    pub fn new_nccl_id() -> Result<NcclId> {
        nccl::new_id()
    }

    /// Joins a communicator as a rank on this device. Waits until all ranks have joined, for at
    /// most `timeout`, which is also the timeout of every later call.
    pub fn join(
        &self,
        id: &NcclId,
        rank: usize,
        size: usize,
        timeout: Duration,
    ) -> Result<Communicator> {
        if self.context.is_imitated() {
            let text = "a device without data has no NCCL: use Group::threads";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Communicator::join(&self.context, id, rank, size, timeout)
    }

    /// Runs this rank's part of an operation in the order of `stream`, once all ranks have called
    /// it. A failure ends the communicator.
    ///
    /// # Safety
    ///
    /// The addresses must be of memory of this device that is as long as the call says. Outside the
    /// stream's order nothing else may write memory that is read, or use memory that is written.
    pub unsafe fn communicate(
        &self,
        communicator: &Communicator,
        stream: StreamId,
        call: &NcclCall,
    ) -> Result<()> {
        if !communicator.is_of(&self.context) {
            let text = format!("{}: {communicator:?} is of another device", self.id());
            return Err(Error::new(ErrorKind::DeviceMismatch, text));
        }
        let submission = self.streams.submit_to(stream)?;
        let place = (submission.raw(), self.streams.capture.captures(stream));
        // SAFETY: by this function's contract, and as checked above; streams live as long as this.
        unsafe { communicator.run(place, call) }
    }

    /// Exports the driver's handle of a stream to foreign code; valid until the process ends.
    pub fn export_stream(&self, stream: StreamId) -> Result<CUstream> {
        self.streams.export(stream)
    }

    /// Returns a number for the stream of foreign code with the driver's handle `raw`; 0 is the
    /// legacy default stream.
    ///
    /// # Safety
    ///
    /// `raw` is 0 or a stream of the primary context of this device, which lives as long as this.
    pub unsafe fn import_stream(&self, raw: usize) -> Result<StreamId> {
        self.streams
            .import(std::ptr::with_exposed_provenance_mut(raw))
    }

    /// Records that an exchange of the group `key` is about to be aborted: its target is not
    /// written. Calls that wait for the device return the error until the group is forgotten.
    pub fn fail_communication(&self, key: u64, error: Error) {
        self.aborted.lock().push((key, error));
    }

    /// Forgets the failures of the group `key`, which has no more handles.
    pub fn forget_communication(&self, key: u64) {
        self.aborted.lock().retain(|(own, _)| *own != key);
    }

    /// Returns the first failure of an aborted exchange, else the failure of a kernel that was not
    /// returned yet. Failures of exchanges stay until their group is forgotten.
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

    /// Returns the address at which kernels report an index out of range: three 64-bit words that
    /// the host can read. The first is 0, or the number of the operation, an
    /// [`Indexing`](super::Indexing); it is set by compare-and-swap, so that the first report
    /// stays. The second is the index, the third the length of the axis. Synchronising calls check
    /// the words and return the error.
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
