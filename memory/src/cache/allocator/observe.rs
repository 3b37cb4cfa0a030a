//! The slow path of an allocator while the device's recorder records its every request and free.

use super::{Allocator, AllocatorState};
use crate::cache::policy::{CachePolicy, Policy, dispatch};
use crate::cache::request::Request;
use crate::memory::header::{HandedOut, Header};

const NO_EPOCH: u64 = u64::MAX - 1;

impl AllocatorState {
    #[inline]
    pub(super) fn update_free_epoch(&mut self) {
        self.free_epoch = if self.is_observed {
            NO_EPOCH
        } else {
            self.store.epoch
        };
    }

    /// Begins or ends the recording of every request and free by the device's recorder.
    pub(in crate::cache) fn observe(&mut self, observed: bool) {
        self.is_observed = observed;
        self.update_fast_path();
        self.update_free_epoch();
    }

    #[inline]
    pub(in crate::cache) fn is_observed(&self) -> bool {
        self.is_observed
    }
}

impl Allocator<'_> {
    /// Returns the block that [`hit`](Allocator::hit) would have returned, for a request
    /// that takes the slow path only to be recorded.
    pub(in crate::cache) fn observed_hit(&mut self, request: &Request) -> Option<HandedOut> {
        let header = self.pop_observed(request)?;
        Some(self.hand_out_hit(header, request.size.requested_bytes))
    }

    fn pop_observed(&mut self, request: &Request) -> Option<Box<Header>> {
        if !self.is_observed || self.is_filled_or_recorded() {
            return None;
        }
        let policy = if self.is_entered() {
            dispatch!(self.policies, policy => policy.fast_path())
        } else {
            Policy::Recycle
        };
        self.pop(policy, request.size.requested_bytes, request.stream)
    }
}
