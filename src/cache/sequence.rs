//! What an entry asked for, in its order, and how long each of it lived.

use std::panic::Location;

use super::record::{AllocationRecord, Noted};
use crate::device::StreamId;

/// A request of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) rounded_bytes: u64,
    pub(super) stream: StreamId,
    requested_bytes: u64,
    call_site: &'static Location<'static>,
    /// The number of the first request that may lie where this one did, above its own; `None` where it
    /// outlives the entry.
    pub(super) upper: Option<usize>,
}

impl Request {
    fn is_like(&self, other: &Self) -> bool {
        (self.rounded_bytes, self.stream) == (other.rounded_bytes, other.stream)
    }

    /// The request as it stands in the record of a later entry.
    pub(super) fn noted(&self, number: usize, freed_at: Option<usize>) -> Noted {
        Noted {
            record: AllocationRecord {
                bytes: self.requested_bytes,
                call_site: self.call_site,
                allocated_at: number as u64,
                freed_at: freed_at.map(|step| step as u64),
            },
            rounded_bytes: self.rounded_bytes,
            stream: self.stream,
        }
    }
}

/// The requests of an entry.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) requests: Vec<Request>,
    /// The clock of the entry that went so last.
    pub(super) used_at: u64,
}

impl Sequence {
    pub(super) fn new(noted: &[Noted], used_at: u64) -> Self {
        let order: Vec<u64> = noted
            .iter()
            .map(|noted| noted.record.allocated_at)
            .collect();
        let after = |step: u64| order.partition_point(|&allocated_at| allocated_at < step);
        let request = |(number, noted): (usize, &Noted)| Request {
            rounded_bytes: noted.rounded_bytes,
            stream: noted.stream,
            requested_bytes: noted.record.bytes,
            call_site: noted.record.call_site,
            // Whatever was noted: it takes its place, or the slab might be shorter than it.
            upper: noted
                .record
                .freed_at
                .map(|step| after(step).max(number + 1)),
        };
        Self {
            requests: noted.iter().enumerate().map(request).collect(),
            used_at,
        }
    }

    /// How many of the first requests of both are the same.
    pub(super) fn common(&self, other: &Self) -> usize {
        let mut pairs = self.requests.iter().zip(&other.requests);
        let differing = pairs.position(|(own, other)| !own.is_like(other));
        differing.unwrap_or(self.requests.len().min(other.requests.len()))
    }

    /// Whether all requests of both are the same.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        self.requests.len() == other.requests.len() && self.common(other) == self.requests.len()
    }

    /// Lets each request live as long as in either of two that are alike.
    pub(super) fn merge(&mut self, other: &Self) {
        for (own, other) in self.requests.iter_mut().zip(&other.requests) {
            own.upper = own
                .upper
                .zip(other.upper)
                .map(|(own, other)| own.max(other));
        }
    }

    /// How long the requests live so that it holds for every other sequence too, as far as that
    /// begins as this one.
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

    /// The most that is alive at one moment of what does not outlive the entry.
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
