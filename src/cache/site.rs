//! What a `cache_scope!` with a literal name remembers: a thread finds its shard again without a
//! look-up by name.

use std::cell::RefCell;
use std::rc::Rc;

use super::registry::EntryOptions;
use super::shard::LocalShard;
use super::{Caches, stack};

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
}

/// Slots of a thread's memo: a power of two, well above the scopes that one loop nests.
const SLOTS: usize = 16;

/// What a thread remembers of the last entry at some site on some device. A shard of a device that
/// is gone is closed, and entering it fails; so a slot may outlast what it names.
struct Memo {
    site: *const CallSite,
    caches: *const Caches,
    shard: LocalShard,
}

thread_local! {
    static MEMOS: RefCell<[Option<Memo>; SLOTS]> = const { RefCell::new([const { None }; SLOTS]) };
}

impl Caches {
    /// Enters the cache that the site names, through this thread's memo of it.
    pub(super) fn enter_site(
        &self,
        site: &'static CallSite,
        options: &EntryOptions,
    ) -> Option<LocalShard> {
        let plain = options.policy.is_none() && options.max_bytes.is_none();
        if plain && let Some(shard) = self.remembered(site) {
            return Some(shard);
        }
        let shard = self.enter_shard(site.name, options)?;
        self.remember(site, &shard);
        Some(shard)
    }

    fn remembered(&self, site: &'static CallSite) -> Option<LocalShard> {
        let shard = MEMOS
            .try_with(|memos| {
                let memos = memos.borrow();
                let memo = memos[self.slot(site)].as_ref()?;
                (std::ptr::eq(memo.site, site) && std::ptr::eq(memo.caches, self))
                    .then(|| Rc::clone(&memo.shard))
            })
            .ok()??;
        // A thread is in one shard of a cache at a time, whichever that is.
        if let Some(identity) = &shard.identity
            && let Some(held) = stack::held_shard(identity)
        {
            return held.enter().then_some(held);
        }
        shard.enter().then_some(shard)
    }

    fn remember(&self, site: &'static CallSite, shard: &LocalShard) {
        let memo = Memo {
            site,
            caches: self,
            shard: Rc::clone(shard),
        };
        // What the slot held is dropped after the borrow; in a thread's last moments there is none.
        let before = MEMOS.try_with(|memos| memos.borrow_mut()[self.slot(site)].replace(memo));
        drop(before);
    }

    fn slot(&self, site: &'static CallSite) -> usize {
        let mixed = (std::ptr::from_ref(site).addr() >> 4) ^ (std::ptr::from_ref(self).addr() >> 7);
        mixed % SLOTS
    }
}
