//! A policy decides which memory serves a request, and which memory is kept from one entry to the
//! next.
//!
//! A policy is a file here, a variant of [`Policy`], and a line of [`Policies`]. It works on the
//! free lists and arenas of one shard, and knows neither the shard nor a thread. It does not call
//! the pool: it returns its [`Need`] instead.
//!
//! The memory's ladder may call the shard again. Rung 3 takes idle blocks, and a callback may leave
//! the scope or enter it with another policy. So the borrow of the shard ends before the memory is
//! called. The policy is called again when an arena arrives.

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

/// The treatment of a named cache's idle blocks.
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
    /// The exit from the scope returns every idle block to the pool in one step. A block that
    /// escaped returns to the pool when it drops.
    Release,
    /// Requests advance a pointer in an arena. The exit resets the pointer. Before the exit, only
    /// the end of a nested entry makes memory available again: the memory that the nested entry
    /// allocated last and freed. After the first entry, one arena of the high-water mark's size
    /// serves all requests. An arena with an array that outlives its entry is detached until that
    /// array drops.
    Bump,
    /// The first entry is recorded and packed into one slab. The slab serves later entries at the
    /// same addresses, while they allocate and drop equal sizes in the same order. An entry that
    /// differs is served from free memory of the slab, or as under [`Recycle`](Self::Recycle), and
    /// planned anew. A few alternating sequences are planned together, in one slab. An entry of
    /// more than 32,768 requests is not planned, and continues as under `Recycle`.
    Plan,
}

names!(Policy {
    Recycle => "recycle",
    Release => "release",
    Bump => "bump",
    Plan => "plan",
});

/// The memory that a request needs from the pool because the shard cannot serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A block for this request alone.
    Block,
    /// An arena of `bytes`; an arena of `min_bytes` suffices.
    Arena { bytes: u64, min_bytes: u64 },
}

/// The block that serves a request that missed, or the memory that it needs.
pub(super) type Refill = Result<Box<Header>, Need>;

/// The idle memory that a policy is to release to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trim {
    /// All idle memory.
    All,
    /// Idle memory that does not serve the present entry, to make room for a request.
    Unused,
    /// Idle memory that no entry has needed since this epoch.
    OlderThan(u64),
}

/// A policy of one shard. `store` holds the state that all policies share. [`ArenaPolicy`] has the
/// methods of policies with arenas.
pub(super) trait CachePolicy {
    /// Returns the policy that serves the next request if that is a hit.
    fn fast_path(&self) -> Policy;

    /// Returns true if [`begin`](Self::begin) must be called even if nothing is recorded.
    fn begins(&self) -> bool {
        false
    }

    /// Returns true if [`end`](Self::end) must be called even if nothing is recorded.
    fn ends(&self) -> bool {
        false
    }

    fn begin(&mut self, store: &mut Store) {
        store.record_as_set();
    }

    /// Serves a request that missed, or returns the memory that it needs.
    fn refill(&mut self, store: &mut Store, counters: &Counters, request: &Request) -> Refill {
        let _ = counters;
        let fit = store.pop_tightest(request.size, request.stream);
        fit.ok_or(Need::Block)
    }

    /// Ends an outermost entry. `escapes` is true if one of its blocks is still live. Returns true
    /// if the store keeps a record of the entry.
    fn end(&mut self, store: &mut Store, counters: &Counters, _escapes: bool) -> bool {
        store.finish_recording(counters).is_some()
    }

    /// Returns true if idle blocks stay in the cache after the exit.
    fn keeps_idle(&self) -> bool {
        true
    }
}

/// The policies of a shard, one of which is active; the others hold nothing.
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
    /// Makes a policy active. The policy before has released everything.
    pub(super) fn activate(&mut self, policy: Policy) {
        *self = Self::default();
        self.active = policy;
        self.free_lists.releases = policy == Policy::Release;
    }
}
