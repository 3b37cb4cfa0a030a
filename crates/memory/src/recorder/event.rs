//! An event as a thread records it, and its encoding as words of a ring.

use std::panic::Location;

use cachescope_reports::EventKind;

use super::backtraces::{NO_STACK, StackNumber};
use crate::device::StreamId;

/// The number of a scope in the recorder.
pub(crate) type ScopeNumber = u64;

/// The number that stands for no scope.
pub(crate) const NO_SCOPE: ScopeNumber = 0;

/// The number of words of an event, without its line.
pub(super) const WORDS: usize = 5;

/// An event of the calling thread at the present time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventRecord {
    pub(crate) kind: EventKind,
    pub(crate) stream: StreamId,
    /// The stack of an allocation. The recorder captures the stack if a recording needs it.
    pub(crate) stack: StackNumber,
    pub(crate) scope: ScopeNumber,
    pub(crate) call_site: Option<&'static Location<'static>>,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) block_bytes: u64,
}

impl EventRecord {
    /// Returns an event without a block and a scope.
    pub(crate) fn of(kind: EventKind, bytes: u64) -> Self {
        Self {
            kind,
            stream: StreamId::default(),
            stack: NO_STACK,
            scope: NO_SCOPE,
            call_site: None,
            address: 0,
            bytes,
            block_bytes: 0,
        }
    }

    /// Returns the words of the event. The first word has, from the lowest bits: the kind (8 bits),
    /// scope (24), stream (16) and stack.
    pub(super) fn to_words(self, time_ns: u64) -> [u64; WORDS] {
        let scope = self.scope & 0xff_ffff;
        let [stream, stack] = [self.stream.0, self.stack].map(u64::from);
        let first = self.kind as u64 | scope << 8 | stream << 32 | stack << 48;
        [first, time_ns, self.address, self.bytes, self.block_bytes]
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded {
    pub(super) thread: u64,
    pub(super) time_ns: u64,
    pub(super) event: EventRecord,
}

impl Recorded {
    /// Returns whether the event belongs to a recording that began at `began_ns`. An operation that
    /// was submitted before `began_ns` does not belong to the recording.
    pub(super) fn is_since(&self, began_ns: u64) -> bool {
        self.event.kind != EventKind::Kernel || self.event.address >= began_ns
    }

    pub(super) fn from_words(
        thread: u64,
        words: [u64; WORDS],
        call_site: Option<&'static Location<'static>>,
    ) -> Self {
        let [first, time_ns, address, bytes, block_bytes] = words;
        let event = EventRecord {
            kind: EventKind::ALL[(first & 0xff) as usize],
            stream: StreamId((first >> 32) as u16),
            stack: (first >> 48) as StackNumber,
            scope: first >> 8 & 0xff_ffff,
            call_site,
            address,
            bytes,
            block_bytes,
        };
        Self {
            thread,
            time_ns,
            event,
        }
    }
}
