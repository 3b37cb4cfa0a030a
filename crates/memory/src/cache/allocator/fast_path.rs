//! The switches of the fast path. If they are open, a shard's next request and next free need no
//! other check.
//!
//! The holder of the shard opens them. A thread that is short of memory closes them from outside.
//! The holder then takes the slow path once, and reads the signals there. The holder may open them
//! again at the same moment. The close is then lost, so a waiting thread closes them again at each
//! of its checks. The switches affect only the time at which the holder reacts. They publish no
//! other memory.
//!
//! One comparison decides a hit: of a policy's number with the number of the policy that serves
//! hits, or [`CLOSED`]. The states of all policies are stored side by side. An enum of the states
//! would take a second comparison on a hit of Bump and Plan.

use super::AllocatorState;
use crate::cache::policy::Policy;
use crate::sync::plain::{AtomicU8, AtomicU64, Ordering};

/// The `policy` under which every request takes the slow path.
const CLOSED: u8 = u8::MAX;
/// An epoch that no block has, so that every free takes the slow path.
const NO_EPOCH: u64 = u64::MAX - 1;

/// The switches of one shard.
#[derive(Debug)]
pub(in crate::cache) struct FastPath {
    /// The number of the policy whose idle blocks serve requests, or [`CLOSED`].
    policy: AtomicU8,
    /// The epoch of the blocks that a free takes back without other checks.
    free_epoch: AtomicU64,
}

impl FastPath {
    /// Returns the switches of an allocator, open as far as the allocator allows.
    pub(in crate::cache) fn of(allocator: &mut AllocatorState) -> Self {
        let new = Self {
            policy: AtomicU8::new(CLOSED),
            free_epoch: AtomicU64::new(NO_EPOCH),
        };
        new.set_policy(allocator.fast_policy());
        new.set_free_epoch(allocator.free_epoch());
        new
    }

    /// Returns true if the idle blocks of `policy` serve requests.
    #[inline(always)]
    pub(super) fn serves(&self, policy: Policy) -> bool {
        self.policy.load(Ordering::Relaxed) == policy as u8
    }

    /// Returns true if a free takes back blocks of `epoch`.
    #[inline(always)]
    pub(super) fn frees(&self, epoch: u64) -> bool {
        self.free_epoch.load(Ordering::Relaxed) == epoch
    }

    /// Opens the path of requests for the idle blocks of `policy`, or closes it.
    #[inline]
    pub(super) fn set_policy(&self, policy: Option<Policy>) {
        let policy = policy.map_or(CLOSED, |policy| policy as u8);
        self.policy.store(policy, Ordering::Relaxed);
    }

    /// Opens the path of frees for blocks of `epoch`, or closes it.
    #[inline]
    pub(super) fn set_free_epoch(&self, epoch: Option<u64>) {
        self.free_epoch
            .store(epoch.unwrap_or(NO_EPOCH), Ordering::Relaxed);
    }

    /// Closes both paths from outside, until the holder opens them again.
    pub(in crate::cache) fn close(&self) {
        self.set_policy(None);
        self.set_free_epoch(None);
    }

    /// Returns true if every request takes the slow path.
    #[inline]
    pub(in crate::cache) fn is_closed(&self) -> bool {
        self.policy.load(Ordering::Relaxed) == CLOSED
    }

    /// Returns true if every free takes the slow path.
    #[inline]
    pub(in crate::cache) fn frees_slowly(&self) -> bool {
        self.frees(NO_EPOCH)
    }
}
