//! Matrix products by cuBLAS, which is loaded at the first product.

mod epilogue;

use std::collections::HashMap;
use std::ffi::{c_int, c_longlong, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::CUstream;

use super::context::{Context, RawHandle};
use super::driver::Driver;
use super::error::DriverResult;
use super::headers::{cublas, data_type};
use super::library::{Library, LibraryError, LibraryResult, library_functions};
use super::{Cuda, Opaque};
use crate::device::StreamId;
use crate::device::cuda::gemm::{Gemm, GemmCall, GemmType};
use crate::error::{Error, Result};
use crate::sync::Arc;
use crate::sync::plain::Mutex;
use epilogue::Plans;

/// NVIDIA's recommended workspace sizes: since Hopper, and before Hopper. If there is no memory for
/// a workspace, the handle works without one.
const WORKSPACE_BYTES: [usize; 2] = [32 << 20, 4 << 20];

/// The cuBLAS handles of a device, one per stream, created at the stream's first product. Each
/// handle has its own workspace, so results are reproducible.
#[derive(Debug)]
pub(super) struct Blas {
    context: Arc<Context>,
    handles: Mutex<Handles>,
    /// Set if `f32` operands may be rounded to TF32.
    pub(super) tf32: bool,
}

/// The state of a device's products. The lock of the state is held during each call, because a
/// handle and a plan accept one call at a time.
#[derive(Debug, Default)]
struct Handles {
    of_streams: HashMap<StreamId, BlasHandle>,
    plans: Plans,
}

#[derive(Clone, Copy, Debug)]
struct BlasHandle {
    raw: RawHandle<c_void>,
    /// The address of the workspace, or 0.
    workspace: u64,
    workspace_bytes: usize,
}

impl Cuda {
    /// Computes matrix products in the order of `stream`.
    ///
    /// # Safety
    ///
    /// All elements that the lengths and strides address must be in memory of this device. Only
    /// work that is ordered with `stream` may write the operands or use the product.
    pub unsafe fn gemm(&self, stream: StreamId, gemm: &Gemm) -> Result<()> {
        let calls = gemm.calls()?;
        if self.context.is_imitated() {
            return Ok(());
        }
        let submission = self.streams.submit_to(stream)?;
        let (blas, functions) = (&self.blas, Functions::get()?);
        let mut handles = blas.handles.lock();
        let handle = blas.handle_of(&mut handles, functions, (stream, submission.raw()))?;
        blas.context.make_current("matmul")?;
        for call in calls {
            // SAFETY: by this function's contract. The handle is the stream's, and its context is
            // current.
            let outcome = unsafe { multiply(functions, handle, gemm, blas.tf32, &call) };
            outcome.map_err(|failure| blas.error("matmul", failure))?;
        }
        Ok(())
    }
}

impl Blas {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            handles: Mutex::default(),
            tf32: false,
        }
    }

    fn error(&self, attempting: &str, failure: LibraryError) -> Error {
        failure.of(self.context.id(), attempting)
    }

    /// Returns the handle of a stream. The first call for the stream creates the handle.
    fn handle_of(
        &self,
        handles: &mut Handles,
        functions: &'static Functions,
        (stream, raw): (StreamId, CUstream),
    ) -> Result<BlasHandle> {
        if let Some(&handle) = handles.of_streams.get(&stream) {
            return Ok(handle);
        }
        let made = self.make(functions, raw)?;
        handles.of_streams.insert(stream, made);
        Ok(made)
    }

    /// Creates a handle that enqueues its calls on `stream`.
    fn make(&self, functions: &'static Functions, stream: CUstream) -> Result<BlasHandle> {
        self.context.make_current("matmul")?;
        let mut raw = RawHandle(ptr::null_mut());
        // SAFETY: `raw` is writable, and the context is current.
        unsafe { functions.create(&mut raw.0) }
            .map_err(|failure| self.error("preparing cuBLAS", failure))?;
        let mut handle = BlasHandle {
            raw,
            workspace: 0,
            workspace_bytes: 0,
        };
        let prepared = self.prepare(functions, &mut handle, stream);
        if prepared.is_err() {
            self.destroy(functions, handle);
        }
        prepared.map(|()| handle)
    }

    fn prepare(
        &self,
        functions: &Functions,
        handle: &mut BlasHandle,
        stream: CUstream,
    ) -> Result<()> {
        let bytes = WORKSPACE_BYTES[usize::from(self.context.capability.0 < 9)];
        let raw = handle.raw.0;
        let workspace = &mut handle.workspace;
        self.context
            .run("reserving workspace for cuBLAS", |driver| {
                // SAFETY: `workspace` is writable.
                match unsafe { driver.mem_alloc(workspace, bytes) } {
                    Err(failure) if failure.is_out_of_memory() => Ok(()),
                    outcome => outcome,
                }
            })?;
        if handle.workspace != 0 {
            handle.workspace_bytes = bytes;
        }
        let (workspace, bytes) = (handle.workspace as *mut c_void, handle.workspace_bytes);
        // Sums of `f16` and `bf16` elements are computed in `f32`, even when partial sums are
        // combined.
        let mode = cublas::MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        // The stream is set first, because `set_stream` resets the workspace.
        // SAFETY: the handle was just created, and streams live longer than handles. The workspace
        // is the handle's own until the handle is destroyed.
        unsafe {
            functions
                .set_stream(raw, stream)
                .and_then(|()| functions.set_workspace(raw, workspace, bytes))
                .and_then(|()| functions.set_math_mode(raw, mode))
        }
        .map_err(|failure| self.error("preparing cuBLAS", failure))
    }

    /// Destroys an unused handle, once no capture is in progress. Errors cannot be reported.
    fn destroy(&self, functions: &'static Functions, handle: BlasHandle) {
        // The handle is detached from its stream, which may be destroyed before the handle.
        // SAFETY: the handle was made by `make`.
        let _ = unsafe { functions.set_stream(handle.raw.0, ptr::null_mut()) };
        let context = Arc::clone(&self.context);
        self.context.captures.make_or_postpone(move || {
            context.discard(|driver| destroy_now(functions, driver, handle));
        });
    }
}

