//! The direction of a directional derivative, while its function runs.
//!
//! The vectors of equal eigenvalues or of equal singular values are not unique. The vectors that
//! are smooth along a direction are unique. Therefore the factorizations call `change_of` to get
//! the directional derivative of their matrix.

use std::cell::RefCell;
use std::rc::Rc;

use super::tape::{Tracked, length, track, tracked};
use super::{Pause, backward, tracked_backward};
use crate::array::AnyArray;
use crate::error::Result;

thread_local! {
    static DIRECTIONS: RefCell<Vec<Rc<TrackedDirection>>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
struct TrackedDirection {
    first_step: usize,
    /// The value indices of variables, and the changes of their values.
    changes: Vec<(u32, AnyArray)>,
}

/// A guard of a direction. While the guard lives, the thread computes along the direction.
#[must_use]
#[derive(Debug)]
pub(crate) struct DirectionGuard(());

impl DirectionGuard {
    /// Begins a direction for the tape from `first_step` on. `changes` lists the value indices of
    /// variables, and the changes of their values.
    pub(crate) fn begin(first_step: usize, changes: Vec<(u32, AnyArray)>) -> Self {
        let direction = TrackedDirection {
            first_step,
            changes,
        };
        DIRECTIONS.with_borrow_mut(|all| all.push(Rc::new(direction)));
        Self(())
    }
}

impl Drop for DirectionGuard {
    fn drop(&mut self) {
        // The direction is dropped outside the borrow, because it holds arrays.
        let ended = DIRECTIONS.try_with(|all| all.borrow_mut().pop());
        drop(ended);
    }
}

/// Returns whether this thread computes along a direction.
pub(in crate::ops) fn has_direction() -> bool {
    DIRECTIONS.with_borrow(|all| !all.is_empty())
}

/// Returns the untracked derivative of `array` along the direction of this thread. Returns `None`
/// if the thread has no direction, or if `array` is not tracked. Removes the steps that compute the
/// derivative from the tape.
#[track_caller]
pub(in crate::ops) fn change_of(array: &AnyArray) -> Result<Option<AnyArray>> {
    let Some(direction) = DIRECTIONS.with_borrow(|all| all.last().cloned()) else {
        return Ok(None);
    };
    let _active = Pause::end();
    let Some(own) = Tracked::of(&array.buffer, &array.layout)? else {
        return Ok(None);
    };
    // Gradients are linear in their cotangents. The gradient of this linear function is the
    // derivative, as in `jvp`.
    let from = length();
    let AnyArray {
        buffer,
        layout,
        dtype,
    } = array.zeros(array.shape())?;
    let buffer = track(buffer, &layout, dtype);
    let of_cotangents = tracked(&buffer)?;
    let cotangents = AnyArray {
        buffer,
        layout,
        dtype,
    };
    let mut gradients = tracked_backward(vec![(own, cotangents)], direction.first_step)?;
    let mut seeds = Vec::new();
    for (variable, change) in &direction.changes {
        if let Some(gradient) = gradients.take(*variable)?
            && let Some(tracked) = Tracked::of(&gradient.buffer, &gradient.layout)?
        {
            seeds.push((tracked, change.share()));
        }
    }
    let mut products = backward(seeds, from)?;
    let product = of_cotangents.map(|own| products.take(own)).transpose()?;
    match product.flatten() {
        Some(product) => Ok(Some(product.untracked())),
        None => array.zeros(array.shape()).map(Some),
    }
}
