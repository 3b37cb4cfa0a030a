//! Evaluating expressions into the memory of arrays.

use super::evaluate::write;
use super::memory::Output;
use super::program::Program;
use crate::array::Buffer;
use crate::context::Device;
use crate::device::DevicePtr;
use crate::device::cuda::Cuda;
use crate::error::Result;
use crate::ops::aliasing::{Aliasing, Target};
use crate::ops::formula::Formula;
use crate::ops::order::{Order, Reading, Updating};
use crate::ops::tree::{Operand, Tree};

/// Writes the elements of the result of `formula`, which is that of the expression `read`, over those of its target, if
/// that can be overwritten, and tells whether it is so; other expressions are merely `held` meanwhile. Each thread
/// reads an element before it writes it.
pub(in crate::ops) fn store(
    gpu: &Cuda,
    formula: &Formula<'_>,
    targets: &[Target<'_>],
    (read, held): (&[&dyn Tree], &[&dyn Tree]),
    device: &Device,
) -> Result<bool> {
    let target = &targets[0];
    if !Aliasing::of(target, read, held).allows_overwriting() {
        return Ok(false);
    }
    let (buffer, layout, dtype) = (target.buffer(), target.layout(), target.dtype());
    let count = layout.len();
    if count == 0 {
        return Ok(true);
    }
    let buffers: &[&Buffer] = &[buffer];
    let updating = Updating {
        targets: buffers,
        reading: Reading(formula),
    };
    let order = Order::new(gpu, device, &updating);
    let first = layout.offset().wrapping_mul(dtype.bytes()) as u64;
    let address = DevicePtr(buffer.address().wrapping_add(first));
    let is_dense = layout.is_contiguous()
        && (formula.operands()).all(|operand| {
            operand.layout.is_contiguous() && operand.layout.shape() == layout.shape()
        });
    let program = if is_dense && address.0.is_multiple_of(16) {
        Program::row_major(formula, layout.shape())
    } else {
        let operand = Operand {
            buffer,
            layout,
            dtype,
        };
        Program::onto(formula, operand)
    };
    write(order, &program, Output { address, count })?;
    Ok(true)
}
