//! The settings of a cache, and its name.

use std::time::Duration;

use super::policy::Policy;
use crate::recorder::{NO_SCOPE, Recorder, ScopeNumber};
use crate::sync::Mutex;
use crate::sync::plain::{AtomicBool, AtomicU64, Ordering};

/// The settings of a named cache; write it with `..Default::default()`.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{CacheConfig, Device, Policy};
///
/// let config = CacheConfig { policy: Policy::Release, ..Default::default() };
/// Device::host().configure_cache("evaluate", config);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// The treatment of idle blocks. A change takes effect at the next outermost entry. The default
    /// is `DeviceConfig::policy` for a cache that was never configured, else [`Policy::Recycle`].
    pub policy: Policy,
    /// The maximum number of bytes, live and idle together, that the cache may hold over all its
    /// threads. Requests beyond it are served as if outside the scope. Unbounded by default.
    pub max_bytes: Option<u64>,
    /// A block that this many outermost entries of its thread did not use returns to the pool. So
    /// blocks that only a first entry needed are not kept forever. With `None`, blocks do not age,
    /// but may still be evicted for blocks of other sizes. The default is 64. The check runs once
    /// in this number of entries.
    pub keep_entries: Option<u64>,
    /// A block that was not used for this long returns to the pool. There is no background thread.
    /// Exits, misses of any thread, statistics and trims check the time, at most eight times in
    /// this period. Unbounded by default.
    pub max_idle: Option<Duration>,
    /// True to record the allocations of each entry, for
    /// [`cache_record`](crate::Device::cache_record). Each recorded request takes the slow path.
    /// Requests after the first 131,072 of an entry are not recorded;
    /// [`unrecorded`](crate::CacheStats::unrecorded) counts them.
    pub record: bool,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            max_bytes: None,
            keep_entries: Some(64),
            max_idle: None,
            record: false,
        }
    }
}

/// The settings that an entry changes for its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryOptions {
    pub(crate) policy: Option<Policy>,
    pub(crate) max_bytes: Option<u64>,
}

impl EntryOptions {
    /// No change: the cache is entered with its present settings.
    pub(crate) const NONE: Self = Self {
        policy: None,
        max_bytes: None,
    };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.policy.is_none() && self.max_bytes.is_none()
    }

    pub(super) fn apply(&self, config: &mut CacheConfig) {
        config.policy = self.policy.unwrap_or(config.policy);
        config.max_bytes = self.max_bytes.or(config.max_bytes);
    }
}

/// A cache's name and settings. Its shards share them, and read them on entry if `version` has
/// advanced.
#[derive(Debug)]
pub(crate) struct CacheSettings {
    pub(crate) name: Box<str>,
    config: Mutex<CacheConfig>,
    /// The version of `config`. Advances with each change of `config`; never 0.
    version: AtomicU64,
    /// The `max_bytes` of `config`, or `u64::MAX` if unbounded: read at every miss.
    max_bytes: AtomicU64,
    /// True if the device's recorder records the cache.
    observed: AtomicBool,
    /// The number of the cache's name in the recorder.
    scope_number: AtomicU64,
    warned_of_growth: AtomicBool,
}

impl CacheSettings {
    pub(super) fn new(name: &str, config: CacheConfig, observed: bool) -> Self {
        Self {
            name: name.into(),
            config: Mutex::new(config),
            version: AtomicU64::new(1),
            max_bytes: AtomicU64::new(config.max_bytes.unwrap_or(u64::MAX)),
            observed: AtomicBool::new(observed),
            scope_number: AtomicU64::new(NO_SCOPE),
            warned_of_growth: AtomicBool::new(false),
        }
    }

    pub(super) fn configure(&self, config: CacheConfig) {
        self.change(|own| *own = config);
    }

    pub(super) fn apply(&self, options: &EntryOptions) {
        if !options.is_empty() {
            self.change(|config| options.apply(config));
        }
    }

    /// Returns the version of the settings, if the options of an entry would not change them.
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

    /// Begins or ends the recording of the cache. Its shards follow at their next outermost entry.
    pub(super) fn observe(&self, observed: bool) {
        // A thread that sees the new version, and then reads the settings under this lock, sees the
        // flag.
        let _config = self.config.lock();
        self.observed.store(observed, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_observed(&self) -> bool {
        self.observed.load(Ordering::Relaxed)
    }

    /// Returns true if a warning of rising live bytes is due: once, in builds with debug
    /// assertions.
    pub(super) fn is_first_growth_warning(&self) -> bool {
        cfg!(debug_assertions) && !self.warned_of_growth.swap(true, Ordering::Relaxed)
    }

    /// Returns the number of the cache's name in its device's recorder.
    pub(super) fn scope_number(&self, recorder: &Recorder) -> ScopeNumber {
        match self.scope_number.load(Ordering::Relaxed) {
            NO_SCOPE => {
                let number = recorder.scope_number(&self.name);
                self.scope_number.store(number, Ordering::Relaxed);
                number
            }
            known => known,
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
