//! Operations of an asynchronous device. The time of an operation is known after the operation
//! completes.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::event::EventRecord;
use super::{EventKind, Recorder};
use crate::device::{Backend, StreamId, TimeMark, TimeSpan};
use crate::sync::plain::Mutex;

/// The maximum number of operations in flight. An operation beyond this number is not timed, and
/// counts as lost.
const MOST_IN_FLIGHT: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Kernels(Mutex<VecDeque<Submitted>>);

#[derive(Debug)]
struct Submitted {
    operation: EventRecord,
    /// The time at which the operation's submission began, since the recorder began.
    time_ns: u64,
    marks: [TimeMark; 2],
}

impl Recorder {
    /// Adds an operation whose submission began at `time_ns`. The two marks enclose the operation
    /// in its stream.
    pub(crate) fn submitted(
        &self,
        backend: &dyn Backend,
        (operation, time_ns): (EventRecord, u64),
        marks: [TimeMark; 2],
    ) {
        self.finish_kernels(backend);
        let mut in_flight = self.kernels.0.lock();
        if in_flight.len() == MOST_IN_FLIGHT {
            self.lose();
            return marks
                .into_iter()
                .for_each(|mark| backend.discard_mark(mark));
        }
        in_flight.push_back(Submitted {
            operation,
            time_ns,
            marks,
        });
    }

    /// Records the times of operations that have completed. Does not wait. Does nothing inside a
    /// capture, in which the device may not be queried.
    pub(crate) fn finish_kernels(&self, backend: &dyn Backend) {
        if backend.is_capturing() {
            return;
        }
        // Later operations of a busy stream have not completed either.
        let mut busy: SmallVec<[StreamId; 8]> = SmallVec::new();
        self.kernels.0.lock().retain(|own| {
            let stream = own.operation.stream;
            if busy.contains(&stream) {
                return true;
            }
            // An error is ignored here, because other calls return a failure of the device.
            let times = backend.take_times(own.marks);
            if let Ok(Some(span)) = times {
                self.write_kernel(own, span);
            }
            let is_busy = matches!(times, Ok(None));
            busy.extend(is_busy.then_some(stream));
            is_busy
        });
    }

    /// Writes the event of an operation. The clocks of device and host drift apart, so the time is
    /// clamped. An operation neither begins before its submission nor ends after now.
    fn write_kernel(&self, submitted: &Submitted, span: TimeSpan) {
        let duration_ns = span.duration.as_nanos() as u64;
        let began_ns = span.began.saturating_duration_since(self.began).as_nanos() as u64;
        let latest_ns = self.time_ns().saturating_sub(duration_ns);
        let event = EventRecord {
            kind: EventKind::Kernel,
            // `address` stores the time of submission, by which recordings select the event.
            address: submitted.time_ns,
            bytes: duration_ns,
            ..submitted.operation
        };
        self.write(began_ns.min(latest_ns).max(submitted.time_ns), &event);
    }
}
