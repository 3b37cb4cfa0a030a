//! The interface of the policies with arenas: Bump and Plan.

use super::{CachePolicy, Policies, Policy, Refill, Trim};
use crate::cache::request::Request;
use crate::cache::stats::Counters;
use crate::cache::store::Store;
use crate::device::DevicePtr;
use crate::memory::header::Header;
#[cfg(test)]
use crate::memory::header::List;

/// A policy with arenas. Recycle and Release have no arenas.
pub(in crate::cache) trait ArenaPolicy: CachePolicy {
    fn begin_nested(&mut self) {}

    fn end_nested(&mut self, _store: &mut Store) {}

    /// Adds the arena that [`refill`](CachePolicy::refill) has requested, and serves the request
    /// from the arena.
    fn add_arena(
        &mut self,
        store: &mut Store,
        counters: &Counters,
        arena: Box<Header>,
        request: &Request,
    ) -> Refill;

    /// Handles a lack of memory for the arena that [`refill`](CachePolicy::refill) has requested.
    fn without_arena(&mut self) {}

    /// Handles a request that a separate block serves.
    fn note_block(&mut self, _request: &Request) {}

    /// Handles the free of a suballocation that other streams may still use.
    fn share(&mut self, suballocation: &mut Header);

    /// Detaches arenas with live suballocations, before the epoch advances. If `escape` is true,
    /// the live suballocations outlive their entry. The next entry then serves the corresponding
    /// requests from other memory.
    fn detach(&mut self, store: &mut Store, escape: bool);

    /// Detaches the arena that contains `address`, with or without live suballocations. Returns
    /// false if no arena contains `address`.
    fn detach_at(&mut self, _store: &mut Store, _address: DevicePtr) -> bool {
        false
    }

    /// Releases idle arenas and suballocations to `store`.
    fn trim(&mut self, store: &mut Store, trim: Trim);

    /// Returns the number of idle suballocations outside the store, and the number of arenas.
    fn idle_and_arenas(&self) -> (usize, usize);

    /// Asserts the invariants, and returns the bytes of all arenas.
    #[cfg(test)]
    fn check(&self, idle: &List, epoch: u64) -> u64;
}

impl Policies {
    pub(in crate::cache) fn arenas(&mut self) -> Option<&mut dyn ArenaPolicy> {
        match self.active {
            Policy::Recycle | Policy::Release => None,
            Policy::Bump => Some(&mut self.bump),
            Policy::Plan => Some(&mut self.plan),
        }
    }

    /// Returns the number of idle suballocations outside the store, and the number of arenas.
    pub(in crate::cache) fn idle_and_arenas(&mut self) -> (usize, usize) {
        self.arenas()
            .map_or((0, 0), |policy| policy.idle_and_arenas())
    }
}
