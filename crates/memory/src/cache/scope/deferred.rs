//! The deferred entry: the thread's innermost entry, while its frame or shard is not needed.
//!
//! Most work of an entry is only needed for requests. If the previous entry made no request, the
//! next entry does not enter its shard. The current shard is then hidden. So a request takes the
//! slow path, which calls [`settle`]. If the previous entry made a request, the next entry enters
//! its shard. Then only the frame is deferred, because only inner entries need it.
//!
//! Architecture invariant: code that reads the stack of bindings or the current shard first calls
//! [`settle`]. Only hits and drops omit this call. [`settle`] makes the deferred entry. If the
//! thread is not inside the shard, `settle` first enters the shard. Then `settle` pushes the frame.

use std::mem;
use std::ptr;
use std::rc::Rc;

use super::call_site::{CallSiteCache, Place};
use super::entrance::{Entrance, NOT_DEFERRED, entrance, with_entrance};
use super::frames::{CurrentDevice, FrameKind};
use super::stream::entered_stream;
use super::{Entered, STACK};
use crate::cache::settings::EntryOptions;
use crate::cache::shard::{
    CachesRef, LocalShard, hide_current, reveal_current, set_current, with_current,
};

/// Enters the cache of `place` again, on `device` or on the current device. The thread's last entry
/// at `place` must have had equal `options`. If possible, defers the entry. Returns `None` if the
/// caller must first call [`settle`], or must look up the cache by name.
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
    // A frame that makes a device current keeps the device alive, but a deferred entry has no
    // frame. So the entry is deferred only if it makes no device current, or a permanent device.
    let is_kept = !makes_current || device.is_some_and(|device| device.is_permanent());
    if !is_kept || !shard.can_skip_entry() {
        if is_kept && thread.bindings.get() == 0 {
            return enter_without_frame(thread, shard, slot, makes_current);
        }
        drop(call_sites);
        return enter_slot(slot, makes_current);
    }
    thread.shard.set(&raw const ***shard);
    thread.outer.set(hide_current());
    Some(thread.defer(slot, makes_current, false))
}

impl Entrance {
    #[inline(always)]
    fn defer(&self, slot: usize, makes_current: bool, is_inside: bool) -> Entered {
        let serial = self.last_serial.get() + 1;
        self.serial.set(serial);
        self.is_inside.set(is_inside);
        self.slot.set(slot);
        self.makes_current.set(makes_current);
        Entered::new(serial)
    }
}

/// Enters a shard without a frame. The caller has checked that no frame binds a shard. If the
/// thread has entered a stream, also pushes the frame. Returns `None` if the shard cannot be
/// entered.
#[inline(never)]
fn enter_without_frame(
    thread: &Entrance,
    shard: &LocalShard,
    slot: usize,
    makes_current: bool,
) -> Option<Entered> {
    if !entered_stream().0.is_null() {
        return enter_slot(slot, makes_current);
    }
    if !shard.enter() {
        return None;
    }
    let before = set_current(Some(Rc::clone(shard)));
    debug_assert!(before.is_none(), "another shard is already current");
    mem::forget(before); // This omits the test of a drop.
    Some(thread.defer(slot, makes_current, true))
}

/// Enters the shard in a slot of the call-site cache. Returns `None` if the shard cannot be
/// entered.
#[inline(never)]
fn enter_slot(slot: usize, makes_current: bool) -> Option<Entered> {
    let entered = STACK.try_with(|stack| {
        let call_sites = entrance().call_sites.borrow();
        let (shard, _) = call_sites.at(slot)?;
        stack.borrow_mut().enter_again(shard, makes_current)
    });
    entered.ok()?.map(Entered::new)
}

/// If the entry of `serial` is deferred, tries to end the entry. Returns false if the entry has not
/// ended. The caller must then leave it by a regular exit.
#[inline(always)]
pub(super) fn end_deferred(serial: u64) -> bool {
    let thread = entrance();
    if thread.serial.get() != serial {
        return false;
    }
    if thread.is_inside.get() {
        leave_without_frame(thread);
        return true;
    }
    let shard = thread.deferred_shard();
    if shard.has_remote() && !shard.is_closed() {
        return false; // A regular exit takes back the remote blocks.
    }
    thread.serial.set(NOT_DEFERRED);
    reveal_current(thread.outer.get());
    shard.skip_entry();
    true
}

/// Ends a deferred entry that has entered its shard.
#[inline(never)]
fn leave_without_frame(thread: &Entrance) {
    thread.serial.set(NOT_DEFERRED);
    if let Some(shard) = set_current(None) {
        shard.exit();
    }
}

/// If the thread has a deferred entry, makes this entry, and returns true.
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
    let (slot, makes_current) = (thread.slot.get(), thread.makes_current.get());
    if thread.is_inside.get() {
        return make_frame(makes_current);
    }
    reveal_current(thread.outer.get());
    let is_as_before = thread.call_sites.borrow().holds_at(slot);
    let entered = is_as_before.then(|| enter_slot(slot, makes_current));
    match entered.flatten() {
        Some(entered) => mem::forget(entered), // The program has a guard already.
        None => enter_anew(slot, makes_current),
    }
}

/// Makes the frame of the current shard. This frame is the lowest frame that binds a shard.
fn make_frame(makes_current: bool) {
    let _ = STACK.try_with(|stack| {
        let device = with_current(|shard| {
            let device = shard.filter(|_| makes_current).map(|shard| shard.device());
            device.map(CurrentDevice::new)
        });
        stack
            .borrow_mut()
            .push_frame(FrameKind::Shard, device, None)
    });
}

/// Makes a deferred entry after another thread has removed or configured its cache. The entry
/// behaves as if it began after this change.
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

/// Stores a shard for later entries at `place`. The shard was entered on the current device.
pub(super) fn remember_at(place: Place<'_>, options: &EntryOptions, shard: &LocalShard) {
    let thread = entrance();
    let mut call_sites = thread.call_sites.borrow_mut();
    let replaced = call_sites.insert(place, thread.device.get(), options, shard);
    drop(call_sites);
    drop(replaced);
}

/// Drops the call-site cache and the deferred entry at the end of the thread. At that time, a
/// deferred entry exists only if the program forgot its guard.
pub(super) fn end_thread() {
    with_entrance(|thread| {
        if thread.serial.get() != NOT_DEFERRED {
            if thread.is_inside.get() {
                leave_without_frame(thread);
            } else {
                thread.serial.set(NOT_DEFERRED);
                reveal_current(thread.outer.get());
            }
        }
        drop(thread.call_sites.replace(CallSiteCache::new()));
    });
}
