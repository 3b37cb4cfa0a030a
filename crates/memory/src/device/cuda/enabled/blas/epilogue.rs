//! Matrix products plus a bias, by cublasLt. cublasLt adds the bias while it writes the product.
//!
//! cublasLt is the library below cuBLAS. It accepts a handle of cuBLAS in place of its own handle.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::CUstream;

use super::{BlasHandle, compute_type_of, data_type_of, operation_of};
use crate::device::cuda::enabled::context::RawHandle;
use crate::device::cuda::enabled::headers::cublas_lt::{self, MatmulAlgo, MatmulHeuristicResult};
use crate::device::cuda::enabled::headers::{cublas, data_type};
use crate::device::cuda::enabled::library::{
    Library, LibraryError, LibraryResult, library_functions,
};
use crate::device::cuda::enabled::{Cuda, Opaque};
use crate::device::cuda::gemm::{Gemm, GemmCall, GemmType};
use crate::device::{DevicePtr, StreamId};
use crate::error::{ErrorKind, Result};
use crate::sync::plain::Mutex;

/// The maximum number of plans of a device. A plan takes about a kilobyte of the host's memory.
const MOST_PLANS: usize = 1024;

/// The minimum alignment of a bias in bytes. Algorithms may read words of 16 bytes.
const BIAS_ALIGNMENT: u64 = 16;

impl Cuda {
    /// Computes a matrix product plus a bias in the order of `stream`. The bias has one element for
    /// each column, without gaps, of the product's type. Each sum is rounded once. Returns `false`,
    /// and enqueues nothing, if cublasLt is missing or has no algorithm for this product.
    ///
    /// # Safety
    ///
    /// The conditions of [`gemm`](Self::gemm) must hold, also for the elements of the bias.
    pub unsafe fn gemm_with_bias(
        &self,
        stream: StreamId,
        gemm: &Gemm,
        bias: DevicePtr,
    ) -> Result<bool> {
        if !has_epilogue(gemm, bias) {
            return Ok(false);
        }
        let mut calls = gemm.calls()?;
        let (Some(call), None) = (calls.next(), calls.next()) else {
            return Ok(false);
        };
        if self.context.is_imitated() {
            return Ok(true);
        }
        let (blas, of_handles) = (&self.blas, super::Functions::get()?);
        let Some(functions) = Functions::of_process() else {
            return Ok(false);
        };
        let submission = self.streams.submit_to(stream)?;
        let raw = submission.raw();
        let mut handles = blas.handles.lock();
        let handle = blas.handle_of(&mut handles, of_handles, (stream, raw))?;
        blas.context.make_current("matmul")?;
        let key = PlanKey::of(gemm, &call, bias, (handle.workspace_bytes, blas.tf32));
        let plans = &mut handles.plans;
        let planned = plans.find(functions, handle, key, bias);
        let Some(plan) = planned.map_err(|failure| blas.error("matmul", failure))? else {
            return Ok(false);
        };
        // SAFETY: by this function's contract. The plan was made for these arguments, the handle
        // is the stream's, and its context is current.
        let outcome = unsafe { plan.run(functions, (handle, raw), &call, bias) };
        match outcome {
            Err(failure) if is_refusal(failure) => {
                plans.refuse(key);
                Ok(false)
            }
            outcome => outcome
                .map(|()| true)
                .map_err(|failure| blas.error("matmul", failure)),
        }
    }
}

/// Returns whether cublasLt documents an epilogue that adds `bias` to this product.
fn has_epilogue(gemm: &Gemm, bias: DevicePtr) -> bool {
    let types = (gemm.element, gemm.product);
    let is_documented = matches!(
        types,
        (GemmType::F16, GemmType::F16 | GemmType::F32)
            | (GemmType::Bf16, GemmType::Bf16 | GemmType::F32)
            | (GemmType::F32, GemmType::F32)
    );
    let is_single = gemm.count == 1 && !gemm.is_begun;
    is_documented && is_single && bias.0.is_multiple_of(BIAS_ALIGNMENT)
}

/// Returns the largest power of two that divides the address, but at most 256. cublasLt
/// distinguishes no larger alignments.
fn alignment_of(address: DevicePtr) -> u32 {
    1 << address.0.trailing_zeros().min(8)
}

