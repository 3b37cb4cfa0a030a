//! Constants and structures from the headers of cuBLAS, cublasLt, cuFFT, cuSOLVER and NCCL.
//!
//! cudarc declares these items, too, but its modules for cuBLAS and NCCL need 40 % of its compile
//! time. A test of the emulated device compares these declarations with cudarc's.

use std::ffi::c_uint;

/// The numbers and names of a library's statuses.
pub type Statuses = &'static [(c_uint, &'static str)];

/// `cudaDataType_t`.
pub mod data_type {
    use std::ffi::c_uint;

    pub const R_32F: c_uint = 0;
    pub const R_64F: c_uint = 1;
    pub const R_16F: c_uint = 2;
    pub const C_32F: c_uint = 4;
    pub const C_64F: c_uint = 5;
    pub const R_16BF: c_uint = 14;
}

/// Constants of cuBLAS, without the prefix `CUBLAS_`.
pub mod cublas {
    use std::ffi::{c_int, c_uint};

    pub const OP_N: c_uint = 0;
    pub const OP_T: c_uint = 1;
    pub const FILL_MODE_UPPER: c_uint = 1;
    pub const MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: c_uint = 16;
    pub const COMPUTE_32F: c_uint = 68;
    pub const COMPUTE_64F: c_uint = 70;
    pub const COMPUTE_32F_FAST_TF32: c_uint = 77;
    pub const GEMM_DEFAULT: c_int = -1;
    /// `CUBLAS_STATUS_INVALID_VALUE`.
    pub const INVALID_VALUE: c_uint = 7;

    pub const STATUSES: super::Statuses = &[
        (1, "CUBLAS_STATUS_NOT_INITIALIZED"),
        (3, "CUBLAS_STATUS_ALLOC_FAILED"),
        (INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE"),
        (8, "CUBLAS_STATUS_ARCH_MISMATCH"),
        (11, "CUBLAS_STATUS_MAPPING_ERROR"),
        (13, "CUBLAS_STATUS_EXECUTION_FAILED"),
        (14, "CUBLAS_STATUS_INTERNAL_ERROR"),
        (15, "CUBLAS_STATUS_NOT_SUPPORTED"),
        (16, "CUBLAS_STATUS_LICENSE_ERROR"),
    ];
}

/// Constants and structures of cublasLt, without the prefix `CUBLASLT_` or `cublasLt`.
pub mod cublas_lt {
    use std::ffi::{c_int, c_uint};

    /// `cublasLtMatmulDescAttributes_t`.
    pub const MATMUL_DESC_TRANSA: c_uint = 3;
    pub const MATMUL_DESC_TRANSB: c_uint = 4;
    pub const MATMUL_DESC_EPILOGUE: c_uint = 7;
    pub const MATMUL_DESC_BIAS_POINTER: c_uint = 8;

    /// `cublasLtEpilogue_t`.
    pub const EPILOGUE_BIAS: c_uint = 4;

    /// `cublasLtMatmulPreferenceAttributes_t`.
    pub const MATMUL_PREF_MAX_WORKSPACE_BYTES: c_uint = 1;
    pub const MATMUL_PREF_REDUCTION_SCHEME_MASK: c_uint = 3;
    /// The attributes for the matrices A, B, C and D.
    pub const MATMUL_PREF_MIN_ALIGNMENT_BYTES: [c_uint; 4] = [5, 6, 7, 8];

    /// `cublasLtReductionScheme_t`.
    pub const REDUCTION_SCHEME_COMPUTE_TYPE: c_uint = 2;

    /// `cublasLtMatmulAlgo_t`.
    #[derive(Clone, Copy, Debug, Default)]
    #[repr(C)]
    pub struct MatmulAlgo {
        pub data: [u64; 8],
    }

    /// `cublasLtMatmulHeuristicResult_t`.
    #[derive(Clone, Copy, Debug, Default)]
    #[repr(C)]
    pub struct MatmulHeuristicResult {
        pub algo: MatmulAlgo,
        pub workspace_size: usize,
        /// A `cublasStatus_t`.
        pub state: c_uint,
        pub waves_count: f32,
        pub reserved: [c_int; 4],
    }
}

/// Constants of cuFFT, without the prefix `CUFFT_`.
#[cfg(feature = "fft")]
pub mod cufft {
    use std::ffi::{c_int, c_uint};

    /// `cufftHandle`.
    pub type PlanNumber = c_int;

    /// `C2C`, `R2C` and `C2R`, each with its double-precision counterpart.
    pub const TYPES: [[c_uint; 2]; 3] = [[0x29, 0x69], [0x2a, 0x6a], [0x2c, 0x6c]];
    /// `FORWARD` and `INVERSE`.
    pub const DIRECTIONS: [c_int; 2] = [-1, 1];
    pub const ALLOC_FAILED: c_uint = 2;

