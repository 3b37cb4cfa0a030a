//! The time of operations, for a recording of their device.

use std::panic::Location;

use crate::context::Device;
use crate::recorder::{EventKind, EventRecord, Recorder};

/// An operation that is being done, or on a CUDA device submitted; it ends as this drops.
pub(super) struct Timed<'a>(Option<&'a Recorder>);

impl<'a> Timed<'a> {
    /// Begins an operation on `device` that the caller's line asked for; does nothing unless somebody records.
    #[inline]
    #[track_caller]
    pub(super) fn begin(device: &'a Device) -> Self {
        let recorder = device.caches().memory().recorder();
        if !recorder.is_active() {
            return Self(None);
        }
        let call_site = Location::caller();
        recorder.record(|| EventRecord {
            call_site: Some(call_site),
            stream: device.stream(),
            scope: device.caches().current_scope_number(),
            ..EventRecord::of(EventKind::OperationBegin, 0)
        });
        Self(Some(recorder))
    }
}

impl Drop for Timed<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(recorder) = self.0 {
            recorder.record(|| EventRecord::of(EventKind::OperationEnd, 0));
        }
    }
}
