//! The activations of a tape's values, by the indices of the values.

use std::cell::RefCell;
use std::rc::Rc;

use smallvec::SmallVec;

use super::budget;
use super::store::{Activation, Store};
use crate::array::{Buffer, DType, Layout, ValueId};
use crate::context::{Device, PressureGuard};
use crate::ops::derivatives::tape;
use crate::ops::order::pause::{Mode, mode};

thread_local! {
    /// The activations of this thread's tape.
    static VALUES: RefCell<Option<ValueActivations>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct ValueActivations {
    /// The activations of values that can be computed again, by value index. The list ends at the
    /// last of these values.
    activations: Vec<Option<Rc<Activation>>>,
    /// The activations of constants that can be computed again, by the index of the constant's
    /// value id.
    regenerated: Vec<Rc<Activation>>,
    /// The store of saved values. Until there was a budget or a memory limit, the thread has no
    /// store.
    store: Option<Rc<Store>>,
    /// The devices with a memory limit, each with a guard. The guards let the device release saved
    /// values of the tape.
    limited: SmallVec<[(Device, PressureGuard); 1]>,
}

impl Drop for ValueActivations {
    /// Drops the last values first. An activation holds the activations of its operands, and a long
    /// chain must not be dropped recursively.
    fn drop(&mut self) {
        while self.activations.pop().is_some() {}
    }
}

impl ValueActivations {
    fn set(&mut self, index: usize, activation: Rc<Activation>) {
        let length = self.activations.len().max(index + 1);
        self.activations.resize(length, None);
        self.activations[index] = Some(activation);
    }
}

/// Begins the activations of a new tape.
pub(in crate::ops::derivatives) fn begin() {
    VALUES.with_borrow_mut(|values| *values = Some(ValueActivations::default()));
}

/// Drops the activations of this thread's tape. The steps of the tape have been dropped before.
pub(in crate::ops::derivatives) fn end() {
    // The activations are dropped outside the borrow, because they hold arrays.
    let ended = VALUES.try_with(|values| values.borrow_mut().take());
    drop(ended);
}

/// Calls `see` with the activations of this thread's tape, if there is one.
fn with_values<R>(see: impl FnOnce(&mut ValueActivations) -> R) -> Option<R> {
    VALUES.with_borrow_mut(|values| values.as_mut().map(see))
}

/// Returns the store of this thread's tape. The store can release saved values. Returns `None` if
/// the thread has no tape. If there is neither an activation budget nor a memory limit of the
/// device, also returns `None`.
pub(in crate::ops) fn store(device: &Device) -> Option<Rc<Store>> {
    if budget::limit_bytes().is_none() && !device.has_memory_limit() {
        return None;
    }
    with_values(|values| {
        let is_known = values.limited.iter().any(|(known, _)| known == device);
        if device.has_memory_limit() && !is_known {
            // The guard is dropped with the tape. Until then, the callback may hold the device.
            let own = device.clone();
            let guard = device.on_memory_pressure(move |bytes| release(&own, bytes));
            values.limited.push((device.clone(), guard));
        }
        Rc::clone(values.store.get_or_insert_default())
    })
}

/// Releases saved values of this thread's tape because an allocation lacks `bytes`. Returns the
/// number of freed bytes.
fn release(device: &Device, bytes: u64) -> u64 {
    let store = VALUES.try_with(|values| {
        let values = values.try_borrow().ok()?;
        values.as_ref()?.store.clone()
    });
    store
        .ok()
        .flatten()
        .map_or(0, |store| store.release_for(device, bytes))
}

/// Returns the store of this thread's tape, if it has one.
pub(in crate::ops::derivatives) fn present_store() -> Option<Rc<Store>> {
    with_values(|values| values.store.clone())?
}

/// Returns the activation of the value or the constant in `buffer`. Returns `None` for a variable.
pub(super) fn activation(
    store: &Rc<Store>,
    buffer: &Buffer,
    place: (&Layout, DType),
) -> Option<Rc<Activation>> {
    let own = tape::number();
    match buffer
        .value_id()
        .filter(|value_id| own == Some(value_id.tape))
    {
        Some(value_id) if value_id.is_constant() => {
            with_values(|values| Rc::clone(&values.regenerated[value_id.index()]))
        }
        Some(value_id) if tape::with_value(value_id.index, |value| value.is_variable) => None,
        Some(value_id) => with_values(|values| values.activations.get(value_id.index())?.clone())?
            .or_else(|| Some(store.constant(buffer, place))),
        None => Some(store.constant(buffer, place)),
    }
}

pub(in crate::ops::derivatives) fn set_activations(
    results: &[Buffer],
    activations: Vec<Option<Rc<Activation>>>,
) {
    with_values(|values| {
        for (buffer, activation) in results.iter().zip(activations) {
            if let (Some(value_id), Some(activation)) = (buffer.value_id(), activation) {
                values.set(value_id.index(), activation);
            }
        }
    });
}

/// Shares the activation of the value `outer` with the equal value `own`.
pub(in crate::ops::derivatives) fn share(own: u32, outer: u32) {
    with_values(|values| {
        if let Some(Some(activation)) = values.activations.get(outer as usize).cloned() {
            values.set(own as usize, activation);
        }
    });
}

/// Drops the activations of the results of a step that was removed from the tape. The results are
/// not computed again, because no remaining step reads them.
pub(in crate::ops::derivatives) fn drop_results(results: &[Option<u32>]) {
    // The activations are dropped outside the borrow, because they hold arrays.
    let mut ended: SmallVec<[Rc<Activation>; 1]> = SmallVec::new();
    with_values(|values| {
        for result in results.iter().flatten() {
            let activation = values.activations.get_mut(*result as usize);
            ended.extend(activation.and_then(Option::take));
        }
    });
}

/// Adds the activation that `make` returns for a constant, and returns the constant's value id.
pub(super) fn regenerated(make: impl FnOnce(ValueId) -> Rc<Activation>) -> Option<ValueId> {
    if mode() != Mode::Active {
        return None;
    }
    let tape = tape::number()?;
    with_values(|values| {
        let value_id = ValueId::constant(tape, values.regenerated.len());
        values.regenerated.push(make(value_id));
        value_id
    })
}
