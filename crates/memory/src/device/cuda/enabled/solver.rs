//! Factorizations by cuSOLVER, which is loaded at the first factorization.

use super::{Cuda, Opaque};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::CUstream;

use super::context::{Context, RawHandle};
use super::error::DriverResult;
use super::headers::{cublas, cusolver};
use super::library::{Library, LibraryError, LibraryResult, library_functions};
use crate::device::cuda::solver::{Factorization, SolverCall};
use crate::device::{DevicePtr, StreamId};
use crate::error::{Error, Result};
use crate::sync::Arc;
use crate::sync::plain::Mutex;

/// The cuSOLVER handles of a device, one per stream, created at the stream's first factorization.
#[derive(Debug)]
pub(super) struct Solver {
    context: Arc<Context>,
    handles: Mutex<HashMap<StreamId, RawHandle<c_void>>>,
}

impl Cuda {
    /// Returns the workspace length that [`factorize`](Self::factorize) needs for a call, in
    /// elements.
    ///
    /// # Safety
    ///
    /// The addresses of the call must point to memory of this device.
    pub unsafe fn solver_workspace(&self, stream: StreamId, call: &SolverCall) -> Result<usize> {
        if self.context.is_imitated() {
            return Ok(0);
        }
        let mut length = 0;
        let submission = self.streams.submit_to(stream)?;
        let solver = &self.solver;
        solver.with_handle(stream, submission.raw(), |functions, handle| {
            // SAFETY: `length` is writable. The library reads only the lengths of the call.
            unsafe { functions.workspace_length(handle, call, &mut length) }
        })?;
        Ok(usize::try_from(length).unwrap_or(0))
    }

    /// Factorizes a matrix in the order of `stream`.
    ///
    /// # Safety
    ///
    /// The addresses must point to memory of this device that is as long as the call requires. The
    /// workspace must be as long as [`solver_workspace`](Self::solver_workspace) returns. Only work
    /// that is ordered with `stream` may use the memory that the call writes.
    pub unsafe fn factorize(
        &self,
        stream: StreamId,
        call: &SolverCall,
        (workspace, length): (DevicePtr, usize),
    ) -> Result<()> {
        if self.context.is_imitated() {
            return Ok(());
        }
        let length = c_int::try_from(length).unwrap_or(c_int::MAX);
        let submission = self.streams.submit_to(stream)?;
        let solver = &self.solver;
        solver.with_handle(stream, submission.raw(), |functions, handle| {
            // SAFETY: by this function's contract.
            unsafe { functions.run(handle, call, workspace.0 as *mut c_void, length) }
        })
    }
}

impl Solver {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            handles: Mutex::default(),
        }
    }

    fn with_handle(
        &self,
        stream: StreamId,
        raw: CUstream,
        call: impl FnOnce(&Functions, *mut c_void) -> LibraryResult,
    ) -> Result<()> {
        let functions = Functions::get()?;
        let mut handles = self.handles.lock();
        let handle = match handles.get(&stream) {
            Some(&handle) => handle,
            None => {
                let made = self.make(functions, raw)?;
                handles.insert(stream, made);
                made
            }
        };
        // The lock is still held, because a handle accepts one call at a time.
        self.context.make_current("linalg")?;
        call(functions, handle.0).map_err(|failure| self.error(failure))
    }

    fn error(&self, failure: LibraryError) -> Error {
        failure.of(self.context.id(), "linalg")
    }

    /// Creates a handle that enqueues its calls on `stream`.
    fn make(&self, functions: &'static Functions, stream: CUstream) -> Result<RawHandle<c_void>> {
        self.context.make_current("linalg")?;
        let mut raw = RawHandle(ptr::null_mut());
        // SAFETY: `raw` is writable, and the context is current.
        unsafe { functions.create(&mut raw.0) }.map_err(|failure| self.error(failure))?;
        // SAFETY: the handle was just created, and the stream lives longer than the handle.
        let prepared = unsafe { functions.set_stream(raw.0, stream) };
        if let Err(failure) = prepared {
            self.destroy(functions, raw);
            return Err(self.error(failure));
        }
        Ok(raw)
    }

    /// Destroys an unused handle, once no capture is in progress. Errors cannot be reported.
    fn destroy(&self, functions: &'static Functions, handle: RawHandle<c_void>) {
        // The handle is detached from its stream, which may be destroyed before the handle.
        // SAFETY: the handle was made by `make`.
        let _ = unsafe { functions.set_stream(handle.0, ptr::null_mut()) };
        let context = Arc::clone(&self.context);
        self.context.captures.make_or_postpone(move || {
            context.discard(|_| destroy_now(functions, handle));
        });
    }
}

