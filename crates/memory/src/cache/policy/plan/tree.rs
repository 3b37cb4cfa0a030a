//! The tree of a plan, which holds no memory. Each request has an offset in one slab, and a list of
//! earlier requests that must be idle before it is served.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::sequence::Sequence;
use crate::device::StreamId;
use crate::plan::{BufferInterval, pack_around};

/// A request of the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedRequest {
    pub(super) rounded_bytes: u64,
    /// The bytes before rounding.
    pub(super) requested_bytes: u64,
    /// The minimum size of a request that this planned request serves without a search in other
    /// sequences. It is 1 if no other sequence branches at this request.
    least_bytes: u64,
    stream: StreamId,
    /// The offset in the slab. `None` for requests that outlive an entry or are on another stream.
    pub(super) offset: Option<u64>,
    /// The range of `PlanTree::before` with the requests that last used this request's memory.
    before: (u32, u32),
}

impl PlannedRequest {
    /// The end mark after the last request of a sequence. Its size is 0, which no request has.
    const END: Self = Self {
        rounded_bytes: 0,
        requested_bytes: 0,
        least_bytes: 1,
        stream: StreamId(0),
        offset: None,
        before: (0, 0),
    };

    /// Returns the requests that this planned request serves without a search in other sequences.
    pub(super) fn fit(&self) -> Fit {
        Fit {
            least_bytes: self.least_bytes,
            most_bytes: self.rounded_bytes,
            stream: self.stream,
        }
    }

    pub(super) fn has_room_for(&self, rounded_bytes: u64, stream: StreamId) -> bool {
        (1..=self.rounded_bytes).contains(&rounded_bytes) && self.stream == stream
    }
}

/// The requests that a planned request can serve.
pub(super) struct Fit {
    least_bytes: u64,
    most_bytes: u64,
    stream: StreamId,
}

impl Fit {
    #[inline]
    pub(super) fn is_for(&self, rounded_bytes: u64, stream: StreamId) -> bool {
        rounded_bytes <= self.most_bytes
            && rounded_bytes >= self.least_bytes
            && self.stream == stream
    }
}

/// The requests of a sequence after its common prefix with an earlier sequence.
#[derive(Debug)]
struct RequestRun {
    sequence: usize,
    /// The last request of the common prefix; `None` if the prefix is empty.
    parent: Option<usize>,
    /// The number of requests in the common prefix.
    depth: usize,
    start: usize,
}

/// A plan of several sequences, as a tree of requests. Sequences share the requests of a common
/// prefix, and each shared request has one offset. An entry follows one path from a root.
///
/// Invariants:
/// - A run begins at the end of the previous run. The size and stream of its first request are
///   unique among the children of its parent.
/// - Let two requests on a path overlap in the slab, and let `i` be the later request. Then a
///   request in [`before`](Self::before) of `i` overlaps with the earlier request. The request in
///   `before` is the earlier request itself, or lies between the two requests on the path.
///
/// The memory of a request is handed out only while all requests in its `before` are idle. So every
/// request that overlaps with it is idle then.
#[derive(Debug, Default)]
pub(super) struct PlanTree {
    requests: Vec<PlannedRequest>,
    runs: Vec<RequestRun>,
    slab_bytes: u64,
    before: Vec<u32>,
}

impl PlanTree {
    /// Packs distinct sequences. The sequence with the largest load is packed as tightly as
    /// possible. Each further sequence is packed around the requests that it shares with an earlier
    /// sequence.
    pub(super) fn new(sequences: &[Sequence]) -> Self {
        let mut order: Vec<usize> = (0..sequences.len()).collect();
        order.sort_by_cached_key(|&index| Reverse(sequences[index].load_bytes()));
        let mut plan = Self::default();
        for &index in &order {
            plan.add(sequences, index, sequences[order[0]].requests[0].stream);
        }
        plan.mark_branches();
        plan
    }

    /// Sets `least_bytes` of the requests at which sequences branch.
    fn mark_branches(&mut self) {
        let parents = self.runs.iter().map(|run| run.parent);
        let parents: Vec<Option<usize>> = parents.collect();
        for (run, parent) in self.runs.iter().zip(&parents) {
            let beside = parents.iter().filter(|other| *other == parent).count();
            let next = parent.map(|parent| parent + 1);
            let start = (parent.is_some() || beside > 1).then_some(run.start);
            for number in next.into_iter().chain(start) {
                let request = &mut self.requests[number];
                request.least_bytes = request.rounded_bytes.max(request.least_bytes);
            }
        }
    }

