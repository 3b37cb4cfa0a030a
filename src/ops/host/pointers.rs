//! The addresses that kernels read from and write to.

use super::memory::{Output, Untyped};
use crate::array::{AnyElement, Array};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::ops::expression::tree::Operand;
pub(super) use cachescope_kernels::pointers::{ReadPtr, WritePtr};

/// Returns the memory of an array.
pub(super) fn elements_of<T: AnyElement>(array: &Array<T>) -> ReadPtr<T> {
    ReadPtr::over(host_pointer(DevicePtr(array.buffer().address())).cast())
}

/// Returns the memory of an array as bytes.
pub(super) fn bytes_of(operand: Operand<'_>) -> ReadPtr<u8> {
    ReadPtr::over(host_pointer(DevicePtr(operand.buffer.address())))
}

/// Returns the memory of a new array.
pub(super) fn written_by<T: AnyElement>(output: &Output<T>) -> WritePtr<T> {
    WritePtr::over(output.untyped().address().cast())
}

/// Returns the memory of a new array as bytes.
pub(super) fn bytes_written(output: &Untyped) -> WritePtr<u8> {
    WritePtr::over(output.address().cast())
}