fn destroy_now(functions: &Functions, handle: RawHandle<c_void>) -> DriverResult {
    // SAFETY: the handle was made by `make`, and nothing else has it.
    let _ = unsafe { functions.destroy(handle.0) };
    Ok(())
}

impl Drop for Solver {
    fn drop(&mut self) {
        let mut handles = self.handles.lock();
        if handles.is_empty() {
            return;
        }
        if let Ok(functions) = Functions::get() {
            for (_, handle) in handles.drain() {
                self.destroy(functions, handle);
            }
        }
    }
}

static LIBRARY: Library = Library {
    name: "cuSOLVER",
    file: "cusolver",
    versions: &["12", "11"],
    operation: "linalg",
    install: "install cuSOLVER of CUDA 12 or 13 (libcusolver.so.11 or .12)",
    statuses: cusolver::STATUSES,
    unsupported: &[4, 9],
};

library_functions! { LIBRARY:
    create = cusolverDnCreate(handle: *mut Opaque);
    destroy = cusolverDnDestroy(handle: Opaque);
    set_stream = cusolverDnSetStream(handle: Opaque, stream: CUstream);
    lu_workspace = [cusolverDnSgetrf_bufferSize, cusolverDnDgetrf_bufferSize](handle: Opaque, m: c_int, n: c_int, a: Opaque, leading: c_int, length: *mut c_int);
    lu = [cusolverDnSgetrf, cusolverDnDgetrf](handle: Opaque, m: c_int, n: c_int, a: Opaque, leading: c_int, workspace: Opaque, pivots: Opaque, info: Opaque);
    solve = [cusolverDnSgetrs, cusolverDnDgetrs](handle: Opaque, operation: c_uint, n: c_int, count: c_int, a: Opaque, leading: c_int, pivots: Opaque, b: Opaque, leading_b: c_int, info: Opaque);
    cholesky_workspace = [cusolverDnSpotrf_bufferSize, cusolverDnDpotrf_bufferSize](handle: Opaque, fill: c_uint, n: c_int, a: Opaque, leading: c_int, length: *mut c_int);
    cholesky = [cusolverDnSpotrf, cusolverDnDpotrf](handle: Opaque, fill: c_uint, n: c_int, a: Opaque, leading: c_int, workspace: Opaque, length: c_int, info: Opaque);
    qr_workspace = [cusolverDnSgeqrf_bufferSize, cusolverDnDgeqrf_bufferSize](handle: Opaque, m: c_int, n: c_int, a: Opaque, leading: c_int, length: *mut c_int);
    qr = [cusolverDnSgeqrf, cusolverDnDgeqrf](handle: Opaque, m: c_int, n: c_int, a: Opaque, leading: c_int, factors: Opaque, workspace: Opaque, length: c_int, info: Opaque);
    reflections_workspace = [cusolverDnSorgqr_bufferSize, cusolverDnDorgqr_bufferSize](handle: Opaque, m: c_int, n: c_int, k: c_int, a: Opaque, leading: c_int, factors: Opaque, length: *mut c_int);
    reflections = [cusolverDnSorgqr, cusolverDnDorgqr](handle: Opaque, m: c_int, n: c_int, k: c_int, a: Opaque, leading: c_int, factors: Opaque, workspace: Opaque, length: c_int, info: Opaque);
    svd_workspace = [cusolverDnSgesvd_bufferSize, cusolverDnDgesvd_bufferSize](handle: Opaque, m: c_int, n: c_int, length: *mut c_int);
    svd = [cusolverDnSgesvd, cusolverDnDgesvd](handle: Opaque, job_u: c_char, job_vt: c_char, m: c_int, n: c_int, a: Opaque, leading: c_int, values: Opaque, u: Opaque, leading_u: c_int, vt: Opaque, leading_vt: c_int, workspace: Opaque, length: c_int, rest: Opaque, info: Opaque);
    eigen_workspace = [cusolverDnSsyevd_bufferSize, cusolverDnDsyevd_bufferSize](handle: Opaque, mode: c_uint, fill: c_uint, n: c_int, a: Opaque, leading: c_int, values: Opaque, length: *mut c_int);
    eigen = [cusolverDnSsyevd, cusolverDnDsyevd](handle: Opaque, mode: c_uint, fill: c_uint, n: c_int, a: Opaque, leading: c_int, values: Opaque, workspace: Opaque, length: c_int, info: Opaque);
}

