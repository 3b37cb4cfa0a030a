//! The requests of an entry in order, with their lifetimes.

use std::panic::Location;

use crate::cache::record::{AllocationRecord, RecordedAllocation};
use crate::device::StreamId;

#[derive(Clone, Copy, Debug)]
pub(super) struct SequenceRequest {
    pub(super) rounded_bytes: u64,
    pub(super) stream: StreamId,
    pub(super) requested_bytes: u64,
    call_site: &'static Location<'static>,
    /// The index of the first later request that may reuse the memory; `None` if the block outlives
    /// the entry.
    pub(super) upper: Option<usize>,
}

impl SequenceRequest {
    fn is_like(&self, other: &Self) -> bool {
        (self.rounded_bytes, self.stream) == (other.rounded_bytes, other.stream)
    }

    fn has_room_for(&self, other: &Self) -> bool {
        self.rounded_bytes >= other.rounded_bytes
            && self.stream == other.stream
            && self.call_site == other.call_site
    }

    /// Converts the request to a recorded allocation of a later entry. The allocation requested at
    /// most `served_bytes` bytes.
    pub(super) fn recorded(
        &self,
        (number, served_bytes): (usize, u64),
        freed_at: Option<usize>,
    ) -> RecordedAllocation {
        let bytes = self.requested_bytes.min(served_bytes);
        RecordedAllocation {
            record: AllocationRecord {
                freed_at: freed_at.map(|step| step as u64),
                ..AllocationRecord::new(bytes, self.call_site, number as u64)
            },
            rounded_bytes: self.rounded_bytes,
            stream: self.stream,
        }
    }
}

#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) requests: Vec<SequenceRequest>,
    /// The epoch of the last entry that followed this sequence.
    pub(super) used_epoch: u64,
    /// The epoch of the last entry that followed this sequence with requests of about the planned
    /// sizes.
    pub(super) full_epoch: u64,
}

impl Sequence {
    pub(super) fn new(recorded: &[RecordedAllocation], used_epoch: u64) -> Self {
        let order: Vec<u64> = recorded
            .iter()
            .map(|recorded| recorded.record.allocated_at)
            .collect();
        let after = |step: u64| order.partition_point(|&allocated_at| allocated_at < step);
        let request = |(number, recorded): (usize, &RecordedAllocation)| SequenceRequest {
            rounded_bytes: recorded.rounded_bytes,
            stream: recorded.stream,
            requested_bytes: recorded.record.bytes,
            call_site: recorded.record.call_site,
            // The lifetime is at least one step. With an empty lifetime, the request would need no
            // memory, and the slab could be shorter than the request.
            upper: recorded
                .record
                .freed_at
                .map(|step| after(step).max(number + 1)),
        };
        Self {
            requests: recorded.iter().enumerate().map(request).collect(),
            used_epoch,
            full_epoch: used_epoch,
        }
    }

    /// Returns the sum of the unrounded sizes of the requests inside the slab.
    pub(super) fn bytes(&self) -> u64 {
        let inside = self.requests.iter().filter(|own| own.upper.is_some());
        inside.map(|own| own.requested_bytes).sum()
    }

    /// Returns the length of the common prefix of the two sequences.
    pub(super) fn common(&self, other: &Self) -> usize {
        let mut pairs = self.requests.iter().zip(&other.requests);
        let differing = pairs.position(|(own, other)| !own.is_like(other));
        differing.unwrap_or(self.requests.len().min(other.requests.len()))
    }

    /// Returns true if the two sequences have equal requests.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        self.requests.len() == other.requests.len() && self.common(other) == self.requests.len()
    }

    /// Returns true if each request of `other` fits in this sequence's request of equal index and
    /// call site. The two sequences then come from one program with inputs of different lengths.
    pub(super) fn has_room_for(&self, other: &Self) -> bool {
        let mut pairs = self.requests.iter().zip(&other.requests);
        self.requests.len() == other.requests.len()
            && pairs.all(|(own, other)| own.has_room_for(other))
    }

    /// Extends each request to the maximum size and lifetime of the two sequences. One sequence
    /// must have room for the requests of the other sequence.
    pub(super) fn merge(&mut self, other: &Self) {
        for (own, other) in self.requests.iter_mut().zip(&other.requests) {
            own.rounded_bytes = own.rounded_bytes.max(other.rounded_bytes);
            own.requested_bytes = own.requested_bytes.max(other.requested_bytes);
            own.upper = own
                .upper
                .zip(other.upper)
                .map(|(own, other)| own.max(other));
        }
    }

    /// Returns the ends of the requests' lifetimes. If a request is in a common prefix with another
    /// sequence of `all`, its lifetime is extended. It then includes the corresponding request's
    /// lifetime, up to the end of the prefix.
    pub(super) fn uppers(&self, all: &[Self]) -> Vec<Option<usize>> {
        let mut uppers: Vec<_> = self.requests.iter().map(|request| request.upper).collect();
        for other in all {
            let common = self.common(other);
            for (upper, other) in uppers[..common].iter_mut().zip(&other.requests) {
                let pair = upper.zip(other.upper);
                *upper = pair.map(|(own, other)| own.max(other.min(common)));
            }
        }
        uppers
    }

    /// Returns the peak live bytes of the requests that do not outlive the entry.
    pub(super) fn load_bytes(&self) -> u64 {
        let mut freed = vec![0; self.requests.len() + 1];
        let (mut live_bytes, mut load_bytes) = (0, 0);
        for (number, request) in self.requests.iter().enumerate() {
            live_bytes -= freed[number];
            if let Some(upper) = request.upper {
                freed[upper] += request.rounded_bytes;
                live_bytes += request.rounded_bytes;
            }
            load_bytes = load_bytes.max(live_bytes);
        }
        load_bytes
    }
}
