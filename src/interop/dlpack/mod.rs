//! DLPack 1.x: arrays from and to other libraries of the same process, without a copy.
//!
//! The structures of [dlpack.h](https://github.com/dmlc/dlpack) are declared here, because existing
//! crates with these structures also contain a tensor trait or Python's bindings.
//!
//! If `from_dlpack` fails, it calls the deleter. Therefore the caller does not own the tensor after
//! any error. For another major version, DLPack itself requires the call of the deleter. In Python,
//! the capsule is renamed before the import.

#![allow(
    non_upper_case_globals,
    reason = "the constants have the names of dlpack.h"
)]

mod export;
mod import;
mod tensor;

pub use tensor::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION, DLPackVersion, DLTensor, kDLBfloat, kDLBool, kDLCPU, kDLCUDA,
    kDLCUDAHost, kDLCUDAManaged, kDLComplex, kDLFloat, kDLInt, kDLUInt,
};
