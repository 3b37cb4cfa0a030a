//! What a `cache_scope!` with a literal name remembers: a thread finds its shard again without a
//! look-up by name.

use std::ptr;
use std::rc::Rc;

use super::Caches;
use super::policy::EntryOptions;
use super::shard::LocalShard;

/// A place in the source that names its cache by a literal.
#[derive(Debug)]
pub struct CallSite {
    name: &'static str,
}

impl CallSite {
    /// The place that names `name`.
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
struct Memo {
    site: *const CallSite,
    /// The device that a frame had made current then; null for the thread's first device, which
    /// never changes.
    current: *const Caches,
    /// What the entry said about its cache, and the version of the settings with that.
    options: EntryOptions,
    version: u64,
    shard: LocalShard,
}

impl Memo {
    /// Whether the settings are what such an entry makes of them.
    #[inline]
    fn holds(&self, options: &EntryOptions) -> bool {
        let version = || self.shard.identity.as_ref().map(|own| own.version());
        options.is_empty() || *options == self.options && version() == Some(self.version)
    }
}

/// A thread's memos, by site and device. A shard of a device that is gone, or of a cache that was
/// removed, cannot be entered; so a memo may outlast what it names, and be taken for another's.
pub(super) struct Memos([Option<Memo>; SLOTS]);

impl Memos {
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
        let memo = self.0[slot(site, current)].as_ref()?;
        let same = ptr::eq(memo.site, site) && ptr::eq(memo.current, current);
        (same && memo.holds(options)).then_some(&memo.shard)
    }

    pub(super) fn insert(
        &mut self,
        site: &'static CallSite,
        current: *const Caches,
        options: &EntryOptions,
        shard: &LocalShard,
    ) {
        let identity = shard.identity.as_ref();
        let Some(version) = identity.and_then(|own| own.version_with(options)) else {
            return; // Somebody set something else meanwhile.
        };
        self.0[slot(site, current)] = Some(Memo {
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
