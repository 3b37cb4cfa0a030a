//! The order of operations across streams: each goes to its thread's current stream, which first
//! waits for what other streams do with the operands' memory.

use super::expr::Expr;
use crate::array::{Array, Buffer, Element};
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

/// The same for several operands of one device, of which there is one at least.
pub(super) fn order_all<T: Element>(arrays: &[&Array<T>]) -> Result<StreamId> {
    for array in &arrays[1..] {
        order_read(array.buffer(), array.device())?;
    }
    order_read(arrays[0].buffer(), arrays[0].device())
}

/// The same for an operation that writes to `buffer`, which nobody else may be about to use.
pub(super) fn order_write(buffer: &Buffer, device: &Device) -> Result<StreamId> {
    let stream = device.stream();
    if device.backend().uses_streams() {
        buffer.write_on(stream)?;
    }
    Ok(stream)
}

/// The same for an operation that writes to `target`, which nobody else may be about to use.
pub(super) fn ordered_update<E: Expr>(
    expr: &E,
    target: &Buffer,
    device: &Device,
) -> Result<StreamId> {
    let stream = device.stream();
    if device.backend().uses_streams() {
        target.write_on(stream)?;
        order_reads(expr, stream)?;
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use crate::array::Array;
    use crate::context::{Device, DeviceConfig};
    use crate::device::host::streams::Delayed;
    use crate::error::Result;

    fn device() -> Device {
        let config = DeviceConfig {
            delay_streams: true,
            ..DeviceConfig::default()
        };
        Device::host_with(config).unwrap()
    }

    fn events(device: &Device) -> u64 {
        let delayed = device.backend().delayed();
        delayed.map_or(0, Delayed::recorded)
    }

    /// Allocates, computes, frees and reuses in a scope and outside.
    fn step(device: &Device) -> Result<()> {
        let x = Array::full(1000, 1.0)?;
        let y = (&x + 1.0).eval()?;
        let scope = device.scope("step").enter();
        let mut z = (&x * &y).eval()?;
        drop(x);
        z.update(|z| z + &y)?;
        drop((y, scope));
        z.sum().map(drop)
    }

    #[test]
    fn one_stream_records_no_event() -> Result<()> {
        let device = device();
        let _guard = device.enter();
        for _ in 0..10 {
            step(&device)?;
        }
        assert_eq!(events(&device), 0);
        Ok(())
    }

    #[test]
    fn streams_that_share_nothing_record_no_event() -> Result<()> {
        let device = device();
        let streams = [device.new_stream()?, device.new_stream()?];
        let mut kept = Vec::new();
        for round in 0..10 {
            for stream in &streams {
                let _guard = stream.enter();
                let _scope = device.scope("own").enter();
                let x = Array::full(1000, round)?;
                kept.push((&x + 1).eval()?);
            }
        }
        assert_eq!(events(&device), 0);
        Ok(())
    }

    #[test]
    fn each_stream_that_reads_records_one_event_a_write() -> Result<()> {
        let device = device();
        let _guard = device.enter();
        let stream = device.new_stream()?;
        let mut x = Array::full(1000, 1.0)?;
        for write in 1..4 {
            let _guard = stream.enter();
            for _ in 0..5 {
                (&x + 1.0).eval()?;
            }
            assert_eq!(events(&device), 2 * write - 1);
            let _guard = device.default_stream().enter();
            x.fill(3.0)?; // One more, for the writer to wait for.
            assert_eq!(events(&device), 2 * write);
        }
        Ok(())
    }

    #[test]
    fn dropping_records_no_event() -> Result<()> {
        let device = device();
        let _guard = device.enter();
        let stream = device.new_stream()?;
        let _scope = device.scope("kept").enter();
        let x = Array::full(1000, 1.0)?;
        {
            let _guard = stream.enter();
            (&x + 1.0).eval()?;
        }
        let before = events(&device);
        drop(x);
        assert_eq!(events(&device), before);
        assert!(device.cache_stats("kept").unwrap().pending_blocks > 0);
        assert_eq!(events(&device), before + 1, "as somebody looked");
        Ok(())
    }
}