impl Functions {
    /// Sets `length` to the workspace length that a call needs, in elements. If the call needs no
    /// workspace, leaves `length` unchanged.
    ///
    /// # Safety
    ///
    /// `handle` must be a valid handle, and its context must be current.
    unsafe fn workspace_length(
        &self,
        handle: Opaque,
        call: &SolverCall,
        length: &mut c_int,
    ) -> LibraryResult {
        let (m, n) = (call.rows, call.columns);
        let (width, a) = (usize::from(call.is_wide), call.matrix.0 as Opaque);
        // SAFETY: by this function's contract.
        unsafe {
            match call.kind {
                Factorization::Lu { .. } => self.lu_workspace(width, handle, m, n, a, m, length),
                Factorization::Solve { .. } => Ok(()),
                Factorization::Cholesky => {
                    self.cholesky_workspace(width, handle, cublas::FILL_MODE_UPPER, n, a, m, length)
                }
                Factorization::Qr { .. } => self.qr_workspace(width, handle, m, n, a, m, length),
                Factorization::Reflections { factors } => {
                    let factors = factors.0 as Opaque;
                    self.reflections_workspace(width, handle, m, n, n, a, m, factors, length)
                }
                Factorization::Svd { .. } => self.svd_workspace(width, handle, m, n, length),
                Factorization::Eigen { values, wanted } => {
                    let (mode, values) = (
                        cusolver::EIGEN_MODES[usize::from(wanted)],
                        values.0 as Opaque,
                    );
                    self.eigen_workspace(
                        width,
                        handle,
                        mode,
                        cublas::FILL_MODE_UPPER,
                        n,
                        a,
                        m,
                        values,
                        length,
                    )
                }
            }
        }
    }

    /// Calls the function of the factorization.
    ///
    /// # Safety
    ///
    /// The conditions of [`factorize`](Cuda::factorize) must hold. `handle` must be the handle of
    /// the stream, and its context must be current.
    unsafe fn run(
        &self,
        handle: Opaque,
        call: &SolverCall,
        workspace: Opaque,
        length: c_int,
    ) -> LibraryResult {
        let (m, n) = (call.rows, call.columns);
        let (width, info) = (usize::from(call.is_wide), call.info.0 as Opaque);
        let raw = |address: DevicePtr| address.0 as Opaque;
        let a = raw(call.matrix);
        // SAFETY: by this function's contract.
        unsafe {
            match call.kind {
                Factorization::Lu { pivots } => {
                    self.lu(width, handle, m, n, a, m, workspace, raw(pivots), info)
                }
                Factorization::Solve {
                    pivots,
                    right,
                    count,
                } => {
                    let (pivots, right) = (raw(pivots), raw(right));
                    self.solve(
                        width,
                        handle,
                        cublas::OP_N,
                        n,
                        count,
                        a,
                        m,
                        pivots,
                        right,
                        n,
                        info,
                    )
                }
                Factorization::Cholesky => self.cholesky(
                    width,
                    handle,
                    cublas::FILL_MODE_UPPER,
                    n,
                    a,
                    m,
                    workspace,
                    length,
                    info,
                ),
                Factorization::Qr { factors } => {
                    let factors = raw(factors);
                    self.qr(width, handle, m, n, a, m, factors, workspace, length, info)
                }
                Factorization::Reflections { factors } => {
                    let factors = raw(factors);
                    self.reflections(
                        width, handle, m, n, n, a, m, factors, workspace, length, info,
                    )
                }
                Factorization::Svd { values, vectors } => {
                    let job = cusolver::JOBS[usize::from(vectors.is_some())];
                    let [u, vt] = vectors.map_or([ptr::null_mut(); 2], |vectors| vectors.map(raw));
                    let values = raw(values);
                    let rest = ptr::null_mut();
                    self.svd(
                        width, handle, job, job, m, n, a, m, values, u, m, vt, n, workspace,
                        length, rest, info,
                    )
                }
                Factorization::Eigen { values, wanted } => {
                    let (mode, values) = (cusolver::EIGEN_MODES[usize::from(wanted)], raw(values));
                    self.eigen(
                        width,
                        handle,
                        mode,
                        cublas::FILL_MODE_UPPER,
                        n,
                        a,
                        m,
                        values,
                        workspace,
                        length,
                        info,
                    )
                }
            }
        }
    }
}