fn destroy_now(functions: &Functions, driver: &Driver, handle: BlasHandle) -> DriverResult {
    // SAFETY: the handle was made by `make`, and nothing else has it.
    let _ = unsafe { functions.destroy(handle.raw.0) };
    if handle.workspace == 0 {
        return Ok(());
    }
    // SAFETY: only the handle used the workspace.
    unsafe { driver.mem_free(handle.workspace) }
}

impl Drop for Blas {
    fn drop(&mut self) {
        let Handles { of_streams, plans } = std::mem::take(&mut *self.handles.lock());
        drop(plans);
        // Without a handle, the library may not be loaded.
        if of_streams.is_empty() {
            return;
        }
        if let Ok(functions) = Functions::get() {
            for handle in of_streams.into_values() {
                self.destroy(functions, handle);
            }
        }
    }
}

/// Computes the products of one call.
///
/// # Safety
///
/// The conditions of [`Cuda::gemm`] must hold. `handle` must be the handle of the stream, and its
/// context must be current.
unsafe fn multiply(
    functions: &Functions,
    handle: BlasHandle,
    gemm: &Gemm,
    tf32: bool,
    call: &GemmCall,
) -> LibraryResult {
    // The scalars of complex products have an imaginary part. Products of real types do not read
    // this part.
    let (one, zero) = ([1.0f32, 0.0], [0.0f32; 2]);
    let (wide_one, wide_zero) = ([1.0f64, 0.0], [0.0f64; 2]);
    let single = [(&raw const one).cast(), (&raw const zero).cast()];
    let double = [(&raw const wide_one).cast(), (&raw const wide_zero).cast()];
    let [operand_type, product_type] = [gemm.element, gemm.product].map(data_type_of);
    let compute = compute_type_of(gemm.element, tf32);
    let [alpha, zero] = match compute {
        cublas::COMPUTE_64F => double,
        _ => single,
    };
    let beta = if gemm.is_begun { alpha } else { zero };
    let [first, second] = call.transposed.map(operation_of);
    let [left, right, product] = call.addresses.map(|address| address.0 as *mut c_void);
    let [m, n, k] = call.lengths;
    // SAFETY: by this function's contract. The scalars have the type of the sums.
    unsafe {
        functions.gemm(
            handle.raw.0,
            first,
            second,
            m,
            n,
            k,
            alpha,
            left,
            operand_type,
            call.leading[0],
            call.steps[0],
            right,
            operand_type,
            call.leading[1],
            call.steps[1],
            beta,
            product,
            product_type,
            call.leading[2],
            call.steps[2],
            call.count,
            compute,
            cublas::GEMM_DEFAULT,
        )
    }
}

fn data_type_of(element: GemmType) -> c_uint {
    match element {
        GemmType::F16 => data_type::R_16F,
        GemmType::Bf16 => data_type::R_16BF,
        GemmType::F32 => data_type::R_32F,
        GemmType::F64 => data_type::R_64F,
        GemmType::C32 => data_type::C_32F,
        GemmType::C64 => data_type::C_64F,
    }
}

/// Returns the type of the sums of products of `element`.
fn compute_type_of(element: GemmType, tf32: bool) -> c_uint {
    match element {
        GemmType::F64 | GemmType::C64 => cublas::COMPUTE_64F,
        GemmType::F32 | GemmType::C32 if tf32 => cublas::COMPUTE_32F_FAST_TF32,
        _ => cublas::COMPUTE_32F,
    }
}

fn operation_of(transposed: bool) -> c_uint {
    match transposed {
        true => cublas::OP_T,
        false => cublas::OP_N,
    }
}

static LIBRARY: Library = Library {
    name: "cuBLAS",
    file: "cublas",
    versions: &["13", "12"],
    operation: "matmul",
    install: "install cuBLAS of CUDA 12 or 13 (libcublas.so.12 or .13)",
    statuses: cublas::STATUSES,
    // An example is `bf16` on a device before Ampere.
    unsupported: &[8, 15],
};

library_functions! { LIBRARY:
    create = cublasCreate_v2(handle: *mut Opaque);
    destroy = cublasDestroy_v2(handle: Opaque);
    set_stream = cublasSetStream_v2(handle: Opaque, stream: CUstream);
    set_workspace = cublasSetWorkspace_v2(handle: Opaque, workspace: *mut c_void, bytes: usize);
    set_math_mode = cublasSetMathMode(handle: Opaque, mode: c_uint);
    gemm = cublasGemmStridedBatchedEx(handle: Opaque, first_operation: c_uint, second_operation: c_uint, m: c_int, n: c_int, k: c_int, alpha: *const c_void, first: *const c_void, first_type: c_uint, first_leading: c_int, first_step: c_longlong, second: *const c_void, second_type: c_uint, second_leading: c_int, second_step: c_longlong, beta: *const c_void, product: *mut c_void, product_type: c_uint, product_leading: c_int, product_step: c_longlong, count: c_int, compute: c_uint, algorithm: c_int);
}
