//! The lanes to sort, and the sort keys of their elements.

use std::mem::MaybeUninit;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::Task;
use crate::vector::{Loop, vectorised};
use crate::walk::Walk;
use crate::{AnyElement, Element};

/// The lanes of an array along an axis, and the lanes that are written.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    /// A walk over the first elements of the lanes of both arrays.
    pub firsts: Walk<2>,
    /// The number of elements of a lane. `step` is their stride.
    pub length: usize,
    pub step: isize,
    /// The number of elements of a written lane. `kept_step` is their stride.
    pub kept: usize,
    pub kept_step: isize,
    pub task: Task,
}

#[derive(Clone, Copy, Debug)]
pub struct Lane<'a, T, O> {
    pub lanes: &'a Lanes,
    pub from: *const T,
    pub to: *mut MaybeUninit<O>,
}

impl<T: Element, O: AnyElement> Lane<'_, T, O> {
    /// # Safety
    ///
    /// The lane must be readable and have the position `position`.
    #[inline(always)]
    pub unsafe fn get(self, position: usize) -> T {
        let from = self
            .from
            .wrapping_offset(position as isize * self.lanes.step);
        // SAFETY: the caller upholds this function's contract.
        unsafe { from.read() }
    }

    /// # Safety
    ///
    /// Only the caller may access the written lane, which must have the position `position`.
    #[inline(always)]
    pub unsafe fn set(self, position: usize, value: O) {
        let to = self
            .to
            .wrapping_offset(position as isize * self.lanes.kept_step);
        // SAFETY: the caller upholds this function's contract.
        unsafe { to.write(MaybeUninit::new(value)) };
    }
}

impl<'a, T: Element, O: AnyElement> Lane<'a, T, O> {
    /// If the lane is contiguous, returns its elements.
    ///
    /// # Safety
    ///
    /// The lane must be readable, and must not be written to during `'a`.
    pub unsafe fn run_to_read(self) -> Option<&'a [T]> {
        // SAFETY: the caller upholds this function's contract.
        (self.lanes.step == 1).then(|| unsafe { from_raw_parts(self.from, self.lanes.length) })
    }

    /// If the written lane is contiguous, returns it.
    ///
    /// # Safety
    ///
    /// Only the caller may access the written lane during `'a`.
    pub unsafe fn run_to_write(self) -> Option<&'a mut [MaybeUninit<O>]> {
        // SAFETY: the caller upholds this function's contract.
        (self.lanes.kept_step == 1).then(|| unsafe { from_raw_parts_mut(self.to, self.lanes.kept) })
    }
}

/// Writes the keys of a lane's elements. Returns whether one of the keys represents several values.
///
/// # Safety
///
/// The lane must be readable. `keys` must be as long as the lane.
pub unsafe fn write_keys<T: Element, O: AnyElement>(
    lane: Lane<'_, T, O>,
    keys: &mut [MaybeUninit<T::Key>],
) -> bool {
    // SAFETY: the caller upholds this function's contract.
    if let Some(values) = unsafe { lane.run_to_read() } {
        return vectorised(KeysOf { values }, keys);
    }
    let mut is_merged = false;
    for (position, slot) in keys.iter_mut().enumerate() {
        // SAFETY: the caller upholds this function's contract.
        let value = unsafe { lane.get(position) };
        is_merged |= value.is_merged();
        slot.write(value.key());
    }
    is_merged
}

struct KeysOf<'a, T> {
    values: &'a [T],
}

impl<T: Element> Loop<[MaybeUninit<T::Key>]> for KeysOf<'_, T> {
    type Result = bool;

    #[inline(always)]
    fn run<const FMA: bool>(self, keys: &mut [MaybeUninit<T::Key>]) -> bool {
        let mut is_merged = false;
        for (slot, &value) in keys.iter_mut().zip(self.values) {
            is_merged |= value.is_merged();
            slot.write(value.key());
        }
        is_merged
    }
}

/// A loop that writes the values of `keys` to the output.
#[derive(Debug)]
pub struct Values<'a, K> {
    pub keys: &'a [K],
}

impl<T: Element> Loop<[MaybeUninit<T>]> for Values<'_, T::Key> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, values: &mut [MaybeUninit<T>]) {
        for (slot, &key) in values.iter_mut().zip(self.keys) {
            slot.write(T::from_key(key));
        }
    }
}
