//! What a policy decides: where a request is served from, and what is kept from one entry to the
//! next.
//!
//! A policy is a file here, a variant of [`Policy`], and a line of [`Policies`]. It works on the
//! free lists and arenas of one shard, names neither the shard nor a thread, and asks nothing of
//! the memory below: what it lacks, it answers.

pub(super) mod bump;
pub(super) mod plan;
pub(super) mod recycle;
pub(super) mod release;
#[cfg(all(test, not(loom)))]
mod tests;

use self::bump::Bump;
use self::plan::Plan;
use self::recycle::Recycle;
use self::release::Release;
use super::record::Recorded;
use super::request::Request;
use super::stats::Counters;
use super::store::Store;
use crate::device::{DevicePtr, StreamId};
use crate::memory::header::{Header, Home, List};
use crate::naming::names;

/// What a named cache does with its idle blocks.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::Policy;
///
/// assert_eq!("release".parse::<Policy>()?, Policy::Release);
/// assert_eq!(Policy::default().to_string(), "recycle");
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Idle blocks stay in the cache for the next entry.
    #[default]
    Recycle,
    /// Leaving the scope gives every idle block back to the pool in one step; what escaped goes
    /// there when it drops.
    Release,
    /// Requests advance a pointer in an arena, and nothing is used twice before the exit sets it
    /// back; after the first entry, one arena of the high-water mark serves everything. An arena
    /// with an array that outlives its entry is detached until that array drops.
    Bump,
    /// The first entry is recorded and packed into one slab. Later entries are served from the slab
    /// at the same addresses, as long as they allocate and drop the same in the same order. An
    /// entry that differs goes on in what is free of the slab, or else as under
    /// [`Recycle`](Self::Recycle), and is planned anew; a few sequences that alternate are planned
    /// together, in one slab. An entry of more than 32,768 requests is not planned; it goes on as
    /// under `Recycle`.
    Plan,
}

names!(Policy {
    Recycle => "recycle",
    Release => "release",
    Bump => "bump",
    Plan => "plan",
});

/// What a request needs from below that the shard cannot serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Exactly this block.
    Block,
    /// An arena of `bytes`; one of `min_bytes` would do.
    Arena { bytes: u64, min_bytes: u64 },
}

/// What a request that was no hit is served with after all, or what it needs.
pub(super) type Refill<H> = Result<Box<Header<H>>, Need>;

/// What a policy is to release to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trim {
    /// Everything idle.
    All,
    /// What does not serve the present entry: to make room for a request.
    Unused,
    /// What no entry since this epoch needed.
    OlderThan(u64),
}

/// A policy of one shard. `store` holds what is common to all policies.
pub(super) trait CachePolicy<H: Home> {
    /// The policy whose [`allocate`](Self::allocate) serves the next request.
    fn hot(&self) -> Policy;

    /// Whether [`begin`](Self::begin) has anything to do where nothing is recorded.
    fn begins(&self) -> bool {
        false
    }

    /// The same of [`end`](Self::end).
    fn ends(&self) -> bool {
        false
    }

    /// An outermost entry begins.
    fn begin(&mut self, store: &mut Store<H>) {
        store.record_as_set();
    }

    /// An entry begins inside.
    fn begin_nested(&mut self) {}

    /// It ends.
    fn end_nested(&mut self, _store: &mut Store<H>) {}

    /// The hit: by default, the block of exactly that size that came back last. Allocates and
    /// releases nothing.
    #[inline]
    fn allocate(
        &mut self,
        store: &mut Store<H>,
        rounded_bytes: u64,
        stream: StreamId,
    ) -> Option<Box<Header<H>>> {
        store.pop_exact(rounded_bytes, stream)
    }

    /// Serves a request that was no hit, or tells what it needs.
    fn refill(
        &mut self,
        store: &mut Store<H>,
        counters: &Counters,
        request: &Request,
    ) -> Refill<H> {
        let _ = counters;
        let fit = store.pop_tightest(request.size, request.stream);
        fit.ok_or(Need::Block)
    }

