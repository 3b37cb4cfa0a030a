//! Factorizations by cuSOLVER, which is loaded at the first one.
//!
//! As for cuBLAS, the function table is our own: cudarc panics where a function is missing.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use cudarc::cusolver::sys;
use cudarc::driver::sys::CUstream;

use super::context::{Context, RawHandle};
use crate::device::cuda::solver::{Factorization, SolverCall};
use crate::device::{DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;
use crate::sync::plain::Mutex;

/// `CUSOLVER_EIG_MODE_NOVECTOR`, and that with vectors.
const EIGEN_MODES: [c_uint; 2] = [0, 1];
/// `CUBLAS_FILL_MODE_UPPER`.
const UPPER: c_uint = 1;
/// `CUBLAS_OP_N`.
const AS_IT_IS: c_uint = 0;
/// No vectors, and as many as there are values.
const JOBS: [c_char; 2] = [b'N' as c_char, b'S' as c_char];

/// The cuSOLVER handles of a device, one per stream, created at the stream's first factorization.
#[derive(Debug)]
pub(super) struct Solver {
    context: Arc<Context>,
    handles: Mutex<HashMap<StreamId, RawHandle<c_void>>>,
}

impl Solver {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            handles: Mutex::default(),
        }
    }

    /// How many elements of workspace a call takes.
    ///
    /// # Safety
    ///
    /// `raw` is the handle of `stream`, and lives as long as this.
    pub(super) unsafe fn workspace(
        &self,
        stream: StreamId,
        raw: CUstream,
        call: &SolverCall,
    ) -> Result<usize> {
        let mut length = 0;
        self.with_handle(stream, raw, |functions, handle| {
            // SAFETY: `length` is writable; the library reads lengths alone.
            unsafe { functions.ask(handle, call, &mut length) }
        })?;
        Ok(usize::try_from(length).unwrap_or(0))
    }

    /// Factorizes a matrix in the order of a stream, with as many elements of workspace as asked for.
    ///
    /// # Safety
    ///
    /// The addresses must be of memory of this device that is as long as the call says. Outside the stream's order
    /// nothing else may use what is written. `raw` is the handle of `stream`, and lives as long as this.
    pub(super) unsafe fn run(
        &self,
        stream: StreamId,
        raw: CUstream,
        call: &SolverCall,
        (workspace, length): (DevicePtr, usize),
    ) -> Result<()> {
        let length = c_int::try_from(length).unwrap_or(c_int::MAX);
        self.with_handle(stream, raw, |functions, handle| {
            // SAFETY: by this function's contract.
            unsafe { functions.run(handle, call, workspace.0 as *mut c_void, length) }
        })
    }

    /// Calls the library with the handle of the stream.
    fn with_handle(
        &self,
        stream: StreamId,
        raw: CUstream,
        call: impl FnOnce(&Functions, *mut c_void) -> SolverResult,
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
        // The lock is still held: a handle takes one call at a time.
        self.enter()?;
        call(functions, handle.0).map_err(|failure| self.error(failure))
    }

    /// Makes the context current for this thread, where cuSOLVER looks for it.
    fn enter(&self) -> Result<()> {
        self.context.run("linalg", |_| Ok(()))
    }

    fn error(&self, failure: SolverError) -> Error {
        let text = format!("{}: linalg: {failure}", self.context.id());
        Error::new(failure.kind(), text)
    }

    /// A handle that works in the order of the stream.
    fn make(&self, functions: &Functions, stream: CUstream) -> Result<RawHandle<c_void>> {
        self.enter()?;
        let mut raw = RawHandle(ptr::null_mut());
        // SAFETY: `raw` is writable, and the context is current.
        unsafe { functions.create(&mut raw.0) }.map_err(|failure| self.error(failure))?;
        // SAFETY: the handle was just created, and the stream lives longer than it.
        let prepared = unsafe { functions.set_stream(raw.0, stream) };
        if let Err(failure) = prepared {
            self.destroy(functions, raw);
            return Err(self.error(failure));
        }
        Ok(raw)
    }

    /// Destroys an unused handle; errors cannot be reported.
    fn destroy(&self, functions: &Functions, handle: RawHandle<c_void>) {
        self.context.discard(|_| {
            // SAFETY: the handle was made by `make`, and this is the only one.
            let _ = unsafe { functions.destroy(handle.0) };
            Ok(())
        });
    }
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

