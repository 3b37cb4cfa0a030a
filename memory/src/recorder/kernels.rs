//! Operations of an asynchronous device: their times are known once it has done them.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::event::EventRecord;
use super::{EventKind, Recorder};
use crate::device::{Backend, StreamId, TimeMark, TimeSpan};
use crate::sync::plain::{Mutex, Ordering};

/// So many operations may be under way; what is submitted beyond is not timed, and counts as lost.
const MOST_UNDER_WAY: usize = 4096;

/// Operations that were submitted, in that order.
#[derive(Debug, Default)]
pub(super) struct Kernels(Mutex<VecDeque<Submitted>>);

#[derive(Debug)]
struct Submitted {
    operation: EventRecord,
    /// When it began to be, since the recorder began.
    time_ns: u64,
    marks: [TimeMark; 2],
}

impl Recorder {
    /// Takes an operation that began at that time of the recorder's, and of which the device's time
    /// lies between two marks.
    pub(crate) fn submitted(
        &self,
        backend: &dyn Backend,
        (operation, time_ns): (EventRecord, u64),
        marks: [TimeMark; 2],
    ) {
        self.finish_kernels(backend);
        let mut under_way = self.kernels.0.lock();
        if under_way.len() == MOST_UNDER_WAY {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return marks
                .into_iter()
                .for_each(|mark| backend.discard_mark(mark));
        }
        under_way.push_back(Submitted {
            operation,
            time_ns,
            marks,
        });
    }

    /// Records the times of operations that are done by now. Does not wait; does nothing inside of
    /// a capture, where the device may not be asked.
    pub(crate) fn finish_kernels(&self, backend: &dyn Backend) {
        if backend.is_capturing() {
            return;
        }
        // What comes behind on its stream is not done either.
        let mut busy: SmallVec<[StreamId; 8]> = SmallVec::new();
        self.kernels.0.lock().retain(|own| {
            let stream = own.operation.stream;
            if busy.contains(&stream) {
                return true;
            }
            // A device that fails tells it elsewhere.
            let times = backend.take_times(own.marks);
            if let Ok(Some(span)) = times {
                self.write_kernel(own, span);
            }
            let is_busy = matches!(times, Ok(None));
            busy.extend(is_busy.then_some(stream));
            is_busy
        });
    }

    /// The clocks of device and host drift apart: an operation neither began before it was
    /// submitted, nor ends later.
    fn write_kernel(&self, submitted: &Submitted, span: TimeSpan) {
        let duration_ns = span.duration.as_nanos() as u64;
        let began_ns = span.began.saturating_duration_since(self.began).as_nanos() as u64;
        let latest_ns = self.time_ns().saturating_sub(duration_ns);
        let event = EventRecord {
            kind: EventKind::Kernel,
            // Which recordings it is of.
            address: submitted.time_ns,
            bytes: duration_ns,
            ..submitted.operation
        };
        self.write(began_ns.min(latest_ns).max(submitted.time_ns), &event);
    }
}