    /// Takes an arena that [`refill`](Self::refill) has just asked for, and serves the request from
    /// it.
    fn add_arena(
        &mut self,
        store: &mut Store<H>,
        counters: &Counters,
        arena: Box<Header<H>>,
        request: &Request,
    ) -> Refill<H> {
        debug_assert!(false, "{} asks for no arena", self.hot());
        store.release(List::from(arena));
        self.refill(store, counters, request)
    }

    /// There is no room for the arena.
    fn without_arena(&mut self) {}

    /// A request was served with a block of its own.
    fn note_block(&mut self, _request: &Request) {}

    /// A suballocation was freed that other streams may still use.
    fn share(&mut self, _suballocation: &mut Header<H>) {}

    /// An outermost entry ends, in which something is still live (`escapes`) or not. Answers its
    /// record.
    fn end(
        &mut self,
        store: &mut Store<H>,
        counters: &Counters,
        _escapes: bool,
    ) -> Option<Vec<Recorded>> {
        let (recorded, _) = store.finish_recording(counters)?;
        Some(recorded)
    }

    /// Detaches arenas with live suballocations: the epoch is about to move on. Where they escape
    /// from an entry, the next one serves them elsewhere.
    fn detach(&mut self, _store: &mut Store<H>, _escape: bool) {}

    /// Detaches the arena that holds `address`, live or not; false where none does.
    fn detach_at(&mut self, _store: &mut Store<H>, _address: DevicePtr) -> bool {
        false
    }

    /// Whether idle blocks stay after the exit.
    fn keeps_idle(&self) -> bool {
        true
    }

    /// Releases idle arenas and suballocations to `store`.
    fn trim(&mut self, _store: &mut Store<H>, _trim: Trim) {}

    /// Idle suballocations that are not in `store`, and arenas.
    fn idle_and_arenas(&self) -> (usize, usize) {
        (0, 0)
    }

    /// Asserts the invariants; answers the bytes of all arenas.
    #[cfg(test)]
    fn check(&self, _idle: &List<H>, _epoch: u64) -> u64 {
        0
    }
}

/// The policies of a shard, one of which is active; the others hold nothing.
pub(super) struct Policies<H: Home> {
    pub(super) active: Policy,
    pub(super) recycle: Recycle<H>,
    pub(super) release: Release<H>,
    pub(super) bump: Bump<H>,
    pub(super) plan: Plan<H>,
}

/// Calls the active policy, by a branch instead of a table.
macro_rules! dispatch {
    ($policies:expr, $policy:ident => $call:expr) => {
        match $policies.active {
            $crate::cache::Policy::Recycle => {
                let $policy = &mut $policies.recycle;
                $call
            }
            $crate::cache::Policy::Release => {
                let $policy = &mut $policies.release;
                $call
            }
            $crate::cache::Policy::Bump => {
                let $policy = &mut $policies.bump;
                $call
            }
            $crate::cache::Policy::Plan => {
                let $policy = &mut $policies.plan;
                $call
            }
        }
    };
}

pub(super) use dispatch;

impl<H: Home> Policies<H> {
    pub(super) fn new() -> Self {
        Self {
            active: Policy::Recycle,
            recycle: Recycle::new(),
            release: Release::new(),
            bump: Bump::new(),
            plan: Plan::new(),
        }
    }

    /// Makes a policy active; the one before has released everything.
    pub(super) fn activate(&mut self, policy: Policy) {
        *self = Self::new();
        self.active = policy;
    }
}

/// A policy that serves hits by itself.
pub(super) trait Hot<H: Home>: CachePolicy<H> {
    const POLICY: Policy;

    fn of(policies: &mut Policies<H>) -> &mut Self;
}

impl<H: Home> Hot<H> for Recycle<H> {
    const POLICY: Policy = Policy::Recycle;

    #[inline]
    fn of(policies: &mut Policies<H>) -> &mut Self {
        &mut policies.recycle
    }
}

impl<H: Home> Hot<H> for Bump<H> {
    const POLICY: Policy = Policy::Bump;

    #[inline]
    fn of(policies: &mut Policies<H>) -> &mut Self {
        &mut policies.bump
    }
}

impl<H: Home> Hot<H> for Plan<H> {
    const POLICY: Policy = Policy::Plan;

    #[inline]
    fn of(policies: &mut Policies<H>) -> &mut Self {
        &mut policies.plan
    }
}