/// The result of a cuSOLVER call.
type SolverResult = std::result::Result<(), SolverError>;

/// A failed cuSOLVER call.
#[derive(Clone, Copy, Debug)]
struct SolverError {
    call: &'static str,
    status: c_uint,
}

impl SolverError {
    fn kind(self) -> ErrorKind {
        match self.status {
            4 | 9 => ErrorKind::Unsupported,
            _ => ErrorKind::Driver,
        }
    }
}

impl std::fmt::Display for SolverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.status {
            1 => "CUSOLVER_STATUS_NOT_INITIALIZED",
            2 => "CUSOLVER_STATUS_ALLOC_FAILED",
            3 => "CUSOLVER_STATUS_INVALID_VALUE",
            4 => "CUSOLVER_STATUS_ARCH_MISMATCH",
            6 => "CUSOLVER_STATUS_EXECUTION_FAILED",
            7 => "CUSOLVER_STATUS_INTERNAL_ERROR",
            9 => "CUSOLVER_STATUS_NOT_SUPPORTED",
            status => return write!(f, "{} failed with status {status}", self.call),
        };
        write!(f, "{} failed with {name}", self.call)
    }
}

/// Rows `method = [name for f32, name for f64](arguments);`, and those of one name.
macro_rules! functions {
    ($($method:ident = [$($symbol:ident),+]($($argument:ident: $type:ty),* $(,)?);)*) => {
        /// The cuSOLVER functions that are called, by the width of their elements.
        #[derive(Debug)]
        struct Functions {
            $($method: [unsafe extern "C" fn($($type),*) -> c_uint; functions!(@count $($symbol)+)],)*
        }

        impl Functions {
            /// Looks up every function.
            fn look_up() -> Result<Self> {
                // SAFETY: the library is present, as checked before, so loading does not panic.
                let library = unsafe { sys::culib() };
                Ok(Self {
                    $($method: {
                        type Called = unsafe extern "C" fn($($type),*) -> c_uint;
                        [$({
                            let symbol = concat!(stringify!($symbol), "\0");
                            // SAFETY: the type is what the library's header declares for this name.
                            let found = unsafe { library.get::<Called>(symbol.as_bytes()) };
                            *found.map_err(|_| lacks(stringify!($symbol)))?
                        }),+]
                    },)*
                })
            }
        }

        /// The functions by their names; the first argument says which of the widths.
        mod calls {
            use super::*;

            $(
                /// # Safety
                ///
                /// As the library's documentation states for the function.
                #[allow(clippy::too_many_arguments, reason = "the library has so many")]
                pub(super) unsafe fn $method(functions: &Functions, width: usize, $($argument: $type),*) -> SolverResult {
                    // SAFETY: by this function's contract.
                    match unsafe { (functions.$method[width])($($argument),*) } {
                        0 => Ok(()),
                        status => Err(SolverError { call: [$(stringify!($symbol)),+][width], status }),
                    }
                }
            )*
        }
    };
    (@count $first:ident) => { 1 };
    (@count $first:ident $second:ident) => { 2 };
}

/// A handle, and memory of the device.
type Raw = *mut c_void;

