//! The order of operations across streams. Each operation is enqueued to its thread's current
//! stream. Before the operation, this stream waits for other streams' work on the operands' memory.
//!
//! An operation first determines the streams that used the memory that its work touches. Until the
//! work is enqueued, the operation must exclude all other work from this memory. The borrow of the
//! arrays excludes other operations. Graphs, which only CUDA devices have, borrow no arrays. So
//! [`CudaOrder::queue`] excludes their launches.

pub(in crate::ops) mod aliasing;
pub(in crate::ops) mod pause;
pub(crate) mod warn;

use std::sync::OnceLock;

use crate::array::{AnyArray, Buffer};
use crate::context::Device;
#[cfg(feature = "cuda")]
use crate::device::Backend;
#[cfg(feature = "cuda")]
use crate::device::cuda::{Cuda, SharedLaunchGuard};
use crate::device::{StreamId, Use};
use crate::error::{AtCaller, Result};
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::{Tree, operands};
use crate::ops::order::pause::is_live;

/// The memory of arrays that a piece of work touches, except memory that was allocated for the
/// work.
pub(in crate::ops) trait TouchedMemory {
    /// Visits each operand, with its use. Operands that are written to are first.
    fn visit(&self, see: &mut dyn FnMut(&Buffer, Use));
}

/// Work on memory that no other work uses.
impl TouchedMemory for () {
    fn visit(&self, _see: &mut dyn FnMut(&Buffer, Use)) {}
}

/// Work that reads the memory.
impl TouchedMemory for Buffer {
    fn visit(&self, see: &mut dyn FnMut(&Buffer, Use)) {
        see(self, Use::Read);
    }
}

impl<const N: usize> TouchedMemory for [&Buffer; N] {
    fn visit(&self, see: &mut dyn FnMut(&Buffer, Use)) {
        self.iter().for_each(|buffer| see(buffer, Use::Read));
    }
}

impl TouchedMemory for &[AnyArray] {
    fn visit(&self, see: &mut dyn FnMut(&Buffer, Use)) {
        self.iter().for_each(|array| see(&array.buffer, Use::Read));
    }
}

/// Work that reads the operands of an expression.
#[derive(Clone, Copy)]
pub(in crate::ops) struct ReadOperands<'a, R: ?Sized>(pub(in crate::ops) &'a R);

impl TouchedMemory for ReadOperands<'_, ExpressionGraph<'_>> {
    fn visit(&self, see: &mut dyn FnMut(&Buffer, Use)) {
        let operands = self.0.operands();
        operands.for_each(|operand| see(operand.buffer, Use::Read));
    }
}

impl TouchedMemory for ReadOperands<'_, dyn Tree + '_> {
    fn visit(&self, see: &mut dyn FnMut(&Buffer, Use)) {
        operands(self.0, &mut |operand| see(operand.buffer, Use::Read));
    }
}

/// Work that writes to `targets` and reads `reading`. No other pending work may use the targets.
#[derive(Clone, Copy)]
pub(in crate::ops) struct UpdateTargets<'a, O> {
    pub(in crate::ops) targets: &'a [&'a Buffer],
    pub(in crate::ops) reading: O,
}

impl<O: TouchedMemory> TouchedMemory for UpdateTargets<'_, O> {
    fn visit(&self, see: &mut dyn FnMut(&Buffer, Use)) {
        self.targets
            .iter()
            .for_each(|target| see(target, Use::Write));
        self.reading.visit(see);
    }
}

/// The check of operands that the first tape of the process installs.
static TAPE_CHECK: OnceLock<TapeCheck> = OnceLock::new();

/// A check that returns an error if a tape tracks an operand.
pub(in crate::ops) type TapeCheck = fn(&dyn TouchedMemory) -> Result<()>;

/// Sets the check that [`check_untracked`] makes while a tape is live and not paused. The tape is
/// in a higher layer, so it passes the check as a function.
pub(in crate::ops) fn set_tape_check(check: TapeCheck) {
    TAPE_CHECK.get_or_init(|| check);
}

