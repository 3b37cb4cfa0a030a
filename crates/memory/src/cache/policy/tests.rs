//! Tests of the policies without a shard, a thread or a device's memory. Each new block has a fresh
//! address.

use std::collections::BTreeMap;
use std::panic::Location;

use proptest::prelude::*;

use super::*;
use crate::cache::request::Size;
use crate::device::{DevicePtr, StreamId};
use crate::memory::Block;
use crate::memory::header::{Home, List};
use crate::pool::Rounding;
use crate::pool::size_class::floor_class;

/// The requests of an entry. Each request has a length in units of 512 bytes, and a lifetime in
/// later requests.
type Requests = Vec<(u64, usize)>;

/// The policies of a shard, with a substitute for the device's memory.
struct Bench {
    policies: Policies,
    store: Store,
    counters: Counters,
    next_address: u64,
    /// The needs that the policies returned since the last clear.
    needs: Vec<Need>,
}

impl Bench {
    fn new(policy: Policy) -> Self {
        let mut policies = Policies::default();
        policies.activate(policy);
        Self {
            policies,
            store: Store::new(Home::NONE),
            counters: Counters::default(),
            next_address: 1 << 20,
            needs: Vec::new(),
        }
    }

    fn fresh(&mut self, bytes: u64) -> Block {
        let mut block = Block::EMPTY.new_suballocation();
        block.set_suballocation(DevicePtr(self.next_address), bytes, 0);
        self.next_address += bytes;
        block
    }

    fn allocate(&mut self, bytes: u64) -> Box<Header> {
        let request = Request {
            size: Size::new(bytes, Rounding::Units).unwrap(),
            stream: StreamId::default(),
            call_site: Location::caller(),
        };
        let (rounded_bytes, stream) = (request.size.rounded_bytes, request.stream);
        let store = &mut self.store;
        let hit = match dispatch!(self.policies, policy => policy.fast_path()) {
            _ if store.is_recording() => None,
            Policy::Bump => self.policies.bump.allocate(store, rounded_bytes, stream),
            Policy::Plan => self.policies.plan.allocate(store, rounded_bytes, stream),
            _ => store.list(floor_class(rounded_bytes)).pop_if(|header| {
                let block = &header.block;
                block.bytes() == rounded_bytes && block.stream == stream
            }),
        };
        let mut header = hit.unwrap_or_else(|| self.refill(&request));
        assert!(header.block.bytes() >= rounded_bytes);
        header.set_epoch(self.store.epoch);
        self.counters.misses.add(1);
        let index = self.store.record_allocation(&self.counters, &request);
        header.record_index = index.unwrap_or(u32::MAX);
        if header.class != crate::cache::arena::SUBALLOCATION
            && let Some(policy) = self.policies.arenas()
        {
            policy.note_block(&request);
        }
        header
    }

    fn refill(&mut self, request: &Request) -> Box<Header> {
        let (store, counters) = (&mut self.store, &self.counters);
        let mut served =
            dispatch!(self.policies, policy => policy.refill(store, counters, request));
        if let Err(need) = served {
            self.needs.push(need);
        }
        if let Err(Need::Arena { bytes, .. }) = served {
            let block = self.fresh(bytes);
            let (store, counters) = (&mut self.store, &self.counters);
            let arena = store.new_arena(counters, block);
            let policy = self.policies.arenas().expect("it asked for one");
            served = policy.add_arena(store, counters, arena, request);
        }
        served.unwrap_or_else(|_| {
            let block = self.fresh(request.size.rounded_bytes);
            self.store.new_header(&self.counters, block)
        })
    }

    fn free(&mut self, header: Box<Header>) {
        if let Some(recording) = &mut self.store.recording {
            recording.freed(header.record_index, header.epoch());
        }
        if header.epoch() == self.store.epoch {
            self.store.push(header);
        } else {
            self.store.free_detached(header);
        }
    }

    fn check(&self) {
        let (_, idle) = self.store.lists();
        let epoch = self.store.epoch;
        self.policies.bump.check(idle, epoch);
        self.policies.plan.check(idle, epoch);
    }

    /// Runs an entry. Returns its last `escape` blocks, which are still live.
    fn enter(&mut self, requests: &Requests, escape: usize) -> List {
        dispatch!(self.policies, policy => policy.begin(&mut self.store));
        let mut live: BTreeMap<usize, Vec<Box<Header>>> = BTreeMap::new();
        for (now, &(units, lifetime)) in requests.iter().enumerate() {
            for header in live.remove(&now).into_iter().flatten() {
                self.free(header);
            }
            let header = self.allocate(units * 512);
            for other in live.values().flatten() {
                let (first, second) = (&header.block, &other.block);
                let is_apart = first.address.0 + first.bytes() <= second.address.0
                    || second.address.0 + second.bytes() <= first.address.0;
                assert!(is_apart, "two live blocks overlap");
            }
            live.entry(now + 1 + lifetime).or_default().push(header);
            self.check();
        }
        let mut rest: Vec<_> = live.into_values().flatten().collect();
        let mut escaped = List::new();
        let kept = rest.split_off(rest.len().saturating_sub(escape));
        kept.into_iter().for_each(|header| escaped.push(header));
        rest.into_iter().for_each(|header| self.free(header));
        let (store, counters) = (&mut self.store, &self.counters);
        let escapes = !escaped.is_empty();
        dispatch!(self.policies, policy => policy.end(store, counters, escapes));
        self.store.epoch += 1;
        self.store.exit_epoch = self.store.epoch;
        self.check();
        escaped
    }
}

fn requests() -> impl Strategy<Value = Requests> {
    prop::collection::vec((1u64..20, 0usize..12), 1..40)
}

proptest! {
    /// After the second entry, repeated entries need no new memory. Live blocks never overlap.
    #[test]
    fn repeated_entries_need_nothing(
        first in requests(), other in requests(), policy in 0usize..3,
    ) {
        let policy = [Policy::Recycle, Policy::Bump, Policy::Plan][policy];
        let mut bench = Bench::new(policy);
        for _ in 0..2 {
            bench.enter(&first, 0);
        }
        bench.needs.clear();
        bench.enter(&first, 0);
        prop_assert!(policy == Policy::Recycle || bench.needs.is_empty(), "{:?}", bench.needs);
        let escaped = bench.enter(&other, 3);
        for _ in 0..3 {
            bench.enter(&other, 0);
        }
        escaped.for_each(drop);
        bench.needs.clear();
        bench.enter(&other, 0);
        prop_assert!(policy == Policy::Recycle || bench.needs.is_empty(), "{:?}", bench.needs);
    }

    #[test]
    fn trimming_leaves_nothing(first in requests(), policy in 0usize..3) {
        let policy = [Policy::Recycle, Policy::Bump, Policy::Plan][policy];
        let mut bench = Bench::new(policy);
        for _ in 0..3 {
            bench.enter(&first, 0);
        }
        bench.store.release_free_lists();
        if let Some(policy) = bench.policies.arenas() {
            policy.trim(&mut bench.store, Trim::All);
        }
        let (idle, arenas) = bench.policies.idle_and_arenas();
        prop_assert_eq!((idle, arenas, bench.store.idle().count()), (0, 0, 0));
        bench.enter(&first, 0);
    }
}
