//! The name and the settings of a cache.

use std::time::Duration;

use super::policy::Policy;
use crate::recorder::{NO_SCOPE, Recorder, ScopeNumber};
use crate::sync::Mutex;
use crate::sync::plain::{AtomicBool, AtomicU64, Ordering};

/// The settings of a named cache. Initialise them with `..Default::default()`.
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
    /// The policy for idle blocks. A change takes effect at the next outermost entry. The default
    /// is [`Policy::Recycle`]. A cache that was never configured uses `DeviceConfig::policy`.
    pub policy: Policy,
    /// The maximum sum of live and idle bytes of the cache over all threads; unbounded by default.
    /// Requests above the maximum bypass the cache.
    pub max_bytes: Option<u64>,
    /// The age limit of idle blocks in outermost entries of a thread; 64 by default. A block that
    /// this many successive entries did not use returns to the pool. So blocks that only the first
    /// entry needed do not stay cached forever. If the limit is `None`, blocks do not age, but may
    /// be evicted for blocks of other sizes. The age of blocks is checked once per `keep_entries`
    /// entries.
    pub keep_entries: Option<u64>,
    /// The age limit of idle blocks in time; unbounded by default. A block that was unused for this
    /// time returns to the pool. There is no background thread. Exits, misses of any thread,
    /// statistics and trims check the time, at most eight times per `max_idle`.
    pub max_idle: Option<Duration>,
    /// True to record the allocations of each entry, for
    /// [`cache_record`](crate::Device::cache_record). Each recorded request takes the slow path. At
    /// most 131,072 requests of an entry are recorded.
    /// [`unrecorded`](crate::CacheStats::unrecorded) counts the further requests.
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
    /// The options that change no setting.
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

/// The name and settings of a cache, which all its shards share. If `version` has advanced, a shard
/// reads the settings at its next entry.
#[derive(Debug)]
pub(crate) struct CacheSettings {
    pub(crate) name: Box<str>,
    config: Mutex<CacheConfig>,
    /// The version of the settings, which advances with each change. It is never 0, the initial
    /// version of a shard's allocator.
    version: AtomicU64,
    /// The `max_bytes` of `config`, or `u64::MAX` if unbounded. Every miss reads this copy.
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

    /// Returns the version of the settings; `None` if `options` would change the settings.
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

    /// Begins or ends the recording of the cache. The cache's shards apply the change at their next
    /// outermost entry.
    pub(super) fn observe(&self, observed: bool) {
        // A thread that loads the new version then locks the settings. The flag is stored under
        // this lock, so the thread reads the new flag.
        let _config = self.config.lock();
        self.observed.store(observed, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_observed(&self) -> bool {
        self.observed.load(Ordering::Relaxed)
    }

    /// Returns true for the first warning about rising live bytes. Without debug assertions, always
    /// returns false.
    pub(super) fn is_first_growth_warning(&self) -> bool {
        cfg!(debug_assertions) && !self.warned_of_growth.swap(true, Ordering::Relaxed)
    }

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
