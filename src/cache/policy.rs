//! How a cache behaves, and what may be set about it.

use std::time::Duration;

named_enum! {
    /// What a named cache does with its idle blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Policy;
    ///
    /// assert_eq!("release".parse::<Policy>()?, Policy::Release);
    /// assert_eq!(Policy::default().to_string(), "recycle");
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub enum Policy {
        /// Idle blocks stay in the cache for the next entry.
        #[default]
        Recycle = "recycle",
        /// Leaving the scope gives every idle block back to the pool in one step; what escaped goes
        /// there when it drops.
        Release = "release",
        /// Requests advance a pointer in a chunk, and nothing is used twice before the exit sets it back;
        /// after the first entry, one chunk of the most that an entry asked for serves everything.
        /// A chunk with an array that outlives its entry is set aside until that drops.
        Bump = "bump",
        /// What a first entry asks for is recorded and packed into one slab, and later entries are served
        /// from it at the same addresses, for as long as they ask for and drop the same in the same
        /// order. Where one differs it goes on in what is free of the slab, or else as under
        /// [`Recycle`](Self::Recycle), and is planned anew; a few sequences that alternate are planned
        /// together, in one slab. An entry of more than 32,768 requests is not planned; it goes on as
        /// under `Recycle`.
        Plan = "plan",
    }
}

/// The settings of a named cache; write it with `..Default::default()`.
///
/// # Examples
///
/// ```
/// use cachescope::{CacheConfig, Device, Policy};
///
/// let config = CacheConfig { policy: Policy::Release, ..Default::default() };
/// Device::host().configure_cache("evaluate", config);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// What happens to idle blocks; a change takes effect at the next outermost entry. The default
    /// is `CACHESCOPE_POLICY` where a cache was never configured, else [`Policy::Recycle`].
    pub policy: Policy,
    /// The most bytes, live and idle together, that the cache may hold over all its threads;
    /// requests beyond it are served as if outside the scope. Unbounded by default.
    pub max_bytes: Option<u64>,
    /// A block that this many outermost entries of its thread did not use goes back to the pool, so
    /// that what a first turn left behind is not kept for ever; by `None` it does not age, but may still
    /// be exchanged for blocks of other sizes. 64 by default. It is looked for once in as many entries.
    pub keep_entries: Option<u64>,
    /// A block that was not used for so long goes back to the pool. Looked for as the scope is left
    /// (there is no background thread), at most eight times in such a while. Unbounded by default.
    pub idle: Option<Duration>,
    /// Whether the allocations of each entry are recorded, for
    /// [`cache_record`](crate::Device::cache_record). Each request takes the slow way then, but for those
    /// beyond the first 131,072 of an entry, which are not recorded:
    /// [`unrecorded`](crate::CacheStats::unrecorded) counts them.
    pub record: bool,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            max_bytes: None,
            keep_entries: Some(64),
            idle: None,
            record: false,
        }
    }
}

/// What an entry sets about its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryOptions {
    pub(crate) policy: Option<Policy>,
    pub(crate) max_bytes: Option<u64>,
}

impl EntryOptions {
    /// Nothing: the cache is entered as it is set.
    pub(crate) const NONE: Self = Self {
        policy: None,
        max_bytes: None,
    };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.policy.is_none() && self.max_bytes.is_none()
    }

    /// Makes the settings what this says of them.
    pub(super) fn apply(&self, config: &mut CacheConfig) {
        config.policy = self.policy.unwrap_or(config.policy);
        config.max_bytes = self.max_bytes.or(config.max_bytes);
    }
}
