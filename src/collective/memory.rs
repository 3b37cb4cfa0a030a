//! The memory of a call. Its uses are ordered like the uses of memory by any operation. If an
//! engine needs host memory, device memory is copied to the host.

use std::ptr::NonNull;

use super::engine::{CallMemory, Completion, Engine, Work};
use crate::array::{AnyElement, Array, Buffer};
use crate::context::Device;
use crate::device::cuda::Cuda;
use crate::device::host::host_pointer;
use crate::device::host_streams::HostFailure;
use crate::device::{Backend, DevicePtr, StreamId, Use};
use crate::error::Result;
use crate::memory::uses::StreamUse;

/// A part of a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'a> {
    pub(super) buffer: &'a Buffer,
    pub(super) address: u64,
    pub(super) bytes: usize,
}

impl<'a> Span<'a> {
    /// Returns the memory of an array, which must be contiguous.
    pub(super) fn of<T: AnyElement>(x: &'a Array<T>) -> Self {
        Self {
            buffer: x.buffer(),
            address: x.address(),
            bytes: x.size_bytes(),
        }
    }
}

/// The memory that a call reads and writes, on one device. At least one of `source` and `target` is
/// `Some`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spans<'a> {
    pub(super) source: Option<Span<'a>>,
    pub(super) target: Option<Span<'a>>,
}

impl<'a> Spans<'a> {
    pub(super) fn between<T: AnyElement>(source: &'a Array<T>, target: &'a Array<T>) -> Self {
        Self {
            source: Some(Span::of(source)),
            target: Some(Span::of(target)),
        }
    }

    pub(super) fn device(&self) -> &'a Device {
        let span = self.source.or(self.target);
        span.expect("a call has a source or a target")
            .buffer
            .device()
    }

    /// Orders `user`, a stream or a host stream's next event, after all uses of the memory so far.
    #[track_caller]
    pub(super) fn order_on(&self, user: impl Into<StreamUse> + Copy) -> Result<()> {
        let gpu = self.device().backend().cuda();
        let spans = [(self.source, Use::Read), (self.target, Use::Write)];
        let spans = spans
            .into_iter()
            .filter_map(|(span, used)| Some((span?.buffer, used)));
        for (buffer, used) in spans {
            let gpu = gpu.filter(|_| buffer.is_used_by_graphs());
            let _no_launches = gpu.map(Cuda::lock_launches_shared);
            buffer.use_on(user, used)?;
        }
        Ok(())
    }

    /// Returns the addresses without handles, for the thread that serves `stream`. A handle would
    /// prevent the memory from being freed and reused before the call ends. The result contains the
    /// device, so that the device lives until the call ends.
    pub(super) fn detached(&self, stream: StreamId) -> Detached {
        let place = |span: Span<'_>| (DevicePtr(span.address), span.bytes);
        Detached {
            device: self.device().clone(),
            stream,
            source: self.source.map(place),
            target: self.target.map(place),
        }
    }
}

/// The memory of a call, without handles.
#[derive(Debug)]
pub(super) struct Detached {
    pub(super) device: Device,
    stream: StreamId,
    source: Option<(DevicePtr, usize)>,
    target: Option<(DevicePtr, usize)>,
}

/// Allocates a host buffer for a copy of device memory, aligned for every element type.
fn staging(bytes: usize) -> Vec<u128> {
    vec![0; bytes.div_ceil(size_of::<u128>())]
}

impl Detached {
    /// Executes the call with the engine, on the call's own memory or on a copy in host memory.
    ///
    /// # Safety
    ///
    /// The addresses must be valid addresses of the device or of the host, for the lengths in
    /// `self`. Until this function returns, nothing may use the memory except in the stream's
    /// order.
    pub(super) unsafe fn carry(
        &self,
        engine: &mut dyn Engine,
        work: &Work,
        completion: &mut Completion<'_>,
    ) -> Result<(), HostFailure> {
        // SAFETY: this function's contract makes the addresses valid. Elements are aligned: blocks
        // are aligned, and views start at element boundaries.
        let outcome = unsafe {
            match self.device.backend().cuda() {
                // The engine cannot write to the addresses of a device without data.
                _ if self.device.backend().is_meta() => self.carry_staged(engine, work, completion),
                None => engine.run(work, self.here(), completion),
                Some(gpu) if engine.takes_device_memory(work) => self
                    .ready(gpu, engine, work)
                    .and_then(|memory| engine.run(work, memory, completion)),
                Some(_) => self.carry_staged(engine, work, completion),
            }
        };
        if outcome.as_ref().is_err_and(|failure| failure.keeps_memory) {
            self.leak_device();
        }
        outcome
    }

