//! Tests of the emulator's cublasLt, which refuses what NVIDIA's documentation does not allow.

use std::mem::MaybeUninit;
use std::ptr::{self, null_mut};

use cudarc::cublas::sys::{self as cublas, cublasStatus_t as BlasStatus};
use cudarc::cublaslt::sys::{
    self as lt, cublasComputeType_t as Compute, cublasLtEpilogue_t as Epilogue,
    cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulPreferenceAttributes_t as Preference, cublasStatus_t as Status,
    cudaDataType as Data,
};

use cudarc::driver::sys;

use crate::rules::device::Device;

/// The words of the memory of each test: the operands, the result, and the bias.
const WORDS: usize = 4 << 10;
const WORKSPACE_BYTES: usize = 1 << 20;

#[track_caller]
fn done(status: Status) {
    assert_eq!(status, Status::CUBLAS_STATUS_SUCCESS);
}

/// A column-major product of ones plus a bias, and how it deviates from what is allowed.
#[derive(Clone, Copy)]
struct Case {
    data: Data,
    compute: Compute,
    /// The length of the sums. Long sums need a workspace.
    inner: u64,
    /// The bytes that are added to the addresses of the first operand and of the bias.
    offsets: [u64; 2],
    /// The alignment that the preference promises.
    alignment: u32,
    is_destroyed: bool,
}

const ALLOWED: Case = Case {
    data: Data::CUDA_R_32F,
    compute: Compute::CUBLAS_COMPUTE_32F,
    inner: 3,
    offsets: [0, 0],
    alignment: 256,
    is_destroyed: false,
};

/// The descriptors of a case, and the handle.
struct Objects {
    handle: lt::cublasLtHandle_t,
    product: lt::cublasLtMatmulDesc_t,
    /// The layouts of A, B and D.
    layouts: [lt::cublasLtMatrixLayout_t; 3],
    preference: lt::cublasLtMatmulPreference_t,
}

impl Objects {
    fn new(case: Case, bias: u64) -> Self {
        let (mut handle, mut product, mut preference) = (null_mut(), null_mut(), null_mut());
        let mut layouts = [null_mut(); 3];
        let scale = match case.data {
            Data::CUDA_R_64F => Data::CUDA_R_64F,
            _ => Data::CUDA_R_32F,
        };
        let lengths = [(4, case.inner), (case.inner, 2), (4, 2)];
        // SAFETY: the results are writable.
        unsafe {
            let created = cublas::cublasCreate_v2(&raw mut handle);
            assert_eq!(created, BlasStatus::CUBLAS_STATUS_SUCCESS);
            done(lt::cublasLtMatmulDescCreate(
                &raw mut product,
                case.compute,
                scale,
            ));
            for (layout, (rows, columns)) in layouts.iter_mut().zip(lengths) {
                let create = |layout, leading| {
                    lt::cublasLtMatrixLayoutCreate(layout, case.data, rows, columns, leading)
                };
                let short = create(layout, rows as i64 - 1);
                assert_eq!(short, Status::CUBLAS_STATUS_INVALID_VALUE);
                done(create(layout, rows as i64));
            }
            done(lt::cublasLtMatmulPreferenceCreate(&raw mut preference));
        }
        let objects = Self {
            handle: handle.cast(),
            product,
            layouts,
            preference,
        };
        let epilogue = Epilogue::CUBLASLT_EPILOGUE_BIAS;
        let attribute = Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE;
        done(objects.describe(attribute, &epilogue));
        let refused = objects.describe(attribute, &[epilogue; 2]);
        assert_eq!(refused, Status::CUBLAS_STATUS_INVALID_VALUE);
        done(objects.describe(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias));
        let attribute = Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        done(objects.prefer(attribute, &WORKSPACE_BYTES));
        for attribute in [
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            done(objects.prefer(attribute, &case.alignment));
        }
        objects
    }

    fn describe<T>(&self, attribute: Attribute, value: &T) -> Status {
        let (value, bytes) = (ptr::from_ref(value).cast(), size_of::<T>());
        // SAFETY: the value has the size that is passed.
        unsafe { lt::cublasLtMatmulDescSetAttribute(self.product, attribute, value, bytes) }
    }

    fn prefer<T>(&self, attribute: Preference, value: &T) -> Status {
        let (value, bytes) = (ptr::from_ref(value).cast(), size_of::<T>());
        // SAFETY: the value has the size that is passed.
        unsafe {
            lt::cublasLtMatmulPreferenceSetAttribute(self.preference, attribute, value, bytes)
        }
    }

