//! The export of blocks as tensors of DLPack 1.x, with the structures of `dlpack.h`.

use std::ffi::c_void;
use std::ptr;

use crate::blocks;
use crate::failure::{Code, Failure, Outcome};

/// The layout's major version, and the minor version that counts additions to its lists.
const VERSION: [u32; 2] = [1, 1];
/// Memory of the host.
const CPU: [i32; 2] = [1, 0];
/// The maximum number of axes of a tensor.
const MAX_NDIM: usize = 64;

#[repr(C)]
#[derive(Debug)]
struct Tensor {
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct Managed {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Tensor,
}

/// A tensor with the arrays that it points to. The tensor is the first field.
#[repr(C)]
struct Exported {
    managed: Managed,
    /// The lengths of the axes, then their strides.
    dims: Vec<i64>,
}

/// Returns a row-major tensor that owns `block`.
///
/// # Safety
///
/// `block` is a live block of [`blocks`] that nothing else frees, and `shape` has `ndim` lengths.
pub(crate) unsafe fn export(
    block: *mut c_void,
    (ndim, shape): (i32, *const i64),
    (code, bits): (i32, i32),
) -> Outcome<*mut Managed> {
    let refused = |text: String| Failure::new(Code::Argument, format!("cs_to_dlpack: {text}"));
    let axes = usize::try_from(ndim).ok().filter(|&axes| axes <= MAX_NDIM);
    let axes = axes.ok_or_else(|| refused(format!("ndim is {ndim}, expected 0 to {MAX_NDIM}")))?;
    if block.is_null() || (shape.is_null() && axes > 0) {
        return Err(refused("the block or the shape is null".to_owned()));
    }
    let is_type = matches!((code, bits), (0..=6, 8 | 16 | 32 | 64 | 128));
    let (true, Ok(code), Ok(bits)) = (is_type, u8::try_from(code), u8::try_from(bits)) else {
        let text = format!("there are no elements of code {code} with {bits} bits");
        return Err(refused(text));
    };
    let mut dims = vec![0; 2 * axes];
    for (axis, length) in dims[..axes].iter_mut().enumerate() {
        // SAFETY: by this function's contract.
        *length = unsafe { *shape.add(axis) };
    }
    // SAFETY: by this function's contract.
    let room = unsafe { blocks::size_bytes(block) };
    let needed = set_strides(&mut dims).and_then(|count| count.checked_mul(u64::from(bits / 8)));
    if needed.is_none_or(|needed| needed > room as u64) {
        let text = format!("the block has {room} bytes, fewer than the shape needs");
        return Err(refused(text));
    }
    let (lengths, strides) = (dims.as_ptr(), dims[axes..].as_ptr());
    let tensor = Tensor {
        data: block,
        device: CPU,
        ndim,
        code,
        bits,
        lanes: 1,
        shape: lengths,
        strides,
        byte_offset: 0,
    };
    let managed = Managed {
        version: VERSION,
        context: ptr::null_mut(),
        deleter: Some(delete),
        flags: 0,
        tensor,
    };
    Ok(Box::into_raw(Box::new(Exported { managed, dims })).cast())
}

/// Sets the second half of `dims` to the strides of a row-major tensor of the lengths in the first
/// half. Returns the number of elements; `None` for a negative length or beyond 64 bits.
fn set_strides(dims: &mut [i64]) -> Option<u64> {
    let (lengths, strides) = dims.split_at_mut(dims.len() / 2);
    let (mut count, mut step): (i64, i64) = (1, 1);
    for (length, stride) in lengths.iter().zip(strides).rev() {
        *stride = step;
        count = count.checked_mul(*length).filter(|_| *length >= 0)?;
        // An axis without elements does not set the strides before it to 0.
        step = step.saturating_mul((*length).max(1));
    }
    u64::try_from(count).ok()
}

/// Frees a tensor of [`export`] and its block. Does not unwind.
///
/// # Safety
///
/// `managed` was exported here, and is not used again.
unsafe extern "C" fn delete(managed: *mut Managed) {
    if managed.is_null() {
        return;
    }
    // SAFETY: `export` leaked the box, of which the tensor is the first field; the tensor owned the
    // block.
    unsafe {
        let exported = Box::from_raw(managed.cast::<Exported>());
        blocks::free(exported.managed.tensor.data);
    }
}
