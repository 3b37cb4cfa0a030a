//! The call-site cache: at a `cache_scope!` with a literal name, a thread finds its shard again
//! without a look-up by name.

use std::ptr;
use std::rc::Rc;

use crate::cache::caches::{Caches, LocalShard};
use crate::cache::settings::EntryOptions;

/// A call site that names its cache by a literal.
#[derive(Debug)]
pub struct CallSite {
    name: &'static str,
}

impl CallSite {
    /// The call site that names `name`.
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }
}

/// How many sites a thread remembers: a power of two, well above the scopes that one loop nests.
const SLOTS: usize = 16;

/// What a thread remembers of its last entry at some site.
struct CallSiteEntry {
    site: *const CallSite,
    /// The device that a frame had made current then; null for the thread's first device, which
    /// never changes.
    current: *const Caches,
    /// What the entry said about its cache, and the version of the settings with that.
    options: EntryOptions,
    version: u64,
    shard: LocalShard,
}

impl CallSiteEntry {
    /// Whether the settings are what such an entry makes of them.
    #[inline]
    fn holds(&self, options: &EntryOptions) -> bool {
        let version = || self.shard.settings.as_ref().map(|own| own.version());
        options.is_empty() || *options == self.options && version() == Some(self.version)
    }
}

/// A thread's call_sites, by site and device. A shard of a device that is gone, or of a cache that
/// was removed, cannot be entered; so a entry may outlast what it names, and be taken for
/// another's.
pub(super) struct CallSiteCache([Option<CallSiteEntry>; SLOTS]);

impl CallSiteCache {
    pub(super) const fn new() -> Self {
        Self([const { None }; SLOTS])
    }

    #[inline]
    pub(super) fn find(
        &self,
        site: &'static CallSite,
        current: *const Caches,
        options: &EntryOptions,
    ) -> Option<&LocalShard> {
        let entry = self.0[slot(site, current)].as_ref()?;
        let same = ptr::eq(entry.site, site) && ptr::eq(entry.current, current);
        (same && entry.holds(options)).then_some(&entry.shard)
    }

    pub(super) fn insert(
        &mut self,
        site: &'static CallSite,
        current: *const Caches,
        options: &EntryOptions,
        shard: &LocalShard,
    ) {
        let settings = shard.settings.as_ref();
        let Some(version) = settings.and_then(|own| own.version_with(options)) else {
            return; // Somebody set something else meanwhile.
        };
        self.0[slot(site, current)] = Some(CallSiteEntry {
            site,
            current,
            options: *options,
            version,
            shard: Rc::clone(shard),
        });
    }
}

#[inline]
fn slot(site: &'static CallSite, current: *const Caches) -> usize {
    ((ptr::from_ref(site).addr() >> 4) ^ (current.addr() >> 7)) % SLOTS
}