    /// Adds a sequence. Its requests on `stream` that do not outlive the entry get offsets in the
    /// slab.
    fn add(&mut self, sequences: &[Sequence], index: usize, stream: StreamId) {
        let sequence = &sequences[index];
        let common = |run: &RequestRun| sequence.common(&sequences[run.sequence]);
        let nearest = self
            .runs
            .iter()
            .map(|run| (common(run), run.sequence))
            .max();
        let mut path = nearest.map_or(Vec::new(), |(count, nearest)| self.path_of(nearest, count));
        let uppers = sequence.uppers(sequences);
        let requests = sequence.requests.iter().zip(uppers).enumerate();
        let buffers: Vec<_> = requests
            .map(|(number, (request, upper))| {
                let upper = upper.filter(|_| request.stream == stream);
                BufferInterval {
                    lower: number as u64,
                    upper: upper.unwrap_or(number) as u64,
                    size_bytes: request.rounded_bytes,
                }
            })
            .collect();
        let offset = |number: &usize| self.requests[*number].offset.unwrap_or(0);
        let offsets = pack_around(&buffers, path.iter().map(offset).collect());
        let (depth, start) = (path.len(), self.requests.len());
        self.runs.push(RequestRun {
            sequence: index,
            parent: path.last().copied(),
            depth,
            start,
        });
        let placed = sequence.requests.iter().zip(buffers).zip(offsets);
        for ((request, buffer), offset) in placed.skip(depth) {
            path.push(self.requests.len());
            self.requests.push(PlannedRequest {
                rounded_bytes: request.rounded_bytes,
                requested_bytes: request.requested_bytes,
                least_bytes: 1,
                stream: request.stream,
                offset: (buffer.lower < buffer.upper).then_some(offset),
                before: (0, 0),
            });
        }
        self.requests.push(PlannedRequest::END);
        self.link(&path, start);
    }

    /// Sets `before` of each request on a path with an index of at least `start`, and extends the
    /// slab. Requests with a lower index are shared, and their `before` is already set.
    fn link(&mut self, path: &[usize], start: usize) {
        let mut top = Top::default();
        for &number in path {
            let request = self.requests[number];
            let range = request
                .offset
                .map(|offset| offset..offset + request.rounded_bytes);
            let below = range.map_or(Vec::new(), |range| {
                self.slab_bytes = self.slab_bytes.max(range.end);
                top.cover(range, number as u32)
            });
            if number >= start {
                let first = self.before.len();
                self.before.extend(below);
                self.requests[number].before = (first as u32, self.before.len() as u32);
            }
        }
    }

    pub(super) fn requests(&self) -> &[PlannedRequest] {
        &self.requests
    }

    pub(super) fn slab_bytes(&self) -> u64 {
        self.slab_bytes
    }

    /// Returns true if all requests inside the slab are on `stream`. The slab may then be a block
    /// of `stream`.
    pub(super) fn is_on(&self, stream: StreamId) -> bool {
        let mut inside = self.requests.iter().filter(|own| own.offset.is_some());
        inside.all(|request| request.stream == stream)
    }

    #[inline]
    pub(super) fn before(&self, request: &PlannedRequest) -> &[u32] {
        let (first, end) = request.before;
        self.before
            .get(first as usize..end as usize)
            .unwrap_or_default()
    }

    /// Returns the request that continues a path at `number`: the request `number` or a sibling.
    /// Selects the shortest request that has room for the requested size. So a plan for the longest
    /// batch serves every shorter batch.
    pub(super) fn find(
        &self,
        number: usize,
        rounded_bytes: u64,
        stream: StreamId,
    ) -> Option<usize> {
        if self.requests[number].fit().is_for(rounded_bytes, stream) {
            return Some(number);
        }
        let run = self.run_of(number);
        let parent = if number == run.start {
            run.parent
        } else {
            Some(number - 1)
        };
        let beside = self.runs.iter().filter(|run| run.parent == parent);
        let next = parent.map(|parent| parent + 1).into_iter();
        let siblings = next.chain(beside.map(|run| run.start)).chain([number]);
        let fit = siblings.filter(|&own| self.requests[own].has_room_for(rounded_bytes, stream));
        fit.min_by_key(|&own| self.requests[own].rounded_bytes)
    }

    fn run_of(&self, number: usize) -> &RequestRun {
        let after = self.runs.partition_point(|run| run.start <= number);
        &self.runs[after - 1]
    }

    /// Returns a sequence that contains the request `number`. For an end mark, returns the sequence
    /// that the mark ends.
    pub(super) fn sequence_of(&self, number: usize) -> usize {
        self.run_of(number).sequence
    }