    /// Leaks a handle of the device, so that the device never releases memory that may still be in
    /// use.
    pub(super) fn leak_device(&self) {
        std::mem::forget(self.device.clone());
    }

    /// Returns the memory as host memory.
    fn here(&self) -> CallMemory {
        let pointer = |place: Option<(DevicePtr, usize)>| match place {
            Some((address, bytes)) if bytes > 0 => host_pointer(address),
            // The memory is empty, so the address is never accessed.
            _ => NonNull::<u128>::dangling().as_ptr().cast(),
        };
        CallMemory {
            is_of_device: false,
            source: pointer(self.source),
            target: pointer(self.target),
        }
    }

    /// Waits for earlier work on the device memory. Returns the memory, which the engine passes to
    /// a CUDA-aware library.
    ///
    /// # Safety
    ///
    /// The contract of [`carry`](Self::carry) must hold. The memory is on the device `gpu`.
    unsafe fn ready(
        &self,
        gpu: &Cuda,
        engine: &mut dyn Engine,
        work: &Work,
    ) -> Result<CallMemory, HostFailure> {
        let address = |place: Option<(DevicePtr, usize)>| place.map_or(0, |(address, _)| address.0);
        let (source, target) = (address(self.source), address(self.target));
        let own_part = work.call.own_part(work.members.own, work.members.size());
        let ready = || {
            if let Some((from, to, bytes)) = own_part {
                let (from, to) = (
                    DevicePtr(source + from as u64),
                    DevicePtr(target + to as u64),
                );
                // SAFETY: by this function's contract, source and target have the lengths of the
                // call. The parts are within these lengths.
                unsafe { gpu.copy(self.stream, from, to, bytes as u64) }?;
            }
            // The MPI library does not order its work with streams.
            gpu.synchronize(self.stream)
        };
        // Other ranks wait in a call that this rank will not reach, so `fail` notifies them.
        ready().inspect_err(|error| engine.fail(error))?;
        Ok(CallMemory {
            is_of_device: true,
            source: std::ptr::without_provenance(source as usize),
            target: std::ptr::without_provenance_mut(target as usize),
        })
    }

    /// # Safety
    ///
    /// The contract of [`carry`](Self::carry) must hold. The memory is on the device.
    unsafe fn carry_staged(
        &self,
        engine: &mut dyn Engine,
        work: &Work,
        completion: &mut Completion<'_>,
    ) -> Result<(), HostFailure> {
        let backend = self.device.backend();
        let length = |place: Option<(DevicePtr, usize)>| place.map_or(0, |(_, bytes)| bytes);
        let in_place = self.source == self.target;
        let mut source = staging(length(self.source));
        let mut target = staging(if in_place { 0 } else { length(self.target) });
        if let Some((address, bytes)) = self.source {
            let bytes = &mut bytemuck::cast_slice_mut(&mut source)[..bytes];
            // SAFETY: by this function's contract, `bytes` bytes are valid at the address.
            let downloaded = unsafe { backend.download(self.stream, address, bytes) };
            // Other ranks wait in a call that this rank will not reach, so `fail` notifies them.
            downloaded.inspect_err(|error| engine.fail(error))?;
        }
        let first = source.as_mut_ptr().cast();
        let memory = CallMemory {
            is_of_device: false,
            source: first,
            target: match in_place {
                true => first,
                false => target.as_mut_ptr().cast(),
            },
        };
        // SAFETY: both buffers are local vectors, aligned and as long as the device memory.
        let outcome = unsafe { engine.run(work, memory, completion) };
        if outcome.as_ref().is_err_and(|failure| failure.keeps_memory) {
            std::mem::forget((source, target));
            return outcome;
        }
        outcome?;
        if let Some((address, bytes)) = self.target {
            let written = if in_place { &source } else { &target };
            let bytes = &bytemuck::cast_slice(written)[..bytes];
            // SAFETY: by this function's contract, `bytes` bytes are valid at the address. On this
            // thread, the host stream acts as a stream of the device.
            unsafe { backend.upload(self.stream, address, bytes) }?;
            backend.synchronize(self.stream)?;
        }
        Ok(())
    }
}
