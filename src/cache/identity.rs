//! What a cache is called and how it is set.

use super::policy::{CacheConfig, EntryOptions};
use crate::sync::Mutex;
use crate::sync::plain::{AtomicU64, Ordering};

/// A cache's name and settings; shared with its shards, which read them on entry where `version`
/// has moved on.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) name: Box<str>,
    config: Mutex<CacheConfig>,
    /// Moves on with each change of `config`; never 0.
    version: AtomicU64,
    /// That of `config`, or `u64::MAX` where unbounded: asked at every miss.
    max_bytes: AtomicU64,
}

impl Identity {
    pub(super) fn new(name: &str, config: CacheConfig) -> Self {
        Self {
            name: name.into(),
            config: Mutex::new(config),
            version: AtomicU64::new(1),
            max_bytes: AtomicU64::new(config.max_bytes.unwrap_or(u64::MAX)),
        }
    }

    pub(super) fn configure(&self, config: CacheConfig) {
        self.change(|own| *own = config);
    }

    /// Sets what an entry says about its cache.
    pub(super) fn apply(&self, options: &EntryOptions) {
        if !options.is_empty() {
            self.change(|config| options.apply(config));
        }
    }

    /// The version of the settings, if they are what an entry makes of them.
    pub(super) fn version_with(&self, options: &EntryOptions) -> Option<u64> {
        let config = self.config.lock();
        let mut applied = *config;
        options.apply(&mut applied);
        (applied == *config).then(|| self.version())
    }

    fn change(&self, change: impl FnOnce(&mut CacheConfig)) {
        let mut config = self.config.lock();
        let before = *config;
        change(&mut config);
        if *config != before {
            let max_bytes = config.max_bytes.unwrap_or(u64::MAX);
            self.max_bytes.store(max_bytes, Ordering::Relaxed);
            self.version.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    pub(super) fn config(&self) -> CacheConfig {
        *self.config.lock()
    }

    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes.load(Ordering::Relaxed)
    }
}
