//! Where the requests of a recorded entry lie in one slab, and what must be idle for each of them.
//! Pure numbers: what serves requests by it stands in [`plans`](super::plans).

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::Location;

use super::record::{AllocationRecord, Noted};
use crate::device::StreamId;
use crate::plan::{Buffer, pack_quickly};

/// A request of the entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) rounded_bytes: u64,
    pub(super) stream: StreamId,
    requested_bytes: u64,
    call_site: &'static Location<'static>,
    /// The number of the first request that may lie where this one did; `None` where it outlives the
    /// entry.
    upper: Option<usize>,
    /// Where it lies in the slab; `None` where it is served outside: it outlives the entry, or is on
    /// another stream.
    pub(super) offset: Option<u64>,
}

impl Planned {
    pub(super) fn is_for(&self, rounded_bytes: u64, stream: StreamId) -> bool {
        self.rounded_bytes == rounded_bytes && self.stream == stream
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

/// A plan of an entry.
///
/// Invariant: wherever two requests overlap in the slab, the later of which is `i`, one of the
/// [`before`](Self::before) of `i` overlaps too, the earlier request itself or one between the two. So
/// where all of these are idle, and each request was handed out only while its own were, whatever
/// overlaps with `i` is idle.
#[derive(Debug)]
pub(super) struct Plan {
    requests: Vec<Planned>,
    slab_bytes: u64,
    before: Vec<u32>,
    /// Where those of a request end in `before`.
    ends: Vec<u32>,
}

impl Plan {
    /// Packs what was noted of an entry.
    pub(super) fn new(noted: &[Noted]) -> Self {
        let order: Vec<u64> = noted
            .iter()
            .map(|noted| noted.record.allocated_at)
            .collect();
        let after = |step: u64| order.partition_point(|&allocated_at| allocated_at < step);
        let request = |(number, noted): (usize, &Noted)| Planned {
            rounded_bytes: noted.rounded_bytes,
            stream: noted.stream,
            requested_bytes: noted.record.bytes,
            call_site: noted.record.call_site,
            // Whatever was noted: it takes its place, or the slab might be shorter than it.
            upper: noted
                .record
                .freed_at
                .map(|step| after(step).max(number + 1)),
            offset: None,
        };
        Self::packed(noted.iter().enumerate().map(request).collect())
    }

    /// One that holds for this one's entry and for another with the same requests, whatever lives
    /// longer in either.
    pub(super) fn merged(&self, other: &Self) -> Self {
        let pairs = self.requests.iter().zip(&other.requests);
        let merged = pairs.map(|(own, other)| Planned {
            upper: own
                .upper
                .zip(other.upper)
                .map(|(own, other)| own.max(other)),
            ..*own
        });
        Self::packed(merged.collect())
    }

    /// Serves some requests outside from now on, where nothing else of the plan is changed.
    pub(super) fn leave_out(&mut self, is_left_out: impl Fn(usize) -> bool) {
        for (number, request) in self.requests.iter_mut().enumerate() {
            if is_left_out(number) {
                (request.upper, request.offset) = (None, None);
            }
        }
        self.link();
    }

    fn packed(mut requests: Vec<Planned>) -> Self {
        let stream = requests.first().map(|request| request.stream);
        let is_inside =
            |request: &Planned| request.upper.is_some() && Some(request.stream) == stream;
        let buffers = requests.iter().enumerate().map(|(number, request)| Buffer {
            lower: number as u64,
            upper: request.upper.unwrap_or(number) as u64,
            size_bytes: if is_inside(request) {
                request.rounded_bytes
            } else {
                0
            },
        });
        let packing = pack_quickly(&buffers.collect::<Vec<_>>());
        for (request, offset) in requests.iter_mut().zip(packing.offsets) {
            request.offset = is_inside(request).then_some(offset);
        }
        let mut plan = Self {
            requests,
            slab_bytes: packing.slab_bytes,
            before: Vec::new(),
            ends: Vec::new(),
        };
        plan.link();
        plan
    }

    /// Finds what lies before each request.
    fn link(&mut self) {
        self.before.clear();
        self.ends.clear();
        let mut top = Top::default();
        for (number, request) in (0..).zip(&self.requests) {
            if let Some(offset) = request.offset {
                self.before
                    .extend(top.cover(offset..offset + request.rounded_bytes, number));
            }
            self.ends.push(self.before.len() as u32);
        }
    }

    pub(super) fn requests(&self) -> &[Planned] {
        &self.requests
    }

    pub(super) fn slab_bytes(&self) -> u64 {
        self.slab_bytes
    }

    /// The requests that lay last where this one lies.
    #[inline]
    pub(super) fn before(&self, number: usize) -> &[u32] {
        let start = number.checked_sub(1).map_or(0, |last| self.ends[last]);
        &self.before[start as usize..self.ends[number] as usize]
    }

    /// Whether the first `count` requests of both are the same.
    pub(super) fn begins_as(&self, other: &Self, count: usize) -> bool {
        let (own, other) = (self.requests.get(..count), other.requests.get(..count));
        own.zip(other).is_some_and(|(own, other)| {
            let mut pairs = own.iter().zip(other);
            pairs.all(|(own, other)| own.is_for(other.rounded_bytes, other.stream))
        })
    }

    /// Whether all requests of both are the same.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let count = self.requests.len();
        count == other.requests.len() && self.begins_as(other, count)
    }
}

/// Who lay last at each place: requests by the beginnings of the ranges where they did.
#[derive(Default)]
struct Top(BTreeMap<u64, (u64, u32)>);

impl Top {
    /// Lays `number` over a range; answers who lay there, each once.
    fn cover(&mut self, range: Range<u64>, number: u32) -> Vec<u32> {
        let first = self.0.range(..range.start).next_back();
        let first = first.filter(|&(_, &(end, _))| end > range.start);
        let inside = first.into_iter().chain(self.0.range(range.clone()));
        let covered: Vec<_> = inside
            .map(|(&start, &(end, who))| (start, end, who))
            .collect();
        for &(start, end, who) in &covered {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, (range.start, who));
            }
            if end > range.end {
                self.0.insert(range.end, (end, who));
            }
        }
        self.0.insert(range.start, (range.end, number));
        let mut below: Vec<u32> = covered.into_iter().map(|(_, _, who)| who).collect();
        below.sort_unstable();
        below.dedup();
        below
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Requests of so many units that live for so many steps, or beyond the entry.
    fn noted(requests: &[(u64, Option<usize>)]) -> Vec<Noted> {
        let noted = requests
            .iter()
            .enumerate()
            .map(|(number, &(units, steps))| Noted {
                record: AllocationRecord {
                    bytes: units * 512,
                    call_site: Location::caller(),
                    allocated_at: number as u64,
                    freed_at: steps.map(|steps| (number + 1 + steps) as u64),
                },
                rounded_bytes: units * 512,
                stream: StreamId::default(),
            });
        noted.collect()
    }