    /// Returns the algorithm and the bytes of its workspace.
    fn search(&self) -> Result<(lt::cublasLtMatmulAlgo_t, usize), Status> {
        let [a, b, d] = self.layouts;
        let mut found = MaybeUninit::<lt::cublasLtMatmulHeuristicResult_t>::uninit();
        let mut count = 0;
        // SAFETY: the results are writable. If a result is counted, it is initialised.
        unsafe {
            let status = lt::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                self.product,
                a,
                b,
                d,
                d,
                self.preference,
                1,
                found.as_mut_ptr(),
                &raw mut count,
            );
            if status != Status::CUBLAS_STATUS_SUCCESS {
                assert_eq!(count, 0);
                return Err(status);
            }
            assert_eq!(count, 1);
            let found = found.assume_init();
            Ok((found.algo, found.workspaceSize))
        }
    }

    /// Enqueues the product of the operand at `first` and the operand at `second`.
    fn run(
        &self,
        algorithm: &lt::cublasLtMatmulAlgo_t,
        [first, second, result]: [u64; 3],
        workspace: (u64, usize),
        stream: sys::CUstream,
    ) -> Status {
        let (one, zero) = (1.0f32, 0.0f32);
        let [a, b, d] = self.layouts;
        // SAFETY: the scalars are on the host. The emulator checks all other arguments.
        unsafe {
            lt::cublasLtMatmul(
                self.handle,
                self.product,
                (&raw const one).cast(),
                first as _,
                a,
                second as _,
                b,
                (&raw const zero).cast(),
                result as _,
                d,
                result as _,
                d,
                algorithm,
                workspace.0 as _,
                workspace.1,
                stream.cast(),
            )
        }
    }

    fn destroy_second(&mut self) {
        // SAFETY: nothing else has the layout.
        done(unsafe { lt::cublasLtMatrixLayoutDestroy(self.layouts[1]) });
    }
}

/// Returns the status of the search for an algorithm or of the product, and the first sum.
fn outcome(case: Case) -> (Status, f32) {
    let device = Device::new();
    let stream = device.stream();
    let memory = device.memory(WORDS * 4);
    let workspace = device.memory(WORKSPACE_BYTES);
    device.fill(memory, 1.0f32.to_bits(), WORDS, stream);
    let [first, bias] = [memory + case.offsets[0], memory + 4096 + case.offsets[1]];
    let result = memory + 8192;
    let mut objects = Objects::new(case, bias);
    let status = match objects.search() {
        Err(status) => status,
        Ok((algorithm, bytes)) => {
            if case.is_destroyed {
                objects.destroy_second();
            }
            let run = |bytes| {
                let addresses = [first, memory, result];
                objects.run(&algorithm, addresses, (workspace, bytes), stream)
            };
            if bytes > 0 {
                assert_eq!(run(bytes - 1), Status::CUBLAS_STATUS_INVALID_VALUE);
            }
            run(bytes)
        }
    };
    let sum = device.words(result, 1, stream)[0];
    (status, f32::from_bits(sum))
}

#[test]
fn a_bias_is_added_to_short_and_long_sums() {
    let (status, sum) = outcome(ALLOWED);
    assert_eq!((status, sum), (Status::CUBLAS_STATUS_SUCCESS, 4.0));
    let long = Case {
        inner: 200,
        ..ALLOWED
    };
    assert_eq!(outcome(long), (Status::CUBLAS_STATUS_SUCCESS, 201.0));
}

#[test]
fn addresses_have_the_alignments_of_the_preference() {
    for offsets in [[4, 0], [0, 4]] {
        let wide = Case { offsets, ..ALLOWED };
        assert_eq!(outcome(wide).0, Status::CUBLAS_STATUS_INVALID_VALUE);
        let narrow = Case {
            alignment: 4,
            ..wide
        };
        assert_eq!(outcome(narrow), (Status::CUBLAS_STATUS_SUCCESS, 4.0));
    }
}

#[test]
fn no_algorithm_adds_a_bias_to_doubles() {
    let double = Case {
        data: Data::CUDA_R_64F,
        compute: Compute::CUBLAS_COMPUTE_64F,
        ..ALLOWED
    };
    assert_eq!(outcome(double).0, Status::CUBLAS_STATUS_NOT_SUPPORTED);
}

#[test]
fn a_destroyed_descriptor_is_a_misuse() {
    let control = cuda_emulator::Control::of_process().expect("the emulator is loaded");
    let destroyed = Case {
        is_destroyed: true,
        ..ALLOWED
    };
    let before = control.complaints();
    assert_eq!(outcome(destroyed).0, Status::CUBLAS_STATUS_INVALID_VALUE);
    assert_eq!(control.complaints() - before, 1);
    let text = control.last_complaint();
    assert!(text.contains("cublasLtMatmul: not a descriptor"), "{text}");
    control.forgive(1);
}
