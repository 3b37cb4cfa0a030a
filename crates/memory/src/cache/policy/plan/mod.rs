//! Plan: the allocations of recorded entries are packed into one slab. While a later entry repeats
//! a recorded entry, the slab serves its requests.

mod gaps;
mod learn;
mod sequence;
mod slab;
mod tree;

use std::mem;

use super::{ArenaPolicy, CachePolicy, Need, Policy, Refill, Trim};
use crate::cache::arena::Arenas;
#[cfg(test)]
use crate::cache::arena::SUBALLOCATION;
use crate::cache::record::MAX_PLANNED;
use crate::cache::request::Request;
use crate::cache::stats::Counters;
use crate::cache::store::Store;
use crate::device::{DevicePtr, StreamId};
use crate::memory::header::{Header, List};
use gaps::Gaps;
use sequence::Sequence;
use tree::{Fit, PlanTree};

/// The maximum number of alternating sequences of a scope. A further sequence replaces the least
/// recently followed sequence.
const SEQUENCES: usize = 4;

/// The index of a suballocation for an unplanned request.
const UNPLANNED: usize = u32::MAX as usize;

/// The number of consecutive entries that differ from the plan, after which the scope is replanned
/// less often.
const EAGER_REPLANS: u32 = 8;

/// The plan of a shard, and the position of the current entry in the plan.
///
/// Invariants:
/// - The `sequences` have at most [`MAX_PLANNED`] requests in total.
/// - Unless `is_outdated` is set, `tree` is the tree of the `sequences`.
/// - While `following` is set, the requests of the current entry are the tree's path to `cursor`.
/// - There is at most one slab. It is at least as long as the plan needs, and on the plan's stream.
///   Each suballocation of the slab is live, in the store's idle list, in `blocks`, or in
///   `unplanned`. If `blocks` is empty, no planned suballocation is live.
/// - If `gaps` is set, the entry has left the plan. `gaps` has the gaps between the suballocations
///   that are live or in the idle list.
#[derive(Default)]
pub(in crate::cache) struct Plan {
    sequences: Vec<Sequence>,
    tree: PlanTree,
    is_outdated: bool,
    slab: Arenas,
    /// The slab length that the plan needed at the creation of the slab.
    slab_bytes: u64,
    blocks: Vec<PlannedBlock>,
    /// Idle headers that belong to no request of the plan.
    unplanned: List,
    gaps: Option<Gaps>,
    cursor: usize,
    following: bool,
    /// The initial cursor of an entry that repeats the last entry.
    root: usize,
    /// True if a request had another size than the planned size of its suballocation.
    varies: bool,
    /// The number of consecutive entries that differed from the plan.
    differed: u32,
    /// The number of entries with too many requests since the last plannable entry.
    too_long: u32,
    /// The number of requests that the shard had served at the end of the last entry.
    served: u64,
}

/// The value of `below` for several requests, which the tree lists in `before`.
const SEVERAL: u32 = u32::MAX;

/// A planned suballocation of the slab. While the suballocation is idle, this value stores its
/// header. This type has the size of one cache line, so that a hit reads only one line.
#[repr(align(64))]
struct PlannedBlock {
    fit: Fit,
    /// The index of the request that last used the memory. If no request did, the value is the
    /// suballocation's own index. If several requests did, the value is [`SEVERAL`].
    below: u32,
    /// The value of the cursor when the suballocation was last found idle.
    idle_since: u32,
    /// The header of the idle suballocation. The value is `None` while the suballocation is live,
    /// or if the request is served outside the slab.
    header: Option<Box<Header>>,
    /// The size of the last request that the suballocation served.
    served_bytes: u64,
}

impl PlannedBlock {
    /// Stores the header of the suballocation, which became idle.
    #[inline]
    fn put(&mut self, header: Box<Header>, cursor: usize) {
        self.idle_since = cursor as u32;
        debug_assert!(self.header.is_none());
        // The replaced value is `None`. `forget` avoids the test that its drop would make.
        mem::forget(self.header.replace(header));
    }
}

impl CachePolicy for Plan {
    fn fast_path(&self) -> Policy {
        if self.following {
            Policy::Plan
        } else {
            Policy::Recycle
        }
    }

    fn begins(&self) -> bool {
        true
    }

    fn ends(&self) -> bool {
        true
    }

    fn begin(&mut self, store: &mut Store) {
        self.cursor = self.root;
        self.gaps = None;
        self.following = !self.sequences.is_empty();
        store.record_as_set();
        if !store.records && !self.following && self.learns() {
            store.record(MAX_PLANNED, Vec::new());
        }
    }