    /// Returns the first request of the paths that contain the request `number`.
    pub(super) fn root_of(&self, number: usize) -> usize {
        let run = self.run_of(number);
        run.parent.map_or(run.start, |parent| self.root_of(parent))
    }

    /// Returns the number of requests before the request `number` on its path.
    pub(super) fn depth(&self, number: usize) -> usize {
        let run = self.run_of(number);
        run.depth + (number - run.start)
    }

    /// Returns the requests before the request `number` on its path.
    pub(super) fn path_to(&self, mut number: usize) -> Vec<usize> {
        let mut path = Vec::new();
        loop {
            let run = self.run_of(number);
            path.extend((run.start..number).rev());
            let Some(parent) = run.parent else {
                break;
            };
            path.push(parent);
            number = parent;
        }
        path.reverse();
        path
    }

    fn path_of(&self, sequence: usize, count: usize) -> Vec<usize> {
        let index = self.runs.iter().position(|run| run.sequence == sequence);
        let next = index.and_then(|index| self.runs.get(index + 1));
        let end = next.map_or(self.requests.len(), |next| next.start) - 1;
        let mut path = self.path_to(end);
        path.truncate(count);
        path
    }
}

/// The last request at each offset of the slab. The key is the beginning of a range, and the value
/// is the range's end and request.
#[derive(Default)]
struct Top(BTreeMap<u64, (u64, u32)>);

