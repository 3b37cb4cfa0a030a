//! The rings of a recorder, and their assignment to threads.
//!
//! A thread has a ring from its first event until the thread ends. Then the next thread without a
//! ring gets the ring. So the number of rings is the largest number of threads that recorded at one
//! time.
//!
//! A thread finds its ring by a `const` thread-local without a destructor. So a thread can record a
//! drop after its other thread-locals were destroyed. At that time, the crate `thread_local` would
//! panic. The list of all rings is under a lock. A thread takes this lock for its first event on a
//! device.

use std::cell::{Cell, RefCell};
use std::ptr;

use super::ring::{IDLE, Ring};
use crate::sync::{Arc, Weak, thread_local, thread_token};

/// The number of recorders whose rings a thread finds without a look-up.
const KNOWN_RINGS: usize = 4;

thread_local! {
    /// The keys of the recorders to which this thread wrote last, each with the thread's ring. This
    /// local has no destructor, so that a drop can read it while the thread's locals are being
    /// destroyed.
    static KNOWN: [Cell<(u64, *const Ring)>; KNOWN_RINGS] =
        const { [const { Cell::new((0, ptr::null())) }; KNOWN_RINGS] };
}

std::thread_local! {
    /// The rings to release when this thread ends.
    static OWNED: RefCell<OwnedRings> = const { RefCell::new(OwnedRings(Vec::new())) };
}

struct OwnedRings(Vec<Weak<Ring>>);

impl Drop for OwnedRings {
    fn drop(&mut self) {
        // The known rings are cleared first, so that this thread does not write to rings that other
        // threads adopt.
        KNOWN.with(|known| known.iter().for_each(|ring| ring.set((0, ptr::null()))));
        let owned = self.0.iter().filter_map(Weak::upgrade);
        owned.for_each(|ring| ring.release());
    }
}

fn place(key: u64) -> usize {
    key as usize % KNOWN_RINGS
}

/// Returns this thread's ring of the recorder with this key, if [`KNOWN`] contains the ring.
#[inline]
pub(super) fn known(key: u64) -> Option<*const Ring> {
    let (known, ring) = KNOWN.with(|known| known[place(key)].get());
    (known == key).then_some(ring)
}

/// Assigns this thread a ring of the recorder with this key until the thread ends. Returns null if
/// there is no memory for a ring, or if the thread's locals are being destroyed.
pub(super) fn assign_until_end(all: &mut Vec<Arc<Ring>>, key: u64, events: u64) -> *const Ring {
    let assigned = OWNED.try_with(|owned| {
        let ring = assign(all, events)?;
        let owned = &mut owned.borrow_mut().0;
        owned.retain(|known| known.strong_count() > 0);
        if !owned
            .iter()
            .any(|known| ptr::eq(known.as_ptr(), Arc::as_ptr(&ring)))
        {
            owned.push(Arc::downgrade(&ring));
        }
        let ring = Arc::as_ptr(&ring);
        KNOWN.with(|known| known[place(key)].set((key, ring)));
        Some(ring)
    });
    assigned.ok().flatten().unwrap_or(ptr::null())
}

/// Returns the longest ring of this thread. If this ring is shorter than `events`, tries to replace
/// it by a longer idle ring, or by a new ring.
pub(super) fn assign(all: &mut Vec<Arc<Ring>>, events: u64) -> Option<Arc<Ring>> {
    let thread = thread_token();
    let longest_of = |owner| {
        let rings = all.iter().filter(move |ring| ring.owner() == owner);
        rings.max_by_key(|ring| ring.events()).cloned()
    };
    let own = longest_of(thread);
    let length = own.as_ref().map_or(0, |ring| ring.events());
    if length >= events {
        return own;
    }
    let idle = longest_of(IDLE).filter(|ring| ring.events() > length);
    let longer = match idle {
        Some(idle) if idle.events() >= events => Some(idle),
        idle => match Ring::longest(length + 1..=events).map(Arc::new) {
            Some(fresh) => {
                all.push(Arc::clone(&fresh));
                Some(fresh)
            }
            None => idle,
        },
    };
    let Some(longer) = longer else {
        return own;
    };
    longer.adopt(thread);
    if let Some(own) = own {
        own.release();
    }
    Some(longer)
}