    /// Serves a request that missed. An entry may continue along any recorded sequence with the
    /// same prefix.
    fn refill(&mut self, store: &mut Store, counters: &Counters, request: &Request) -> Refill {
        self.sort_in(store);
        let Some(index) = self.next_planned(request) else {
            return self.refill_unplanned(store, counters, request);
        };
        self.cursor = index;
        let planned = &self.tree.requests()[index];
        if planned.offset.is_none() {
            let fit = store.pop_tightest(request.size, request.stream);
            return fit.ok_or(Need::Block);
        }
        if self.slab.is_empty() {
            let bytes = self.tree.slab_bytes();
            return Err(Need::Arena {
                bytes,
                min_bytes: bytes,
            });
        }
        self.lay_out(store, counters);
        if !self.is_clear(index) {
            return self.refill_unplanned(store, counters, request);
        }
        let header = self.take_planned(request.size.rounded_bytes);
        header.ok_or(Need::Block)
    }

    fn end(&mut self, store: &mut Store, counters: &Counters, escapes: bool) -> bool {
        self.sort_in(store);
        let spare_bytes = self.spare_bytes();
        if escapes {
            self.detach(store, true);
        }
        if self.slab.is_shared() {
            self.release_slab(store);
        }
        let recorded = store.finish_recording(counters);
        self.end_sequence(store.epoch, spare_bytes);
        if !self.following {
            self.learn(store, counters, recorded.as_ref());
        }
        self.served = counters.served();
        self.replan(store);
        recorded.is_some_and(|(_, is_whole)| is_whole || store.records)
    }
}

impl ArenaPolicy for Plan {
    fn add_arena(
        &mut self,
        store: &mut Store,
        counters: &Counters,
        mut arena: Box<Header>,
        request: &Request,
    ) -> Refill {
        debug_assert!(self.slab.is_empty() && self.blocks.is_empty());
        arena.begin_slab();
        self.slab.push(arena);
        self.slab_bytes = self.tree.slab_bytes();
        self.refill(store, counters, request)
    }

    /// Makes the current entry continue without its plan.
    fn without_arena(&mut self) {
        self.following = false;
    }

    /// Handles a request that was served outside the slab. If the plan has another request at the
    /// cursor, or this request inside the slab, the entry leaves the plan. For example, a callback
    /// of the memory may have allocated first. A planned request that the entry skipped must not
    /// count as idle.
    fn note_block(&mut self, request: &Request) {
        let next = self.tree.requests().get(self.cursor);
        let is_planned = next.is_some_and(|next| {
            next.has_room_for(request.size.rounded_bytes, request.stream) && next.offset.is_none()
        });
        self.following &= is_planned;
        self.cursor += usize::from(self.following);
    }

    /// Moves the uses by other streams from the suballocation to the slab. The slab then serves no
    /// further request of this entry.
    fn share(&mut self, suballocation: &mut Header) {
        self.slab.share(suballocation);
        self.following = false;
    }

    /// If the slab has live suballocations, detaches the slab. If `escape` is true, the next plan
    /// serves the requests of these suballocations outside the slab.
    fn detach(&mut self, store: &mut Store, escape: bool) {
        self.sort_in(store);
        if !self.has_live() {
            return;
        }
        if escape {
            let live: Vec<usize> = self.live().collect();
            self.plan_outside(&live);
        }
        self.detach_slab(store);
    }

    fn detach_at(&mut self, store: &mut Store, address: DevicePtr) -> bool {
        self.sort_in(store);
        let holds = self.slab.holds(address);
        if holds {
            self.detach_slab(store);
        }
        holds
    }

    fn trim(&mut self, store: &mut Store, trim: Trim) {
        self.sort_in(store);
        match trim {
            Trim::All => {
                self.release_slab(store);
                let headers = mem::take(store.idle_suballocations());
                store.release(headers);
            }
            Trim::Unused if self.following => {}
            Trim::Unused => self.release_slab(store),
            Trim::OlderThan(epoch) => self.expire(store, epoch),
        }
    }

    fn idle_and_arenas(&self) -> (usize, usize) {
        let idle = self.blocks.iter().filter(|block| block.header.is_some());
        let idle = idle.count() + self.unplanned.iter().count();
        (idle, self.slab.count())
    }

    #[cfg(test)]
    fn check(&self, _idle: &List, _epoch: u64) -> u64 {
        assert!(self.sequences.len() <= SEQUENCES && self.known_requests() <= MAX_PLANNED);
        let slab_bytes = self.slab.bytes();
        assert!(self.slab.count() <= 1);
        assert!(self.slab.is_empty() || self.is_outdated || slab_bytes >= self.tree.slab_bytes());
        assert!(self.is_outdated || self.is_slab_own());
        assert!(self.blocks.is_empty() || !self.slab.is_empty());
        self.gaps.iter().for_each(Gaps::check);
        for (index, block) in self.blocks.iter().enumerate() {
            let header = block.header.as_ref();
            let found = header.map(|header| (header.block.suballocation_index(), header.class));
            assert!(found.is_none_or(|found| found == (index, SUBALLOCATION)));
        }
        slab_bytes
    }
}