functions! {
    create = [cusolverDnCreate](handle: *mut Raw);
    destroy = [cusolverDnDestroy](handle: Raw);
    set_stream = [cusolverDnSetStream](handle: Raw, stream: CUstream);
    lu_workspace = [cusolverDnSgetrf_bufferSize, cusolverDnDgetrf_bufferSize](handle: Raw, m: c_int, n: c_int, a: Raw, leading: c_int, length: *mut c_int);
    lu = [cusolverDnSgetrf, cusolverDnDgetrf](handle: Raw, m: c_int, n: c_int, a: Raw, leading: c_int, workspace: Raw, pivots: Raw, info: Raw);
    solve = [cusolverDnSgetrs, cusolverDnDgetrs](handle: Raw, operation: c_uint, n: c_int, count: c_int, a: Raw, leading: c_int, pivots: Raw, b: Raw, leading_b: c_int, info: Raw);
    cholesky_workspace = [cusolverDnSpotrf_bufferSize, cusolverDnDpotrf_bufferSize](handle: Raw, fill: c_uint, n: c_int, a: Raw, leading: c_int, length: *mut c_int);
    cholesky = [cusolverDnSpotrf, cusolverDnDpotrf](handle: Raw, fill: c_uint, n: c_int, a: Raw, leading: c_int, workspace: Raw, length: c_int, info: Raw);
    qr_workspace = [cusolverDnSgeqrf_bufferSize, cusolverDnDgeqrf_bufferSize](handle: Raw, m: c_int, n: c_int, a: Raw, leading: c_int, length: *mut c_int);
    qr = [cusolverDnSgeqrf, cusolverDnDgeqrf](handle: Raw, m: c_int, n: c_int, a: Raw, leading: c_int, factors: Raw, workspace: Raw, length: c_int, info: Raw);
    reflections_workspace = [cusolverDnSorgqr_bufferSize, cusolverDnDorgqr_bufferSize](handle: Raw, m: c_int, n: c_int, k: c_int, a: Raw, leading: c_int, factors: Raw, length: *mut c_int);
    reflections = [cusolverDnSorgqr, cusolverDnDorgqr](handle: Raw, m: c_int, n: c_int, k: c_int, a: Raw, leading: c_int, factors: Raw, workspace: Raw, length: c_int, info: Raw);
    svd_workspace = [cusolverDnSgesvd_bufferSize, cusolverDnDgesvd_bufferSize](handle: Raw, m: c_int, n: c_int, length: *mut c_int);
    svd = [cusolverDnSgesvd, cusolverDnDgesvd](handle: Raw, job_u: c_char, job_vt: c_char, m: c_int, n: c_int, a: Raw, leading: c_int, values: Raw, u: Raw, leading_u: c_int, vt: Raw, leading_vt: c_int, workspace: Raw, length: c_int, rest: Raw, info: Raw);
    eigen_workspace = [cusolverDnSsyevd_bufferSize, cusolverDnDsyevd_bufferSize](handle: Raw, mode: c_uint, fill: c_uint, n: c_int, a: Raw, leading: c_int, values: Raw, length: *mut c_int);
    eigen = [cusolverDnSsyevd, cusolverDnDsyevd](handle: Raw, mode: c_uint, fill: c_uint, n: c_int, a: Raw, leading: c_int, values: Raw, workspace: Raw, length: c_int, info: Raw);
}

impl Functions {
    /// # Safety
    ///
    /// As the library's documentation states.
    unsafe fn create(&self, handle: *mut Raw) -> SolverResult {
        // SAFETY: by this function's contract.
        unsafe { calls::create(self, 0, handle) }
    }

    /// # Safety
    ///
    /// As the library's documentation states.
    unsafe fn destroy(&self, handle: Raw) -> SolverResult {
        // SAFETY: by this function's contract.
        unsafe { calls::destroy(self, 0, handle) }
    }

    /// # Safety
    ///
    /// As the library's documentation states.
    unsafe fn set_stream(&self, handle: Raw, stream: CUstream) -> SolverResult {
        // SAFETY: by this function's contract.
        unsafe { calls::set_stream(self, 0, handle, stream) }
    }

    /// Asks for the elements of workspace of a call.
    ///
    /// # Safety
    ///
    /// The handle must be one, and its context current.
    unsafe fn ask(&self, handle: Raw, call: &SolverCall, length: &mut c_int) -> SolverResult {
        let SolverCall {
            rows: m,
            columns: n,
            ..
        } = *call;
        let (width, a) = (usize::from(call.is_wide), call.matrix.0 as Raw);
        // SAFETY: by this function's contract.
        unsafe {
            match call.kind {
                Factorization::Lu { .. } => {
                    calls::lu_workspace(self, width, handle, m, n, a, m, length)
                }
                Factorization::Solve { .. } => Ok(()),
                Factorization::Cholesky => {
                    calls::cholesky_workspace(self, width, handle, UPPER, n, a, m, length)
                }
                Factorization::Qr { .. } => {
                    calls::qr_workspace(self, width, handle, m, n, a, m, length)
                }
                Factorization::Reflections { factors } => {
                    let factors = factors.0 as Raw;
                    calls::reflections_workspace(
                        self, width, handle, m, n, n, a, m, factors, length,
                    )
                }
                Factorization::Svd { .. } => {
                    calls::svd_workspace(self, width, handle, m, n, length)
                }
                Factorization::Eigen { values, wanted } => {
                    let (mode, values) = (EIGEN_MODES[usize::from(wanted)], values.0 as Raw);
                    calls::eigen_workspace(
                        self, width, handle, mode, UPPER, n, a, m, values, length,
                    )
                }
            }
        }
    }