    fn overlap(a: &Planned, b: &Planned) -> bool {
        a.offset.zip(b.offset).is_some_and(|(first, second)| {
            first < second + b.rounded_bytes && second < first + a.rounded_bytes
        })
    }

    proptest! {
        /// Whoever overlaps in space lives apart in time, and is found by following `before`.
        #[test]
        fn what_overlaps_lies_before_at_some_remove(
            requests in prop::collection::vec((1u64..20, prop::option::weighted(0.9, 0usize..12)), 1..60)
        ) {
            let plan = Plan::new(&noted(&requests));
            for (later, request) in plan.requests().iter().enumerate() {
                prop_assert_eq!(request.offset.is_some(), requests[later].1.is_some());
                let mut behind = vec![false; later];
                let mut next: Vec<_> = plan.before(later).to_vec();
                while let Some(number) = next.pop() {
                    if !std::mem::replace(&mut behind[number as usize], true) {
                        next.extend(plan.before(number as usize));
                    }
                }
                for (earlier, &behind) in behind.iter().enumerate() {
                    if overlap(request, &plan.requests()[earlier]) {
                        prop_assert!(behind, "{} is not behind {}", earlier, later);
                        prop_assert!(plan.requests()[earlier].upper.unwrap() <= later);
                    }
                }
                for &number in plan.before(later) {
                    prop_assert!(overlap(request, &plan.requests()[number as usize]));
                }
            }
        }

        #[test]
        fn a_merged_plan_holds_for_both(
            requests in prop::collection::vec((1u64..20, prop::option::weighted(0.9, 0usize..12), 0usize..12), 1..40)
        ) {
            let of = |later: bool| -> Vec<_> {
                let lives = requests.iter().map(|&(units, steps, more)| {
                    (units, if later { steps.map(|_| more) } else { steps })
                });
                lives.collect()
            };
            let (first, second) = (Plan::new(&noted(&of(false))), Plan::new(&noted(&of(true))));
            prop_assert!(first.is_alike(&second));
            let merged = first.merged(&second);
            for (number, request) in merged.requests().iter().enumerate() {
                let longest = first.requests[number].upper.max(second.requests[number].upper);
                prop_assert_eq!(request.upper, longest);
            }
        }
    }

    #[test]
    fn plans_are_told_apart_by_their_requests() {
        let plan = |requests: &[_]| Plan::new(&noted(requests));
        let long = plan(&[(1, Some(0)), (2, Some(0)), (3, None)]);
        let other = plan(&[(1, Some(1)), (2, Some(5)), (4, None)]);
        let short = plan(&[(1, Some(0)), (2, Some(0))]);
        assert!(long.begins_as(&other, 2) && !long.begins_as(&other, 3));
        assert!(short.begins_as(&long, 2) && !short.begins_as(&long, 3));
        assert!(!short.is_alike(&long) && long.is_alike(&long));
    }
}
