//! Compares the memory crate's tables of constants and structures with cudarc's tables. cudarc's
//! tables are generated from NVIDIA's headers.

use std::ffi::c_uint;
use std::fmt::Debug;
use std::mem::offset_of;

use cachescope_memory::internal::device::cuda::headers::{
    Statuses, cublas, cublas_lt, cufft, cusolver, data_type, nccl,
};

#[track_caller]
fn assert_named<const N: usize>(statuses: Statuses, of_cudarc: [(c_uint, &dyn Debug); N]) {
    let named = of_cudarc.map(|(number, status)| (number, format!("{status:?}")));
    for (number, name) in statuses {
        assert!(named.contains(&(*number, (*name).to_owned())), "{name}");
    }
    assert_eq!(statuses.len(), N);
}

macro_rules! statuses {
    ($type:ty: $($name:ident),+ $(,)?) => {
        [$((<$type>::$name as c_uint, &<$type>::$name as &dyn Debug)),+]
    };
}

#[test]
fn statuses_have_the_numbers_of_the_headers() {
    use cudarc::cublas::sys::cublasStatus_t as Blas;
    use cudarc::cufft::sys::cufftResult as Fft;
    use cudarc::cusolver::sys::cusolverStatus_t as Solver;
    use cudarc::nccl::sys::ncclResult_t as Nccl;
    assert_named(
        cublas::STATUSES,
        statuses!(Blas: CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED,
            CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH,
            CUBLAS_STATUS_MAPPING_ERROR, CUBLAS_STATUS_EXECUTION_FAILED,
            CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_NOT_SUPPORTED,
            CUBLAS_STATUS_LICENSE_ERROR),
    );
    assert_named(
        cufft::STATUSES,
        statuses!(Fft: CUFFT_INVALID_PLAN, CUFFT_ALLOC_FAILED, CUFFT_INVALID_TYPE,
            CUFFT_INVALID_VALUE, CUFFT_INTERNAL_ERROR, CUFFT_EXEC_FAILED, CUFFT_SETUP_FAILED,
            CUFFT_INVALID_SIZE, CUFFT_UNALIGNED_DATA, CUFFT_INVALID_DEVICE,
            CUFFT_NO_WORKSPACE, CUFFT_NOT_IMPLEMENTED, CUFFT_NOT_SUPPORTED),
    );
    assert_named(
        cusolver::STATUSES,
        statuses!(Solver: CUSOLVER_STATUS_NOT_INITIALIZED, CUSOLVER_STATUS_ALLOC_FAILED,
            CUSOLVER_STATUS_INVALID_VALUE, CUSOLVER_STATUS_ARCH_MISMATCH,
            CUSOLVER_STATUS_EXECUTION_FAILED, CUSOLVER_STATUS_INTERNAL_ERROR,
            CUSOLVER_STATUS_NOT_SUPPORTED),
    );
    assert_named(
        nccl::STATUSES,
        statuses!(Nccl: ncclUnhandledCudaError, ncclSystemError, ncclInternalError,
            ncclInvalidArgument, ncclInvalidUsage, ncclRemoteError, ncclInProgress, ncclTimeout),
    );
}

#[test]
fn arguments_have_the_numbers_of_the_headers() {
    use cudarc::cublas::sys::{
        cublasComputeType_t as Compute, cublasFillMode_t as Fill, cublasGemmAlgo_t as Algorithm,
        cublasMath_t as Math, cublasOperation_t as Operation, cudaDataType_t as Data,
    };
    use cudarc::cufft::sys::cufftType as Transform;
    use cudarc::cusolver::sys::cusolverEigMode_t as Eigen;
    use cudarc::nccl::sys::{ncclDataType_t as Element, ncclRedOp_t as Reduction};
    for (own, of_cudarc) in [
        (data_type::R_32F, Data::CUDA_R_32F as c_uint),
        (data_type::R_64F, Data::CUDA_R_64F as c_uint),
        (data_type::R_16F, Data::CUDA_R_16F as c_uint),
        (data_type::C_32F, Data::CUDA_C_32F as c_uint),
        (data_type::C_64F, Data::CUDA_C_64F as c_uint),
        (data_type::R_16BF, Data::CUDA_R_16BF as c_uint),
        (cublas::OP_N, Operation::CUBLAS_OP_N as c_uint),
        (cublas::OP_T, Operation::CUBLAS_OP_T as c_uint),
        (
            cublas::FILL_MODE_UPPER,
            Fill::CUBLAS_FILL_MODE_UPPER as c_uint,
        ),
        (
            cublas::MATH_DISALLOW_REDUCED_PRECISION_REDUCTION,
            Math::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION as c_uint,
        ),
        (cublas::COMPUTE_32F, Compute::CUBLAS_COMPUTE_32F as c_uint),
        (cublas::COMPUTE_64F, Compute::CUBLAS_COMPUTE_64F as c_uint),
        (
            cublas::COMPUTE_32F_FAST_TF32,
            Compute::CUBLAS_COMPUTE_32F_FAST_TF32 as c_uint,
        ),
        (
            cublas::GEMM_DEFAULT as c_uint,
            Algorithm::CUBLAS_GEMM_DEFAULT as c_uint,
        ),
        (cufft::TYPES[0][0], Transform::CUFFT_C2C as c_uint),
        (cufft::TYPES[0][1], Transform::CUFFT_Z2Z as c_uint),
        (cufft::TYPES[1][0], Transform::CUFFT_R2C as c_uint),
        (cufft::TYPES[1][1], Transform::CUFFT_D2Z as c_uint),
        (cufft::TYPES[2][0], Transform::CUFFT_C2R as c_uint),
        (cufft::TYPES[2][1], Transform::CUFFT_Z2D as c_uint),
        (
            cusolver::EIGEN_MODES[0],
            Eigen::CUSOLVER_EIG_MODE_NOVECTOR as c_uint,
        ),
        (
            cusolver::EIGEN_MODES[1],
            Eigen::CUSOLVER_EIG_MODE_VECTOR as c_uint,
        ),
        (nccl::INT8, Element::ncclInt8 as c_uint),
        (nccl::UINT8, Element::ncclUint8 as c_uint),
        (nccl::INT32, Element::ncclInt32 as c_uint),
        (nccl::UINT32, Element::ncclUint32 as c_uint),
        (nccl::INT64, Element::ncclInt64 as c_uint),
        (nccl::UINT64, Element::ncclUint64 as c_uint),
        (nccl::FLOAT16, Element::ncclFloat16 as c_uint),
        (nccl::FLOAT32, Element::ncclFloat32 as c_uint),
        (nccl::FLOAT64, Element::ncclFloat64 as c_uint),
        (nccl::BFLOAT16, Element::ncclBfloat16 as c_uint),
        (nccl::SUM, Reduction::ncclSum as c_uint),
        (nccl::MAX, Reduction::ncclMax as c_uint),
        (nccl::MIN, Reduction::ncclMin as c_uint),
        (nccl::AVG, Reduction::ncclAvg as c_uint),
    ] {
        assert_eq!(own, of_cudarc);
    }
}

