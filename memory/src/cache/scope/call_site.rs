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
    /// Makes the call site of the cache `name`.
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }
}

/// The number of sites that a thread remembers: a power of two, well above the number of scopes
/// that one loop nests.
const SLOTS: usize = 16;

/// The result of a thread's last entry at a call site.
struct CallSiteEntry {
    site: *const CallSite,
    /// The device that a frame had made current; null for the thread's first device, which never
    /// changes.
    current: *const Caches,
    /// The options of the entry, and the version of the settings with these options.
    options: EntryOptions,
    version: u64,
    shard: LocalShard,
}

impl CallSiteEntry {
    /// Returns true if the settings are as an entry with `options` makes them.
    #[inline]
    fn holds(&self, options: &EntryOptions) -> bool {
        let version = || self.shard.settings.as_ref().map(|own| own.version());
        options.is_empty() || *options == self.options && version() == Some(self.version)
    }
}

/// A thread's call sites, by site and device. A shard of a device that is gone, or of a cache that
/// was removed, cannot be entered. So an entry may outlive the device that it names, and be found
/// for another device at its address.
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
            return; // Another thread changed the settings meanwhile.
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