    /// Makes a call.
    ///
    /// # Safety
    ///
    /// As for [`Solver::run`]; the handle is that of the stream, in the context that is current.
    unsafe fn run(
        &self,
        handle: Raw,
        call: &SolverCall,
        workspace: Raw,
        length: c_int,
    ) -> SolverResult {
        let SolverCall {
            rows: m,
            columns: n,
            ..
        } = *call;
        let (width, info) = (usize::from(call.is_wide), call.info.0 as Raw);
        let raw = |address: DevicePtr| address.0 as Raw;
        let a = raw(call.matrix);
        // SAFETY: by this function's contract.
        unsafe {
            match call.kind {
                Factorization::Lu { pivots } => calls::lu(
                    self,
                    width,
                    handle,
                    m,
                    n,
                    a,
                    m,
                    workspace,
                    raw(pivots),
                    info,
                ),
                Factorization::Solve {
                    pivots,
                    right,
                    count,
                } => {
                    let (pivots, right) = (raw(pivots), raw(right));
                    calls::solve(
                        self, width, handle, AS_IT_IS, n, count, a, m, pivots, right, n, info,
                    )
                }
                Factorization::Cholesky => {
                    calls::cholesky(self, width, handle, UPPER, n, a, m, workspace, length, info)
                }
                Factorization::Qr { factors } => {
                    let factors = raw(factors);
                    calls::qr(
                        self, width, handle, m, n, a, m, factors, workspace, length, info,
                    )
                }
                Factorization::Reflections { factors } => {
                    let factors = raw(factors);
                    calls::reflections(
                        self, width, handle, m, n, n, a, m, factors, workspace, length, info,
                    )
                }
                Factorization::Svd { values, vectors } => {
                    let job = JOBS[usize::from(vectors.is_some())];
                    let [u, vt] = vectors.map_or([ptr::null_mut(); 2], |vectors| vectors.map(raw));
                    let values = raw(values);
                    let rest = ptr::null_mut();
                    calls::svd(
                        self, width, handle, job, job, m, n, a, m, values, u, m, vt, n, workspace,
                        length, rest, info,
                    )
                }
                Factorization::Eigen { values, wanted } => {
                    let (mode, values) = (EIGEN_MODES[usize::from(wanted)], raw(values));
                    calls::eigen(
                        self, width, handle, mode, UPPER, n, a, m, values, workspace, length, info,
                    )
                }
            }
        }
    }

    /// The library, loaded at the first call; a missing library is not remembered.
    fn get() -> Result<&'static Self> {
        static LOADED: Mutex<Option<&'static Functions>> = Mutex::new(None);
        let mut loaded = LOADED.lock();
        if let Some(functions) = *loaded {
            return Ok(functions);
        }
        // SAFETY: loading the library runs its initialisers, which NVIDIA supports at any time.
        if !unsafe { sys::is_culib_present() } {
            let text = format!("linalg on CUDA needs cuSOLVER, which was not found: {INSTALL}");
            return Err(Error::new(ErrorKind::Driver, text));
        }
        let functions: &'static Self = Box::leak(Box::new(Self::look_up()?));
        *loaded = Some(functions);
        Ok(functions)
    }
}

/// What to install.
const INSTALL: &str = "install cuSOLVER of CUDA 12 or 13 (libcusolver.so.11 or .12)";

fn lacks(symbol: &str) -> Error {
    let text = format!("linalg on CUDA: cuSOLVER has no function {symbol}: {INSTALL}");
    Error::new(ErrorKind::Driver, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_to_install() {
        let text = lacks("cusolverDnSgetrf").to_string();
        let says = ["cusolverDnSgetrf", "libcusolver.so.11"];
        assert!(says.iter().all(|says| text.contains(says)), "{text}");
    }

    #[test]
    fn a_failure_names_the_call_and_its_status() {
        let failure = |status| SolverError {
            call: "cusolverDnCreate",
            status,
        };
        let text = failure(2).to_string();
        assert_eq!(
            text,
            "cusolverDnCreate failed with CUSOLVER_STATUS_ALLOC_FAILED"
        );
        assert_eq!(
            failure(99).to_string(),
            "cusolverDnCreate failed with status 99"
        );
        assert_eq!(failure(9).kind(), ErrorKind::Unsupported);
        assert_eq!(failure(6).kind(), ErrorKind::Driver);
    }
}
