//! Exports blocks as tensors of DLPack 1.x, with the structures of `dlpack.h`.

use std::ffi::c_void;
use std::ptr;

use crate::blocks;
use crate::failure::{Code, Failure, Outcome};

/// The major version of the layout, and the minor version, which counts additions to enumerations.
const VERSION: [u32; 2] = [1, 1];
/// The DLPack device of host memory.
const CPU: [i32; 2] = [1, 0];
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

/// A tensor with its shape and strides. The first field must be the tensor.
#[repr(C)]
struct Exported {
    managed: Managed,
    /// The lengths of all axes, followed by the strides of all axes.
    dims: Vec<i64>,
}

/// Returns a row-major tensor that owns `block`.
///
/// # Safety
///
/// `block` is a live block of [`blocks`] that no other code frees, and `shape` has `ndim` lengths.
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
        let text = format!("the element type with code {code} and {bits} bits is unknown");
        return Err(refused(text));
    };
    let mut dims = vec![0; 2 * axes];
    for (axis, length) in dims[..axes].iter_mut().enumerate() {
        // SAFETY: by contract, `shape` has `ndim` lengths.
        *length = unsafe { *shape.add(axis) };
    }
    // SAFETY: by contract, `block` is a live block.
    let room = unsafe { blocks::size_bytes(block) };
    let needed = set_strides(&mut dims).and_then(|count| count.checked_mul(u64::from(bits / 8)));
    if needed.is_none_or(|needed| needed > room as u64) {
        let text = format!("the block has {room} bytes, and the shape needs more");
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

/// Computes the row-major strides for the lengths in the first half of `dims`, and stores them in
/// the second half. Returns the number of elements, or `None` for a negative length or an overflow.
fn set_strides(dims: &mut [i64]) -> Option<u64> {
    let (lengths, strides) = dims.split_at_mut(dims.len() / 2);
    let (mut count, mut step): (i64, i64) = (1, 1);
    for (length, stride) in lengths.iter().zip(strides).rev() {
        *stride = step;
        count = count.checked_mul(*length).filter(|_| *length >= 0)?;
        // An empty axis must not set the outer strides to 0.
        step = step.saturating_mul((*length).max(1));
    }
    u64::try_from(count).ok()
}

/// Frees a tensor of [`export`] with its block. Does not unwind.
///
/// # Safety
///
/// `managed` is null or was returned by [`export`], and is not used again.
unsafe extern "C" fn delete(managed: *mut Managed) {
    if managed.is_null() {
        return;
    }
    // SAFETY: `export` leaked the box of an `Exported`, whose first field is `managed`. The tensor
    // owns the block.
    unsafe {
        let exported = Box::from_raw(managed.cast::<Exported>());
        blocks::free(exported.managed.tensor.data);
    }
}