#[test]
fn attributes_of_cublas_lt_have_the_numbers_of_its_header() {
    use cudarc::cublas::sys::cublasStatus_t as Status;
    use cudarc::cublaslt::sys::{
        cublasLtEpilogue_t as Epilogue, cublasLtMatmulDescAttributes_t as Product,
        cublasLtMatmulPreferenceAttributes_t as Preference, cublasLtReductionScheme_t as Reduction,
    };
    let alignments = cublas_lt::MATMUL_PREF_MIN_ALIGNMENT_BYTES;
    for (own, of_cudarc) in [
        (
            cublas_lt::MATMUL_DESC_TRANSA,
            Product::CUBLASLT_MATMUL_DESC_TRANSA as c_uint,
        ),
        (
            cublas_lt::MATMUL_DESC_TRANSB,
            Product::CUBLASLT_MATMUL_DESC_TRANSB as c_uint,
        ),
        (
            cublas_lt::MATMUL_DESC_EPILOGUE,
            Product::CUBLASLT_MATMUL_DESC_EPILOGUE as c_uint,
        ),
        (
            cublas_lt::MATMUL_DESC_BIAS_POINTER,
            Product::CUBLASLT_MATMUL_DESC_BIAS_POINTER as c_uint,
        ),
        (
            cublas_lt::EPILOGUE_BIAS,
            Epilogue::CUBLASLT_EPILOGUE_BIAS as c_uint,
        ),
        (
            cublas_lt::MATMUL_PREF_MAX_WORKSPACE_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as c_uint,
        ),
        (
            cublas_lt::MATMUL_PREF_REDUCTION_SCHEME_MASK,
            Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK as c_uint,
        ),
        (
            alignments[0],
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES as c_uint,
        ),
        (
            alignments[1],
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES as c_uint,
        ),
        (
            alignments[2],
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES as c_uint,
        ),
        (
            alignments[3],
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES as c_uint,
        ),
        (
            cublas_lt::REDUCTION_SCHEME_COMPUTE_TYPE,
            Reduction::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as c_uint,
        ),
        (
            cublas::INVALID_VALUE,
            Status::CUBLAS_STATUS_INVALID_VALUE as c_uint,
        ),
    ] {
        assert_eq!(own, of_cudarc);
    }
}

#[test]
fn structures_of_cublas_lt_have_the_layout_of_its_header() {
    use cublas_lt::MatmulHeuristicResult as Own;
    use cudarc::cublaslt::sys::{cublasLtMatmulAlgo_t, cublasLtMatmulHeuristicResult_t as Found};
    assert_eq!(
        size_of::<cublas_lt::MatmulAlgo>(),
        size_of::<cublasLtMatmulAlgo_t>()
    );
    assert_eq!(size_of::<Own>(), size_of::<Found>());
    assert_eq!(offset_of!(Own, algo), offset_of!(Found, algo));
    assert_eq!(
        offset_of!(Own, workspace_size),
        offset_of!(Found, workspaceSize)
    );
    assert_eq!(offset_of!(Own, state), offset_of!(Found, state));
    assert_eq!(offset_of!(Own, waves_count), offset_of!(Found, wavesCount));
}

#[test]
fn structures_of_nccl_have_the_layout_of_its_header() {
    use cudarc::nccl::sys::{ncclConfig_t as Config, ncclUniqueId};
    use nccl::Config as Own;
    assert_eq!(size_of::<nccl::UniqueId>(), size_of::<ncclUniqueId>());
    assert_eq!(size_of::<Own>(), size_of::<Config>());
    assert_eq!(offset_of!(Own, blocking), offset_of!(Config, blocking));
    assert_eq!(offset_of!(Own, net_name), offset_of!(Config, netName));
    assert_eq!(offset_of!(Own, split_share), offset_of!(Config, splitShare));
    assert_eq!(offset_of!(Own, comm_name), offset_of!(Config, commName));
    assert_eq!(
        offset_of!(Own, max_p2p_peers),
        offset_of!(Config, maxP2pPeers)
    );
}
