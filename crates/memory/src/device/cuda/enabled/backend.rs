//! A CUDA device as a [`Backend`].

use super::Cuda;
use super::error::unless_exhausted;
use super::staging::BUFFER_BYTES;
use super::transfer::{self, PendingDownload};
use crate::costs::DriverLedger;
use crate::device::host_streams::{HostStream, StealWork};
use crate::device::{
    Backend, DeviceId, DevicePtr, Event, HostExecution, StreamId, TimeMark, TimeSpan, VirtualMemory,
};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Arc, Weak};

const ALIGNMENT_BYTES: u64 = 512;

impl Backend for Cuda {
    fn id(&self) -> DeviceId {
        self.context.id()
    }

    fn total_bytes(&self) -> u64 {
        self.context.total_bytes
    }

    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>> {
        if let Some(imitation) = &self.context.imitation {
            return Ok(imitation.driver.allocate(bytes));
        }
        let Ok(length) = usize::try_from(bytes) else {
            return Ok(None);
        };
        let reserved = self.context.run("reserving memory", |driver| {
            let mut address = 0;
            // SAFETY: `address` is writable.
            let outcome = unsafe { driver.mem_alloc(&mut address, length) };
            unless_exhausted(outcome.map(|()| DevicePtr(address)))
        })?;
        check_alignment(self, reserved, |address| self.release(address, bytes))
    }

    fn release(&self, address: DevicePtr, bytes: u64) -> Result<()> {
        if let Some(imitation) = &self.context.imitation {
            imitation.driver.free(bytes);
            return Ok(());
        }
        // SAFETY: the caller passes an address that `reserve` returned, and no longer uses the
        // memory.
        self.context.release("releasing memory", |driver| unsafe {
            driver.mem_free(address.0)
        })
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.ranges.as_deref()
    }

    unsafe fn upload(&self, stream: StreamId, target: DevicePtr, source: &[u8]) -> Result<()> {
        let capture = &self.streams.capture;
        capture.check_not_captured("a copy from the host", stream)?;
        if self.context.is_imitated() {
            return Ok(());
        }
        for (number, part) in (0..).zip(source.chunks(BUFFER_BYTES)) {
            let target = target.offset(number * BUFFER_BYTES as u64);
            // SAFETY: by this function's contract. The parts are contiguous in `target` and
            // `source`.
            unsafe { self.copy_in_part(stream, target, part) }?;
        }
        Ok(())
    }

    /// Copies through staging buffers: the host empties one buffer while the device fills the next.
    unsafe fn download(
        &self,
        stream: StreamId,
        source: DevicePtr,
        target: &mut [u8],
    ) -> Result<()> {
        let capture = &self.streams.capture;
        capture.check_not_captured("a copy to the host", stream)?;
        if self.context.is_imitated() {
            target.fill(0);
            return Ok(());
        }
        let last = target.len().saturating_sub(1) / BUFFER_BYTES;
        let mut before: Option<PendingDownload<'_>> = None;
        let mut outcome = Ok(());
        for (number, part) in target.chunks_mut(BUFFER_BYTES).enumerate() {
            let source = source.offset((number * BUFFER_BYTES) as u64);
            // SAFETY: by this function's contract. The parts are contiguous in `source` and
            // `target`.
            let next = unsafe { self.copy_out_part(stream, source, part, number == last) };
            outcome = before.take().map_or(Ok(()), |part| self.receive(part));
            before = match next {
                Ok(next) => next,
                Err(error) => {
                    outcome = outcome.and(Err(error));
                    None
                }
            };
            if outcome.is_err() {
                break;
            }
        }
        match before {
            Some(part) if outcome.is_err() => self.staging.give(&self.streams, part.buffer),
            Some(part) => outcome = self.receive(part),
            None => {}
        }
        outcome?;
        self.take_failure()
    }

    unsafe fn fill(
        &self,
        stream: StreamId,
        target: DevicePtr,
        bytes: u64,
        pattern: &[u8],
    ) -> Result<()> {
        // SAFETY: by this function's contract.
        self.streams
            .run(stream, "filling memory", |driver, raw| unsafe {
                transfer::set(driver, raw, target.0, bytes as usize, pattern)
            })
    }

