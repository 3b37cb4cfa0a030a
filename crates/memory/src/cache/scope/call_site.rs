//! The call-site cache. With it, a thread finds the shard of a `cache_scope!` or of a handle
//! without a look-up by name.

use std::ptr;
use std::rc::Rc;

use crate::cache::settings::EntryOptions;
use crate::cache::shard::{Caches, LocalShard};

/// A call site with a literal cache name.
#[derive(Debug)]
pub struct CallSite {
    name: &'static str,
}

impl CallSite {
    /// Creates the call site of the cache `name`.
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }
}

/// The number of slots of a thread's [`CallSiteCache`]. The number is a power of two, and exceeds
/// the number of scopes in a usual loop.
const SLOTS: usize = 32;

/// The key of a [`CallSiteCache`]: a call site with a literal name, a handle's name, or a computed
/// name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The address of a call site, or the length of a name. The lowest bits encode the kind of the
    /// place.
    key: u64,
    /// The first and the last bytes of a name.
    words: [u64; 2],
    /// The name, if it is longer than `words`.
    name: Option<&'a str>,
}

impl<'a> Place<'a> {
    /// The maximum length of a name that `words` contains completely. Names up to this length are
    /// compared by `key` and `words` only.
    pub(crate) const EXACT_NAME_BYTES: usize = size_of::<[u64; 2]>();

    #[inline(always)]
    pub(crate) fn site(site: &'static CallSite) -> Self {
        const { assert!(align_of::<CallSite>() >= 4) };
        Self {
            key: ptr::from_ref(site).addr() as u64,
            words: [0; 2],
            name: None,
        }
    }

    #[inline(always)]
    pub(crate) fn name(name: &'a str) -> Self {
        let words = words(name.as_bytes());
        Self {
            key: ((name.len() as u64) << 4) | 2,
            words,
            name: (name.len() > Self::EXACT_NAME_BYTES).then_some(name),
        }
    }

    #[inline(always)]
    fn slot(self, device: *const Caches) -> usize {
        let [first, last] = self.words;
        let mixed = (first ^ last.rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        ((self.key >> 4) as usize ^ mixed as usize ^ (device.addr() >> 7)) % SLOTS
    }
}

/// Returns the first and the last eight bytes of a name. If the name is shorter, the result
/// contains the whole name.
#[inline(always)]
fn words(name: &[u8]) -> [u64; 2] {
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        [u64::from_le_bytes(*first), u64::from_le_bytes(*last)]
    } else if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        [first, last].map(|half| u64::from(u32::from_le_bytes(*half)))
    } else {
        let bytes = name.iter().map(|byte| u64::from(*byte));
        [bytes.fold(0, |word, byte| (word << 8) | byte), 0]
    }
}

/// The result of a thread's last entry at a place.
struct CallSiteEntry {
    key: u64,
    words: [u64; 2],
    /// The device of the handle or of `device = …`. For other places, the device that a frame had
    /// made current. Null means the default device, which never changes.
    device: *const Caches,
    /// The options of the entry, and the version of the settings with these options.
    options: EntryOptions,
    version: u64,
    shard: LocalShard,
}

impl CallSiteEntry {
    #[inline(always)]
    fn is_of(&self, place: Place<'_>, device: *const Caches) -> bool {
        let settings = || self.shard.settings.as_ref();
        let has_name = |name: &str| settings().is_some_and(|own| *own.name == *name);
        self.key == place.key
            && self.words == place.words
            && ptr::eq(self.device, device)
            && place.name.is_none_or(has_name)
    }

    /// Returns true if an entry with `options` would not change the settings.
    #[inline(always)]
    fn holds(&self, options: &EntryOptions) -> bool {
        let version = || self.shard.settings.as_ref().map(|own| own.version());
        options.is_empty() || *options == self.options && version() == Some(self.version)
    }
}

/// A thread's last entries, by place and device. The shards of a dropped device or a removed cache
/// cannot be entered. So a [`CallSiteEntry`] may outlive its device. A later device may get the
/// address of the dropped device. A look-up for this device may then find the old entry, but
/// entering its shard fails.
pub(super) struct CallSiteCache([Option<CallSiteEntry>; SLOTS]);

impl CallSiteCache {
    pub(super) const fn new() -> Self {
        Self([const { None }; SLOTS])
    }

    /// Returns the shard that was last entered at a place, and the slot of the place.
    #[inline(always)]
    pub(super) fn find(
        &self,
        place: Place<'_>,
        device: *const Caches,
        options: &EntryOptions,
    ) -> Option<(usize, &LocalShard)> {
        let slot = place.slot(device);
        let entry = self.0[slot].as_ref()?;
        let is_known = entry.is_of(place, device) && entry.holds(options);
        is_known.then_some((slot, &entry.shard))
    }

    #[inline]
    pub(super) fn at(&self, slot: usize) -> Option<(&LocalShard, &EntryOptions)> {
        let entry = self.0[slot % SLOTS].as_ref()?;
        Some((&entry.shard, &entry.options))
    }

    /// Returns true if another entry with the slot's options would not change the settings.
    #[inline]
    pub(super) fn holds_at(&self, slot: usize) -> bool {
        let entry = self.0[slot % SLOTS].as_ref();
        entry.is_some_and(|entry| entry.holds(&entry.options))
    }

    /// Stores a shard for a place. Returns the replaced shard. The caller must drop it outside the
    /// borrow of this cache.
    #[must_use = "drop the shard after the borrow of the call sites"]
    pub(super) fn insert(
        &mut self,
        place: Place<'_>,
        device: *const Caches,
        options: &EntryOptions,
        shard: &LocalShard,
    ) -> Option<LocalShard> {
        let settings = shard.settings.as_ref();
        // If another thread has changed the settings since the entry, the version is `None`.
        let version = settings.and_then(|own| own.version_with(options))?;
        let entry = CallSiteEntry {
            key: place.key,
            words: place.words,
            device,
            options: *options,
            version,
            shard: Rc::clone(shard),
        };
        let replaced = self.0[place.slot(device)].replace(entry);
        replaced.map(|entry| entry.shard)
    }
}
