//! The slow path of hits and frees. It is used while the recorder records them, and after another
//! thread has closed the fast path.

use super::{Allocator, AllocatorState};
use crate::cache::policy::{CachePolicy, Policy, dispatch};
use crate::cache::request::Request;
use crate::memory::header::HandedOut;

impl AllocatorState {
    #[inline]
    pub(in crate::cache) fn is_observed(&self) -> bool {
        self.is_observed
    }
}

impl Allocator<'_> {
    #[inline]
    pub(super) fn update_free_epoch(&mut self) {
        let epoch = self.free_epoch();
        self.fast_path.set_free_epoch(epoch);
    }

    /// Begins or ends the recording of every request and free by the device's recorder.
    pub(in crate::cache) fn observe(&mut self, observed: bool) {
        self.is_observed = observed;
        self.open_fast_path();
    }

    /// Like [`hit`](Allocator::hit), for a request that takes the slow path only because the fast
    /// path is closed. Opens the fast path, unless requests are recorded.
    pub(in crate::cache) fn slow_hit(&mut self, request: &Request) -> Option<HandedOut> {
        if !self.fast_path.is_closed() {
            return None; // The fast path has tried the hit.
        }
        self.open_fast_path();
        if self.is_filled_or_recorded() {
            return None;
        }
        let policy = self.hit_policy();
        let header = self.pop(policy, request.size.requested_bytes, request.stream)?;
        Some(self.hand_out_hit(header, request.size.requested_bytes))
    }

    /// Returns the policy whose idle blocks serve a hit. Between two entries, only free lists serve
    /// hits, because the next entry hands out the whole arena.
    pub(super) fn hit_policy(&mut self) -> Policy {
        if self.is_entered() {
            dispatch!(self.policies, policy => policy.fast_path())
        } else {
            Policy::Recycle
        }
    }
}
