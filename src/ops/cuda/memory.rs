//! The memory that kernels write.

use std::panic::Location;

use crate::array::{AnyArray, Buffer, DType, Layout, Shape};
use crate::context::Device;
use crate::device::{Backend, DevicePtr, Use};
use crate::error::Result;
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;

/// The memory of an array that is being computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    pub(super) address: DevicePtr,
    pub(super) count: usize,
}

/// Returns the address of the first element of `array`. If `array` has no elements, the address may
/// be invalid.
pub(super) fn address_of(array: Operand<'_>) -> DevicePtr {
    let first = array.layout.offset();
    let bytes = first.wrapping_mul(array.dtype.size_bytes());
    DevicePtr(array.buffer.address().wrapping_add(bytes as u64))
}

/// Returns a new array of `shape` on `device`. `write` must enqueue writes of all elements on the
/// thread's current stream. `write` is not called for an array without elements.
#[track_caller]
pub(super) fn computed(
    device: &Device,
    dtype: DType,
    shape: &Shape,
    write: impl FnOnce(Output) -> Result<()>,
) -> Result<AnyArray> {
    written(row_major(device, dtype, shape)?, write)
}

/// Returns a new array like [`computed`], but of `layout`. `layout` must be dense from index 0.
#[cfg(feature = "fft")]
#[track_caller]
pub(super) fn laid_out(
    device: &Device,
    dtype: DType,
    layout: Layout,
    write: impl FnOnce(Output) -> Result<()>,
) -> Result<AnyArray> {
    written(allocated(device, dtype, layout)?, write)
}

/// Returns `array` after `write` enqueued writes of all its elements.
fn written(array: AnyArray, write: impl FnOnce(Output) -> Result<()>) -> Result<AnyArray> {
    let output = Output {
        address: DevicePtr(array.buffer.address()),
        count: array.len(),
    };
    if output.count > 0 {
        write(output)?;
    }
    Ok(array)
}

/// Allocates a row-major array, which a kernel must write.
// Not inlined, because `computed` is compiled for each closure.
#[inline(never)]
#[track_caller]
fn row_major(device: &Device, dtype: DType, shape: &Shape) -> Result<AnyArray> {
    allocated(device, dtype, Layout::contiguous(shape)?)
}

/// Allocates an array, which a kernel must write. `layout` must be dense from index 0.
#[track_caller]
pub(super) fn allocated(device: &Device, dtype: DType, layout: Layout) -> Result<AnyArray> {
    let call_site = Location::caller();
    let (buffer, _) = allocate_for(device, &layout, dtype.size_bytes(), call_site)?;
    Ok(AnyArray {
        buffer,
        layout,
        dtype,
    })
}

#[track_caller]
pub(super) fn zeros(order: CudaOrder<'_>, dtype: DType, shape: &Shape) -> Result<AnyArray> {
    let order = order.touching(&());
    computed(order.device, dtype, shape, |output| {
        let bytes = (output.count * dtype.size_bytes()) as u64;
        // SAFETY: the new array has `bytes` bytes, and nothing else uses it.
        order.queue(|stream| unsafe { order.gpu.fill(stream, output.address, bytes, &[0]) })
    })
}

/// Allocates memory for the elements of `layout`.
#[track_caller]
pub(super) fn allocate_for(
    device: &Device,
    layout: &Layout,
    element_bytes: usize,
    call_site: &'static Location<'static>,
) -> Result<(Buffer, Output)> {
    let buffer = scratch_at(device, layout.size_bytes(element_bytes)?, call_site)?;
    let output = Output {
        address: DevicePtr(buffer.address()),
        count: layout.len(),
    };
    Ok((buffer, output))
}

/// Allocates memory that kernels write to. This module allocates all new memory for kernels, so
/// that a graph that captures the kernels pins their memory.
#[track_caller]
pub(super) fn scratch(device: &Device, size_bytes: usize) -> Result<Buffer> {
    scratch_at(device, size_bytes, Location::caller())
}

/// Allocates memory like [`scratch`], for an explicit call site.
#[track_caller]
pub(super) fn scratch_at(
    device: &Device,
    size_bytes: usize,
    call_site: &'static Location<'static>,
) -> Result<Buffer> {
    let buffer = Buffer::new_at(device, size_bytes, call_site)?;
    buffer.track_use(Use::Write);
    Ok(buffer)
}