/// Rejects operands that a tape tracks, for work that records no step.
#[inline]
#[track_caller]
pub(in crate::ops) fn check_untracked(operands: &dyn TouchedMemory) -> Result<()> {
    if is_live() {
        return check_by_tape(operands);
    }
    Ok(())
}

#[cold]
#[track_caller]
fn check_by_tape(operands: &dyn TouchedMemory) -> Result<()> {
    match TAPE_CHECK.get() {
        Some(check) => check(operands).at_caller(),
        None => Ok(()),
    }
}

/// Lets `stream` wait for other streams' work on the operands.
#[cold]
#[track_caller]
fn order(operands: &dyn TouchedMemory, stream: StreamId) -> Result<()> {
    let mut outcome = Ok(());
    operands.visit(&mut |buffer, used| {
        if outcome.is_ok() {
            outcome = buffer.use_on(stream, used);
        }
    });
    outcome
}

/// The stream of a host device that an operation is enqueued to. Invariant: the stream is ordered
/// after other streams' work on the operands.
#[derive(Clone, Copy)]
pub(in crate::ops) struct HostOrder<'a> {
    pub(in crate::ops) device: &'a Device,
    pub(in crate::ops) stream: StreamId,
}

impl<'a> HostOrder<'a> {
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn new(device: &'a Device, operands: &dyn TouchedMemory) -> Result<Self> {
        let stream = device.stream();
        if device.backend().uses_streams() {
            order(operands, stream)?;
        }
        Ok(Self { device, stream })
    }
}

#[cfg(feature = "cuda")]
/// The stream of a CUDA device that an operation is enqueued to, and its operands. Before work is
/// enqueued, the stream is ordered after other streams' work on the operands.
#[derive(Clone, Copy)]
pub(in crate::ops) struct CudaOrder<'a> {
    pub(in crate::ops) gpu: &'a Cuda,
    pub(in crate::ops) device: &'a Device,
    stream: StreamId,
    operands: &'a dyn TouchedMemory,
}

#[cfg(feature = "cuda")]
impl<'a> CudaOrder<'a> {
    pub(in crate::ops) fn new(
        gpu: &'a Cuda,
        device: &'a Device,
        operands: &'a dyn TouchedMemory,
    ) -> Self {
        Self {
            gpu,
            device,
            stream: device.stream(),
            operands,
        }
    }

    pub(in crate::ops) fn touching<'b>(&self, operands: &'b dyn TouchedMemory) -> CudaOrder<'b>
    where
        'a: 'b,
    {
        CudaOrder { operands, ..*self }
    }

    /// Orders the stream after other streams' work on the operands. Then calls `give`. `give`
    /// enqueues work. Until `give` returns, no graph that uses the operands is launched.
    #[track_caller]
    pub(in crate::ops) fn queue<R>(&self, give: impl FnOnce(StreamId) -> Result<R>) -> Result<R> {
        let _kept_off = self.lock_launches_shared()?;
        give(self.stream).at_caller()
    }

    #[track_caller]
    fn lock_launches_shared(&self) -> Result<Option<SharedLaunchGuard<'a>>> {
        if !self.gpu.uses_streams() {
            return Ok(None);
        }
        let mut used_by_graphs = false;
        self.operands
            .visit(&mut |buffer, _| used_by_graphs |= buffer.is_used_by_graphs());
        let kept_off = used_by_graphs.then(|| self.gpu.lock_launches_shared());
        order(self.operands, self.stream)?;
        Ok(kept_off)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::Array;
    use crate::context::{Device, DeviceConfig};
    use crate::device::host::streams::DelayedStreams;
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
        delayed.map_or(0, DelayedStreams::recorded)
    }

    /// Allocates, computes, frees and reuses memory in a scope and outside.
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
            x.fill(3.0)?; // The writer waits for one more event.
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
