//! The measurement of operations for a recording of their device.

use std::panic::Location;

use super::Device;
use crate::device::{StreamId, TimeMark};
use crate::recorder::{EventKind, EventRecord, ScratchRegion, is_inside};

/// A guard for an operation in progress, which ends when the guard drops. On a CUDA device, the
/// guard spans the operation's submission. Operations inside an operation that computes in
/// [blocks](Self::in_blocks) are not recorded.
#[derive(Debug)]
pub struct Timed<'a>(Option<Begun<'a>>);

#[derive(Debug)]
struct Begun<'a> {
    device: &'a Device,
    operation: EventRecord,
    /// The recorder's time at the beginning of the operation.
    time_ns: u64,
    /// The start of the operation in its stream, on an asynchronous device.
    mark: Option<TimeMark>,
    /// The scratch memory of an operation that computes in blocks.
    scratch: Option<ScratchRegion<'a>>,
}

impl<'a> Timed<'a> {
    /// Begins an operation at the caller's line, on the thread's stream of `device`. If no
    /// recording is active, does nothing.
    #[inline]
    #[track_caller]
    pub fn begin(device: &'a Device) -> Self {
        Self::begin_at(device, Location::caller())
    }

    /// Like [`begin`](Self::begin), for an operation at `call_site`.
    #[inline]
    pub fn begin_at(device: &'a Device, call_site: &'static Location<'static>) -> Self {
        Self::begin_if_active(device, || device.stream(), call_site)
    }

    /// Like [`begin`](Self::begin), for an operation that computes in blocks. The blocks are
    /// recorded as one operation. The operation's requests for scratch memory are counted. Only the
    /// requests live at the peak of scratch memory are listed.
    #[inline]
    #[track_caller]
    pub fn in_blocks(device: &'a Device) -> Self {
        let mut timed = Self::begin(device);
        if let Some(begun) = &mut timed.0 {
            let recorder = device.caches().memory().recorder();
            begun.scratch = Some(ScratchRegion::begin(recorder));
        }
        timed
    }

    /// Like [`begin`](Self::begin), for work on `stream`.
    #[track_caller]
    pub fn begin_on(device: &'a Device, stream: StreamId) -> Self {
        Self::begin_on_at(device, stream, Location::caller())
    }

    /// Like [`begin`](Self::begin), for work on `stream` at `call_site`.
    pub fn begin_on_at(
        device: &'a Device,
        stream: StreamId,
        call_site: &'static Location<'static>,
    ) -> Self {
        Self::begin_if_active(device, || stream, call_site)
    }

    #[inline]
    fn begin_if_active(
        device: &'a Device,
        stream: impl FnOnce() -> StreamId,
        call_site: &'static Location<'static>,
    ) -> Self {
        let recorder = device.caches().memory().recorder();
        match recorder.is_active() {
            true => Self(Begun::new(device, stream(), call_site)),
            false => Self(None),
        }
    }
}

impl<'a> Begun<'a> {
    #[cold]
    fn new(
        device: &'a Device,
        stream: StreamId,
        call_site: &'static Location<'static>,
    ) -> Option<Self> {
        let recorder = device.caches().memory().recorder();
        if is_inside(recorder) {
            return None;
        }
        let operation = EventRecord {
            call_site: Some(call_site),
            stream,
            scope: device.caches().current_scope_number(),
            ..EventRecord::of(EventKind::OperationBegin, 0)
        };
        let time_ns = recorder.time_ns();
        recorder.record(|| operation);
        Some(Self {
            device,
            operation,
            time_ns,
            mark: device.backend().mark_time(operation.stream),
            scratch: None,
        })
    }

    /// Records the end of the operation without a wait. The device's own time is recorded later,
    /// after the device has executed the marks at the operation's beginning and end.
    #[cold]
    fn end(&self) {
        let recorder = self.device.caches().memory().recorder();
        recorder.record(|| EventRecord::of(EventKind::OperationEnd, 0));
        let (Some(begin), backend) = (self.mark, self.device.backend()) else {
            return;
        };
        match backend.mark_time(self.operation.stream) {
            Some(end) => recorder.submitted(backend, (self.operation, self.time_ns), [begin, end]),
            None => backend.discard_mark(begin),
        }
    }
}

impl Drop for Timed<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(begun) = &mut self.0 {
            begun.scratch = None;
            begun.end();
        }
    }
}
