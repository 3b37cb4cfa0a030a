//! Operations of a device that runs behind the host: their times are known once the device has done them.

use std::collections::VecDeque;

use super::event::EventRecord;
use super::{EventKind, Recorder};
use crate::device::{Backend, TimeMark};
use crate::sync::plain::Mutex;

/// So many operations may be under way; what is submitted beyond is not timed.
const MOST_UNDER_WAY: usize = 4096;

/// Operations that were submitted, in that order.
#[derive(Debug, Default)]
pub(super) struct Kernels(Mutex<VecDeque<Submitted>>);

#[derive(Debug)]
struct Submitted {
    operation: EventRecord,
    marks: [TimeMark; 2],
}

impl Recorder {
    /// Takes an operation whose time lies between two marks.
    pub(crate) fn submitted(
        &self,
        backend: &dyn Backend,
        operation: EventRecord,
        marks: [TimeMark; 2],
    ) {
        self.finish_kernels(backend);
        let mut under_way = self.kernels.0.lock();
        if under_way.len() == MOST_UNDER_WAY {
            return marks
                .into_iter()
                .for_each(|mark| backend.discard_mark(mark));
        }
        under_way.push_back(Submitted { operation, marks });
    }

    /// Records the times of operations that are done by now, up to the first that is not. Does not wait.
    pub(crate) fn finish_kernels(&self, backend: &dyn Backend) {
        let mut under_way = self.kernels.0.lock();
        while let Some(first) = under_way.front() {
            match backend.take_times(first.marks) {
                Ok(None) => break,
                Ok(Some(span)) => {
                    let began = span.began.saturating_duration_since(self.began);
                    let event = EventRecord {
                        kind: EventKind::Kernel,
                        bytes: span.duration.as_nanos() as u64,
                        ..first.operation
                    };
                    self.write(began.as_nanos() as u64, &event);
                }
                // A device that fails tells it elsewhere.
                Err(_) => {}
            }
            under_way.pop_front();
        }
    }
}
