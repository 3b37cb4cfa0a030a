//! The policies of a cache. A policy selects the memory that serves a request, and the memory that
//! stays cached between two entries.
//!
//! A policy consists of a file of this module, a variant of [`Policy`], and a field of
//! [`Policies`]. A policy uses the free lists and arenas of one shard, but not the shard or its
//! thread. A policy does not call the pool. It returns its [`Need`] instead.
//!
//! The reclaim ladder of the memory may access the shard. Rung 3 takes idle blocks, and a callback
//! may leave the scope or enter it with another policy. So the borrow of the shard ends before the
//! call of the memory. If the memory provides an arena, the policy is called again.

mod arenas;
pub(super) mod bump;
pub(super) mod free_lists;
pub(super) mod plan;
#[cfg(all(test, not(loom)))]
mod tests;

pub(super) use self::arenas::ArenaPolicy;
use self::bump::Bump;
use self::free_lists::FreeLists;
use self::plan::Plan;
use super::request::Request;
use super::stats::Counters;
use super::store::Store;
use crate::memory::header::Header;
use crate::naming::names;

/// The policy of a named cache, which determines the reuse of memory.
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
    /// The default policy: idle blocks stay in the cache for the next entry.
    #[default]
    Recycle,
    /// The exit from the scope returns every idle block to the pool in one step. An escaped block
    /// returns to the pool when it drops.
    Release,
    /// Requests advance a pointer in an arena. The exit resets the pointer. The end of a nested
    /// entry moves the pointer back over its last allocations, if they were dropped. Other freed
    /// memory is reused only after the exit. After the first entry, one arena with the size of the
    /// high-water mark serves all requests. If an array outlives its entry, its arena is detached
    /// until the array drops.
    Bump,
    /// The first entry is recorded, and its allocations are packed into one slab. If a later entry
    /// allocates and drops equal sizes in equal order, the slab serves it at equal addresses. If an
    /// entry differs, free memory of the slab serves it, or free lists as under
    /// [`Recycle`](Self::Recycle). The next plan then includes this entry. Up to four alternating
    /// sequences are planned together, in one slab. An entry of more than 32,768 requests is not
    /// planned, and is served as under `Recycle`.
    Plan,
}

names!(Policy {
    Recycle => "recycle",
    Release => "release",
    Bump => "bump",
    Plan => "plan",
});

/// The memory that a request needs from the pool, if the shard cannot serve the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A block only for this request.
    Block,
    /// An arena, preferably of `bytes` bytes, and at least of `min_bytes` bytes.
    Arena { bytes: u64, min_bytes: u64 },
}

/// The result of a request that missed: its block, or the memory that it needs.
pub(super) type Refill = Result<Box<Header>, Need>;

/// The idle memory that a policy must release to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trim {
    All,
    /// Idle memory that does not serve the current entry.
    Unused,
    /// Idle memory that no entry has needed since the given epoch.
    OlderThan(u64),
}

/// A policy of one shard. `store` holds the state that all policies share. [`ArenaPolicy`] has the
/// methods of policies with arenas.
pub(super) trait CachePolicy {
    /// Returns the policy that serves the next hit.
    fn fast_path(&self) -> Policy;

    /// Returns true if [`begin`](Self::begin) must be called for an entry without a record.
    fn begins(&self) -> bool {
        false
    }

    /// Returns true if [`end`](Self::end) must be called for an entry without a record.
    fn ends(&self) -> bool {
        false
    }

    fn begin(&mut self, store: &mut Store) {
        store.record_as_set();
    }

    /// Serves a request that missed, or returns the memory that the request needs.
    fn refill(&mut self, store: &mut Store, counters: &Counters, request: &Request) -> Refill {
        let _ = counters;
        let fit = store.pop_tightest(request.size, request.stream);
        fit.ok_or(Need::Block)
    }

    /// Ends an outermost entry. `escapes` is true if a block of the entry is live. Returns true if
    /// the store keeps a record of the entry.
    fn end(&mut self, store: &mut Store, counters: &Counters, _escapes: bool) -> bool {
        store.finish_recording(counters).is_some()
    }

    /// Returns true if idle blocks stay in the cache after the exit.
    fn keeps_idle(&self) -> bool {
        true
    }
}

/// The policies of a shard. One policy is active, and the inactive policies hold no memory.
#[derive(Default)]
pub(super) struct Policies {
    pub(super) active: Policy,
    pub(super) free_lists: FreeLists,
    pub(super) bump: Bump,
    pub(super) plan: Plan,
}

/// Calls the active policy, by a branch instead of a table of function pointers.
macro_rules! dispatch {
    ($policies:expr, $policy:ident => $call:expr) => {
        match $policies.active {
            $crate::cache::Policy::Recycle | $crate::cache::Policy::Release => {
                let $policy = &mut $policies.free_lists;
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

impl Policies {
    /// Makes a policy active. The previous policy must have released all its memory.
    pub(super) fn activate(&mut self, policy: Policy) {
        *self = Self::default();
        self.active = policy;
        self.free_lists.releases = policy == Policy::Release;
    }
}