/// The properties of a product with a bias that the choice of its algorithm depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PlanKey {
    element: GemmType,
    product: GemmType,
    transposed: [bool; 2],
    lengths: [i32; 3],
    leading: [i32; 3],
    /// The alignments of the matrices A, B, C and D in bytes. C and D are the product. The
    /// alignment of D is also the alignment of the bias.
    alignments: [u32; 4],
    workspace_bytes: usize,
    tf32: bool,
}

impl PlanKey {
    fn of(
        gemm: &Gemm,
        call: &GemmCall,
        bias: DevicePtr,
        (workspace_bytes, tf32): (usize, bool),
    ) -> Self {
        let [left, right, product] = call.addresses.map(alignment_of);
        Self {
            element: gemm.element,
            product: gemm.product,
            transposed: call.transposed,
            lengths: call.lengths,
            leading: call.leading,
            alignments: [left, right, product, product.min(alignment_of(bias))],
            workspace_bytes,
            tf32,
        }
    }
}

/// The plans of a device. A plan is `None` if cublasLt has no algorithm for the product. The choice
/// of an algorithm takes tens of microseconds, so it is made once.
#[derive(Debug, Default)]
pub(super) struct Plans(HashMap<PlanKey, Option<Plan>>);

impl Plans {
    /// Returns the plan of a product. The first call for a key creates the plan. If there are
    /// [`MOST_PLANS`] plans, first destroys all of them.
    fn find(
        &mut self,
        functions: &'static Functions,
        handle: BlasHandle,
        key: PlanKey,
        bias: DevicePtr,
    ) -> LibraryResult<Option<&Plan>> {
        if !self.0.contains_key(&key) {
            let made = match Plan::new(functions, handle, &key, bias) {
                Err(failure) if is_refusal(failure) => None,
                outcome => outcome?,
            };
            if self.0.len() >= MOST_PLANS {
                self.0.clear();
            }
            self.0.insert(key, made);
        }
        Ok(self.0.get(&key).and_then(Option::as_ref))
    }

    /// Records that cublasLt has no algorithm for the product.
    fn refuse(&mut self, key: PlanKey) {
        self.0.insert(key, None);
    }
}

/// Returns whether the failure means that cublasLt does not support the product. Any other failure
/// is an error.
fn is_refusal(failure: LibraryError) -> bool {
    failure.status == cublas::INVALID_VALUE || failure.kind() == ErrorKind::Unsupported
}

/// The description of a product with a bias, and its algorithm.
#[derive(Debug)]
struct Plan {
    product: Descriptor,
    /// The layouts of the matrices A, B and D. The layout of C is the layout of D.
    layouts: [Descriptor; 3],
    algorithm: MatmulAlgo,
}

impl Plan {
    /// Creates a plan. Returns `None` if no algorithm was found.
    fn new(
        functions: &'static Functions,
        handle: BlasHandle,
        key: &PlanKey,
        bias: DevicePtr,
    ) -> LibraryResult<Option<Self>> {
        let [m, n, k] = key.lengths;
        let stored = |transposed: bool, rows: i32, columns: i32| match transposed {
            true => (columns, rows),
            false => (rows, columns),
        };
        let [first, second] = key.transposed;
        let [operand, result] = [key.element, key.product].map(data_type_of);
        let layout = |at: usize, element: c_uint, (rows, columns): (i32, i32)| {
            let leading = i64::from(key.leading[at]);
            // SAFETY: the address that `create` passes is writable.
            let create = |raw: &mut Opaque| unsafe {
                functions.create_layout(raw, element, rows as u64, columns as u64, leading)
            };
            Descriptor::new(functions, Functions::destroy_layout, create)
        };
        let layouts = [
            layout(0, operand, stored(first, m, k))?,
            layout(1, operand, stored(second, k, n))?,
            layout(2, result, (m, n))?,
        ];
        let compute = compute_type_of(key.element, key.tf32);
        // SAFETY: the address that `create` passes is writable.
        let create =
            |raw: &mut Opaque| unsafe { functions.create_product(raw, compute, data_type::R_32F) };
        let product = Descriptor::new(functions, Functions::destroy_product, create)?;
        let operations = key.transposed.map(operation_of);
        for (attribute, value) in [
            (cublas_lt::MATMUL_DESC_TRANSA, operations[0]),
            (cublas_lt::MATMUL_DESC_TRANSB, operations[1]),
            (cublas_lt::MATMUL_DESC_EPILOGUE, cublas_lt::EPILOGUE_BIAS),
        ] {
            // SAFETY: the descriptor is alive, and the attribute has the type of `value`.
            unsafe { functions.describe(&product, attribute, &value) }?;
        }
        let algorithm = Self::algorithm(functions, handle, key, (&product, &layouts, bias))?;
        Ok(algorithm.map(|algorithm| Self {
            product,
            layouts,
            algorithm,
        }))
    }

