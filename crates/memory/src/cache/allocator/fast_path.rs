//! The state that opens and closes a shard's fast paths of requests and frees. While a path is
//! open, a request or free on this path needs no other check.
//!
//! The holder of the shard opens the paths. A thread that needs memory closes them from outside.
//! The holder then takes the slow path once, which reads the signals. If the holder opens the paths
//! concurrently, the close is lost. So a waiting thread repeats the close at each of its checks. A
//! path's state only affects when the holder reacts. The accesses to the state publish no other
//! memory, so relaxed ordering suffices.
//!
//! One comparison decides whether a request can be a hit under a policy. It compares the policy's
//! discriminant with the field `policy`. While the path is closed, this field is [`CLOSED`]. The
//! states of all policies are stored side by side. With an enum of the states, a hit under Bump or
//! Plan would need a second comparison.

use super::AllocatorState;
use crate::cache::policy::Policy;
use crate::sync::plain::{AtomicU8, AtomicU64, Ordering};

/// The value of `policy` that sends every request to the slow path.
const CLOSED: u8 = u8::MAX;
/// The epoch that no block has. If it is stored as the free epoch, every free takes the slow path.
const NO_EPOCH: u64 = u64::MAX - 1;

#[derive(Debug)]
pub(in crate::cache) struct FastPath {
    /// The discriminant of the policy whose idle blocks serve requests, or [`CLOSED`].
    policy: AtomicU8,
    /// The epoch of the blocks that a free takes back without further checks.
    free_epoch: AtomicU64,
}

impl FastPath {
    /// Creates the fast path of an allocator. Opens the paths that the allocator allows.
    pub(in crate::cache) fn of(allocator: &mut AllocatorState) -> Self {
        let new = Self {
            policy: AtomicU8::new(CLOSED),
            free_epoch: AtomicU64::new(NO_EPOCH),
        };
        new.set_policy(allocator.fast_policy());
        new.set_free_epoch(allocator.free_epoch());
        new
    }

    #[inline(always)]
    pub(super) fn serves(&self, policy: Policy) -> bool {
        self.policy.load(Ordering::Relaxed) == policy as u8
    }

    #[inline(always)]
    pub(super) fn frees(&self, epoch: u64) -> bool {
        self.free_epoch.load(Ordering::Relaxed) == epoch
    }

    /// Opens the fast path of requests for the idle blocks of `policy`. `None` closes the path.
    #[inline]
    pub(super) fn set_policy(&self, policy: Option<Policy>) {
        let policy = policy.map_or(CLOSED, |policy| policy as u8);
        self.policy.store(policy, Ordering::Relaxed);
    }

    /// Opens the fast path of frees for blocks of `epoch`. `None` closes the path.
    #[inline]
    pub(super) fn set_free_epoch(&self, epoch: Option<u64>) {
        self.free_epoch
            .store(epoch.unwrap_or(NO_EPOCH), Ordering::Relaxed);
    }

    /// Closes the fast paths of requests and frees, until the holder opens them again. Any thread
    /// may call this function.
    pub(in crate::cache) fn close(&self) {
        self.set_policy(None);
        self.set_free_epoch(None);
    }

    #[inline]
    pub(in crate::cache) fn is_closed(&self) -> bool {
        self.policy.load(Ordering::Relaxed) == CLOSED
    }

    #[inline]
    pub(in crate::cache) fn frees_slowly(&self) -> bool {
        self.frees(NO_EPOCH)
    }
}
