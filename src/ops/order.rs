//! The order of operations across streams: each goes to its thread's current stream, which first
//! waits for what other streams do with the operands' memory.

use super::expr::Expr;
use crate::array::Buffer;
use crate::context::Device;
use crate::device::StreamId;
use crate::error::Result;

/// The stream that an operation on `device` goes to, ordered after what other streams wrote to the
/// memory that `expr` reads.
#[inline]
pub(super) fn ordered_reads<E: Expr>(expr: &E, device: &Device) -> Result<StreamId> {
    let stream = device.stream();
    if device.backend().uses_streams() {
        order_reads(expr, stream)?;
    }
    Ok(stream)
}

#[cold]
fn order_reads<E: Expr>(expr: &E, stream: StreamId) -> Result<()> {
    let mut outcome = Ok(());
    expr.operands(&mut |operand| {
        if outcome.is_ok() {
            outcome = operand.buffer.read_on(stream);
        }
    });
    outcome
}

/// The same for one operand.
pub(super) fn order_read(buffer: &Buffer, device: &Device) -> Result<StreamId> {
    let stream = device.stream();
    if device.backend().uses_streams() {
        buffer.read_on(stream)?;
    }
    Ok(stream)
}

/// Orders the current stream, on which an operation is about to write to `buffer`, after what other
/// streams do with that memory. Nobody else may be about to use it.
pub(super) fn order_write(buffer: &Buffer, device: &Device) -> Result<()> {
    if device.backend().uses_streams() {
        buffer.write_on(device.stream())?;
    }
    Ok(())
}
