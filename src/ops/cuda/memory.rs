//! The memory that kernels write.

use std::panic::Location;

use crate::array::{AnyElement, Array, Buffer, Layout, Shape};
use crate::context::Device;
use crate::device::{DevicePtr, Use};
use crate::error::Result;

/// The memory of an array that is being computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    pub(super) address: DevicePtr,
    pub(super) count: usize,
}

/// Returns the address of the first element of `array`; any address if it has no elements.
pub(super) fn address_of<T: AnyElement>(array: &Array<T>) -> DevicePtr {
    element_of(array, array.layout().offset())
}

pub(super) fn element_of<T: AnyElement>(array: &Array<T>, index: usize) -> DevicePtr {
    let bytes = index.wrapping_mul(size_of::<T>());
    DevicePtr(array.buffer().address().wrapping_add(bytes as u64))
}

/// Returns a new array of `shape` on `device`. `write` must launch work on the thread's current
/// stream that writes all elements. It is not called for an array without elements.
#[track_caller]
pub(super) fn computed<T: AnyElement>(
    device: &Device,
    shape: &Shape,
    write: impl FnOnce(Output) -> Result<()>,
) -> Result<Array<T>> {
    laid_out(device, Layout::contiguous(shape)?, write)
}

/// Returns a new array like [`computed`], with `layout`, which is dense from index 0.
#[track_caller]
pub(super) fn laid_out<T: AnyElement>(
    device: &Device,
    layout: Layout,
    write: impl FnOnce(Output) -> Result<()>,
) -> Result<Array<T>> {
    let (buffer, output) = allocate_for(device, &layout, size_of::<T>(), Location::caller())?;
    if output.count > 0 {
        write(output)?;
    }
    Ok(Array::from_parts(buffer, layout))
}

/// Allocates memory for the elements of `layout`. Not generic, so that it is compiled once.
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

/// Allocates memory for kernels to write to. All such memory is allocated here, so that a graph
/// pins what it uses.
#[track_caller]
pub(super) fn scratch(device: &Device, size_bytes: usize) -> Result<Buffer> {
    scratch_at(device, size_bytes, Location::caller())
}

/// Allocates memory like [`scratch`], for a `call_site` that `track_caller` cannot see.
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