impl Top {
    /// Makes `number` the last request of `range`. Returns the previous last requests in `range`,
    /// without duplicates.
    fn cover(&mut self, range: Range<u64>, number: u32) -> Vec<u32> {
        let first = self.0.range(..range.start).next_back();
        let first = first.filter(|&(_, &(end, _))| end > range.start);
        let inside = first.into_iter().chain(self.0.range(range.clone()));
        let covered: Vec<_> = inside
            .map(|(&start, &(end, request))| (start, end, request))
            .collect();
        for &(start, end, request) in &covered {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, (range.start, request));
            }
            if end > range.end {
                self.0.insert(range.end, (end, request));
            }
        }
        self.0.insert(range.start, (range.end, number));
        let mut below: Vec<u32> = covered.into_iter().map(|(_, _, request)| request).collect();
        below.sort_unstable();
        below.dedup();
        below
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use proptest::prelude::*;

    use super::*;
    use crate::cache::record::{AllocationRecord, RecordedAllocation};

    /// The requests of a sequence. Each request has a size in units and a lifetime in steps. If the
    /// request outlives the entry, the lifetime is `None`.
    type Requests = Vec<(u64, Option<usize>)>;

    fn sequence(requests: &[(u64, Option<usize>)]) -> Sequence {
        let recorded = requests
            .iter()
            .enumerate()
            .map(|(number, &(units, steps))| RecordedAllocation {
                record: AllocationRecord {
                    freed_at: steps.map(|steps| (number + 1 + steps) as u64),
                    ..AllocationRecord::new(units * 512, Location::caller(), number as u64)
                },
                rounded_bytes: units * 512,
                stream: StreamId::default(),
            });
        Sequence::new(&recorded.collect::<Vec<_>>(), 0)
    }

    fn overlap(a: &PlannedRequest, b: &PlannedRequest) -> bool {
        a.offset.zip(b.offset).is_some_and(|(first, second)| {
            first < second + b.rounded_bytes && second < first + a.rounded_bytes
        })
    }

    fn steps() -> impl Strategy<Value = Option<usize>> {
        prop::option::weighted(0.9, 0usize..12)
    }

    /// Returns sequences with common prefixes. Each further sequence begins with a prefix of the
    /// first sequence, but with other lifetimes. After the prefix, its requests are independent of
    /// the first sequence.
    fn sequences() -> impl Strategy<Value = Vec<Requests>> {
        let requests = |count| prop::collection::vec((1u64..20, steps()), 1..count);
        let others = (
            any::<prop::sample::Index>(),
            prop::collection::vec(steps(), 40),
            requests(20),
        );
        (requests(40), prop::collection::vec(others, 0..4)).prop_map(|(first, others)| {
            let other = |(cut, lives, rest): (prop::sample::Index, Vec<_>, Requests)| {
                let alike = first[..cut.index(first.len())].iter().zip(lives);
                let alike = alike.map(|(&(units, _), steps)| (units, steps));
                alike.chain(rest).collect()
            };
            let others: Vec<Requests> = others.into_iter().map(other).collect();
            others.into_iter().chain([first.clone()]).collect()
        })
    }

    fn distinct(all: &[Requests]) -> Vec<Sequence> {
        let mut sequences: Vec<Sequence> = Vec::new();
        for requests in all {
            let new = sequence(requests);
            if !sequences.iter().any(|known| known.is_alike(&new)) {
                sequences.push(new);
            }
        }
        sequences
    }

    proptest! {
        /// On every path, requests that overlap in the slab have disjoint lifetimes. `before` leads
        /// from the later request to the earlier request.
        #[test]
        fn what_overlaps_lies_before_at_some_remove(all in sequences()) {
            let sequences = distinct(&all);
            let plan = PlanTree::new(&sequences);
            for (index, sequence) in sequences.iter().enumerate() {
                let path = plan.path_of(index, usize::MAX);
                prop_assert_eq!(path.len(), sequence.requests.len());
                for (depth, &number) in path.iter().enumerate() {
                    let request = &plan.requests()[number];
                    prop_assert!(request.fit().is_for(sequence.requests[depth].rounded_bytes, StreamId(0)));
                    prop_assert_eq!(plan.depth(number), depth);
                    prop_assert!(request.offset.is_none() || sequence.requests[depth].upper.is_some());
                    let mut behind = vec![false; plan.requests().len()];
                    let mut next: Vec<_> = plan.before(request).to_vec();
                    while let Some(number) = next.pop() {
                        prop_assert!(path.contains(&(number as usize)));
                        if !std::mem::replace(&mut behind[number as usize], true) {
                            next.extend(plan.before(&plan.requests()[number as usize]));
                        }
                    }
                    for (earlier, &below) in path[..depth].iter().enumerate() {
                        if overlap(request, &plan.requests()[below]) {
                            prop_assert!(behind[below], "{} is not behind {}", below, number);
                            prop_assert!(sequence.requests[earlier].upper.unwrap() <= depth);
                        }
                    }
                    for &below in plan.before(request) {
                        prop_assert!(overlap(request, &plan.requests()[below as usize]));
                    }
                    let end = request.offset.map_or(0, |offset| offset + request.rounded_bytes);
                    prop_assert!(end <= plan.slab_bytes());
                }
            }
        }

        #[test]
        fn each_sequence_is_found(all in sequences()) {
            let sequences = distinct(&all);
            let plan = PlanTree::new(&sequences);
            for (index, sequence) in sequences.iter().enumerate() {
                let mut number = 0;
                for (depth, request) in sequence.requests.iter().enumerate() {
                    let found = plan.find(number, request.rounded_bytes, request.stream);
                    prop_assert_eq!(found, Some(plan.path_of(index, usize::MAX)[depth]));
                    number = found.unwrap() + 1;
                }
                prop_assert_eq!(plan.find(number, 21 * 512, StreamId(0)), None);
                prop_assert_eq!(plan.path_to(number), plan.path_of(index, usize::MAX));
            }
        }

        #[test]
        fn merged_sequences_hold_for_both(
            requests in prop::collection::vec((1u64..20, steps(), 0usize..12), 1..40)
        ) {
            let of = |later: bool| -> Requests {
                let lives = requests.iter().map(|&(units, steps, more)| {
                    (units, if later { steps.map(|_| more) } else { steps })
                });
                lives.collect()
            };
            let (first, second) = (sequence(&of(false)), sequence(&of(true)));
            prop_assert!(first.is_alike(&second));
            let mut merged = sequence(&of(false));
            merged.merge(&second);
            for (number, request) in merged.requests.iter().enumerate() {
                let longest = first.requests[number].upper.max(second.requests[number].upper);
                prop_assert_eq!(request.upper, longest);
            }
        }
    }

    #[test]
    fn sequences_are_distinguished_by_their_requests() {
        let long = sequence(&[(1, Some(0)), (2, Some(0)), (3, None)]);
        let other = sequence(&[(1, Some(1)), (2, Some(5)), (4, None)]);
        let short = sequence(&[(1, Some(0)), (2, Some(0))]);
        assert_eq!((long.common(&other), short.common(&long)), (2, 2));
        assert!(!short.is_alike(&long) && long.is_alike(&long));
        assert_eq!((long.load_bytes(), other.load_bytes()), (1024, 1536));
    }

    /// The slab is as long as the longest sequence needs, because the sequences share addresses.
    #[test]
    fn the_slab_is_as_long_as_the_longest_sequence() {
        let train = sequence(&[
            (4, Some(5)),
            (8, Some(3)),
            (8, Some(1)),
            (8, Some(0)),
            (4, Some(0)),
        ]);
        let evaluate = sequence(&[(4, Some(2)), (8, Some(0)), (20, Some(0))]);
        let other = sequence(&[(25, Some(0)), (1, Some(0))]);
        assert_eq!(
            PlanTree::new(&[evaluate, other, train]).slab_bytes(),
            28 * 512
        );
    }
}