    /// Returns the algorithm that the library estimates to be the fastest, if there is one.
    fn algorithm(
        functions: &'static Functions,
        handle: BlasHandle,
        key: &PlanKey,
        (product, [first, second, result], bias): (&Descriptor, &[Descriptor; 3], DevicePtr),
    ) -> LibraryResult<Option<MatmulAlgo>> {
        // SAFETY: the address that `create` passes is writable.
        let create = |raw: &mut Opaque| unsafe { functions.create_preference(raw) };
        let preference = Descriptor::new(functions, Functions::destroy_preference, create)?;
        // Partial sums are combined in `f32`, and equal in every run.
        let scheme = cublas_lt::REDUCTION_SCHEME_COMPUTE_TYPE;
        let alignments = cublas_lt::MATMUL_PREF_MIN_ALIGNMENT_BYTES.into_iter();
        let mut found = MatmulHeuristicResult::default();
        let mut count: c_int = 0;
        // SAFETY: the descriptors are alive, and each attribute has the type of its value. Both
        // results are writable, and one algorithm is requested.
        unsafe {
            functions.describe(product, cublas_lt::MATMUL_DESC_BIAS_POINTER, &bias.0)?;
            functions.prefer(
                &preference,
                cublas_lt::MATMUL_PREF_MAX_WORKSPACE_BYTES,
                &key.workspace_bytes,
            )?;
            functions.prefer(
                &preference,
                cublas_lt::MATMUL_PREF_REDUCTION_SCHEME_MASK,
                &scheme,
            )?;
            for (attribute, alignment) in alignments.zip(&key.alignments) {
                functions.prefer(&preference, attribute, alignment)?;
            }
            functions.find_algorithms(
                handle.raw.0,
                product.raw.0,
                first.raw.0,
                second.raw.0,
                result.raw.0,
                result.raw.0,
                preference.raw.0,
                1,
                &raw mut found,
                &raw mut count,
            )?;
        }
        let fits = count > 0 && found.state == 0 && found.workspace_size <= key.workspace_bytes;
        Ok(fits.then_some(found.algo))
    }

    /// Enqueues the product.
    ///
    /// # Safety
    ///
    /// The conditions of [`Cuda::gemm_with_bias`] must hold. The plan must be a plan of the call.
    /// `handle` must be the handle of the stream, and its context must be current. Nothing else may
    /// use the plan or the handle during the call.
    unsafe fn run(
        &self,
        functions: &Functions,
        (handle, stream): (BlasHandle, CUstream),
        call: &GemmCall,
        bias: DevicePtr,
    ) -> LibraryResult {
        let (one, zero) = (1.0f32, 0.0f32);
        let [left, right, product] = call.addresses.map(|address| address.0 as *mut c_void);
        let [first, second, result] = &self.layouts;
        // SAFETY: by this function's contract. The scalars have the scale type of the product.
        unsafe {
            functions.describe(&self.product, cublas_lt::MATMUL_DESC_BIAS_POINTER, &bias.0)?;
            functions.multiply(
                handle.raw.0,
                self.product.raw.0,
                (&raw const one).cast(),
                left,
                first.raw.0,
                right,
                second.raw.0,
                (&raw const zero).cast(),
                product,
                result.raw.0,
                product,
                result.raw.0,
                &raw const self.algorithm,
                handle.workspace as *mut c_void,
                handle.workspace_bytes,
                stream,
            )
        }
    }
}

/// An object of cublasLt in the host's memory. A call copies the object, so that the object may be
/// destroyed before the work has completed, and during a capture.
#[derive(Debug)]
struct Descriptor {
    raw: RawHandle<c_void>,
    functions: &'static Functions,
    destroy: Destroy,
}

