//! What a cache is called and how it is set.

use super::policy::{CacheConfig, Policy};
use crate::sync::{AtomicU64, Ordering};

/// A cache's name and settings; shared with its shards, which read them on entry.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) name: Box<str>,
    policy: AtomicU64,
    /// `u64::MAX` where unbounded.
    max_bytes: AtomicU64,
}

impl Identity {
    pub(super) fn new(name: &str, config: CacheConfig) -> Self {
        let identity = Self {
            name: name.into(),
            policy: AtomicU64::default(),
            max_bytes: AtomicU64::default(),
        };
        identity.configure(config);
        identity
    }

    pub(super) fn configure(&self, config: CacheConfig) {
        self.set_policy(config.policy);
        self.set_max_bytes(config.max_bytes);
    }

    #[inline]
    pub(super) fn policy(&self) -> Policy {
        match self.policy.load(Ordering::Relaxed) {
            0 => Policy::Recycle,
            _ => Policy::Release,
        }
    }

    pub(super) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u64, Ordering::Relaxed);
    }

    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set_max_bytes(&self, max_bytes: Option<u64>) {
        self.max_bytes
            .store(max_bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