impl Plan {
    /// Returns the block of a hit. Allocates and releases no memory.
    #[inline]
    pub(in crate::cache) fn allocate(
        &mut self,
        store: &mut Store,
        rounded_bytes: u64,
        stream: StreamId,
    ) -> Option<Box<Header>> {
        debug_assert!(
            self.following,
            "the entry does not follow a recorded sequence"
        );
        let cursor = self.cursor;
        let blocks = self.blocks.as_mut_slice();
        let idle = store.idle_suballocations();
        while let Some(header) =
            idle.pop_if(|header| header.block.suballocation_index() < blocks.len())
        {
            blocks[header.block.suballocation_index()].put(header, cursor);
        }
        if !idle.is_empty() {
            return None; // `refill` sorts in the remaining headers.
        }
        let block = blocks.get(cursor)?;
        if !block.fit.is_for(rounded_bytes, stream) {
            return None;
        }
        let is_clear = match blocks.get(block.below as usize) {
            Some(below) => below.header.is_some(),
            None => self.is_clear(cursor),
        };
        if !is_clear {
            return None;
        }
        self.take_planned(rounded_bytes)
    }

    /// Returns the plan's index of a request, if the entry can continue with this request.
    fn next_planned(&self, request: &Request) -> Option<usize> {
        let size = request.size.rounded_bytes;
        let next = || self.tree.find(self.cursor, size, request.stream);
        self.following.then(next)?
    }

    /// Hands out the suballocation of the request at the cursor. The request must be
    /// [clear](Self::is_clear).
    #[inline(always)]
    fn take_planned(&mut self, rounded_bytes: u64) -> Option<Box<Header>> {
        let block = self.blocks.get_mut(self.cursor)?;
        let header = block.header.take()?;
        if block.served_bytes != rounded_bytes {
            block.served_bytes = rounded_bytes;
            self.varies = true;
        }
        self.cursor += 1;
        Some(header)
    }

    /// Returns true if every suballocation that last used the request's memory is idle. If the slab
    /// was released, returns false.
    fn is_clear(&self, index: usize) -> bool {
        let block = |below: &u32| self.blocks.get(*below as usize);
        let request = &self.tree.requests()[index];
        let mut below = self.tree.before(request).iter().map(block);
        below.all(|block| block.is_some_and(|block| block.header.is_some()))
    }

    /// Serves a request that differs from the plan, from a gap of the slab or from the free lists.
    fn refill_unplanned(
        &mut self,
        store: &mut Store,
        counters: &Counters,
        request: &Request,
    ) -> Refill {
        if self.following {
            counters.divergences.add(1);
            if store.recording.is_none() && self.learns() {
                store.record(MAX_PLANNED, self.recorded_so_far());
            }
            self.following = false;
        }
        let header = self
            .take_gap(store, counters, request)
            .or_else(|| store.pop_tightest(request.size, request.stream));
        header.ok_or(Need::Block)
    }

    /// Moves idle suballocations to their slots in `blocks`. If the entry has left the plan, also
    /// records the frees of planned suballocations.
    fn sort_in(&mut self, store: &mut Store) {
        let (idle, mut recording) = store.idle_and_recording();
        if self.slab.is_empty() {
            return;
        }
        let blocks = self.blocks.as_mut_slice();
        while let Some(header) = idle.pop_if(|_| true) {
            let index = header.block.suballocation_index();
            if !self.following {
                if let Some(gaps) = &mut self.gaps {
                    gaps.give(header.block.address.0);
                }
                if index != UNPLANNED
                    && let Some(recording) = &mut recording
                {
                    recording.freed(self.tree.depth(index) as u32, header.epoch());
                }
            }
            let Some(block) = blocks.get_mut(index) else {
                debug_assert_eq!(index, UNPLANNED, "the suballocation belongs to no plan");
                self.unplanned.push(header);
                continue;
            };
            block.put(header, self.cursor);
        }
    }

    /// Serves a request from a gap of the slab. The entry must have left the plan.
    fn take_gap(
        &mut self,
        store: &Store,
        counters: &Counters,
        request: &Request,
    ) -> Option<Box<Header>> {
        let slab = self.slab.first()?;
        if slab.block.stream != request.stream || self.slab.is_shared() {
            return None;
        }
        if self.gaps.is_none() {
            let range = |index: usize| {
                let request = &self.tree.requests()[index];
                let begin = slab.block.address.offset(request.offset.unwrap_or(0)).0;
                begin..begin + request.rounded_bytes
            };
            let begin = slab.block.address.0;
            let live = self.live().map(range).collect();
            self.gaps = Some(Gaps::new(begin..begin + slab.block.bytes(), live));
        }
        let gaps = self.gaps.as_mut()?;
        let rounded_bytes = request.size.rounded_bytes;
        let address = gaps.find(rounded_bytes)?;
        gaps.take(address, rounded_bytes);
        let idle = self.unplanned.pop_if(|_| true);
        let new = || store.new_suballocation(counters, slab.block.new_suballocation());
        let mut header = idle.unwrap_or_else(new);
        header.join_slab(slab);
        let address = DevicePtr(address);
        header
            .block
            .set_suballocation(address, rounded_bytes, UNPLANNED);
        Some(header)
    }
}