    fn synchronize(&self, stream: StreamId) -> Result<()> {
        if let Some(host_stream) = self.host_streams.of(stream) {
            return host_stream.synchronize();
        }
        self.streams.synchronize(stream)?;
        self.take_failure()
    }

    fn new_stream(&self) -> Result<StreamId> {
        self.streams.take()
    }

    fn new_host_stream(&self, executor: Weak<dyn StealWork>) -> Result<Arc<HostStream>> {
        self.host_streams
            .open(executor, || self.streams.take_fresh())
    }

    fn host_stream(&self, stream: StreamId) -> Option<Arc<HostStream>> {
        self.host_streams.named(stream)
    }

    fn retire_stream(&self, stream: StreamId) {
        self.streams.give(stream);
    }

    fn streams(&self) -> u16 {
        self.streams.count()
    }

    fn uses_streams(&self) -> bool {
        self.streams() > 1 || self.streams.capture.is_active()
    }

    fn record_event(&self, stream: StreamId) -> Result<Event> {
        match self.host_streams.of(stream) {
            Some(host_stream) => Ok(host_stream.event()),
            None => self.streams.record(stream),
        }
    }

    fn stream_wait_event(&self, stream: StreamId, event: &Event) -> Result<()> {
        match self.host_streams.of(event.stream) {
            Some(host_stream) => host_stream.wait_for(event),
            None => self.streams.wait(stream, event),
        }
    }

    fn query_event(&self, event: &Event) -> Result<bool> {
        match self.host_streams.of(event.stream) {
            Some(host_stream) => Ok(host_stream.is_done(event)),
            None => self.streams.is_done(event),
        }
    }

    fn synchronize_event(&self, event: &Event) -> Result<()> {
        match self.host_streams.of(event.stream) {
            Some(host_stream) => host_stream.wait_for(event),
            None => self.streams.wait_for(event),
        }
    }

    fn begin_timing(&self) -> Result<()> {
        self.streams.begin_timing()
    }

    fn mark_time(&self, stream: StreamId) -> Option<TimeMark> {
        // A device without data runs no work, so it marks no times.
        let marked = !self.context.is_imitated();
        marked
            .then(|| self.streams.mark_time(stream).ok().flatten())
            .flatten()
    }

    fn take_times(&self, marks: [TimeMark; 2]) -> Result<Option<TimeSpan>> {
        self.streams.take_times(marks)
    }

    fn discard_mark(&self, mark: TimeMark) {
        self.streams.discard_mark(mark);
    }

    fn name(&self) -> String {
        self.context.name()
    }

    fn host_execution(&self) -> HostExecution<'_> {
        match self.context.is_imitated() {
            true => HostExecution::Never,
            false => HostExecution::AtOnce,
        }
    }

    fn assumed_count(&self, most: usize) -> Option<usize> {
        let imitation = self.context.imitation.as_ref()?;
        Some(
            imitation
                .assumed_count
                .map_or(most, |count| count.min(most)),
        )
    }

    fn simulated_ledger(&self) -> Option<DriverLedger> {
        let imitation = self.context.imitation.as_ref()?;
        Some(imitation.driver.with_ledger(|ledger| ledger.clone()))
    }

    fn is_capturing(&self) -> bool {
        self.streams.capture.is_by_this_thread()
    }

    fn is_captured(&self, stream: StreamId) -> bool {
        self.streams.capture.captures(stream)
    }

    fn cuda(&self) -> Option<&Cuda> {
        Some(self)
    }
}

/// Checks the alignment that the layers above require. The driver does not guarantee this
/// alignment.
pub(super) fn check_alignment(
    cuda: &Cuda,
    reserved: Option<DevicePtr>,
    release: impl FnOnce(DevicePtr) -> Result<()>,
) -> Result<Option<DevicePtr>> {
    let misaligned = |address: &DevicePtr| !address.0.is_multiple_of(ALIGNMENT_BYTES);
    let Some(address) = reserved.filter(misaligned) else {
        return Ok(reserved);
    };
    release(address)?;
    let text = format!(
        "{}: the driver reserved memory at {:#x}, expected a multiple of {ALIGNMENT_BYTES}",
        cuda.name(),
        address.0
    );
    Err(Error::new(ErrorKind::Driver, text))
}