/// A function of the table that destroys an object.
type Destroy = unsafe fn(&Functions, Opaque) -> LibraryResult;

impl Descriptor {
    fn new(
        functions: &'static Functions,
        destroy: Destroy,
        create: impl FnOnce(&mut Opaque) -> LibraryResult,
    ) -> LibraryResult<Self> {
        let mut raw = ptr::null_mut();
        create(&mut raw)?;
        Ok(Self {
            raw: RawHandle(raw),
            functions,
            destroy,
        })
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the object was created for this function, and nothing else has it.
        let _ = unsafe { (self.destroy)(self.functions, self.raw.0) };
    }
}

impl Functions {
    /// Returns the functions of the cublasLt that the loaded cuBLAS uses, or `None` if a function
    /// is missing. The caller must have loaded cuBLAS. The first result is final.
    fn of_process() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<&'static Functions>> = OnceLock::new();
        *FOUND.get_or_init(|| Self::get().ok())
    }

    /// Sets an attribute of the description of a product.
    ///
    /// # Safety
    ///
    /// `product` must be a description of a product, and the attribute must have the type `T`.
    unsafe fn describe<T>(
        &self,
        product: &Descriptor,
        attribute: c_uint,
        value: &T,
    ) -> LibraryResult {
        // SAFETY: by this function's contract. The library copies the value.
        unsafe {
            self.set_of_product(
                product.raw.0,
                attribute,
                ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        }
    }

    /// Sets an attribute of a preference.
    ///
    /// # Safety
    ///
    /// `preference` must be a preference, and the attribute must have the type `T`.
    unsafe fn prefer<T>(
        &self,
        preference: &Descriptor,
        attribute: c_uint,
        value: &T,
    ) -> LibraryResult {
        // SAFETY: by this function's contract. The library copies the value.
        unsafe {
            self.set_of_preference(
                preference.raw.0,
                attribute,
                ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        }
    }
}

/// cublasLt. On Linux, its functions are looked up in the file of cuBLAS, which depends on it. So
/// the handles and the functions belong to one version. Windows does not search dependencies.
static LIBRARY: Library = Library {
    name: "cublasLt",
    file: if cfg!(windows) { "cublasLt" } else { "cublas" },
    ..super::LIBRARY
};

library_functions! { LIBRARY:
    create_product = cublasLtMatmulDescCreate(product: *mut Opaque, compute: c_uint, scale: c_uint);
    destroy_product = cublasLtMatmulDescDestroy(product: Opaque);
    set_of_product = cublasLtMatmulDescSetAttribute(product: Opaque, attribute: c_uint, value: *const c_void, bytes: usize);
    create_layout = cublasLtMatrixLayoutCreate(layout: *mut Opaque, element: c_uint, rows: u64, columns: u64, leading: i64);
    destroy_layout = cublasLtMatrixLayoutDestroy(layout: Opaque);
    create_preference = cublasLtMatmulPreferenceCreate(preference: *mut Opaque);
    destroy_preference = cublasLtMatmulPreferenceDestroy(preference: Opaque);
    set_of_preference = cublasLtMatmulPreferenceSetAttribute(preference: Opaque, attribute: c_uint, value: *const c_void, bytes: usize);
    find_algorithms = cublasLtMatmulAlgoGetHeuristic(handle: Opaque, product: Opaque, first: Opaque, second: Opaque, added: Opaque, result: Opaque, preference: Opaque, requested: c_int, found: *mut MatmulHeuristicResult, count: *mut c_int);
    multiply = cublasLtMatmul(handle: Opaque, product: Opaque, alpha: *const c_void, first: *const c_void, first_layout: Opaque, second: *const c_void, second_layout: Opaque, beta: *const c_void, added: *const c_void, added_layout: Opaque, result: *mut c_void, result_layout: Opaque, algorithm: *const MatmulAlgo, workspace: *mut c_void, workspace_bytes: usize, stream: CUstream);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alignment_is_the_largest_power_of_two_up_to_256() {
        let alignments = [2, 4, 6, 16, 48, 128, 256, 512, 768, 1 << 40, 0];
        let alignments = alignments.map(|address| alignment_of(DevicePtr(address)));
        assert_eq!(alignments, [2, 4, 2, 16, 16, 128, 256, 256, 256, 256, 256]);
    }
}
