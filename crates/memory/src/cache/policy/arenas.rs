//! The part of a policy that serves suballocations of arenas: Bump and Plan.

use super::{CachePolicy, Policies, Policy, Refill, Trim};
use crate::cache::request::Request;
use crate::cache::stats::Counters;
use crate::cache::store::Store;
use crate::device::DevicePtr;
use crate::memory::header::Header;
#[cfg(test)]
use crate::memory::header::List;

/// A policy with arenas. Recycle and Release have none.
pub(in crate::cache) trait ArenaPolicy: CachePolicy {
    /// Begins an entry inside another one.
    fn begin_nested(&mut self) {}

    /// Ends an entry inside another one.
    fn end_nested(&mut self, _store: &mut Store) {}

    /// Takes an arena that [`refill`](CachePolicy::refill) has just requested, and serves the
    /// request from it.
    fn add_arena(
        &mut self,
        store: &mut Store,
        counters: &Counters,
        arena: Box<Header>,
        request: &Request,
    ) -> Refill;

    /// Continues without the arena that [`refill`](CachePolicy::refill) requested, because the
    /// memory lacks room for it.
    fn without_arena(&mut self) {}

    /// Notes that a request was served with a block of its own.
    fn note_block(&mut self, _request: &Request) {}

    /// Notes the free of a suballocation that other streams may still use.
    fn share(&mut self, suballocation: &mut Header);

    /// Detaches arenas with live suballocations, because the epoch is about to advance. If
    /// suballocations `escape` from an entry, the next entry serves those requests from other
    /// memory.
    fn detach(&mut self, store: &mut Store, escape: bool);

    /// Detaches the arena that contains `address`, live or not. Returns false if no arena contains
    /// it.
    fn detach_at(&mut self, _store: &mut Store, _address: DevicePtr) -> bool {
        false
    }

    /// Releases idle arenas and suballocations to `store`.
    fn trim(&mut self, store: &mut Store, trim: Trim);

    /// Returns the number of idle suballocations that are not in the store, and of arenas.
    fn idle_and_arenas(&self) -> (usize, usize);

    /// Asserts the invariants, and returns the bytes of all arenas.
    #[cfg(test)]
    fn check(&self, idle: &List, epoch: u64) -> u64;
}

impl Policies {
    /// Returns the active policy, if it has arenas.
    pub(in crate::cache) fn arenas(&mut self) -> Option<&mut dyn ArenaPolicy> {
        match self.active {
            Policy::Recycle | Policy::Release => None,
            Policy::Bump => Some(&mut self.bump),
            Policy::Plan => Some(&mut self.plan),
        }
    }

    /// Returns the number of idle suballocations that are not in the store, and of arenas.
    pub(in crate::cache) fn idle_and_arenas(&mut self) -> (usize, usize) {
        self.arenas()
            .map_or((0, 0), |policy| policy.idle_and_arenas())
    }
}