    pub const STATUSES: super::Statuses = &[
        (1, "CUFFT_INVALID_PLAN"),
        (ALLOC_FAILED, "CUFFT_ALLOC_FAILED"),
        (3, "CUFFT_INVALID_TYPE"),
        (4, "CUFFT_INVALID_VALUE"),
        (5, "CUFFT_INTERNAL_ERROR"),
        (6, "CUFFT_EXEC_FAILED"),
        (7, "CUFFT_SETUP_FAILED"),
        (8, "CUFFT_INVALID_SIZE"),
        (9, "CUFFT_UNALIGNED_DATA"),
        (11, "CUFFT_INVALID_DEVICE"),
        (13, "CUFFT_NO_WORKSPACE"),
        (14, "CUFFT_NOT_IMPLEMENTED"),
        (16, "CUFFT_NOT_SUPPORTED"),
    ];
}

/// Constants of cuSOLVER.
#[cfg(feature = "linalg")]
pub mod cusolver {
    use std::ffi::{c_char, c_uint};

    /// `CUSOLVER_EIG_MODE_NOVECTOR` and `CUSOLVER_EIG_MODE_VECTOR`.
    pub const EIGEN_MODES: [c_uint; 2] = [0, 1];
    /// The job codes of `gesvd`: `N` for no vectors, and `S` for as many vectors as singular
    /// values.
    pub const JOBS: [c_char; 2] = [b'N' as c_char, b'S' as c_char];

    pub const STATUSES: super::Statuses = &[
        (1, "CUSOLVER_STATUS_NOT_INITIALIZED"),
        (2, "CUSOLVER_STATUS_ALLOC_FAILED"),
        (3, "CUSOLVER_STATUS_INVALID_VALUE"),
        (4, "CUSOLVER_STATUS_ARCH_MISMATCH"),
        (6, "CUSOLVER_STATUS_EXECUTION_FAILED"),
        (7, "CUSOLVER_STATUS_INTERNAL_ERROR"),
        (9, "CUSOLVER_STATUS_NOT_SUPPORTED"),
    ];
}

/// Constants and structures of NCCL, without the prefix `nccl` or `NCCL_`.
pub mod nccl {
    use std::ffi::{c_char, c_int, c_uint};
    use std::ptr;

    pub const IN_PROGRESS: c_uint = 7;
    /// `NCCL_SPLIT_NOCOLOR`.
    pub const NO_COLOR: c_int = -1;

    /// `ncclDataType_t`.
    pub const INT8: c_uint = 0;
    pub const UINT8: c_uint = 1;
    pub const INT32: c_uint = 2;
    pub const UINT32: c_uint = 3;
    pub const INT64: c_uint = 4;
    pub const UINT64: c_uint = 5;
    pub const FLOAT16: c_uint = 6;
    pub const FLOAT32: c_uint = 7;
    pub const FLOAT64: c_uint = 8;
    pub const BFLOAT16: c_uint = 9;

    /// `ncclRedOp_t`.
    pub const SUM: c_uint = 0;
    pub const MAX: c_uint = 2;
    pub const MIN: c_uint = 3;
    pub const AVG: c_uint = 4;

    pub const STATUSES: super::Statuses = &[
        (1, "ncclUnhandledCudaError"),
        (2, "ncclSystemError"),
        (3, "ncclInternalError"),
        (4, "ncclInvalidArgument"),
        (5, "ncclInvalidUsage"),
        (6, "ncclRemoteError"),
        (IN_PROGRESS, "ncclInProgress"),
        (8, "ncclTimeout"),
    ];

    /// `ncclUniqueId`.
    #[derive(Clone, Copy, Debug)]
    #[repr(C)]
    pub struct UniqueId {
        pub internal: [c_char; 128],
    }

    /// `NCCL_CONFIG_UNDEF_INT`.
    const UNDEFINED: c_int = c_int::MIN;

    /// `ncclConfig_t` of NCCL 2.30. An older library reads only the fields of its own version.
    #[derive(Debug)]
    #[repr(C)]
    pub struct Config {
        pub size: usize,
        pub magic: c_uint,
        pub version: c_uint,
        pub blocking: c_int,
        pub cga_cluster_size: c_int,
        pub min_ctas: c_int,
        pub max_ctas: c_int,
        pub net_name: *const c_char,
        pub split_share: c_int,
        pub traffic_class: c_int,
        pub comm_name: *const c_char,
        pub collnet_enable: c_int,
        pub cta_policy: c_int,
        pub shrink_share: c_int,
        pub nvls_ctas: c_int,
        pub n_channels_per_net_peer: c_int,
        pub nvlink_centric_sched: c_int,
        pub graph_usage_mode: c_int,
        pub num_rma_ctx: c_int,
        pub max_p2p_peers: c_int,
    }

    impl Config {
        /// `NCCL_CONFIG_INITIALIZER`.
        pub const INITIALIZER: Self = Self {
            size: size_of::<Self>(),
            // `NCCL_API_MAGIC`.
            magic: 0xcafe_beef,
            // `NCCL_VERSION(2, 30, 0)`.
            version: 23_000,
            blocking: UNDEFINED,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: ptr::null(),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
            comm_name: ptr::null(),
            collnet_enable: UNDEFINED,
            cta_policy: UNDEFINED,
            shrink_share: UNDEFINED,
            nvls_ctas: UNDEFINED,
            n_channels_per_net_peer: UNDEFINED,
            nvlink_centric_sched: UNDEFINED,
            graph_usage_mode: UNDEFINED,
            num_rma_ctx: UNDEFINED,
            max_p2p_peers: UNDEFINED,
        };
    }
}
