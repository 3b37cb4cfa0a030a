//! The deferred entry: the thread's innermost entry, while nothing was requested in it. Most of
//! what an entry does serves its requests, so an entry without one does not enter its shard.
//!
//! Architecture invariant: everything that reads the stack of bindings or the current shard, except
//! a hit and a drop, calls [`settle`] first, which makes the entry. A hit fails meanwhile, because
//! requests do not see the current shard, and takes the slow path.

use std::mem;
use std::ptr;
use std::rc::Rc;

use super::call_site::{CallSiteCache, Place};
use super::entrance::{NOT_DEFERRED, entrance, with_entrance};
use super::{Entered, STACK};
use crate::cache::settings::EntryOptions;
use crate::cache::shard::{CachesRef, LocalShard, hide_current, reveal_current};

/// Enters the cache of `place` again, on `device` or on the current device, if `options` are as in
/// the thread's last entry there. Defers the entry if it can wait for a request. Returns `None` if
/// [`settle`] must be called first, or a look-up by name is needed.
#[inline(always)]
pub(crate) fn reenter(
    place: Place<'_>,
    device: Option<&CachesRef>,
    options: &EntryOptions,
) -> Option<Entered> {
    let thread = entrance();
    if thread.serial.get() != NOT_DEFERRED {
        return None;
    }
    let current = thread.device.get();
    let on = device.map_or(current, CachesRef::as_ptr);
    let makes_current = !ptr::eq(on, current);
    let call_sites = thread.call_sites.try_borrow().ok()?;
    let (slot, shard) = call_sites.find(place, on, options)?;
    // The frame that makes a device current keeps it alive, and is not made yet.
    let is_kept = !makes_current || device.is_some_and(|device| device.is_permanent());
    if !is_kept || !shard.can_skip_entry() {
        drop(call_sites);
        return enter_slot(slot, makes_current);
    }
    let serial = thread.last_serial.get() + 1;
    thread.serial.set(serial);
    thread.shard.set(&raw const ***shard);
    thread.slot.set(slot);
    thread.makes_current.set(makes_current);
    thread.outer.set(hide_current());
    Some(Entered::new(serial))
}

/// Enters the shard in a slot of the call-site cache. Returns `None` if it cannot be entered.
#[inline(never)]
fn enter_slot(slot: usize, makes_current: bool) -> Option<Entered> {
    let entered = STACK.try_with(|stack| {
        let call_sites = entrance().call_sites.borrow();
        let (shard, _) = call_sites.at(slot)?;
        stack.borrow_mut().enter_again(shard, makes_current)
    });
    entered.ok()?.map(Entered::new)
}

/// Ends the entry of `serial` if it is deferred. Returns false if it must be left as any other.
#[inline(always)]
pub(super) fn end_deferred(serial: u64) -> bool {
    let thread = entrance();
    if thread.serial.get() != serial {
        return false;
    }
    let shard = thread.deferred_shard();
    if shard.has_remote() && !shard.is_closed() {
        return false; // The exit takes back what was dropped.
    }
    thread.serial.set(NOT_DEFERRED);
    reveal_current(thread.outer.get());
    shard.skip_entry();
    true
}

/// Makes the deferred entry, if there is one. Returns true if there was one.
#[inline]
pub(crate) fn settle() -> bool {
    let is_deferred = entrance().serial.get() != NOT_DEFERRED;
    if is_deferred {
        make_deferred();
    }
    is_deferred
}

#[cold]
#[inline(never)]
fn make_deferred() {
    let thread = entrance();
    thread.serial.set(NOT_DEFERRED);
    reveal_current(thread.outer.get());
    let (slot, makes_current) = (thread.slot.get(), thread.makes_current.get());
    let is_as_before = thread.call_sites.borrow().holds_at(slot);
    let entered = is_as_before.then(|| enter_slot(slot, makes_current));
    match entered.flatten() {
        Some(entered) => mem::forget(entered), // Its guard exists.
        None => enter_anew(slot, makes_current),
    }
}

/// Makes a deferred entry whose cache another thread removed or configured meanwhile, as if it
/// began afterwards.
#[cold]
fn enter_anew(slot: usize, makes_current: bool) {
    if STACK.try_with(|_| ()).is_err() {
        return; // The thread's locals are being destroyed.
    }
    let known = entrance()
        .call_sites
        .borrow()
        .at(slot)
        .map(|(shard, options)| (Rc::clone(shard), *options));
    let Some((shard, options)) = known else {
        return;
    };
    let name = shard
        .settings
        .as_ref()
        .map_or("", |settings| &settings.name);
    let device = shard.device();
    let shard = device.enter_shard(name, &options);
    let device = makes_current.then_some(device);
    let _ = STACK.try_with(|stack| stack.borrow_mut().push_on(device, shard));
}

/// Remembers a shard that was entered on the current device.
pub(super) fn remember_at(place: Place<'_>, options: &EntryOptions, shard: &LocalShard) {
    let thread = entrance();
    let mut call_sites = thread.call_sites.borrow_mut();
    let replaced = call_sites.insert(place, thread.device.get(), options, shard);
    drop(call_sites);
    drop(replaced);
}

/// Forgets the deferred entry, whose guard was forgotten, and the call sites. The thread ends.
pub(super) fn end_thread() {
    with_entrance(|thread| {
        if thread.serial.replace(NOT_DEFERRED) != NOT_DEFERRED {
            reveal_current(thread.outer.get());
        }
        drop(thread.call_sites.replace(CallSiteCache::new()));
    });
}
