//! The structures of DLPack, by their names in C.

use std::ffi::c_void;
use std::fmt;

use crate::array::DType;
use crate::device::DeviceId;

/// The major version of the layout of [`DLManagedTensorVersioned`].
pub const DLPACK_MAJOR_VERSION: u32 = 1;

/// The minor version, which counts additions to the lists of types and devices.
pub const DLPACK_MINOR_VERSION: u32 = 1;

/// The flag of a tensor that must not be written to.
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u64 = 1;

/// The flag of a tensor that the producer copied, so that nothing else shares its memory.
pub const DLPACK_FLAG_BITMASK_IS_COPIED: u64 = 2;

/// The type of a device: [`kDLCPU`], [`kDLCUDA`] or another value of `dlpack.h`.
pub type DLDeviceType = i32;

/// Memory of the host.
pub const kDLCPU: DLDeviceType = 1;
/// Memory of a CUDA device.
pub const kDLCUDA: DLDeviceType = 2;
/// Page-locked memory of the host, allocated by CUDA.
pub const kDLCUDAHost: DLDeviceType = 3;
/// Memory that CUDA moves between the host and devices.
pub const kDLCUDAManaged: DLDeviceType = 13;

/// The kind of an element: [`kDLFloat`], [`kDLInt`] or another value of `dlpack.h`.
pub type DLDataTypeCode = u8;

/// Signed integers.
pub const kDLInt: DLDataTypeCode = 0;
/// Unsigned integers.
pub const kDLUInt: DLDataTypeCode = 1;
/// IEEE floats.
pub const kDLFloat: DLDataTypeCode = 2;
/// The floats `bf16`.
pub const kDLBfloat: DLDataTypeCode = 4;
/// Complex numbers. `bits` counts both parts.
pub const kDLComplex: DLDataTypeCode = 5;
/// `bool`, of eight bits.
pub const kDLBool: DLDataTypeCode = 6;

/// The version of a producer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// The version of the layout.
    pub major: u32,
    /// The version of the lists of types and devices.
    pub minor: u32,
}

/// The device of a tensor.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// The type of the device.
    pub device_type: DLDeviceType,
    /// The index among devices of the type, or 0 for the host.
    pub device_id: i32,
}

/// The type of the elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// The kind of an element.
    pub code: DLDataTypeCode,
    /// The bits of one lane.
    pub bits: u8,
    /// The number of values in an element. It is 1, unless elements are vectors.
    pub lanes: u16,
}

/// A tensor, without an owner of its memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// The address that [`byte_offset`](Self::byte_offset) counts from.
    pub data: *mut c_void,
    /// The device.
    pub device: DLDevice,
    /// The number of axes.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// The lengths of the axes, outermost first.
    pub shape: *mut i64,
    /// The strides of the axes, in elements, or null for a row-major tensor without gaps.
    pub strides: *mut i64,
    /// The bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// The function that releases a tensor and its memory.
pub(super) type Deleter<M> = Option<unsafe extern "C" fn(*mut M)>;

/// A tensor with its owner, of DLPack before 1.0.
///
/// In Python its capsule has the name `dltensor`, and `used_dltensor` once it is consumed.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// The producer's data.
    pub manager_ctx: *mut c_void,
    /// The function that releases this structure and its memory, or null if there is none.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// A tensor with its owner, of DLPack 1.0 and later.
///
/// In Python its capsule has the name `dltensor_versioned`, and `used_dltensor_versioned` once it
/// is consumed.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version of the producer. If its major version differs from [`DLPACK_MAJOR_VERSION`],
    /// only this field and the deleter may be read.
    pub version: DLPackVersion,
    /// The producer's data.
    pub manager_ctx: *mut c_void,
    /// The function that releases this structure and its memory, or null if there is none.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// The flags [`DLPACK_FLAG_BITMASK_READ_ONLY`] and [`DLPACK_FLAG_BITMASK_IS_COPIED`].
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// A tensor with its owner, of either version.
pub(super) trait Managed: Sized + 'static {
    /// Returns the function that releases the tensor. Reads no other field, because the positions
    /// of the other fields depend on the version.
    ///
    /// # Safety
    ///
    /// The tensor is valid. It may have any version.
    unsafe fn deleter(tensor: *const Self) -> Deleter<Self>;

    /// Returns the tensor and the producer's data.
    fn parts(&mut self) -> (&mut DLTensor, &mut *mut c_void);
}

macro_rules! managed {
    ($($type:ty),+) => {
        $(
            impl Managed for $type {
                unsafe fn deleter(tensor: *const Self) -> Deleter<Self> {
                    // SAFETY: the tensor is valid, by this function's contract.
                    unsafe { (*tensor).deleter }
                }

                fn parts(&mut self) -> (&mut DLTensor, &mut *mut c_void) {
                    (&mut self.dl_tensor, &mut self.manager_ctx)
                }
            }
        )+
    };
}

managed!(DLManagedTensor, DLManagedTensorVersioned);

impl From<DeviceId> for DLDevice {
    fn from(device: DeviceId) -> Self {
        let (device_type, device_id) = match device {
            DeviceId::Host => (kDLCPU, 0),
            DeviceId::Cuda(ordinal) => (kDLCUDA, ordinal as i32),
        };
        Self {
            device_type,
            device_id,
        }
    }
}

impl From<DType> for DLDataType {
    fn from(dtype: DType) -> Self {
        let code = match dtype {
            DType::F16 | DType::F32 | DType::F64 => kDLFloat,
            DType::Bf16 => kDLBfloat,
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => kDLInt,
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => kDLUInt,
            DType::Bool => kDLBool,
            DType::C32 | DType::C64 => kDLComplex,
            _ => unreachable!("DLPack has a code for {dtype}"),
        };
        Self {
            code,
            bits: 8 * dtype.size_bytes() as u8,
            lanes: 1,
        }
    }
}

/// Writes NumPy's name of the type.
impl fmt::Display for DLDataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            kDLInt => write!(f, "int{}", self.bits),
            kDLUInt => write!(f, "uint{}", self.bits),
            kDLFloat => write!(f, "float{}", self.bits),
            kDLBfloat => write!(f, "bfloat{}", self.bits),
            kDLComplex => write!(f, "complex{}", self.bits),
            kDLBool if self.bits == 8 => f.write_str("bool"),
            code => write!(f, "type code {code} of {} bits", self.bits),
        }?;
        match self.lanes {
            1 => Ok(()),
            lanes => write!(f, " in {lanes} lanes"),
        }
    }
}

/// Writes the name of the type in `dlpack.h`, and the index.
impl fmt::Display for DLDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.device_type {
            kDLCPU => "CPU",
            kDLCUDA => "CUDA",
            kDLCUDAHost => "CUDAHost",
            4 => "OpenCL",
            7 => "Vulkan",
            8 => "Metal",
            9 => "VPI",
            10 => "ROCm",
            11 => "ROCmHost",
            12 => "ExtDev",
            kDLCUDAManaged => "CUDAManaged",
            14 => "oneAPI",
            15 => "WebGPU",
            16 => "Hexagon",
            17 => "MAIA",
            18 => "Trainium",
            other => return write!(f, "unknown type {other}, index {}", self.device_id),
        };
        write!(f, "{name}:{}", self.device_id)
    }
}
